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

package deploy

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// endpoint is a pod, or an address outside the cluster.
type endpoint struct {
	namespace string
	labels    labels.Set
	ports     []corev1.ContainerPort
}

// network decides which connections are allowed, as the specification of NetworkPolicy
// says.
type network []networkingv1.NetworkPolicy

// reaches reports whether both ends allow a connection.
func (n network) reaches(t *testing.T, from, to endpoint, port int32, protocol corev1.Protocol) bool {
	t.Helper()
	return n.allows(t, networkingv1.PolicyTypeEgress, from, to, to, port, protocol) &&
		n.allows(t, networkingv1.PolicyTypeIngress, to, from, to, port, protocol)
}

// allows reports whether the policies of one end allow the other one.
func (n network) allows(t *testing.T, direction networkingv1.PolicyType, pod, peer, server endpoint, port int32, protocol corev1.Protocol) bool {
	t.Helper()
	isolated := false
	for _, policy := range n {
		if pod.namespace != policy.Namespace || !matches(t, &policy.Spec.PodSelector, pod.labels) {
			continue
		}
		for _, of := range policy.Spec.PolicyTypes {
			isolated = isolated || of == direction
		}
		if direction == networkingv1.PolicyTypeIngress {
			for _, rule := range policy.Spec.Ingress {
				if isPeer(t, policy.Namespace, rule.From, peer) && isPort(rule.Ports, server, port, protocol) {
					return true
				}
			}
			continue
		}
		for _, rule := range policy.Spec.Egress {
			if isPeer(t, policy.Namespace, rule.To, peer) && isPort(rule.Ports, server, port, protocol) {
				return true
			}
		}
	}
	return !isolated
}

func isPeer(t *testing.T, namespace string, peers []networkingv1.NetworkPolicyPeer, peer endpoint) bool {
	t.Helper()
	for _, allowed := range peers {
		require.Nil(t, allowed.IPBlock)
		if peer.namespace == "" {
			continue
		}
		inNamespace := peer.namespace == namespace
		if allowed.NamespaceSelector != nil {
			inNamespace = matches(t, allowed.NamespaceSelector, labels.Set{corev1.LabelMetadataName: peer.namespace})
		}
		if inNamespace && (allowed.PodSelector == nil || matches(t, allowed.PodSelector, peer.labels)) {
			return true
		}
	}
	return len(peers) == 0
}

func isPort(ports []networkingv1.NetworkPolicyPort, server endpoint, port int32, protocol corev1.Protocol) bool {
	for _, allowed := range ports {
		if *allowed.Protocol != protocol {
			continue
		}
		if allowed.Port.IntVal == port {
			return true
		}
		for _, named := range server.ports {
			if named.Name == allowed.Port.StrVal && named.ContainerPort == port {
				return true
			}
		}
	}
	return len(ports) == 0
}

func matches(t *testing.T, selector *metav1.LabelSelector, set labels.Set) bool {
	t.Helper()
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	require.NoError(t, err)
	return parsed.Matches(set)
}

// TestNetworkPolicies lists the connections that are allowed. There is no network here
// that enforces it.
func TestNetworkPolicies(t *testing.T) {
	objects := render(t, kustomization(t, "overlays/ha", []string{"components/monitoring"}, ""))
	var policies network
	for _, object := range objects {
		if object.GetKind() == "NetworkPolicy" {
			var policy networkingv1.NetworkPolicy
			convert(t, object, &policy)
			policies = append(policies, policy)
		}
	}
	require.NotEmpty(t, policies)
	ends := map[string]endpoint{
		"outside":    {}, // kube-apiserver is there, too.
		"another":    {namespace: "default"},
		"webhook":    {namespace: "webhooks"},
		"prometheus": {namespace: "monitoring"},
		"stranger":   {namespace: systemNamespace, labels: labels.Set{"app": "stranger"}},
	}
	for _, workload := range workloads(t, objects) {
		ends[workload.name] = endpoint{systemNamespace, workload.pod, workload.spec.Containers[0].Ports}
	}
	for _, test := range []struct {
		from, to string
		port     int32
		protocol corev1.Protocol
		want     bool
	}{
		{"outside", "apiserver", 8443, corev1.ProtocolTCP, true},
		{"another", "apiserver", 8443, corev1.ProtocolTCP, true},
		{"prometheus", "apiserver", 8443, corev1.ProtocolTCP, true},
		{"outside", "apiserver", 8080, corev1.ProtocolTCP, false},
		{"apiserver", "outside", 443, corev1.ProtocolTCP, true},
		{"apiserver", "outside", 6443, corev1.ProtocolTCP, true},
		{"apiserver", "outside", 53, corev1.ProtocolUDP, true},
		{"apiserver", "outside", 80, corev1.ProtocolTCP, false},
		{"apiserver", "webhook", 9443, corev1.ProtocolTCP, true},
		{"apiserver", "etcd", 2379, corev1.ProtocolTCP, true},
		{"apiserver", "etcd", 2380, corev1.ProtocolTCP, false},
		{"etcd", "etcd", 2380, corev1.ProtocolTCP, true},
		{"etcd", "outside", 53, corev1.ProtocolUDP, true},
		{"etcd", "outside", 443, corev1.ProtocolTCP, false},
		{"etcd", "apiserver", 8443, corev1.ProtocolTCP, false},
		{"prometheus", "etcd", 2381, corev1.ProtocolTCP, true},
		{"prometheus", "etcd", 2379, corev1.ProtocolTCP, false},
		{"another", "etcd", 2379, corev1.ProtocolTCP, false},
		{"another", "etcd", 2381, corev1.ProtocolTCP, false},
		{"stranger", "etcd", 2379, corev1.ProtocolTCP, false},
		{"stranger", "outside", 443, corev1.ProtocolTCP, false},
		{"etcd-certificates", "outside", 443, corev1.ProtocolTCP, true},
		{"etcd-certificates", "outside", 53, corev1.ProtocolTCP, true},
		{"etcd-certificates", "etcd", 2379, corev1.ProtocolTCP, false},
		{"outside", "etcd-certificates", 443, corev1.ProtocolTCP, false},
	} {
		name := fmt.Sprintf("%s to %s %d", test.from, test.to, test.port)
		require.Equal(t, test.want, policies.reaches(t, ends[test.from], ends[test.to], test.port, test.protocol), name)
	}
}
