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
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
)

// defaultPort is the port of references to a Service that name none.
const defaultPort = 443

// backend is a port of a Service.
type backend struct {
	namespace, name string
	port            int32
}

func newBackend(namespace, name string, port *int32) backend {
	return backend{namespace, name, ptr.Deref(port, defaultPort)}
}

// String returns the Service.
func (b backend) String() string { return fmt.Sprintf("the Service %s/%s", b.namespace, b.name) }

// host returns the name that must be in the certificate of servers behind the Service.
func (b backend) host() string { return b.name + "." + b.namespace + ".svc" }

// flag returns the flag of kubectl for the namespace.
func (b backend) flag() string { return "--namespace=" + b.namespace }

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

// leadingTo returns the APIServices that lead to a Service.
func (e *examination) leadingTo(b backend) (found []*apiregistrationv1.APIService) {
	for _, apiService := range e.apiServices {
		if backendOf(apiService) == b {
			found = append(found, apiService)
		}
	}
	return found
}

// checkService looks for servers behind the Services of the APIServices.
func (e *examination) checkService(ctx context.Context) []Finding {
	var results []Finding
	for _, backend := range e.backends() {
		addresses, err := e.resolve(ctx, backend)
		if err != nil {
			results = append(results, e.repoint(ctx, backend, explain(backend.String(), Failure, err)))
			continue
		}
		results = append(results, ok("%s leads to %s", backend, strings.Join(addresses, ", ")))
		results = append(results, e.checkStrangers(ctx, backend)...)
	}
	return results
}

// repoint gives a finding about a Service the command that changes the APIServices, if only that
// is sure to be right: the Service may be for others, too.
func (e *examination) repoint(ctx context.Context, b backend, found Finding) Finding {
	names := namesOf(e.leadingTo(b))
	service, err := e.service(ctx, b)
	switch {
	case found.Status != Failure || err != nil:
	case service != nil && len(service.Spec.Ports) == 1 && service.Spec.Type != corev1.ServiceTypeExternalName && service.Spec.Ports[0].Port != b.port:
		patch := fmt.Sprintf(`{"spec":{"service":{"port":%d}}}`, service.Spec.Ports[0].Port)
		return found.by(kubectl(slices.Concat([]string{"patch", "apiservice"}, names, []string{"--type=merge", "--patch=" + patch})...))
	case service == nil:
		if _, err := e.kube.CoreV1().Namespaces().Get(ctx, b.namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			found.Fix = "delete the APIServices, since not even the namespace of their server exists"
			return found.by(kubectl(append([]string{"delete", "apiservice"}, names...)...))
		}
	}
	return found
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
				"give it a selector that only one of them matches").by(kubectl("get", "pods", b.flag(), "--selector="+labels.Set(found.service.Spec.Selector).String(), "--show-labels"))}
		}
	}
	return nil
}

// resolve returns the addresses behind a Service. Users without permission to see its endpoints get
// its cluster IP, if it has one. The error is a problem if something is wrong with the Service.
func (e *examination) resolve(ctx context.Context, b backend) ([]string, error) {
	found, err := e.look(ctx, b)
	service := found.service
	switch {
	case service == nil && err != nil:
		return nil, err
	case service == nil:
		return nil, &problem{b.String() + " does not exist", "install the server again, of which the Service is a part; if it is gone for good, delete what leads to it",
			kubectl("get", "services,endpointslices,deployments.apps,pods", b.flag())}
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return []string{net.JoinHostPort(service.Spec.ExternalName, strconv.Itoa(int(b.port)))}, nil
	}
	i := slices.IndexFunc(service.Spec.Ports, func(port corev1.ServicePort) bool { return port.Port == b.port })
	if i < 0 {
		return nil, &problem{fmt.Sprintf("%s has no port %d", b, b.port), "name a port of the Service where it leads to the Service, or add the port to the Service",
			kubectl("get", "service", b.name, b.flag(), "--output=yaml")}
	}
	port := service.Spec.Ports[i]
	var addresses []string
	if err == nil {
		if err := found.targetProblem(b, i); err != nil {
			return nil, err
		}
		addresses, err = e.endpoints(ctx, b, port)
	}
	if ip := service.Spec.ClusterIP; apierrors.IsForbidden(err) && ip != "" && ip != corev1.ClusterIPNone {
		return []string{net.JoinHostPort(ip, strconv.Itoa(int(b.port)))}, nil
	}
	if err == nil && len(addresses) == 0 {
		err = found.problem(b, port)
	}
	return addresses, err
}

// targetProblem returns an error if no pod has the named target port of a Service. While pods are
// replaced, it can be a port of some.
func (found behind) targetProblem(b backend, i int) error {
	port := found.service.Spec.Ports[i]
	named := func(pod corev1.Pod) bool { return hasPort(pod, port.TargetPort.StrVal) }
	if port.TargetPort.Type != intstr.String || len(found.pods) == 0 || slices.ContainsFunc(found.pods, named) {
		return nil
	}
	pod, command := found.pods[0], kubectl("get", "service", b.name, b.flag(), "--output=yaml")
	if ports := portsOf(pod); len(ports) == 1 {
		command = kubectl("patch", "service", b.name, b.flag(), "--type=json",
			fmt.Sprintf(`--patch=[{"op":"test","path":"/spec/ports/%[1]d/port","value":%[2]d},{"op":"replace","path":"/spec/ports/%[1]d/targetPort","value":%[3]d}]`, i, port.Port, ports[0].ContainerPort))
	}
	return &problem{fmt.Sprintf("the target port %q of %s is not a port of its pod %s", port.TargetPort.StrVal, b, pod.Name), "give a port of the container that name, or the Service another targetPort", command}
}

func portsOf(pod corev1.Pod) (ports []corev1.ContainerPort) {
	for _, container := range pod.Spec.Containers {
		ports = append(ports, container.Ports...)
	}
	return ports
}

// problem returns an error that says why no pod is behind a Service.
func (found behind) problem(b backend, port corev1.ServicePort) error {
	selector := labels.Set(found.service.Spec.Selector).String()
	slicesOf := kubectl("get", "endpointslices", b.flag(), "--selector="+discoveryv1.LabelServiceName+"="+b.name, "--output=yaml")
	none := fmt.Sprintf("no pod matches the selector %s of %s", selector, b)
	switch deployment := found.deployment; {
	case selector == "":
		return &problem{b.String() + " has no selector, and no endpoint that is ready", "give it a selector of the server's pods", slicesOf}
	case len(found.readyPods()) > 0:
		return &problem{fmt.Sprintf("the pod %s of %s is ready, but no endpoint has the port %q", found.readyPods()[0].Name, b, port.Name), "see whether kube-controller-manager runs, which writes the EndpointSlices", slicesOf}
	case len(found.pods) > 0:
		return found.notReady(b)
	case deployment == nil:
		return &problem{none, "check the labels of the pods, and the Deployment that is to create them", kubectl("get", "pods,deployments.apps", b.flag(), "--show-labels")}
	case deployment.Spec.Replicas != nil && *deployment.Spec.Replicas == 0:
		return &problem{fmt.Sprintf("%s, since the Deployment %s is to have none", none, deployment.Name), "scale it up",
			kubectl("scale", b.flag(), "deployments.apps/"+deployment.Name, "--replicas=1")}
	default:
		why := ""
		for _, condition := range deployment.Status.Conditions {
			if condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue {
				why = " (" + condition.Message + ")"
			}
		}
		return &problem{fmt.Sprintf("%s, since none of the Deployment %s can be created%s", none, deployment.Name, why), "see its events and those of its ReplicaSet",
			kubectl("describe", b.flag(), "deployments.apps,replicasets.apps", "--selector="+selector)}
	}
}

// notReady returns an error that says why the pods of a Service are not ready.
func (found behind) notReady(b backend) error {
	pod := found.pods[0]
	why, command := "", kubectl("describe", "pod", pod.Name, b.flag())
	if condition := podCondition(pod, corev1.PodScheduled); condition.Status == corev1.ConditionFalse {
		why = ": " + condition.Reason + ", " + condition.Message
	}
	for _, container := range pod.Status.ContainerStatuses {
		if waiting := container.State.Waiting; waiting != nil && waiting.Reason != "" {
			why = ": " + waiting.Reason
		}
		if container.RestartCount > 0 {
			command = kubectl("logs", pod.Name, b.flag(), "--container="+container.Name, "--previous")
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

func hasPort(pod corev1.Pod, name string) bool {
	return slices.ContainsFunc(portsOf(pod), func(port corev1.ContainerPort) bool { return port.Name == name })
}

// endpoints returns the ready addresses behind a Service. An unknown state counts as ready, as the
// API says.
func (e *examination) endpoints(ctx context.Context, b backend, port corev1.ServicePort) (addresses []string, err error) {
	list, err := e.kube.DiscoveryV1().EndpointSlices(b.namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + b.name})
	if err != nil {
		return nil, err
	}
	for _, slice := range list.Items {
		for _, endpointPort := range slice.Ports {
			if endpointPort.Port == nil || ptr.Deref(endpointPort.Name, "") != port.Name {
				continue
			}
			for _, endpoint := range slice.Endpoints {
				if !ptr.Deref(endpoint.Conditions.Ready, true) {
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
