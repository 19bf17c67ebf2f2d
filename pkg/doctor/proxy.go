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
	"os"
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
func (e *examination) checkProxy(ctx context.Context) ([]Finding, error) {
	destinations, err := e.destinations(ctx)
	if err != nil {
		return nil, unreadable{"the addresses in the cluster", err}
	}
	environments, err := e.environments(ctx)
	if err != nil {
		return nil, unreadable{"the pods of the server", err}
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
				return []Finding{failure(fmt.Sprintf("HTTPS_PROXY of %s can't be used (%v)", environment.of, err), "correct it")}, nil
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
	return orOK(results, "no proxy is between the server and the cluster"), nil
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
	// The server's account may list Services, but not get one.
	services, err := e.kube.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	webhooks, err := admission.ListWebhooks(ctx, e.kube)
	if err != nil {
		return nil, err
	}
	targets := map[backend]string{newBackend(metav1.NamespaceDefault, "kubernetes", nil): "kube-apiserver"}
	for _, webhook := range webhooks {
		if service := webhook.Client.Service; service != nil && e.concerns(webhook.Rules) {
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
	etcd, err := e.Egress(egressselector.Etcd.AsNetworkContext())
	if err != nil {
		return nil, err
	}
	for _, server := range e.EtcdServers {
		if etcd != nil { // With a dialer, gRPC uses no proxy.
			break
		}
		if address, err := url.Parse(server); err == nil && address.Host != "" {
			destinations = append(destinations, destination{"etcd", address.Host, address.Hostname()})
		}
	}
	return destinations, nil
}

// environments returns the environments of the server's pods. If there are no pods, or this user
// may not read them, it returns this process's own: this may be such a pod.
func (e *examination) environments(ctx context.Context) ([]environment, error) {
	var environments []environment
	for _, backend := range e.backends() {
		found, err := e.look(ctx, backend)
		if apierrors.IsForbidden(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, pod := range found.pods {
			for _, container := range pod.Spec.Containers {
				found := environment{of: "the pod " + pod.Name, hidden: hidden(container), proxy: proxyConfig(func(name string) string { return variable(container, name) })}
				// Replicas have the same environment.
				if !slices.ContainsFunc(environments, func(known environment) bool {
					return known.hidden == found.hidden && known.proxy == found.proxy
				}) {
					environments = append(environments, found)
				}
			}
		}
	}
	if len(environments) == 0 && !e.foreign {
		environments = append(environments, environment{of: "this command", proxy: proxyConfig(os.Getenv)})
	}
	return environments, nil
}

// proxyConfig returns the proxy that net/http takes from an environment for https.
func proxyConfig(variable func(name string) string) httpproxy.Config {
	either := func(name string) string { return cmp.Or(variable(name), variable(strings.ToLower(name))) }
	return httpproxy.Config{HTTPSProxy: either("HTTPS_PROXY"), NoProxy: either("NO_PROXY")}
}

// variable returns the value of a variable, if the container itself has it.
func variable(container corev1.Container, name string) string {
	i := slices.IndexFunc(container.Env, func(variable corev1.EnvVar) bool { return variable.Name == name })
	if i < 0 {
		return ""
	}
	return container.Env[i].Value
}

// hidden reports whether the container may get variables about proxies from elsewhere.
func hidden(container corev1.Container) bool {
	return len(container.EnvFrom) > 0 || slices.ContainsFunc(container.Env, func(variable corev1.EnvVar) bool {
		return variable.ValueFrom != nil && slices.Contains([]string{"HTTPS_PROXY", "NO_PROXY"}, strings.ToUpper(variable.Name))
	})
}
