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
	"net"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
)

// defaultPort is the port of references to a Service that name none.
const defaultPort = 443

// backend is a port of a Service.
type backend struct {
	namespace, name string
	port            int32
}

func newBackend(namespace, name string, port *int32) backend {
	if port == nil {
		return backend{namespace, name, defaultPort}
	}
	return backend{namespace, name, *port}
}

// String returns the Service.
func (b backend) String() string { return fmt.Sprintf("the Service %s/%s", b.namespace, b.name) }

// host returns the name that must be in the certificate of servers behind the Service.
func (b backend) host() string { return b.name + "." + b.namespace + ".svc" }

// backends returns the ports of Services that the APIServices lead to.
func (e *examination) backends() []backend {
	var backends []backend
	for _, apiService := range e.apiServices {
		if backend := backendOf(apiService); !slices.Contains(backends, backend) {
			backends = append(backends, backend)
		}
	}
	return backends
}

// checkService looks for servers behind the Services of the APIServices.
func (e *examination) checkService(ctx context.Context) ([]Finding, error) {
	var results []Finding
	for _, backend := range e.backends() {
		addresses, err := e.resolve(ctx, backend)
		if err != nil {
			found := explain(backend.String(), Failure, err)
			if found.Status == Failure && found.Command == "" {
				found = found.by("kubectl delete apiservice %s", e.names(" "))
			}
			results = append(results, found)
			continue
		}
		results = append(results, ok("%s leads to %s", backend, strings.Join(addresses, ", ")))
		results = append(results, e.checkSpread(ctx, backend)...)
		results = append(results, e.checkStrangers(ctx, backend)...)
	}
	return results, nil
}

// checkSpread warns if all replicas run on one node. Kubernetes decides where a pod runs only when
// it is created.
func (e *examination) checkSpread(ctx context.Context, b backend) []Finding {
	list, err := e.endpointSlices(ctx, b)
	if err != nil {
		return nil // Without permission, the check of the Service has named its cluster IP.
	}
	nodes := sets.New[string]()
	replicas := sets.New[string]()
	for _, slice := range list {
		for _, endpoint := range slice.Endpoints {
			if isReady(endpoint) && endpoint.NodeName != nil {
				nodes.Insert(*endpoint.NodeName)
				replicas.Insert(endpoint.Addresses...)
			}
		}
	}
	if nodes.Len() != 1 || replicas.Len() < 2 {
		return nil
	}
	return []Finding{warning(
		fmt.Sprintf("all %d replicas behind %s are on the node %s, and gone when it is", replicas.Len(), b, sets.List(nodes)[0]),
		"when other nodes are ready, spread them by kubectl rollout restart",
	)}
}

// checkStrangers warns of a Service that selects pods of other servers. They get a part of the
// requests.
func (e *examination) checkStrangers(ctx context.Context, b backend) []Finding {
	found, err := e.look(ctx, b)
	if err != nil {
		return nil
	}
	for _, pod := range found.readyPods() {
		if first := found.readyPods()[0]; pod.Spec.ServiceAccountName != first.Spec.ServiceAccountName {
			return []Finding{warning(fmt.Sprintf("%s selects pods of several servers, such as %s and %s, so that each gets requests for the others", b, first.Name, pod.Name),
				"give it a selector that only one of them matches").by("kubectl get pods --namespace=%s --selector=%s --show-labels", b.namespace, labels.Set(found.service.Spec.Selector))}
		}
	}
	return nil
}

// resolve returns the addresses behind a Service. The error is a problem if
// something is wrong with the Service.
func (e *examination) resolve(ctx context.Context, b backend) ([]string, error) {
	found, err := e.look(ctx, b)
	service := found.service
	if service == nil {
		if err == nil {
			err = &problem{b.String() + " does not exist", "create this Service, through which requests reach the pods, or delete what leads to it", ""}
		}
		return nil, err
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return []string{net.JoinHostPort(service.Spec.ExternalName, strconv.Itoa(int(b.port)))}, nil
	}
	patch := fmt.Sprintf("kubectl patch service %s --namespace=%s --type=json --patch=", b.name, b.namespace)
	i := slices.IndexFunc(service.Spec.Ports, func(port corev1.ServicePort) bool { return port.Port == b.port })
	if i < 0 {
		return nil, &problem{fmt.Sprintf("%s has no port %d", b, b.port), "add the port to it, or name another port where the Service is named",
			patch + fmt.Sprintf(`'[{"op":"replace","path":"/spec/ports/0/port","value":%d}]'`, b.port)}
	}
	port := service.Spec.Ports[i]
	if apierrors.IsForbidden(err) {
		return clusterAddress(service, port, err)
	}
	if err != nil {
		return nil, err
	}
	for _, pod := range found.pods {
		if port.TargetPort.Type == intstr.String && !hasPort(pod, port.TargetPort.StrVal) {
			return nil, &problem{fmt.Sprintf("the target port %q of %s is not a port of its pod %s", port.TargetPort.StrVal, b, pod.Name), "give a port of the container that name, or the Service another targetPort",
				patch + fmt.Sprintf(`'[{"op":"replace","path":"/spec/ports/%d/targetPort","value":%d}]'`, i, portOf(pod))}
		}
	}
	addresses, err := e.endpoints(ctx, b, port)
	if apierrors.IsForbidden(err) {
		return clusterAddress(service, port, err)
	}
	if err != nil || len(addresses) > 0 {
		return addresses, err
	}
	return nil, found.problem(b, port)
}

// portOf returns the port where a pod seems to serve TLS.
func portOf(pod corev1.Pod) int32 {
	for _, port := range portsOf(pod) {
		return port.ContainerPort
	}
	return defaultPort
}

func portsOf(pod corev1.Pod) (ports []corev1.ContainerPort) {
	for _, container := range pod.Spec.Containers {
		ports = append(ports, container.Ports...)
	}
	return ports
}

// problem returns an error that says why no pod is behind a Service.
func (found behind) problem(b backend, port corev1.ServicePort) error {
	selector := labels.Set(found.service.Spec.Selector)
	slicesOf := fmt.Sprintf("kubectl get endpointslices --namespace=%s --selector=%s=%s --output=yaml", b.namespace, discoveryv1.LabelServiceName, b.name)
	switch deployment := found.deployment; {
	case len(selector) == 0:
		return &problem{b.String() + " has no selector, and no endpoint that is ready", "give it a selector of the server's pods", slicesOf}
	case len(found.readyPods()) > 0:
		return &problem{fmt.Sprintf("the pod %s of %s is ready, but no endpoint has the port %q", found.readyPods()[0].Name, b, port.Name), "see whether kube-controller-manager runs, which writes the EndpointSlices", slicesOf}
	case len(found.pods) > 0:
		return found.notReady(b)
	case deployment != nil && !selects(found.service, deployment.Spec.Template.Labels):
		return &problem{fmt.Sprintf("no pod matches the selector %s of %s", selector, b), "check the labels of the pods, and the Deployment that is to create them",
			fmt.Sprintf("kubectl set selector service %s --namespace=%s %s", b.name, b.namespace, labels.Set(deployment.Spec.Template.Labels))}
	case deployment != nil && deployment.Spec.Replicas != nil && *deployment.Spec.Replicas == 0:
		return &problem{fmt.Sprintf("no pod matches the selector %s of %s, since the Deployment %s is to have none", selector, b, deployment.Name), "scale it up",
			fmt.Sprintf("kubectl scale --namespace=%s deployment/%s --replicas=1", b.namespace, deployment.Name)}
	case deployment != nil:
		why := ""
		for _, condition := range deployment.Status.Conditions {
			if condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue {
				why = " (" + condition.Message + ")"
			}
		}
		return &problem{fmt.Sprintf("no pod matches the selector %s of %s, since none of the Deployment %s can be created%s", selector, b, deployment.Name, why), "see its events and those of its ReplicaSet",
			fmt.Sprintf("kubectl describe --namespace=%s deployment,replicasets --selector=%s", b.namespace, selector)}
	default:
		return &problem{fmt.Sprintf("no pod matches the selector %s of %s", selector, b), "check the labels of the pods, and the Deployment that is to create them",
			fmt.Sprintf("kubectl get pods,deployments --namespace=%s --show-labels", b.namespace)}
	}
}

// notReady returns an error that says why the pods of a Service are not ready.
func (found behind) notReady(b backend) error {
	pod := found.pods[0]
	why, command := "", fmt.Sprintf("kubectl describe pod %s --namespace=%s", pod.Name, b.namespace)
	if condition := podCondition(pod, corev1.PodScheduled); condition.Status == corev1.ConditionFalse {
		why = ": " + condition.Reason + ", " + condition.Message
	}
	for _, container := range pod.Status.ContainerStatuses {
		if waiting := container.State.Waiting; waiting != nil && waiting.Reason != "" {
			why = ": " + waiting.Reason
		}
		if container.RestartCount > 0 {
			command = fmt.Sprintf("kubectl logs %s --namespace=%s --container=%s --previous", pod.Name, b.namespace, container.Name)
		}
	}
	return &problem{fmt.Sprintf("none of the %d pods of %s is ready%s", len(found.pods), b, why), "see their events and logs", command}
}

// service returns a Service, or nil if there is none. It lists, since the server itself may do so.
func (e *examination) service(ctx context.Context, b backend) (*corev1.Service, error) {
	list, err := e.kube.CoreV1().Services(b.namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, b.name).String()})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if list.Items[i].Name == b.name {
			return &list.Items[i], nil
		}
	}
	return nil, nil //nolint:nilnil // See above.
}

// clusterAddress returns the cluster IP and port of a Service, for users without permission to see
// its endpoints. It returns the error forbidden if there is no cluster IP.
func clusterAddress(service *corev1.Service, port corev1.ServicePort, forbidden error) ([]string, error) {
	if ip := service.Spec.ClusterIP; ip != "" && ip != corev1.ClusterIPNone {
		return []string{net.JoinHostPort(ip, strconv.Itoa(int(port.Port)))}, nil
	}
	return nil, forbidden
}

func hasPort(pod corev1.Pod, name string) bool {
	return slices.ContainsFunc(portsOf(pod), func(port corev1.ContainerPort) bool { return port.Name == name })
}

// endpoints returns the ready addresses behind a Service.
func (e *examination) endpoints(ctx context.Context, b backend, port corev1.ServicePort) ([]string, error) {
	list, err := e.endpointSlices(ctx, b)
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, slice := range list {
		for _, endpointPort := range slice.Ports {
			if endpointPort.Port == nil || endpointPort.Name == nil && port.Name != "" || endpointPort.Name != nil && *endpointPort.Name != port.Name {
				continue
			}
			for _, endpoint := range slice.Endpoints {
				if !isReady(endpoint) {
					continue
				}
				for _, address := range endpoint.Addresses {
					addresses = append(addresses, net.JoinHostPort(address, strconv.Itoa(int(*endpointPort.Port))))
				}
			}
		}
	}
	return addresses, nil
}

func (e *examination) endpointSlices(ctx context.Context, b backend) ([]discoveryv1.EndpointSlice, error) {
	list, err := e.kube.DiscoveryV1().EndpointSlices(b.namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + b.name})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// isReady takes an unknown state for ready, as the API says.
func isReady(endpoint discoveryv1.Endpoint) bool {
	return endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
}
