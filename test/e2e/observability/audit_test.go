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

package observability

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    users: [system:apiserver] # The server's own parts.
  - level: Metadata
    resources: [{group: restaurant.programming-kubernetes.info, resources: [pizzas/track]}]
  - level: RequestResponse
    resources: [{group: restaurant.programming-kubernetes.info, resources: [pizzas/bake]}]
  - level: Request
    resources: [{group: restaurant.programming-kubernetes.info, resources: [pizzas]}]
  - level: None
`

// auditSink answers an audit webhook. Its kubeconfig is what leads there.
func auditSink(t *testing.T, answer http.HandlerFunc) (kubeconfig string) {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["sink"] = &clientcmdapi.Cluster{
		Server:                   server.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	config.Contexts["sink"] = &clientcmdapi.Context{Cluster: "sink"}
	config.CurrentContext = "sink"
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, kubeconfig))
	return kubeconfig
}

// The log and the webhook record of a request what the policy says. They name the users
// that it is by and for.
func TestAudit(t *testing.T) {
	t.Parallel()
	received := make(chan auditv1.Event, 100)
	sink := auditSink(t, func(_ http.ResponseWriter, request *http.Request) {
		var list auditv1.EventList
		if err := json.NewDecoder(request.Body).Decode(&list); err != nil {
			list.Items = []auditv1.Event{{AuditID: "undecodable"}}
		}
		for _, event := range list.Items {
			received <- event
		}
	})
	server := framework.NewServer(t, cp, framework.Flags("--audit-policy-file="+framework.File(t, auditPolicy), "--audit-log-path=audit.log",
		"--audit-webhook-config-file="+sink, "--run-controllers=false"))
	require.NoError(t, server.Start(t.Context()))
	framework.Stock(t, cp, server)

	editor := framework.FrontProxy(t, cp, server, cp.PKI.FrontProxyCA, "editor", "system:masters")
	const pizzas = framework.PizzasPath
	impersonating := framework.FrontProxy(t, cp, server, cp.PKI.FrontProxyCA, "admin", "system:masters")
	impersonating.Impersonate.UserName = "stranger"
	for _, request := range []struct {
		by                 *rest.Config
		method, path, body string
		want               int
	}{
		{editor, "POST", pizzas, `{"metadata":{"name":"margherita"},"spec":{"toppings":[{"name":"tomato"}],"replicas":2}}`, 201},
		{editor, "POST", pizzas + "/margherita/bake", `{"spec":{"count":1}}`, 201},
		{editor, "PATCH", pizzas + "/margherita?fieldManager=editor", `{apiVersion: restaurant.programming-kubernetes.info/v1, kind: Pizza, metadata: {labels: {hidden: "no"}}}`, 200},
		{editor, "GET", pizzas + "/margherita/track?follow=true&timeoutSeconds=1", "", 200},
		{impersonating, "GET", pizzas + "/margherita", "", 403},
	} {
		code, err := codeOf(request.by, request.method, request.path, request.body)
		require.NoError(t, err)
		require.Equal(t, request.want, code, "%s %s", request.method, request.path)
	}
	require.NoError(t, server.Stop(), "All events are sent until then.")

	type record struct {
		Stage                   auditv1.Stage
		Level                   auditv1.Level
		Verb, Object            string
		User, For               string
		Code                    int32
		HasRequest, HasResponse bool
	}
	groups := map[string][]string{}
	var records []record
	logged := framework.AuditEvents(t, filepath.Join(server.Dir(), "audit.log"), "")
	for _, event := range logged {
		record := record{
			Stage: event.Stage, Level: event.Level, Verb: event.Verb, User: event.User.Username, Code: event.ResponseStatus.Code,
			Object:     strings.TrimSuffix(event.ObjectRef.Resource+"/"+event.ObjectRef.Name+"/"+event.ObjectRef.Subresource, "/"),
			HasRequest: event.RequestObject != nil, HasResponse: event.ResponseObject != nil,
		}
		if event.ImpersonatedUser != nil {
			record.For = event.ImpersonatedUser.Username
		}
		groups[event.User.Username] = event.User.Groups
		records = append(records, record)
	}
	const complete = auditv1.StageResponseComplete
	require.Empty(t, cmp.Diff([]record{
		{complete, auditv1.LevelRequest, "create", "pizzas/margherita", "editor", "", 201, true, false},
		{complete, auditv1.LevelRequestResponse, "create", "pizzas/margherita/bake", "editor", "", 201, true, true},
		{complete, auditv1.LevelRequest, "patch", "pizzas/margherita", "editor", "", 200, true, false},
		{auditv1.StageResponseStarted, auditv1.LevelMetadata, "get", "pizzas/margherita/track", "editor", "", 200, false, false},
		{complete, auditv1.LevelMetadata, "get", "pizzas/margherita/track", "editor", "", 200, false, false},
		{complete, auditv1.LevelRequest, "get", "pizzas/margherita", "admin", "stranger", 403, false, false},
	}, records))
	require.Equal(t, map[string][]string{"editor": {"system:masters", "system:authenticated"}, "admin": {"system:masters", "system:authenticated"}}, groups)
	require.Equal(t, authenticationv1.UserInfo{Username: "editor", Groups: []string{"system:masters", "system:authenticated"}}, logged[0].User)

	close(received)
	var sent []auditv1.Event
	for event := range received {
		event.TypeMeta = logged[0].TypeMeta // A list has it once.
		sent = append(sent, event)
	}
	order := cmpopts.SortSlices(func(a, b auditv1.Event) bool {
		return string(a.AuditID)+string(a.Stage) < string(b.AuditID)+string(b.Stage)
	})
	require.Empty(t, cmp.Diff(logged, sent, order))
}

// codeOf sends a request and returns the code of the answer when all of it is there.
func codeOf(config *rest.Config, method, path, body string) (int, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequest(method, config.Host+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", string(types.ApplyYAMLPatchType))
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = new(bytes.Buffer).ReadFrom(response.Body)
	return response.StatusCode, err
}

// A server stops, although nobody takes what it has recorded.
func TestStopWithoutCollectors(t *testing.T) {
	framework.Long(t, "servers are stopped while nobody takes what they send")
	t.Parallel()
	refusing := auditSink(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	server := framework.NewServer(t, cp, framework.Flags("--audit-policy-file="+framework.File(t, auditPolicy), "--audit-webhook-config-file="+refusing,
		"--tracing-config-file="+tracingConfig(t, &traceCollector{address: "127.0.0.1:1"}, 1e6)))
	require.NoError(t, server.Start(t.Context()))
	_, err := framework.ClientAt(t, cp, server).RestaurantV1().Pizzas("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.NoError(t, server.Stop())
	log, err := os.ReadFile(server.LogFile())
	require.NoError(t, err)
	require.Contains(t, string(log), "The last audit events are lost, since the webhook of --audit-webhook-config-file has not taken them")
	require.Contains(t, string(log), "failed to shut down tracer provider: context deadline exceeded")
}
