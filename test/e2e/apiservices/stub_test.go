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

package apiservices

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// stub is a server of a few lines, without pods.
var stub = &server{namespace: "default", name: "stub", group: "stub.example.com", versions: []string{"v1"}, number: 14}

// registration has the stub be served.
func (s *server) registration() string {
	return fmt.Sprintf(`
{apiVersion: v1, kind: Service, metadata: {namespace: %[1]s, name: %[2]s}, spec: {clusterIP: %[3]s, ports: [{name: https, port: %[4]d}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: %[1]s, name: %[2]s, labels: {kubernetes.io/service-name: %[2]s}}, addressType: IPv4, endpoints: [{addresses: [%[7]s]}], ports: [{name: https, port: %[4]d}]}
---
{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.%[5]s}, spec: {group: %[5]s, version: v1, groupPriorityMinimum: 1000, versionPriority: 10, caBundle: %[6]s, service: {namespace: %[1]s, name: %[2]s, port: %[4]d}}}`,
		s.namespace, s.name, s.clusterIP(), port, s.group, base64.StdEncoding.EncodeToString(cp.PKI.ServingCA.CertPEM()), s.podIP())
}

// behaviour is what a stub does otherwise than it should.
type behaviour struct {
	resource, aggregated, described string
	noAggregated, noOpenAPI, noList bool
	delay                           time.Duration
	// seen, if set, sees every request.
	seen func(*http.Request)
}

// stubbed has a stub answer.
func stubbed(b behaviour) func(*testing.T, *server) {
	return func(t *testing.T, s *server) {
		t.Helper()
		require.NoError(t, s.relay.lead(serve(t, cp.PKI.ServingCA, controlplane.Certificate{Hosts: []string{s.host()}}, b.handler())))
	}
}

func (b behaviour) handler() http.Handler {
	or := func(a, b string) string {
		if a == "" {
			return b
		}
		return a
	}
	resource := or(b.resource, "things")
	const group = `"name":"stub.example.com"`
	legacy := fmt.Sprintf(`{"name":%q,"singularName":"","namespaced":true,"kind":"Thing","verbs":["delete","get","list","watch"]}`, resource)
	aggregated := fmt.Sprintf(`{"resource":%q,"responseKind":{"group":"","version":"","kind":"Thing"},"scope":"Namespaced","singularResource":"","verbs":["delete","get","list","watch"]}`, or(b.aggregated, resource))
	if resource == "-" {
		legacy, aggregated = "", ""
	}
	paths := fmt.Sprintf(`{"/apis/stub.example.com/v1/namespaces/{namespace}/%s":{"get":{"responses":{"200":{"description":"OK"}}}}}`, or(b.described, resource))
	answers := map[string]string{
		"/apis/stub.example.com/v1":             `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"stub.example.com/v1","resources":[` + legacy + `]}`,
		"/openapi/v3":                           `{"paths":{"apis/stub.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/stub.example.com/v1"}}}`,
		"/openapi/v3/apis/stub.example.com/v1":  `{"openapi":"3.0.0","info":{"title":"stub","version":"v1"},"paths":` + paths + `}`,
		"/openapi/v2":                           `{"swagger":"2.0","info":{"title":"stub","version":"v1"},"paths":` + paths + `}`,
		"/apis/stub.example.com/v1/" + resource: `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[]}`,
	}
	if b.noList {
		delete(answers, "/apis/stub.example.com/v1/"+resource)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.seen != nil {
			b.seen(r)
		}
		if strings.HasPrefix(r.URL.Path, "/apis/stub.example.com/v1") {
			time.Sleep(b.delay)
		}
		switch answer, found := answers[r.URL.Path]; {
		case r.URL.Path == "/apis" && b.noAggregated:
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/apis":
			w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
			fmt.Fprintf(w, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{%s},"versions":[{"version":"v1","resources":[%s],"freshness":"Current"}]}]}`, group, aggregated)
		case strings.HasPrefix(r.URL.Path, "/openapi") && b.noOpenAPI:
			w.WriteHeader(http.StatusNotFound)
		case found:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, answer)
		default:
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
}

// plain has a server answer that speaks no TLS.
func plain(t *testing.T, s *server) {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	require.NoError(t, s.relay.lead(server.Listener.Addr().String()))
}
