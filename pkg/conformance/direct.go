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

package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
)

// errItself says why no server is behind kube-apiserver.
var errItself = errors.New("kube-apiserver serves the group version itself")

// server returns the server of the resource's APIService, for requests past kube-apiserver. They
// have only their own credentials. An error says why there is no server.
func (p *Probe) server() (*endpoint, error) {
	if p.Group == "" {
		return nil, errItself
	}
	var registered apiregistrationv1.APIService
	if err := p.run.read(p.ctx, "/apis/apiregistration.k8s.io/v1/apiservices/"+p.Version+"."+p.Group, &registered); err != nil {
		return nil, err
	}
	service := registered.Spec.Service
	if service == nil {
		return nil, errItself
	}
	address, err := p.addressOf(service.Namespace, service.Name, ptr.Deref(service.Port, 443))
	if err != nil {
		return nil, err
	}
	connection, err := net.DialTimeout("tcp", address, 2*time.Second)
	if err != nil {
		return nil, fmt.Errorf("the server can't be reached from here: %w", err)
	}
	_ = connection.Close()
	return newEndpoint(&rest.Config{
		Host:          "https://" + address,
		WrapTransport: p.run.wrap,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: registered.Spec.CABundle, Insecure: registered.Spec.InsecureSkipTLSVerify, ServerName: service.Name + "." + service.Namespace + ".svc",
		},
	})
}

// addressOf returns the first address behind a port of a Service.
func (p *Probe) addressOf(namespace, name string, port int32) (string, error) {
	var service corev1.Service
	if err := p.run.read(p.ctx, "/api/v1/namespaces/"+namespace+"/services/"+name, &service); err != nil {
		return "", err
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return net.JoinHostPort(service.Spec.ExternalName, strconv.Itoa(int(port))), nil
	}
	named := ""
	for _, known := range service.Spec.Ports {
		if known.Port == port {
			named = known.Name
		}
	}
	var found discoveryv1.EndpointSliceList
	if err := p.run.read(p.ctx, "/apis/discovery.k8s.io/v1/namespaces/"+namespace+"/endpointslices?labelSelector="+discoveryv1.LabelServiceName+"="+name, &found); err != nil {
		return "", err
	}
	for _, slice := range found.Items {
		for _, known := range slice.Ports {
			if ptr.Deref(known.Name, "") == named && known.Port != nil && len(slice.Endpoints) > 0 && len(slice.Endpoints[0].Addresses) > 0 {
				return net.JoinHostPort(slice.Endpoints[0].Addresses[0], strconv.Itoa(int(*known.Port))), nil
			}
		}
	}
	return "", fmt.Errorf("the Service %s/%s has no endpoint", namespace, name)
}

// directly returns the option that sends a request past kube-apiserver. It ends the check if that
// is not possible.
func (p *Probe) directly() Option {
	server, err := p.server()
	p.OnlyIf(err == nil, "the check needs the server behind kube-apiserver: %v", err)
	return through(server)
}

// throughMain leaves the destination of a request unchanged.
func throughMain(*Request) {}

// doors returns the ways to the API. One leads through kube-apiserver, and another past it if that
// is possible.
func (p *Probe) doors() []Option {
	doors := []Option{throughMain}
	if server, err := p.server(); err == nil {
		doors = append(doors, through(server))
	}
	return doors
}

// actor is a user with permissions that the check gives.
type actor struct {
	subject rbacv1.Subject
	as      []Option
}

// user returns an impersonated user. It ends the check if the run's user may not impersonate. The
// suffix tells users of different checks apart.
func (p *Probe) user(suffix string, groups ...string) actor {
	name := p.Name(suffix)
	as := As(name, groups...)
	answer := p.Do(http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
	}, as)
	p.OnlyIf(answer.Code != http.StatusForbidden, "the check impersonates a user: %s", statusOf(answer))
	return actor{rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}, []Option{as}}
}

// account returns a service account. The server behind kube-apiserver accepts its token, too.
func (p *Probe) account(suffix string) actor {
	if p.accounts = cmp.Or(p.accounts, p.Namespace); p.accounts == "" {
		p.accounts = p.OtherNamespace("accounts")
	}
	name := p.Name(suffix)
	p.Make("{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: %s, name: %s}}", p.accounts, name)
	answer := p.Do(http.MethodPost, "/api/v1/namespaces/"+p.accounts+"/serviceaccounts/"+name+"/token", map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{"expirationSeconds": 600},
	})
	p.OnlyIf(answer.Code != http.StatusForbidden, "the check needs a token of a service account: %s", statusOf(answer))
	token, _, _ := unstructured.NestedString(p.Object(answer, http.StatusCreated).Object, "status", "token")
	p.Require(answer, token != "", "a token is expected") // Without a token, requests would be anonymous.
	return actor{
		rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: p.accounts, Name: name},
		[]Option{through(p.run.anonymous), Header("Authorization", "Bearer "+token)},
	}
}

// may gives the actor a permission in the check's namespace. Permissions for resources without
// namespaces apply everywhere.
func (p *Probe) may(who actor, suffix, verb, resource string, names ...string) {
	rule := rbacv1.PolicyRule{APIGroups: []string{p.Group}, Resources: []string{resource}, Verbs: []string{verb}, ResourceNames: names}
	scope, namespace := "", p.Namespace
	if namespace == "" {
		scope = "Cluster"
	}
	p.Make(`{apiVersion: rbac.authorization.k8s.io/v1, kind: %sRole, metadata: {namespace: %q, name: %s}, rules: [%s]}`, scope, namespace, p.Name(suffix), inJSON(rule))
	p.Make(`{apiVersion: rbac.authorization.k8s.io/v1, kind: %[1]sRoleBinding, metadata: {namespace: %[2]q, name: %[3]s}, subjects: [%[4]s],
		roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %[1]sRole, name: %[3]s}}`, scope, namespace, p.Name(suffix), inJSON(who.subject))
}
