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
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/internal/testing/requests"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// kube-apiserver may ask to act for others. A direct client gets a 403, or its own ID.
func TestDirectClients(t *testing.T) {
	const refused = "this server impersonates nobody: send the request to kube-apiserver, which does, and forwards it"
	for name, test := range map[string]struct {
		header, value string
		proxied       bool
		want          string
		passed        bool
	}{
		"a user":                          {"Impersonate-User", "admin", false, refused, false},
		"a group alone":                   {"impersonate-group", "cooks", false, refused, false},
		"an extra":                        {"Impersonate-Extra-Scopes", "all", false, refused, false},
		"a user, of the front proxy":      {"Impersonate-User", "admin", true, "", true},
		"an audit ID":                     {"Audit-ID", "1", false, "", false},
		"an audit ID, of the front proxy": {"Audit-ID", "1", true, "", true},
		"another header":                  {"X-Other", "1", false, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			handler := WithRequestBounds(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				assert.Equal(t, test.passed, req.Header.Get(test.header) != "", "passed on")
			}), requests.NewCodecs(), limits.DefaultBounds(), time.Minute, func(*http.Request) bool { return test.proxied })
			req := httptest.NewRequest(http.MethodGet, "/", nil)
			req.Header.Set(test.header, test.value)
			requests.RequireStatus(t, requests.Serve(handler, req), test.want, http.StatusForbidden)
		})
	}
}
