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
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// checkConsequences looks for objects in the cluster that suffer from faults of the servers.
func (e *examination) checkConsequences(ctx context.Context) ([]Finding, error) {
	results, err := e.stuckNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	found, err := e.blindAutoscalers(ctx)
	return orOK(append(results, found...), "nothing suffers from the server"), err
}

// stuckNamespaces finds namespaces whose deletion waits for a server. Kubernetes' message has all
// versions of all servers, with the causes that other checks have found.
func (e *examination) stuckNamespaces(ctx context.Context) ([]Finding, error) {
	list, err := e.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, unreadable{"the namespaces", err}
	}
	var found []Finding
	for _, namespace := range list.Items {
		for _, condition := range namespace.Status.Conditions {
			failing := condition.Type == corev1.NamespaceDeletionDiscoveryFailure || condition.Type == corev1.NamespaceDeletionContentFailure || condition.Type == corev1.NamespaceDeletionGVParsingFailure
			if namespace.DeletionTimestamp == nil || !failing || condition.Status != corev1.ConditionTrue || !e.mentioned(condition.Message) {
				continue
			}
			found = append(found, failure(fmt.Sprintf("the namespace %s can't be deleted (%s: %.100s…)", namespace.Name, condition.Reason, condition.Message), "correct the servers, or delete the APIServices of those that are gone for good; then the namespace goes").
				by(kubectl("get", "namespace", namespace.Name, "--output=yaml")).since(condition.LastTransitionTime))
			break
		}
	}
	return summarize(found, "namespace"), nil
}

// mentioned reports whether a message is about a version or a resource of the server.
func (e *examination) mentioned(message string) bool {
	for _, apiService := range e.apiServices {
		if strings.Contains(message, apiService.Spec.Group+"/"+apiService.Spec.Version) || strings.Contains(message, "."+apiService.Spec.Group) {
			return true
		}
	}
	return false
}

// blindAutoscalers finds HorizontalPodAutoscalers that get no metrics from the server.
func (e *examination) blindAutoscalers(ctx context.Context) ([]Finding, error) {
	var reasons []string
	for _, apiService := range e.apiServices {
		reasons = append(reasons, map[string][]string{
			"metrics.k8s.io":          {"FailedGetResourceMetric", "FailedGetContainerResourceMetric"},
			"custom.metrics.k8s.io":   {"FailedGetPodsMetric", "FailedGetObjectMetric"},
			"external.metrics.k8s.io": {"FailedGetExternalMetric"},
		}[apiService.Spec.Group]...)
	}
	if len(reasons) == 0 {
		return nil, nil
	}
	list, err := e.kube.AutoscalingV2().HorizontalPodAutoscalers(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, unreadable{"the HorizontalPodAutoscalers", err}
	}
	var found []Finding
	for _, autoscaler := range list.Items {
		for _, condition := range autoscaler.Status.Conditions {
			if condition.Type == autoscalingv2.ScalingActive && condition.Status == corev1.ConditionFalse && slices.Contains(reasons, condition.Reason) {
				found = append(found, failure(fmt.Sprintf("the HorizontalPodAutoscaler %s/%s gets no metrics (%s)", autoscaler.Namespace, autoscaler.Name, condition.Message), "correct the server, or see whether the pods have requests").
					by(kubectl("describe", "hpa", autoscaler.Name, "--namespace="+autoscaler.Namespace)).since(condition.LastTransitionTime))
			}
		}
	}
	return summarize(found, "HorizontalPodAutoscaler"), nil
}

// summarize returns the oldest of many findings that say the same.
func summarize(found []Finding, noun string) []Finding {
	if len(found) < 2 {
		return found
	}
	oldest := slices.MinFunc(found, func(a, b Finding) int { return cmp.Compare(a.Since, b.Since) })
	oldest.Cause += fmt.Sprintf(", and so it is with %s in all", plural(len(found), noun))
	return []Finding{oldest}
}
