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

package filters

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

func TestElements(t *testing.T) {
	const (
		json, yaml, apply, protobuf = "application/json", "application/yaml", "application/apply-patch+yaml", "application/vnd.kubernetes.protobuf"

		tooMany  = "all lists and objects together must not have more than 20000 elements"
		tooLong  = "YAML must not have more than 20000 lines and commas: send JSON"
		tooOther = "YAML must be in UTF-8"
	)
	// Each has two elements too many.
	list := "[" + strings.Repeat("0,", maxElements+1) + "0]"
	object := "{" + strings.Repeat(`"a":1,`, maxElements+1) + `"a":1}`
	half := strings.Repeat("0,", maxElements/2) + "0"
	for name, test := range map[string]struct{ mediaType, body, want string }{
		"at the limit":                {json, "[" + strings.Repeat("0,", maxElements-1) + "0]", ""},
		"a list":                      {json, list, tooMany},
		"an object":                   {json, object, tooMany},
		"two lists":                   {json, `{"a":[` + half + `],"b":[` + half + `]}`, tooMany},
		"a list that is cut off":      {json, strings.TrimSuffix(list, "]"), tooMany},
		"commas in a string":          {json, `{"a":"` + strings.Repeat(`\",`, maxElements+1) + `"}`, ""},
		"another patch":               {"application/merge-patch+json", object, tooMany},
		"no media type":               {"", object, tooMany},
		"YAML":                        {yaml, strings.Repeat("- a\n", maxElements), ""},
		"YAML with a line more":       {yaml, strings.Repeat("- a\n", maxElements+1), tooLong},
		"YAML with old line breaks":   {yaml, strings.Repeat("- a\r", maxElements+1), tooLong},
		"YAML with other breaks":      {yaml, strings.Repeat("- a\u0085- a\u2028- a\u2029", maxElements/3+1), tooLong},
		"YAML in flow style":          {yaml, strings.ReplaceAll(object, `"`, ""), tooLong},
		"YAML with an odd quote":      {yaml, `{'"': ` + list + `}`, tooLong},
		"YAML in UTF-16":              {yaml, "\xff\xfea\x00", tooOther},
		"YAML in the other UTF-16":    {apply, "\xfe\xff\x00a", tooOther},
		"an apply patch":              {apply, strings.Repeat("- a\n", maxElements+1), tooLong},
		"an apply patch in JSON":      {apply, object, tooMany},
		"commas in an apply patch":    {apply, `{"a":"` + strings.Repeat(",", maxElements+1) + `"}`, ""},
		"protobuf is looked at later": {protobuf, list, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkElements(test.mediaType, []byte(test.body))
			if (err == nil) != (test.want == "") || err != nil && err.Error() != test.want {
				t.Errorf("got error %v, want %q", err, test.want)
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
			handler := WithRequestChecks(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
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
