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
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

// serversAtOnce bounds the servers that are examined at the same time. Broken ones take long.
const serversAtOnce = 8

// ExamineAPIServices examines the named APIServices, or all, and the servers that they lead to. It
// connects to kube-apiserver only. It makes the checks that do not need the flags of the servers.
func ExamineAPIServices(ctx context.Context, config *rest.Config, names ...string) ([]Result, error) {
	e, err := newExamination(ctx, Config{
		Cluster: config,
		Egress:  func(egressselector.NetworkContext) (utilnet.DialFunc, error) { return nil, nil },
	})
	if err != nil {
		return nil, err
	}
	e.foreign = true
	failed := map[string]bool{}
	results := e.runAll(ctx, "", failed, ofCluster)
	if failed[checks()[0].name] {
		return results, ctx.Err()
	}
	servers, err := e.servers(ctx, names)
	if err != nil {
		return nil, err
	}
	of := make([][]Result, len(servers))
	var group errgroup.Group
	group.SetLimit(serversAtOnce)
	for i, server := range servers {
		group.Go(func() error {
			server.learnAccount(ctx)
			of[i] = server.runAll(ctx, server.title(), maps.Clone(failed), ofServer)
			return nil
		})
	}
	_ = group.Wait()
	return slices.Concat(append([][]Result{results}, of...)...), ctx.Err()
}

// servers returns an examination for each server that APIServices lead to.
func (e *examination) servers(ctx context.Context, names []string) ([]*examination, error) {
	list, err := e.aggregator.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("the APIServices can't be read: %w", err)
	}
	for _, name := range names {
		i := slices.IndexFunc(list.Items, func(apiService apiregistrationv1.APIService) bool { return apiService.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no APIService %s: \"kubectl get apiservices\" lists those that there are", name)
		}
		if list.Items[i].Spec.Service == nil {
			return nil, fmt.Errorf("the APIService %s leads to no server, since kube-apiserver serves it itself", name)
		}
	}
	var servers []*examination
	for i := range list.Items {
		apiService := &list.Items[i]
		if apiService.Spec.Service == nil || len(names) > 0 && !slices.Contains(names, apiService.Name) {
			continue
		}
		to := backendOf(apiService)
		j := slices.IndexFunc(servers, func(server *examination) bool { return server.backends()[0] == to })
		if j < 0 {
			server := *e
			server.resources = map[string][]string{}
			server.listings = server.listAll(ctx)
			j, servers = len(servers), append(servers, &server)
		}
		servers[j].add(apiService)
		servers[j].learnResources(apiService)
	}
	return servers, nil
}

func backendOf(apiService *apiregistrationv1.APIService) backend {
	service := apiService.Spec.Service
	return newBackend(service.Namespace, service.Name, service.Port)
}

// title returns a server's Service and its APIServices.
func (e *examination) title() string {
	return fmt.Sprintf("%s: %s", strings.TrimPrefix(e.backends()[0].String(), "the "), listed(e.apiServices))
}

func namesOf(apiServices []*apiregistrationv1.APIService) (names []string) {
	for _, apiService := range apiServices {
		names = append(names, apiService.Name)
	}
	return names
}

// listed returns the names of APIServices for a sentence.
func listed(apiServices []*apiregistrationv1.APIService) string {
	return strings.Join(namesOf(apiServices), ", ")
}

// learnAccount finds out the service account of a server.
func (e *examination) learnAccount(ctx context.Context) {
	found, err := e.look(ctx, e.backends()[0])
	if err != nil {
		return // The check of the Service says why.
	}
	if spec := found.podSpec(); len(spec.Containers) > 0 {
		e.ServiceAccount = cmp.Or(spec.ServiceAccountName, "default")
	}
	e.Permissions = func(namespace string) []cluster.Permission { return delegation(namespace, e.ServiceAccount) }
}

// nobody returns the finding for a server whose service account is not known.
func nobody() []Finding {
	return []Finding{skipped("the service account of the server is not known, since none of its pods can be seen")}
}

// delegation returns the permissions that any server needs to have kube-apiserver authenticate and
// authorize users.
func delegation(namespace, account string) []cluster.Permission {
	binding := fmt.Sprintf("%s:%s", namespace, account)
	delegator := cluster.Permission{
		Verb: "create", Fix: "bind the ClusterRole system:auth-delegator to its user",
		Command: kubectl("create", "clusterrolebinding", binding+":auth-delegator", "--clusterrole=system:auth-delegator", "--serviceaccount="+binding),
	}
	reader := cluster.Permission{
		Resource: schema.GroupResource{Resource: "configmaps"}, Namespace: metav1.NamespaceSystem, Name: authenticationConfig,
		Fix:     "bind the Role extension-apiserver-authentication-reader to its user",
		Command: kubectl("create", "rolebinding", binding+":auth-reader", "--namespace=kube-system", "--role=extension-apiserver-authentication-reader", "--serviceaccount="+binding),
	}
	var permissions []cluster.Permission
	for _, resource := range []schema.GroupResource{{Group: "authentication.k8s.io", Resource: "tokenreviews"}, {Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}} {
		delegator.Resource = resource
		permissions = append(permissions, delegator)
	}
	for _, verb := range []string{"get", "list", "watch"} {
		reader.Verb = verb
		permissions = append(permissions, reader)
	}
	return permissions
}

// unavailable returns the condition of the first unavailable APIService, or the zero value.
func (e *examination) unavailable() apiregistrationv1.APIServiceCondition {
	for _, apiService := range e.apiServices {
		if condition := availability(apiService); condition.Status != apiregistrationv1.ConditionTrue {
			return condition
		}
	}
	return apiregistrationv1.APIServiceCondition{}
}

// behind is a Service with its pods and its Deployment.
type behind struct {
	service *corev1.Service
	pods    []corev1.Pod
	// deployment has such pods.
	deployment *appsv1.Deployment
}

// look returns a Service with its pods and its Deployment. Without permission to list Deployments,
// it returns none.
func (e *examination) look(ctx context.Context, b backend) (found behind, err error) {
	if found.service, err = e.service(ctx, b); err != nil || found.service == nil {
		return found, err
	}
	if selector := found.service.Spec.Selector; len(selector) > 0 {
		pods, err := e.kube.CoreV1().Pods(b.namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.Set(selector).String()})
		if err != nil {
			return found, err
		}
		found.pods = pods.Items
	}
	list, err := e.kube.AppsV1().Deployments(b.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return found, nil //nolint:nilerr // See above.
	}
	for i := range list.Items {
		if selects(found.service, list.Items[i].Spec.Template.Labels) {
			found.deployment = &list.Items[i]
			return found, nil
		}
	}
	return found, nil
}

func selects(service *corev1.Service, of map[string]string) bool {
	return len(service.Spec.Selector) > 0 && labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(of))
}

// podSpec returns the spec of the server's pods. It is empty if none can be seen.
func (found behind) podSpec() corev1.PodSpec {
	switch {
	case len(found.pods) > 0:
		return found.pods[0].Spec
	case found.deployment != nil:
		return found.deployment.Spec.Template.Spec
	}
	return corev1.PodSpec{}
}

// readyPods returns the ready pods.
func (found behind) readyPods() (ready []corev1.Pod) {
	for _, pod := range found.pods {
		if condition := podCondition(pod, corev1.PodReady); condition.Status == corev1.ConditionTrue {
			ready = append(ready, pod)
		}
	}
	return ready
}

func podCondition(pod corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind {
			return condition
		}
	}
	return corev1.PodCondition{}
}

// logs returns a command that shows the log of a server.
func (e *examination) logs(ctx context.Context, b backend) string {
	found, _ := e.look(ctx, b)
	switch {
	case found.deployment != nil:
		return kubectl("logs", b.flag(), "deployments.apps/"+found.deployment.Name, "--all-containers", "--tail=100")
	case len(found.pods) > 0:
		return kubectl("logs", b.flag(), "--selector="+labels.Set(found.service.Spec.Selector).String(), "--all-containers", "--tail=100")
	}
	return e.around(ctx, b)
}

// around returns a command that shows what a Service leads to.
func (*examination) around(_ context.Context, b backend) string {
	return kubectl("get", "service,endpointslices,pods", b.flag(), "--output=wide")
}

// restart returns a command that makes a server read certificates and configuration again. Without
// a Deployment, which replaces pods one by one, it shows the log.
func (e *examination) restart(ctx context.Context, b backend) string {
	if found, _ := e.look(ctx, b); found.deployment != nil {
		return kubectl("rollout", "restart", b.flag(), "deployments.apps/"+found.deployment.Name)
	}
	return e.logs(ctx, b)
}
