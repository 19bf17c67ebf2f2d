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

package nodes

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestRules(t *testing.T) {
	pod := func(name, address string, ports ...corev1.ContainerPort) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: name, Labels: map[string]string{"name": name}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: ports}}},
			Status:     corev1.PodStatus{PodIP: address},
		}
	}
	selector := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"name": name}}
	}
	port := func(port intstr.IntOrString) []networkingv1.NetworkPolicyPort {
		return []networkingv1.NetworkPolicyPort{{Port: &port, Protocol: new(corev1.ProtocolTCP)}}
	}
	policy := func(spec networkingv1.NetworkPolicySpec) networkingv1.NetworkPolicy {
		return networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "system"}, Spec: spec}
	}
	p := &policed{
		pods: []corev1.Pod{
			pod("etcd", "10.0.0.1", corev1.ContainerPort{Name: "client", ContainerPort: 2379}),
			pod("server", "10.0.0.2"),
			pod("pending", ""),
		},
		policies: []networkingv1.NetworkPolicy{
			policy(networkingv1.NetworkPolicySpec{
				PodSelector: *selector("etcd"),
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
				Ingress: []networkingv1.NetworkPolicyIngressRule{{
					From: []networkingv1.NetworkPolicyPeer{{PodSelector: selector("server")}}, Ports: port(intstr.FromString("client")),
				}},
			}),
			policy(networkingv1.NetworkPolicySpec{
				PodSelector: *selector("server"),
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
				Egress: []networkingv1.NetworkPolicyEgressRule{
					{Ports: port(intstr.FromInt32(443))},
					{To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: selector("elsewhere")}}},
				},
			}),
		},
	}
	require.Equal(t, `table inet policies
delete table inet policies
table inet policies {
  chain ingress-0 {
    ip saddr { 10.0.0.2 } tcp dport 2379 return
    drop
  }
  chain egress-1 {
    tcp dport 443 return
    drop
  }
  chain forward {
    type filter hook forward priority 10;
    ct state established,related accept
    ip daddr 10.0.0.1 jump ingress-0
    ip saddr 10.0.0.2 jump egress-1
  }
}
`, p.rules())
}
