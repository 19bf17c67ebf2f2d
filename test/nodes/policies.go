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
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// policyInterval is how long a change of pods or policies may go unnoticed.
const policyInterval = 500 * time.Millisecond

// enforcePolicies makes every node drop packets that NetworkPolicies do not allow, until the test
// ends. It supports the features that the manifests use: pods and namespaces as peers, and ports by
// number or name.
func (c *Cluster) enforcePolicies(t testing.TB) {
	t.Helper()
	config := c.RESTConfig()
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		applied := ""
		for ; ctx.Err() == nil; time.Sleep(policyInterval) {
			rules, err := currentRules(ctx, client)
			if err == nil && rules != applied {
				err = c.applyRules(ctx, rules)
				applied = rules
			}
			if err != nil && ctx.Err() == nil {
				applied = ""
				t.Logf("NetworkPolicies can't be enforced: %v", err)
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

// applyRules gives all nodes the same rules: each forwards packets of its own pods only.
func (c *Cluster) applyRules(ctx context.Context, rules string) error {
	for _, node := range c.Nodes {
		if node.vanished.Load() {
			continue // A vanished node can't change its rules.
		}
		cmd := node.Command(ctx, "nft", "--file", "-")
		cmd.Stdin = strings.NewReader(rules)
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("nft: %w: %s", err, output)
		}
	}
	return nil
}

func currentRules(ctx context.Context, client kubernetes.Interface) (string, error) {
	policies, err := client.NetworkingV1().NetworkPolicies("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	namespaces, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	return (&policed{policies.Items, pods.Items, namespaces.Items}).rules(), nil
}

// policed has the objects that rules are made from.
type policed struct {
	policies   []networkingv1.NetworkPolicy
	pods       []corev1.Pod
	namespaces []corev1.Namespace
}

// rules returns the table of nft that replaces the one before. Packets of the node itself, such as
// probes, pass no forward hook, and are always allowed.
func (p *policed) rules() string {
	const table = "inet policies"
	var chains, jumps strings.Builder
	for i, pod := range p.pods {
		if pod.Status.PodIP == "" || pod.Spec.HostNetwork {
			continue
		}
		for _, direction := range []networkingv1.PolicyType{networkingv1.PolicyTypeEgress, networkingv1.PolicyTypeIngress} {
			allowed, isolated := p.allowed(&pod, direction)
			if !isolated {
				continue
			}
			chain, own := fmt.Sprintf("%s-%d", strings.ToLower(string(direction)), i), "saddr"
			if direction == networkingv1.PolicyTypeIngress {
				own = "daddr"
			}
			fmt.Fprintf(&chains, "  chain %s {\n", chain)
			for _, match := range allowed {
				fmt.Fprintf(&chains, "    %sreturn\n", match)
			}
			chains.WriteString("    drop\n  }\n")
			fmt.Fprintf(&jumps, "    ip %s %s jump %s\n", own, pod.Status.PodIP, chain)
		}
	}
	return fmt.Sprintf("table %[1]s\ndelete table %[1]s\ntable %[1]s {\n%[2]s  chain forward {\n    type filter hook forward priority 10;\n"+
		"    ct state established,related accept\n%[3]s  }\n}\n", table, &chains, &jumps)
}

// allowed returns matches for packets that a pod may send or receive, and whether any policy
// restricts these.
func (p *policed) allowed(pod *corev1.Pod, direction networkingv1.PolicyType) (matches []string, isolated bool) {
	for _, policy := range p.policies {
		if policy.Namespace != pod.Namespace || !slices.Contains(policy.Spec.PolicyTypes, direction) || !selects(&policy.Spec.PodSelector, pod.Labels) {
			continue
		}
		isolated = true
		if direction == networkingv1.PolicyTypeIngress {
			for _, rule := range policy.Spec.Ingress {
				matches = append(matches, p.matches(policy.Namespace, "saddr", rule.From, rule.Ports, []corev1.Pod{*pod})...)
			}
			continue
		}
		for _, rule := range policy.Spec.Egress {
			matches = append(matches, p.matches(policy.Namespace, "daddr", rule.To, rule.Ports, nil)...)
		}
	}
	return matches, isolated
}

// matches returns the matches of one rule. Names of ports are those of the targets or, without any,
// of the peers.
func (p *policed) matches(namespace, side string, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, targets []corev1.Pod) (matches []string) {
	address := ""
	if len(peers) > 0 {
		found := p.find(namespace, peers)
		if len(found) == 0 {
			return nil
		}
		var addresses []string
		for _, pod := range found {
			addresses = append(addresses, pod.Status.PodIP)
		}
		address = fmt.Sprintf("ip %s { %s } ", side, strings.Join(addresses, ", "))
		if targets == nil {
			targets = found
		}
	}
	if len(ports) == 0 {
		return []string{address}
	}
	for _, port := range ports {
		if number := portNumber(*port.Port, targets); number != 0 {
			matches = append(matches, fmt.Sprintf("%s%s dport %d ", address, strings.ToLower(string(*port.Protocol)), number))
		}
	}
	return matches
}

// find returns the pods that are peers.
func (p *policed) find(namespace string, peers []networkingv1.NetworkPolicyPeer) (found []corev1.Pod) {
	for _, pod := range p.pods {
		if pod.Status.PodIP != "" && slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
			if peer.NamespaceSelector == nil {
				return pod.Namespace == namespace && selects(peer.PodSelector, pod.Labels)
			}
			return selects(peer.NamespaceSelector, p.labelsOf(pod.Namespace)) && selects(peer.PodSelector, pod.Labels)
		}) {
			found = append(found, pod)
		}
	}
	return found
}

func (p *policed) labelsOf(namespace string) map[string]string {
	for _, found := range p.namespaces {
		if found.Name == namespace {
			return found.Labels
		}
	}
	return nil
}

// selects reports whether a selector, which may be missing, selects the labels.
func selects(selector *metav1.LabelSelector, set map[string]string) bool {
	if selector == nil {
		return true
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && parsed.Matches(labels.Set(set))
}

// portNumber returns the number of a port, which may be a name in one of the pods. It returns 0 if
// no pod has the name.
func portNumber(port intstr.IntOrString, pods []corev1.Pod) int32 {
	if port.Type == intstr.Int {
		return port.IntVal
	}
	for _, pod := range pods {
		for _, container := range pod.Spec.Containers {
			for _, declared := range container.Ports {
				if declared.Name == port.StrVal {
					return declared.ContainerPort
				}
			}
		}
	}
	return 0
}
