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
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpproxy"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/egressselector"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
)

// environment has the variables that tell the server its proxy.
type environment struct {
	of string
	// hidden is set if they can't be seen from here.
	hidden bool
	proxy  httpproxy.Config
}

// checkProxy warns of requests within the cluster that would go through a proxy. Requests to this
// machine never do, regardless of NO_PROXY.
func (e *examination) checkProxy(ctx context.Context) []Finding {
	destinations, err := e.destinations(ctx)
	if err != nil {
		return unread("the addresses in the cluster", err)
	}
	environments, err := e.environments(ctx)
	if err != nil {
		return unread("the pods of the server", err)
	}
	var results []Finding
	for _, environment := range environments {
		if environment.hidden {
			results = append(results, Finding{Status: Skipped, Cause: fmt.Sprintf("the environment of %s is not all in its manifest", environment.of), Fix: "run this in it"})
			continue
		}
		through := environment.proxy.ProxyFunc()
		var exceptions, reasons []string
		for _, destination := range destinations {
			proxy, err := through(&url.URL{Scheme: "https", Host: destination.address})
			if err != nil {
				return []Finding{failure(fmt.Sprintf("HTTPS_PROXY of %s can't be used (%v)", environment.of, err), "correct it")}
			}
			if proxy != nil {
				exceptions = append(exceptions, destination.exception)
				reasons = append(reasons, destination.purpose+" ("+destination.address+")")
			}
		}
		if len(exceptions) > 0 {
			results = append(results, warning(fmt.Sprintf("by the environment of %s, requests to %s go through the proxy of HTTPS_PROXY", environment.of, strings.Join(reasons, ", ")),
				"add "+strings.Join(exceptions, ",")+" to NO_PROXY").by(e.setEnvironment(ctx, "NO_PROXY="+strings.TrimPrefix(environment.proxy.NoProxy+","+strings.Join(exceptions, ","), ","))))
		}
	}
	return orOK(results, "no proxy is between the server and the cluster")
}

// setEnvironment returns a command that gives a variable to the server.
func (e *examination) setEnvironment(ctx context.Context, variable string) string {
	for _, b := range e.backends() {
		if found, err := e.look(ctx, b); err == nil && found.deployment != nil {
			return kubectl("set", "env", "deployments.apps/"+found.deployment.Name, b.flag(), variable)
		}
	}
	return ""
}

// destination is an address that the server sends requests to.
type destination struct {
	// purpose names the receiver, and exception is the entry of NO_PROXY for the address.
	purpose, address, exception string
}

// destinations returns the addresses as the server looks them up. It uses the cluster IP of a
// webhook's Service, so that its name in NO_PROXY has no effect.
func (e *examination) destinations(ctx context.Context) ([]destination, error) {
	webhooks, err := admission.ListWebhooks(ctx, e.kube)
	if err != nil {
		return nil, err
	}
	targets := map[backend]string{newBackend(metav1.NamespaceDefault, "kubernetes", nil): "kube-apiserver"}
	for _, webhook := range webhooks {
		if service := webhook.Client.Service; service != nil && e.concerns(webhook.Rules) {
			target := newBackend(service.Namespace, service.Name, service.Port)
			targets[target] = cmp.Or(targets[target], "the webhooks of "+target.String())
		}
	}
	var destinations []destination
	for target, purpose := range targets {
		service, err := e.service(ctx, target)
		if err != nil {
			return nil, err
		}
		if service == nil || service.Spec.ClusterIP == corev1.ClusterIPNone { // The server can't use it.
			continue
		}
		host := service.Spec.ClusterIP
		if service.Spec.Type == corev1.ServiceTypeExternalName {
			host = service.Spec.ExternalName
		}
		destinations = append(destinations, destination{purpose, net.JoinHostPort(host, strconv.Itoa(int(target.port))), host})
	}
	slices.SortFunc(destinations, func(a, b destination) int { return strings.Compare(a.purpose, b.purpose) })
	etcd, err := e.Egress(egressselector.Etcd.AsNetworkContext())
	if err != nil || etcd != nil { // With a dialer, gRPC uses no proxy.
		return destinations, err
	}
	for _, server := range e.EtcdServers {
		if address, err := url.Parse(server); err == nil && address.Host != "" {
			destinations = append(destinations, destination{"etcd", address.Host, address.Hostname()})
		}
	}
	return destinations, nil
}

// environments returns the environments of the server's pods. If there are no pods, or this user
// may not read them, it returns this process's own: this may be such a pod.
func (e *examination) environments(ctx context.Context) (environments []environment, err error) {
	for _, backend := range e.backends() {
		found, err := e.look(ctx, backend)
		if err != nil && !apierrors.IsForbidden(err) {
			return nil, err
		}
		if len(found.pods) == 0 {
			continue
		}
		pod := found.pods[0] // Replicas have the same environment.
		for _, container := range pod.Spec.Containers {
			proxy, hidden := proxyOf(container)
			if found := (environment{"the pod " + pod.Name, hidden, proxy}); !slices.Contains(environments, found) {
				environments = append(environments, found)
			}
		}
	}
	if len(environments) == 0 && !e.foreign {
		environments = append(environments, environment{of: "this command", proxy: *httpproxy.FromEnvironment()})
	}
	return environments, nil
}

// proxyOf returns the proxy that net/http takes from the environment of a container, and reports
// whether the container may get its variables from elsewhere.
func proxyOf(container corev1.Container) (proxy httpproxy.Config, hidden bool) {
	values := map[string]string{}
	hidden = len(container.EnvFrom) > 0
	for _, variable := range container.Env {
		values[variable.Name] = variable.Value
		hidden = hidden || variable.ValueFrom != nil && slices.Contains([]string{"HTTPS_PROXY", "NO_PROXY"}, strings.ToUpper(variable.Name))
	}
	proxy.HTTPSProxy = cmp.Or(values["HTTPS_PROXY"], values["https_proxy"])
	proxy.NoProxy = cmp.Or(values["NO_PROXY"], values["no_proxy"])
	return proxy, hidden
}
