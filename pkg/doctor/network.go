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
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// silence matches kube-apiserver's messages about a server that its connections do not reach.
var silence = regexp.MustCompile(`i/o timeout|deadline exceeded|Client\.Timeout|timed out|no route to host|connection refused|network is unreachable`)

// checkNetwork looks for NetworkPolicies that keep kube-apiserver and the server apart. It ignores
// the policies of a server that answers, since a network may not enforce them.
func (e *examination) checkNetwork(ctx context.Context) ([]Finding, error) {
	condition := e.unavailable()
	if condition.Type == "" {
		return []Finding{ok("nothing is between kube-apiserver and the server")}, nil
	}
	addresses, ports := e.kubeAPIServer(ctx)
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
		var closed []Finding
		if ready := found.readyPods(); len(ready) == 0 {
			closed = shut(list.Items, found.pods[0], networkingv1.PolicyTypeEgress, "the pod %s can't connect to port %d of kube-apiserver, and is not ready", ports, addresses)
		} else if silence.MatchString(condition.Message) {
			closed = shut(list.Items, ready[0], networkingv1.PolicyTypeIngress, "kube-apiserver can't connect to the pod %s at port %d", []int32{targetOf(found.service, b, ready[0])}, addresses)
		}
		if len(closed) > 0 {
			return closed, nil
		}
	}
	return []Finding{ok("no NetworkPolicy is between kube-apiserver and the server")}, nil
}

// kubeAPIServer returns the known addresses and ports of kube-apiserver.
func (e *examination) kubeAPIServer(ctx context.Context) (addresses []netip.Addr, ports []int32) {
	list, err := e.endpointSlices(ctx, newBackend(metav1.NamespaceDefault, "kubernetes", nil))
	if err != nil {
		return nil, []int32{defaultPort}
	}
	for _, slice := range list {
		for _, endpoint := range slice.Endpoints {
			if address, err := netip.ParseAddr(endpoint.Addresses[0]); err == nil {
				addresses = append(addresses, address)
			}
		}
		for _, port := range slice.Ports {
			if port.Port != nil {
				ports = append(ports, *port.Port)
			}
		}
	}
	return addresses, append(ports, defaultPort)
}

// shut finds policies that refuse a pod all connections in a direction with these ports and
// addresses. The cause has placeholders for the pod and the port.
func shut(policies []networkingv1.NetworkPolicy, pod corev1.Pod, direction networkingv1.PolicyType, cause string, ports []int32, addresses []netip.Addr) []Finding {
	var closed []Finding
	allows := func(allowed []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer) bool {
		return reaches(peers, addresses) && slices.ContainsFunc(ports, func(port int32) bool { return covers(allowed, pod, port) })
	}
	for _, policy := range policies {
		if !applies(policy, pod, direction) {
			continue
		}
		path, rules := "/spec/ingress", len(policy.Spec.Ingress)
		open := slices.ContainsFunc(policy.Spec.Ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool { return allows(rule.Ports, rule.From) })
		if direction == networkingv1.PolicyTypeEgress {
			path, rules = "/spec/egress", len(policy.Spec.Egress)
			open = slices.ContainsFunc(policy.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool { return allows(rule.Ports, rule.To) })
		}
		if open {
			return nil
		}
		rule := fmt.Sprintf(`{"ports":[{"port":%d}]}`, ports[0])
		if path += "/-"; rules == 0 {
			path, rule = strings.TrimSuffix(path, "/-"), "["+rule+"]"
		}
		closed = append(closed, failure(fmt.Sprintf(cause, pod.Name, ports[0])+", because of the NetworkPolicy "+policy.Name, "add a rule for any address, since kube-apiserver is no pod").
			by(`kubectl patch networkpolicy %s --namespace=%s --type=json --patch='[{"op":"add","path":"%s","value":%s}]'`, policy.Name, policy.Namespace, path, rule))
	}
	return closed[:min(len(closed), 1)] // A rule in one of the policies is enough.
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

// reaches tells whether the peers of a rule include kube-apiserver. Selectors of pods never do.
func reaches(peers []networkingv1.NetworkPolicyPeer, addresses []netip.Addr) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
		if peer.IPBlock == nil {
			return false
		}
		within := func(cidr string, address netip.Addr) bool {
			prefix, err := netip.ParsePrefix(cidr)
			return err == nil && prefix.Contains(address)
		}
		return len(addresses) == 0 || slices.ContainsFunc(addresses, func(address netip.Addr) bool {
			return within(peer.IPBlock.CIDR, address) && !slices.ContainsFunc(peer.IPBlock.Except, func(except string) bool { return within(except, address) })
		})
	})
}

// targetOf returns the port of a pod that a Service leads to.
func targetOf(service *corev1.Service, b backend, pod corev1.Pod) int32 {
	for _, port := range service.Spec.Ports {
		if port.Port == b.port && port.TargetPort != (intstr.IntOrString{}) {
			return numberOf(port.TargetPort, pod)
		}
	}
	return b.port
}

// numberOf returns the number of a pod's port, which may be given by its name.
func numberOf(port intstr.IntOrString, pod corev1.Pod) int32 {
	if port.Type == intstr.Int {
		return port.IntVal
	}
	for _, named := range portsOf(pod) {
		if named.Name == port.StrVal {
			return named.ContainerPort
		}
	}
	number, _ := strconv.ParseInt(port.StrVal, 10, 32)
	return int32(number)
}
