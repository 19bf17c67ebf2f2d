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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/example/install"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
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
		json, yaml, apply = "application/json", "application/yaml", "application/apply-patch+yaml"

		tooMany  = "all lists and objects together must not have more than 100 elements"
		tooLong  = "YAML must not have more than 100 lines, commas, brackets and dashes outside of strings: send JSON"
		tooOther = "YAML must be in UTF-8"
	)
	bounds := Bounds{BodyElements: 100}
	// Each has two elements too many.
	list := "[" + strings.Repeat("0,", bounds.BodyElements+1) + "0]"
	object := "{" + strings.Repeat(`"a":1,`, bounds.BodyElements+1) + `"a":1}`
	half := strings.Repeat("0,", bounds.BodyElements/2) + "0"
	for name, test := range map[string]struct{ mediaType, body, want string }{
		"at the limit":              {json, "[" + strings.Repeat("0,", bounds.BodyElements-1) + "0]", ""},
		"a list":                    {json, list, tooMany},
		"an object":                 {json, object, tooMany},
		"two lists":                 {json, `{"a":[` + half + `],"b":[` + half + `]}`, tooMany},
		"a list that is cut off":    {json, strings.TrimSuffix(list, "]"), tooMany},
		"commas in a string":        {json, `{"a":"` + strings.Repeat(`\",`, bounds.BodyElements+1) + `"}`, ""},
		"another patch":             {"application/merge-patch+json", object, tooMany},
		"no media type":             {"", object, tooMany},
		"YAML":                      {yaml, strings.Repeat("- a\n", bounds.BodyElements), ""},
		"YAML with a line more":     {yaml, strings.Repeat("- a\n", bounds.BodyElements+1), tooLong},
		"YAML with old line breaks": {yaml, strings.Repeat("- a\r", bounds.BodyElements+1), tooLong},
		"YAML with other breaks":    {yaml, strings.Repeat("- a\u0085- a\u2028- a\u2029", bounds.BodyElements/3+1), tooLong},
		"YAML in flow style":        {yaml, strings.ReplaceAll(object, `"`, ""), tooLong},
		"YAML of many brackets":     {yaml, "a: " + strings.Repeat("[", bounds.BodyElements), tooLong},
		"YAML of many dashes":       {yaml, strings.Repeat("- ", bounds.BodyElements+1), tooLong},
		"YAML with an odd quote":    {yaml, `{'"': ` + list + `}`, tooLong},
		"YAML in UTF-16":            {yaml, "\xff\xfea\x00", tooOther},
		"YAML in the other UTF-16":  {apply, "\xfe\xff\x00a", tooOther},
		"an apply patch":            {apply, strings.Repeat("- a\n", bounds.BodyElements+1), tooLong},
		"an apply patch in JSON":    {apply, object, tooMany},
		"commas in an apply patch":  {apply, `{"a":"` + strings.Repeat(",", bounds.BodyElements+1) + `"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			requireError(t, bounds.checkElements(test.mediaType, []byte(test.body), 1<<20), test.want)
		})
	}
}

// requireError fails unless the error has this message, or is none if that is empty.
func requireError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Fatalf("unexpected error: %.300v", err)
	case want != "" && (err == nil || err.Error() != want):
		t.Fatalf("got error %.300v, want %q", err, want)
	}
}

// Each of these verbs once let through a body that nothing had looked at, or none did.
func TestBodies(t *testing.T) {
	const maxBody = 1 << 10
	bounds := DefaultBounds()
	bounds.BodyElements = 100
	deep := strings.Repeat(`{"a":`, bounds.PatchDepth+1) + "1" + strings.Repeat("}", bounds.PatchDepth+1)
	wide := "[" + strings.Repeat("0,", bounds.BodyElements) + "0]"
	const tooDeep, tooMany = "the patch is nested more than 100 levels deep", "all lists and objects together must not have more than 100 elements"
	for name, test := range map[string]struct {
		verb, body, wantMessage string
	}{
		"a patch passes with its body":             {"patch", `{"a":1}`, ""},
		"a deep patch is refused":                  {"patch", deep, tooDeep},
		"what is too large is left to the handler": {"patch", strings.Repeat(" ", maxBody+1) + deep, ""},
		"an object that is created passes":         {"create", deep, ""},
		"many elements are refused to create":      {"create", wide, tooMany},
		"many elements are refused to update":      {"update", wide, tooMany},
		"many elements are refused to delete":      {"delete", wide, tooMany},
		"many are refused to delete a collection":  {"deletecollection", wide, tooMany},
		"the body of a get is not looked at":       {"get", wide, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var passed string
			handler := WithMemoryBounds(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				body, err := io.ReadAll(req.Body)
				if err != nil {
					t.Error(err)
				}
				passed = string(body)
			}), newCodecs(), isWatch, bounds, maxBody)

			answer := serve(handler, withInfo(httptest.NewRequest(http.MethodPatch, "/", strings.NewReader(test.body)), test.verb))
			requireStatus(t, answer, test.wantMessage, http.StatusBadRequest)
			if test.wantMessage == "" && passed != test.body {
				t.Errorf("the handler got a body of %d bytes, want %d", len(passed), len(test.body))
			}
		})
	}
}

func isWatch(_ *http.Request, info *genericapirequest.RequestInfo) bool { return info.Verb == "watch" }

// newCodecs know the types of every API and those of the library's example.
func newCodecs() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme)
}

func withInfo(req *http.Request, verb string) *http.Request {
	return req.WithContext(genericapirequest.WithRequestInfo(req.Context(), &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: verb, APIVersion: "v1", Resource: "things",
	}))
}

func serve(handler http.Handler, req *http.Request) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, req)
	return answer
}

// requireStatus fails unless the answer is a Status with this message and code, or 200 if
// there is to be no message.
func requireStatus(t *testing.T, answer *httptest.ResponseRecorder, message string, code int) {
	t.Helper()
	if message == "" {
		if answer.Code != http.StatusOK {
			t.Fatalf("got status %d: %.300s", answer.Code, answer.Body)
		}
		return
	}
	var status metav1.Status
	if err := json.Unmarshal(answer.Body.Bytes(), &status); err != nil {
		t.Fatalf("%v: %.300s", err, answer.Body)
	}
	if status.Kind != "Status" || status.Message != message || int(status.Code) != code || answer.Code != code {
		t.Errorf("got status %d with %+v, want %d with message %q", answer.Code, status, code, message)
	}
}
