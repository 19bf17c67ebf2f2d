/*
Copyright The Restaurant API Server Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package doctor

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A rule lets kube-apiserver in if it is for the port, and for any address or kube-apiserver's.
func TestShut(t *testing.T) {
	t.Parallel()
	pod := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "https", ContainerPort: 8443}}}}}}
	port := func(port intstr.IntOrString, end *int32) []networkingv1.NetworkPolicyPort {
		return []networkingv1.NetworkPolicyPort{{Port: &port, EndPort: end}}
	}
	block := func(cidr string, except ...string) []networkingv1.NetworkPolicyPeer {
		return []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}}}
	}
	udp, end := corev1.ProtocolUDP, int32(9000)
	for name, test := range map[string]struct {
		rule networkingv1.NetworkPolicyIngressRule
		want bool
	}{
		"anything":                   {networkingv1.NetworkPolicyIngressRule{}, false},
		"the port":                   {networkingv1.NetworkPolicyIngressRule{Ports: port(intstr.FromInt32(8443), nil)}, false},
		"the port by its name":       {networkingv1.NetworkPolicyIngressRule{Ports: port(intstr.FromString("https"), nil)}, false},
		"a range of ports":           {networkingv1.NetworkPolicyIngressRule{Ports: port(intstr.FromInt32(8000), &end)}, false},
		"another port":               {networkingv1.NetworkPolicyIngressRule{Ports: port(intstr.FromInt32(443), nil)}, true},
		"another protocol":           {networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{{Protocol: &udp}}}, true},
		"the address":                {networkingv1.NetworkPolicyIngressRule{From: block("10.0.0.0/24")}, false},
		"all addresses but that one": {networkingv1.NetworkPolicyIngressRule{From: block("0.0.0.0/0", "10.0.0.0/30")}, true},
		"another address":            {networkingv1.NetworkPolicyIngressRule{From: block("10.1.0.0/24")}, true},
		"pods":                       {networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{test.rule}}}
			found := shut([]networkingv1.NetworkPolicy{policy}, pod, networkingv1.PolicyTypeIngress, "%s %d", []int32{8443}, []netip.Addr{netip.MustParseAddr("10.0.0.2")})
			require.Equal(t, test.want, len(found) > 0)
		})
	}
}
