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
	"net/http"
	"net/http/httptest"
	"testing"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
)

// Requests of the server to itself were refused when ten IP addresses had all that may be in flight.
func TestRequestsOfTheServerItself(t *testing.T) {
	forwardedFor := (&Config{}).forwardedFor(&genericapiserver.Config{LoopbackClientConfig: &rest.Config{BearerToken: "secret"}})
	for header, want := range map[string]string{"Bearer secret": "system:apiserver", "Bearer other": "", "": ""} {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.Header.Set("Authorization", header)
		user, ok := forwardedFor(req)
		if user != want || ok != (want != "") {
			t.Errorf("%q: got %q, %t, want %q", header, user, ok, want)
		}
	}
}
