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

package apiserver

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

func TestNestingExceeds(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want bool
	}{
		"nothing":                      {``, false},
		"a scalar":                     {`1`, false},
		"at the limit":                 {`{"a":[{"b":1}]}`, false},
		"above the limit":              {`{"a":[{"b":[]}]}`, true},
		"above the limit, cut off":     {`[[[[`, true},
		"side by side":                 {`[[],[],[],[],[]]`, false},
		"brackets in a string":         {`{"a":"[[[[[["}`, false},
		"an escaped quote in a string": {`{"a":"\"[[[[[["}`, false},
		"an escaped backslash":         {`{"a":"\\","b":[[[]]]}`, true},
		"more ends than beginnings":    {`]]]][[[`, false},
		"flow style of YAML":           {`a: {b: {c: {d: {}}}}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nestingExceeds([]byte(test.text), 3); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestListExceeds(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want bool
	}{
		"nothing":              {``, false},
		"at the limit":         {`[1,2,3]`, false},
		"above the limit":      {`[1,2,3,4]`, true},
		"further in":           {`{"a":[[1],{"b":[1,2,3,4]}]}`, true},
		"around other lists":   {`[[1,2],[1,2],[1,2],[1,2]]`, true},
		"many lists":           {`[[1,2,3],[1,2,3],[1,2,3]]`, false},
		"an object":            {`{"a":1,"b":2,"c":3,"d":4}`, false},
		"a list of objects":    {`[{"a":1,"b":2},{"a":1,"b":2}]`, false},
		"commas in a string":   {`[",,,,,\",,,,,"]`, false},
		"more ends than lists": {`]]}},,,,,[1,2]`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := listExceeds([]byte(test.text), 3); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestPatchDepth(t *testing.T) {
	scheme := runtime.NewScheme()
	registry.InstallMeta(scheme)
	deep := strings.Repeat(`{"a":`, maxPatchDepth+1) + "1" + strings.Repeat("}", maxPatchDepth+1)
	const maxBody = 1 << 10
	for name, test := range map[string]struct {
		verb, body string
		wantCode   int
	}{
		"a patch passes with its body":             {"patch", `{"a":1}`, http.StatusOK},
		"a deep patch is refused":                  {"patch", deep, http.StatusBadRequest},
		"what is too large is left to the handler": {"patch", strings.Repeat(" ", maxBody+1) + deep, http.StatusOK},
		"an object that is created passes":         {"create", deep, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			var passed string
			handler := withRequestChecks(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				body, err := io.ReadAll(req.Body)
				if err != nil {
					t.Fatal(err)
				}
				passed = string(body)
			}), serializer.NewCodecFactory(scheme), maxBody)

			req := httptest.NewRequest(http.MethodPatch, "/", strings.NewReader(test.body))
			req = req.WithContext(genericapirequest.WithRequestInfo(t.Context(), &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: test.verb, APIVersion: "v1"}))
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, req)

			if answer.Code != test.wantCode {
				t.Fatalf("got status %d, want %d: %s", answer.Code, test.wantCode, answer.Body)
			}
			if test.wantCode == http.StatusOK {
				if passed != test.body {
					t.Errorf("the handler got a body of %d bytes, want %d", len(passed), len(test.body))
				}
				return
			}
			var status metav1.Status
			if err := json.Unmarshal(answer.Body.Bytes(), &status); err != nil {
				t.Fatal(err)
			}
			if want := "the patch is nested more than 100 levels deep"; status.Message != want {
				t.Errorf("got message %q, want %q", status.Message, want)
			}
		})
	}
}

func TestNamespaceInPath(t *testing.T) {
	for namespace, want := range map[string]string{
		"": "", "default": "", "..": `the namespace ".." may not be '..'`, "a/b": `the namespace "a/b" may not contain '/'`,
	} {
		if got := checkNamespace(namespace); (got == nil) != (want == "") || got != nil && got.Error() != want {
			t.Errorf("got %v for %q, want %q", got, namespace, want)
		}
	}
}

// TestMalformedMediaTypeParameters fails if a parameter can hide from the checks
// what the body is.
func TestMalformedMediaTypeParameters(t *testing.T) {
	for contentType, wantRefused := range map[string]bool{
		"application/apply-patch+yaml":              true,
		"application/apply-patch+yaml; a=b; a=c":    true,
		"application/apply-patch+yaml;=":            true,
		"APPLICATION/APPLY-PATCH+YAML ; charset=x;": true,
		"application/json":                          false,
	} {
		t.Run(contentType, func(t *testing.T) {
			req := httptest.NewRequest(http.MethodPatch, "/", strings.NewReader("cost: '1e-999999999'\n"))
			req.Header.Set("Content-Type", contentType)
			if err := checkBody(req, "patch", 1<<10); (err != nil) != wantRefused {
				t.Errorf("got error %v, want one: %v", err, wantRefused)
			}
		})
	}
}
