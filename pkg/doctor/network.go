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
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// checkNetwork looks for NetworkPolicies that keep kube-apiserver from connecting to the server.
// A network may not enforce them, so it looks only if connections are not made in time: a refused
// connection has reached the pod.
func (e *examination) checkNetwork(ctx context.Context) ([]Finding, error) {
	condition := e.unavailable()
	if condition.Type == "" {
		return []Finding{ok("nothing is between kube-apiserver and the server")}, nil
	}
	for _, b := range e.backends() {
		found, err := e.look(ctx, b)
		if err != nil {
			return nil, unreadable{"what is behind " + b.String(), err}
		}
		ready := found.readyPods()
		if len(ready) == 0 || !unreached.MatchString(condition.Message) {
			continue
		}
		list, err := e.kube.NetworkingV1().NetworkPolicies(b.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, unreadable{"the NetworkPolicies", err}
		}
		port := targetOf(found.service, b, ready[0])
		if policy := blocking(list.Items, ready[0], port); policy != "" {
			return []Finding{failure(fmt.Sprintf("kube-apiserver can't connect to the pod %s at port %d, because of the NetworkPolicy %s (%s)", ready[0].Name, port, policy, condition.Message),
				"allow connections from any address to that port, since kube-apiserver is no pod").by(opening(found.service, port))}, nil
		}
	}
	return []Finding{ok("no NetworkPolicy is between kube-apiserver and the server")}, nil
}

// blocking returns the name of a policy that refuses a pod connections that are not from pods, or
// "" if one of the policies allows them. Addresses in a policy may be kube-apiserver's.
func blocking(policies []networkingv1.NetworkPolicy, pod corev1.Pod, port int32) (blocking string) {
	for _, policy := range policies {
		selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
		types := policy.Spec.PolicyTypes
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) || len(types) > 0 && !slices.Contains(types, networkingv1.PolicyTypeIngress) {
			continue
		}
		if slices.ContainsFunc(policy.Spec.Ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool {
			anybody := len(rule.From) == 0 || slices.ContainsFunc(rule.From, func(peer networkingv1.NetworkPolicyPeer) bool { return peer.IPBlock != nil })
			return anybody && covers(rule.Ports, pod, port)
		}) {
			return ""
		}
		blocking = policy.Name
	}
	return blocking
}

// opening returns a command that allows connections to a port of the pods of a Service. It creates
// a policy, since the others are for other pods, too.
func opening(service *corev1.Service, port int32) string {
	return create(map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": map[string]string{"namespace": service.Namespace, "name": service.Name + "-from-kube-apiserver"},
		"spec": map[string]any{
			"podSelector": map[string]any{"matchLabels": service.Spec.Selector}, "policyTypes": []string{"Ingress"},
			"ingress": []any{map[string]any{"ports": []any{map[string]int32{"port": port}}}},
		},
	})
}

// create returns a command that creates an object.
func create(object map[string]any) string {
	content, err := json.Marshal(object)
	if err != nil {
		return ""
	}
	return "echo " + quoted(string(content)) + " | " + kubectl("create", "--filename=-")
}

// covers reports whether a rule is for a port.
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

// targetOf returns the port of a pod that a Service leads to.
func targetOf(service *corev1.Service, b backend, pod corev1.Pod) int32 {
	for _, port := range service.Spec.Ports {
		if port.Port == b.port && port.TargetPort != (intstr.IntOrString{}) {
			return numberOf(port.TargetPort, pod)
		}
	}
	return b.port
}

// numberOf returns the number of a pod's port, which may be given by its name, or 0.
func numberOf(port intstr.IntOrString, pod corev1.Pod) int32 {
	if port.Type == intstr.Int {
		return port.IntVal
	}
	for _, named := range portsOf(pod) {
		if named.Name == port.StrVal {
			return named.ContainerPort
		}
	}
	return 0
}
