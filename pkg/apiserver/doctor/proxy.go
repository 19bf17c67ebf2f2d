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
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpproxy"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// environment is where the server finds its proxy.
type environment struct {
	of    string
	proxy httpproxy.Config
}

// checkProxy looks whether requests that have to stay in the cluster would go through
// a proxy. Those to this machine never do, whatever NO_PROXY says.
func (e *examination) checkProxy(ctx context.Context) []Result {
	destinations, err := e.destinations(ctx)
	if err != nil {
		return []Result{unreadable("the addresses in the cluster", err)}
	}
	environments, err := e.environments(ctx)
	if err != nil {
		return []Result{unreadable("the pods of the server", err)}
	}
	var results []Result
	for _, environment := range environments {
		through := environment.proxy.ProxyFunc()
		var exceptions, reasons []string
		for _, destination := range destinations {
			proxy, err := through(&url.URL{Scheme: "https", Host: destination.address})
			if err != nil {
				return []Result{failure(fmt.Sprintf("HTTPS_PROXY of %s can't be used (%v)", environment.of, err), "correct it")}
			}
			if proxy != nil {
				exceptions = append(exceptions, destination.exception)
				reasons = append(reasons, destination.purpose+" ("+destination.address+")")
			}
		}
		if len(exceptions) > 0 {
			results = append(results, warning(fmt.Sprintf("by the environment of %s, requests to %s go through the proxy of HTTPS_PROXY", environment.of, strings.Join(reasons, ", ")),
				"add "+strings.Join(exceptions, ",")+" to NO_PROXY"))
		}
	}
	if len(results) == 0 {
		results = append(results, ok("no proxy is between the server and the cluster"))
	}
	return results
}

// destination is where the server sends requests.
type destination struct {
	// purpose is who is there, and exception what NO_PROXY has to have for that.
	purpose, address, exception string
}

// destinations are looked up as the server does it: a webhook's Service by its cluster
// IP, so that its name in NO_PROXY is of no use.
func (e *examination) destinations(ctx context.Context) ([]destination, error) {
	// The server's account may list them, and not get one.
	services, err := e.kube.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	webhooks, err := e.webhooks(ctx)
	if err != nil {
		return nil, err
	}
	targets := map[backend]string{newBackend(metav1.NamespaceDefault, "kubernetes", nil): "kube-apiserver"}
	for _, webhook := range webhooks {
		if service := webhook.client.Service; service != nil && e.asks(webhook) {
			target := newBackend(service.Namespace, service.Name, service.Port)
			if targets[target] == "" {
				targets[target] = "the webhooks of " + target.String()
			}
		}
	}
	var destinations []destination
	for target, purpose := range targets {
		for _, service := range services.Items {
			if service.Namespace != target.namespace || service.Name != target.name {
				continue
			}
			host := service.Spec.ClusterIP
			if service.Spec.Type == corev1.ServiceTypeExternalName {
				host = service.Spec.ExternalName
			}
			if host == corev1.ClusterIPNone { // The server can't use it.
				continue
			}
			destinations = append(destinations, destination{purpose, net.JoinHostPort(host, strconv.Itoa(int(target.port))), host})
		}
	}
	slices.SortFunc(destinations, func(a, b destination) int { return strings.Compare(a.purpose, b.purpose) })
	for _, server := range e.EtcdServers {
		if address, err := url.Parse(server); err == nil && address.Host != "" {
			destinations = append(destinations, destination{"etcd", address.Host, address.Hostname()})
		}
	}
	return destinations, nil
}

// environments are those of the server's pods, as far as they name variables, or
// this process's own, which may be in such a pod, if there are none or they may not be
// read from there.
func (e *examination) environments(ctx context.Context) ([]environment, error) {
	var environments []environment
	for _, backend := range e.backends() {
		service, err := e.kube.CoreV1().Services(backend.namespace).Get(ctx, backend.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		pods, err := e.pods(ctx, service)
		if apierrors.IsForbidden(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, pod := range pods {
			for _, container := range pod.Spec.Containers {
				proxy := httpproxy.Config{HTTPSProxy: variable(container, "HTTPS_PROXY"), NoProxy: variable(container, "NO_PROXY")}
				// Replicas have the same.
				if !slices.ContainsFunc(environments, func(known environment) bool { return known.proxy == proxy }) {
					environments = append(environments, environment{"the pod " + pod.Name, proxy})
				}
			}
		}
	}
	if len(environments) == 0 {
		environments = append(environments, environment{"this command", *httpproxy.FromEnvironment()})
	}
	return environments, nil
}

// variable is the value that a program sees, which looks for the lower-case name
// first, as far as the container itself says it.
func variable(container corev1.Container, name string) string {
	for _, name := range []string{strings.ToLower(name), name} {
		for _, variable := range container.Env {
			if variable.Name == name && variable.Value != "" {
				return variable.Value
			}
		}
	}
	return ""
}
