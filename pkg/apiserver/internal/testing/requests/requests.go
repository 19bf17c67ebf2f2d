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

// Package requests makes requests and answers for the tests of handlers.
package requests

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/example/install"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// As makes a request one of a user.
func As(req *http.Request, name string) *http.Request {
	return req.WithContext(genericapirequest.WithUser(req.Context(), &user.DefaultInfo{Name: name}))
}

// IsWatch reports whether the verb of a request is watch.
func IsWatch(_ *http.Request, info *genericapirequest.RequestInfo) bool { return info.Verb == "watch" }

// NewCodecs know the types of every API and of k8s.io/apiserver's example.
func NewCodecs() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme)
}

// WithInfo gives a request the RequestInfo of a verb on the resource things.
func WithInfo(req *http.Request, verb string) *http.Request {
	return req.WithContext(genericapirequest.WithRequestInfo(req.Context(), &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: verb, APIVersion: "v1", Resource: "things",
	}))
}

// Serve returns the answer of a handler to a request.
func Serve(handler http.Handler, req *http.Request) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, req)
	return answer
}

// RequireStatus fails unless the answer is a Status with this message and code. A message that
// ends in "…" goes on in the answer. Without a message, the code has to be 200.
func RequireStatus(t *testing.T, answer *httptest.ResponseRecorder, message string, code int) {
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
	if status.Kind != "Status" || !says(status.Message, message) || int(status.Code) != code || answer.Code != code {
		t.Errorf("got status %d with %+v, want %d with message %q", answer.Code, status, code, message)
	}
}

// says reports whether a message is the wanted one, which may end in "…".
func says(got, want string) bool {
	if start, ok := strings.CutSuffix(want, "…"); ok {
		return strings.HasPrefix(got, start)
	}
	return got == want
}
