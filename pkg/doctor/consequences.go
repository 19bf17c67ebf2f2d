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
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
)

// patience is how long kube-controller-manager may take for work that it does at once.
const patience = 5 * time.Second

// checkConsequences looks for objects in the cluster that suffer from the server's faults.
func (e *examination) checkConsequences(ctx context.Context) ([]Finding, error) {
	parts := []func(context.Context) ([]Finding, error){e.stuckNamespaces, e.blindAutoscalers}
	if e.unavailable().Type != "" {
		parts = append(parts, e.staleQuotas, e.uncollected)
	}
	var results []Finding
	for _, part := range parts {
		found, err := part(ctx)
		if err != nil {
			return results, err
		}
		results = append(results, found...)
	}
	return orOK(results, "nothing suffers from the server"), nil
}

// stuckNamespaces finds namespaces whose deletion waits for the server.
func (e *examination) stuckNamespaces(ctx context.Context) (results []Finding, err error) {
	list, err := e.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, unreadable{"the namespaces", err}
	}
	for _, namespace := range list.Items {
		for _, condition := range namespace.Status.Conditions {
			failing := condition.Type == corev1.NamespaceDeletionDiscoveryFailure || condition.Type == corev1.NamespaceDeletionContentFailure || condition.Type == corev1.NamespaceDeletionGVParsingFailure
			if namespace.DeletionTimestamp == nil || !failing || condition.Status != corev1.ConditionTrue || !e.mentioned(condition.Message) {
				continue
			}
			results = append(results, failure(fmt.Sprintf("the namespace %s can't be deleted (%s)", namespace.Name, condition.Message), "correct the server, or delete its APIServices if it is not coming back; then the namespace goes").
				by("kubectl wait namespace %s --for=delete --timeout=10m", namespace.Name).since(condition.LastTransitionTime))
			break
		}
	}
	return results, nil
}

// mentioned tells whether a message is about a version or a resource of the server.
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
	reasons := map[string][]string{
		"metrics.k8s.io":          {"FailedGetResourceMetric", "FailedGetContainerResourceMetric"},
		"custom.metrics.k8s.io":   {"FailedGetPodsMetric", "FailedGetObjectMetric"},
		"external.metrics.k8s.io": {"FailedGetExternalMetric"},
	}[e.apiServices[0].Spec.Group]
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
					by("kubectl describe hpa %s --namespace=%s", autoscaler.Name, autoscaler.Namespace).since(condition.LastTransitionTime))
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

// staleQuotas finds ResourceQuotas that kube-controller-manager does not count.
func (e *examination) staleQuotas(ctx context.Context) ([]Finding, error) {
	list, err := e.kube.CoreV1().ResourceQuotas(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, unreadable{"the ResourceQuotas", err}
	}
	var found []Finding
	for _, quota := range list.Items {
		for resource := range quota.Spec.Hard {
			if _, counted := quota.Status.Hard[resource]; counted || time.Since(quota.CreationTimestamp.Time) < patience {
				continue
			}
			found = append(found, failure(fmt.Sprintf("the ResourceQuota %s/%s is not counted, since kube-controller-manager waits for all servers", quota.Namespace, quota.Name), "correct the server").
				by("kubectl describe resourcequota %s --namespace=%s", quota.Name, quota.Namespace).since(quota.CreationTimestamp))
			break
		}
	}
	return summarize(found, "ResourceQuota"), nil
}

// uncollected finds objects that the garbage collector has not dealt with.
func (e *examination) uncollected(ctx context.Context) ([]Finding, error) {
	client, err := metadata.NewForConfig(e.Cluster)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, resource := range []schema.GroupVersionResource{
		{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "apps", Version: "v1", Resource: "replicasets"},
		{Group: "apps", Version: "v1", Resource: "statefulsets"}, {Group: "batch", Version: "v1", Resource: "jobs"},
	} {
		list, err := client.Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, unreadable{resource.Resource, err}
		}
		for _, object := range list.Items {
			waits := slices.Contains(object.Finalizers, metav1.FinalizerDeleteDependents) || slices.Contains(object.Finalizers, metav1.FinalizerOrphanDependents)
			if object.DeletionTimestamp == nil || !waits || time.Since(object.DeletionTimestamp.Time) < patience {
				continue
			}
			found = append(found, failure(fmt.Sprintf("%s %s/%s waits for the garbage collector, which waits for all servers", resource.Resource, object.Namespace, object.Name), "correct the server").
				by("kubectl get %s %s --namespace=%s --output=yaml", resource.Resource, object.Name, object.Namespace).since(*object.DeletionTimestamp))
		}
	}
	return summarize(found, "object"), nil
}
