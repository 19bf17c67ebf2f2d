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
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A rule lets kube-apiserver in if it is for the port, and for any address.
func TestBlocking(t *testing.T) {
	t.Parallel()
	pod := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "https", ContainerPort: 8443}}}}}}
	port := func(port intstr.IntOrString, end *int32) []networkingv1.NetworkPolicyPort {
		return []networkingv1.NetworkPolicyPort{{Port: &port, EndPort: end}}
	}
	udp, end := corev1.ProtocolUDP, int32(9000)
	for name, test := range map[string]struct {
		rule networkingv1.NetworkPolicyIngressRule
		want string
	}{
		"anything":             {networkingv1.NetworkPolicyIngressRule{}, ""},
		"the port":             {networkingv1.NetworkPolicyIngressRule{Ports: port(intstr.FromInt32(8443), nil)}, ""},
		"the port by its name": {networkingv1.NetworkPolicyIngressRule{Ports: port(intstr.FromString("https"), nil)}, ""},
		"a range of ports":     {networkingv1.NetworkPolicyIngressRule{Ports: port(intstr.FromInt32(8000), &end)}, ""},
		"another port":         {networkingv1.NetworkPolicyIngressRule{Ports: port(intstr.FromInt32(443), nil)}, "closed"},
		"another name":         {networkingv1.NetworkPolicyIngressRule{Ports: port(intstr.FromString("http"), nil)}, "closed"},
		"another protocol":     {networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{{Protocol: &udp}}}, "closed"},
		"addresses":            {networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}}}}, ""},
		"pods":                 {networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}, "closed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "closed"}, Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{test.rule}}}
			require.Equal(t, test.want, blocking([]networkingv1.NetworkPolicy{policy}, pod, 8443))
		})
	}
	// Policies add up, and some are for other pods or for connections from the pod.
	open := networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{}}}}
	deny := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "deny"}}
	other := *deny.DeepCopy()
	other.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
	from := *deny.DeepCopy()
	from.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	require.Equal(t, "deny", blocking([]networkingv1.NetworkPolicy{other, deny, from}, pod, 8443))
	require.Empty(t, blocking([]networkingv1.NetworkPolicy{deny, open}, pod, 8443))
	require.Empty(t, blocking([]networkingv1.NetworkPolicy{other, from}, pod, 8443))
}
