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
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// silence is what kube-apiserver says of a server that its connections do not reach.
var silence = regexp.MustCompile(`i/o timeout|deadline exceeded|Client\.Timeout|timed out|no route to host|connection refused|network is unreachable`)

// checkNetwork looks for NetworkPolicies that keep kube-apiserver and the server apart. Which of them a
// network enforces is not known, so that those of a server that answers are not looked at.
func (e *examination) checkNetwork(ctx context.Context) ([]Finding, error) {
	condition := e.unavailable()
	if condition.Type == "" {
		return []Finding{ok("nothing is between kube-apiserver and the server")}, nil
	}
	var results []Finding
	for _, b := range e.backends() {
		found, err := e.look(ctx, b)
		if err != nil {
			return nil, unreadable{"what is behind " + b.String(), err}
		}
		if len(found.pods) == 0 {
			continue
		}
		list, err := e.kube.NetworkingV1().NetworkPolicies(b.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, unreadable{"the NetworkPolicies", err}
		}
		from := e.kubeAPIServer(ctx)
		if ready := found.readyPods(); len(ready) == 0 {
			for _, pod := range found.pods {
				results = append(results, shutIn(list.Items, pod, from)...)
			}
		} else if silence.MatchString(condition.Message) {
			for _, pod := range ready {
				results = append(results, shutOut(list.Items, pod, found.service, b, from)...)
			}
		}
		results = results[:min(len(results), 1)] // Replicas have the same.
	}
	return orOK(results, "no NetworkPolicy is between kube-apiserver and the server"), nil
}

// kubeAPIServer is where kube-apiserver is, or nothing if that is not known.
func (e *examination) kubeAPIServer(ctx context.Context) (found []netip.AddrPort) {
	list, err := e.endpointSlices(ctx, newBackend(metav1.NamespaceDefault, "kubernetes", nil))
	if err != nil {
		return nil
	}
	for _, slice := range list {
		for _, endpoint := range slice.Endpoints {
			for _, port := range slice.Ports {
				if address, err := netip.ParseAddr(endpoint.Addresses[0]); err == nil && port.Port != nil {
					found = append(found, netip.AddrPortFrom(address, uint16(*port.Port))) //nolint:gosec // G115: validated by kube-apiserver.
				}
			}
		}
	}
	return found
}

// shutOut finds a policy that keeps kube-apiserver out of a pod.
func shutOut(policies []networkingv1.NetworkPolicy, pod corev1.Pod, service *corev1.Service, b backend, from []netip.AddrPort) []Finding {
	var selecting []networkingv1.NetworkPolicy
	port := targetOf(service, b, pod)
	for _, policy := range policies {
		if !applies(policy, pod, networkingv1.PolicyTypeIngress) {
			continue
		}
		for _, rule := range policy.Spec.Ingress {
			if covers(rule.Ports, pod, port) && reaches(rule.From, from) {
				return nil
			}
		}
		selecting = append(selecting, policy)
	}
	if len(selecting) == 0 {
		return nil
	}
	rule := fmt.Sprintf(`{"ports":[{"port":%d}]}`, port)
	return []Finding{failure(fmt.Sprintf("the NetworkPolicy %s lets kube-apiserver not connect to port %d of the pod %s", selecting[0].Name, port, pod.Name), "let it, by a rule without from, since kube-apiserver is no pod").
		by("%s", addRule(selecting[0], "ingress", len(selecting[0].Spec.Ingress), rule))}
}

// shutIn finds a policy that keeps a pod from kube-apiserver.
func shutIn(policies []networkingv1.NetworkPolicy, pod corev1.Pod, to []netip.AddrPort) []Finding {
	ports := []int32{defaultPort}
	for _, address := range to {
		ports = append(ports, int32(address.Port()))
	}
	var selecting []networkingv1.NetworkPolicy
	for _, policy := range policies {
		if !applies(policy, pod, networkingv1.PolicyTypeEgress) {
			continue
		}
		for _, rule := range policy.Spec.Egress {
			if slices.ContainsFunc(ports, func(port int32) bool { return covers(rule.Ports, corev1.Pod{}, port) }) && reaches(rule.To, to) {
				return nil
			}
		}
		selecting = append(selecting, policy)
	}
	if len(selecting) == 0 {
		return nil
	}
	return []Finding{failure(fmt.Sprintf("the NetworkPolicy %s lets the pod %s not connect to kube-apiserver, and it is not ready", selecting[0].Name, pod.Name), "let it, by a rule without to, since kube-apiserver is no pod").
		by("%s", addRule(selecting[0], "egress", len(selecting[0].Spec.Egress), `{"ports":[{"port":443},{"port":6443}]}`))}
}

func addRule(policy networkingv1.NetworkPolicy, direction string, rules int, rule string) string {
	path, value := "/spec/"+direction+"/-", rule
	if rules == 0 {
		path, value = "/spec/"+direction, "["+rule+"]"
	}
	return fmt.Sprintf(`kubectl patch networkpolicy %s --namespace=%s --type=json --patch='[{"op":"add","path":"%s","value":%s}]'`, policy.Name, policy.Namespace, path, value)
}

// applies tells whether a policy is about connections of a pod in one direction.
func applies(policy networkingv1.NetworkPolicy, pod corev1.Pod, direction networkingv1.PolicyType) bool {
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	types := policy.Spec.PolicyTypes
	return err == nil && selector.Matches(labels.Set(pod.Labels)) && (slices.Contains(types, direction) || len(types) == 0 && direction == networkingv1.PolicyTypeIngress)
}

// covers tells whether a rule is for a port.
func covers(ports []networkingv1.NetworkPolicyPort, pod corev1.Pod, port int32) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(allowed networkingv1.NetworkPolicyPort) bool {
		switch {
		case allowed.Protocol != nil && *allowed.Protocol != corev1.ProtocolTCP:
			return false
		case allowed.Port == nil:
			return true
		case allowed.EndPort != nil:
			return allowed.Port.IntVal <= port && port <= *allowed.EndPort
		default:
			return numberOf(*allowed.Port, pod) == port
		}
	})
}

// reaches tells whether peers of a rule have kube-apiserver among them, which no selector of pods has.
func reaches(peers []networkingv1.NetworkPolicyPeer, addresses []netip.AddrPort) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
		if peer.IPBlock == nil {
			return false
		}
		within := func(cidr string, address netip.AddrPort) bool {
			prefix, err := netip.ParsePrefix(cidr)
			return err == nil && prefix.Contains(address.Addr())
		}
		return len(addresses) == 0 || slices.ContainsFunc(addresses, func(address netip.AddrPort) bool {
			return within(peer.IPBlock.CIDR, address) && !slices.ContainsFunc(peer.IPBlock.Except, func(except string) bool { return within(except, address) })
		})
	})
}

// targetOf is the port of a pod to which a Service leads.
func targetOf(service *corev1.Service, b backend, pod corev1.Pod) int32 {
	for _, port := range service.Spec.Ports {
		if port.Port == b.port && port.TargetPort != (intstr.IntOrString{}) {
			return numberOf(port.TargetPort, pod)
		}
	}
	return b.port
}

// numberOf is a port of a pod that may be given by its name.
func numberOf(port intstr.IntOrString, pod corev1.Pod) int32 {
	if port.Type == intstr.Int {
		return port.IntVal
	}
	for _, container := range pod.Spec.Containers {
		for _, named := range container.Ports {
			if named.Name == port.StrVal {
				return named.ContainerPort
			}
		}
	}
	number, _ := strconv.ParseInt(port.StrVal, 10, 32)
	return int32(number)
}
