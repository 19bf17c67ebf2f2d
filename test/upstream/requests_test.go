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

package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/util/webhook"
)

// newPod is a pod of k8s.io/apiserver's example group.
func newPod(name string) string {
	return fmt.Sprintf(`{"apiVersion":"example.apiserver.k8s.io/v1","kind":"Pod","metadata":{"name":%q}}`, name)
}

// answer is what a server answers.
type answer struct {
	code        int
	contentType string
	body        string
}

// send sends a request.
func send(t *testing.T, method, url, mediaType, body string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", mediaType)
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header.Get("Content-Type"), string(content)}
}

// TestAnswers has requests that are answered with the wrong code.
func TestAnswers(t *testing.T) {
	pods := servePods(t)
	server := strings.TrimSuffix(pods, "/apis/example.apiserver.k8s.io/v1/namespaces/default/pods")
	if created := send(t, http.MethodPost, pods, "application/json", newPod("a")); created.code != http.StatusCreated {
		t.Fatal(created)
	}
	type request struct {
		method, url, mediaType, body string
		code                         int
		part                         string
	}
	version := func(name, version string) string {
		return strings.Replace(newPod(name), `"name"`, fmt.Sprintf(`"resourceVersion":%q,"name"`, version), 1)
	}
	large := strings.Replace(newPod("b"), `"metadata"`, `"spec":{"hostname":"`+strings.Repeat("a", 2<<20)+`"},"metadata"`, 1)
	each(t, map[int]request{
		12: {http.MethodPatch, pods + "/a", "application/strategic-merge-patch+json", `{"spec":{"$patch":"x"}}`, http.StatusInternalServerError, ""},
		13: {http.MethodPut, pods + "/a", "application/json", version("a", "x"), http.StatusInternalServerError, ""},
		15: {http.MethodPost, pods, "application/json", version("b", "1"), http.StatusInternalServerError, ""},
		16: {http.MethodGet, strings.Replace(pods, "/default/", "/%2e%2e/", 1) + "/a", "", "", http.StatusInternalServerError, ""},
		17: {http.MethodGet, server + "/apis/example.apiserver.k8s.io/v1/watch", "", "", http.StatusInternalServerError, ""},
		21: {http.MethodPost, pods, "application/json", large, http.StatusInternalServerError, ""},
		27: {http.MethodGet, server + "/openapi/v3/apis?hash=0", "", "", http.StatusMovedPermanently, ""},
		28: {http.MethodGet, server + "/openapi/v3", "", "", http.StatusOK, `"apis":`},
	}, func(t *testing.T, r request) {
		a := send(t, r.method, r.url, r.mediaType, r.body)
		if a.code != r.code || !strings.Contains(a.body, r.part) {
			fixed(t, "%s %s is answered with %d: %s", r.method, r.url, a.code, a.body)
		}
	})
}

func TestCanceledRequestIsInternalError(t *testing.T) {
	if status := responsewriters.ErrorToAPIStatus(context.Canceled); status.Code != http.StatusInternalServerError {
		fixed(t, "a request that its client has given up is answered with %d", status.Code)
	}
}

func TestUndecidedAuthorizationIsInternalError(t *testing.T) {
	config, _, _ := newConfig(t)
	config.Authorization.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", errors.New("kube-apiserver does not answer")
	})
	a := send(t, http.MethodGet, serve(t, config)+"/apis", "", "")
	if a.code != http.StatusInternalServerError || !strings.HasPrefix(a.contentType, "text/plain") {
		fixed(t, "a request that nobody could authorize is answered with %d and %s", a.code, a.contentType)
	}
}

func TestWebhookServiceIsFoundByDNS(t *testing.T) {
	address, err := webhook.NewDefaultServiceResolver().ResolveEndpoint("default", "webhook", 443)
	if err != nil || address.Hostname() != "webhook.default.svc" {
		fixed(t, "a Service is resolved to %v (%v)", address, err)
	}
}
