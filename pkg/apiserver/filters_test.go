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

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
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
			handler := withPatchDepth(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
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

func TestRequestInfo(t *testing.T) {
	resolver := requestInfoResolver{&genericapirequest.RequestInfoFactory{APIPrefixes: sets.NewString("apis")}}
	for path, want := range map[string]genericapirequest.RequestInfo{
		"/apis/example.com/v1/watch": {Path: "/apis/example.com/v1/watch", Verb: "get"},
		"/apis/example.com/v1/things": {
			Path: "/apis/example.com/v1/things", Verb: "list", IsResourceRequest: true, APIPrefix: "apis",
			APIGroup: "example.com", APIVersion: "v1", Resource: "things", Parts: []string{"things"},
		},
	} {
		t.Run(path, func(t *testing.T) {
			got, err := resolver.NewRequestInfo(httptest.NewRequest(http.MethodGet, path, nil))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, *got); diff != "" {
				t.Errorf("unexpected request info (-want +got):\n%s", diff)
			}
		})
	}
}
