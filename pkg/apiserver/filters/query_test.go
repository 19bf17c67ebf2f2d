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
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/internal/testing/requests"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// Selectors, names and managers of any length once were parsed, asked about and repeated
// in answers.
func TestRequestBounds(t *testing.T) {
	bounds := limits.Bounds{
		PathBytes: 64, HeaderBytes: 128, QueryBytes: 1024,
		ParameterBytes: 16, SelectorBytes: 64, SelectorRequirements: 4,
	}
	text := func(n int) string { return strings.Repeat("a", n) }
	query := func(name, value string) string { return "/things?" + url.Values{name: {value}}.Encode() }
	const selector, requirements = `the query parameter "labelSelector" must not have more than 64 bytes`, `the query parameter "fieldSelector" must not have more than 4 requirements and values`
	for name, test := range map[string]struct {
		target  string
		headers http.Header
		want    string
		code    int
	}{
		"ordinary":                   {"/things?limit=5&labelSelector=a%3Db", http.Header{"Accept": {"*/*"}}, "", 200},
		"headers at the limit":       {"/things", http.Header{"Accept": {text(128 - 32 - 6)}}, "", 200},
		"a long header":              {"/things", http.Header{"Accept": {text(128 - 32 - 5)}}, "the headers of a request must not have more than 128 bytes", 431},
		"many headers":               {"/things", http.Header{"A": {"", "", "", ""}}, "the headers of a request must not have more than 128 bytes", 431},
		"a path at the limit":        {"/" + text(63), nil, "", 200},
		"a long path":                {"/" + text(64), nil, "the path of a request must not have more than 64 bytes", 400},
		"a long query":               {"/things?" + text(1025), nil, "the query of a request must not have more than 1024 bytes", 400},
		"a manager at the limit":     {query("fieldManager", strings.Repeat("\x00", 16)), nil, "", 200},
		"a long manager":             {query("fieldManager", strings.Repeat("\x00", 17)), nil, `the query parameter "fieldManager" must not have more than 16 bytes`, 400},
		"a manager in two":           {"/things?fieldManager=" + text(9) + "&fieldManager=" + text(9), nil, `the query parameter "fieldManager" must not have more than 16 bytes`, 400},
		"a parameter with long name": {query(text(17), ""), nil, "the name of a query parameter must not have more than 16 bytes", 400},
		"a parameter many times":     {"/things?" + strings.Repeat("dryRun=&", 17), nil, `the query parameter "dryRun" must not be given more than 16 times`, 400},
		"a token at the limit":       {query("continue", text(64)), nil, "", 200},
		"a long token":               {query("continue", text(65)), nil, `the query parameter "continue" must not have more than 64 bytes`, 400},
		"a selector at the limit":    {query("labelSelector", text(64)), nil, "", 200},
		"a long selector":            {query("labelSelector", text(65)), nil, selector, 400},
		"a long selector, escaped":   {"/things?labelSelector=" + strings.Repeat("%41", 65), nil, selector, 400},
		"requirements at the limit":  {query("fieldSelector", "a,a,a,a"), nil, "", 200},
		"many requirements":          {query("fieldSelector", "a,a,a,a,a"), nil, requirements, 400},
		"a timeout":                  {"/things?timeout=1ns", nil, "", 200},
		"no timeout":                 {"/things?timeout=", nil, "", 200},
		"a timeout without a unit":   {"/things?timeout=30", nil, `the query parameter "timeout" must be a duration, such as 30s`, 400},
	} {
		t.Run(name, func(t *testing.T) {
			req := httptest.NewRequest(http.MethodGet, test.target, nil)
			req.Header = test.headers
			response := requests.Serve(WithRequestBounds(okHandler(), requests.NewCodecs(), bounds, time.Minute, direct), req)
			requests.RequireStatus(t, response, test.want, test.code)
			require.Empty(t, response.Header().Get("Connection"), "the connection of others, by kube-apiserver, ends")
		})
	}
}

// A timeout before a request is authenticated would be logged, with the path.
func TestLeastTimeout(t *testing.T) {
	for query, want := range map[string]string{
		"":                        "",
		"limit=5&timeout=30s":     "limit=5&timeout=30s",
		"timeout=0s":              "timeout=0s",
		"timeout=1s":              "timeout=1s",
		"limit=5&timeout=1ns":     "limit=5&timeout=1s",
		"timeout=999ms&timeout=a": "timeout=1s",
	} {
		var got string
		handler := WithRequestBounds(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got = req.URL.RawQuery }), requests.NewCodecs(), limits.DefaultBounds(), time.Minute, direct)
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/things?"+query, nil))
		require.Equal(t, want, got)
	}
}

func direct(*http.Request) bool { return false }

func okHandler() http.Handler { return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}) }

// Large certificates and long chains are refused; certificates of honest clients are not.
func TestCertificates(t *testing.T) {
	const refused = "a client must not present more than 4 certificates, or more than 32768 bytes of them"
	for name, test := range map[string]struct {
		sizes []int
		want  string
	}{
		"none":                     {nil, ""},
		"a chain of four":          {[]int{1000, 1000, 1000, 1000}, ""},
		"a chain of five":          {[]int{500, 500, 500, 500, 500}, refused},
		"large ones":               {[]int{10 << 10, 10 << 10, 12 << 10}, ""},
		"too large ones, together": {[]int{10 << 10, 10 << 10, 12<<10 + 1}, refused},
	} {
		t.Run(name, func(t *testing.T) {
			req := httptest.NewRequest(http.MethodGet, "https://server/things", nil)
			for _, size := range test.sizes {
				req.TLS.PeerCertificates = append(req.TLS.PeerCertificates, &x509.Certificate{Raw: make([]byte, size)})
			}
			response := requests.Serve(WithRequestBounds(okHandler(), requests.NewCodecs(), limits.DefaultBounds(), time.Minute, direct), req)
			requests.RequireStatus(t, response, test.want, http.StatusRequestHeaderFieldsTooLarge)
			require.Equal(t, test.want != "", response.Header().Get("Connection") == "close", "the connection ends")
		})
	}
}
