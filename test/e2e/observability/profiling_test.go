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
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// A server tells about itself only to users that may read the path.
func TestWhoMayLookInside(t *testing.T) {
	t.Parallel()
	server := cp.APIServer
	framework.Kubectl(t, cp, "create", "clusterrole", "profiler", "--verb=get", "--non-resource-url=/debug/pprof/*")
	framework.Kubectl(t, cp, "create", "clusterrolebinding", "profiler", "--clusterrole=profiler", "--user=profiler")
	anonymous := framework.ConfigFor(t, cp, server, "nobody")
	anonymous.CertData, anonymous.KeyData = nil, nil
	users := []*rest.Config{anonymous, framework.ConfigFor(t, cp, server, "stranger"), framework.ConfigFor(t, cp, server, "profiler"), framework.AdminConfig(t, cp, server)}
	controlplane.Eventually(t, func() error {
		code, body, err := framework.GetAs(t, users[2], "/debug/pprof/symbol")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("the profiler gets %d: %s", code, body)
		}
		return err
	})
	for path, want := range map[string][]int{
		// These are not served at all, which is nobody's business either.
		"/configz": {401, 403, 403, 404},
		"/logs":    {401, 403, 403, 404},
		"/flagz":   {401, 403, 403, 404},

		"/debug/pprof":                   {401, 403, 403, 302},
		"/debug/pprof/":                  {401, 403, 200, 200},
		"/debug/pprof/goroutine":         {401, 403, 200, 200},
		"/debug/pprof/heap":              {401, 403, 200, 200},
		"/debug/pprof/symbol":            {401, 403, 200, 200},
		"/debug/pprof/profile?seconds=1": {401, 403, 200, 200},
		"/debug/pprof/trace?seconds=1":   {401, 403, 200, 200},
		"/debug/flags":                   {401, 403, 403, 200},
		"/debug/flags/v":                 {401, 403, 403, 406},
		"/metrics":                       {401, 403, 403, 200},
		"/metrics/slis":                  {401, 403, 403, 200},
		"/statusz":                       {401, 403, 403, 200},
		"/":                              {401, 403, 403, 200},
		"/debug/api_priority_and_fairness/dump_priority_levels": {401, 403, 403, 200},
		// The cluster lets all authenticated users see this.
		"/version": {401, 200, 200, 200},
		// These have to be known before anybody is.
		"/healthz": {200, 200, 200, 200},
		"/livez":   {200, 200, 200, 200},
		"/readyz":  {200, 200, 200, 200},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			var got []int
			for _, user := range users {
				got = append(got, codeWithoutRedirect(t, user, path))
			}
			require.Equal(t, want, got)
		})
	}
}

func codeWithoutRedirect(t *testing.T, config *rest.Config, path string) int {
	t.Helper()
	transport, err := rest.TransportFor(config)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, nil)
	require.NoError(t, err)
	response, err := transport.RoundTrip(request)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

func TestProfilingFlags(t *testing.T) {
	t.Parallel()
	t.Run("off", func(t *testing.T) {
		t.Parallel()
		server := framework.NewServer(t, cp, framework.Flags("--profiling=false"))
		require.NoError(t, server.Start(t.Context()))
		for path, want := range map[string]int{"/debug/pprof/": 404, "/debug/pprof/heap": 404, "/debug/flags/v": 404, "/metrics": 200} {
			code, _ := framework.Get(t, cp, server, path)
			require.Equal(t, want, code, path)
		}
	})
	// A goroutine that waits for another one shows in a profile only if that is asked for.
	t.Run("of contention", func(t *testing.T) {
		t.Parallel()
		server := framework.NewServer(t, cp, framework.Flags("--contention-profiling=true"))
		require.NoError(t, server.Start(t.Context()))
		for at, want := range map[string]bool{"by default": false, "by the flag": true} {
			server := map[bool]interface{ URL() string }{false: cp.APIServer, true: server}[want]
			config := framework.AdminConfig(t, cp, cp.APIServer)
			config.Host = server.URL()
			code, profile, err := framework.GetAs(t, config, "/debug/pprof/block?debug=1")
			require.NoError(t, err)
			require.Equal(t, 200, code)
			require.Equal(t, want, strings.Contains(profile, "@"), "%s: %s", at, profile)
		}
	})
}

// An admin can change the verbosity while the server runs, and a stranger can't.
func TestVerbosityIsChanged(t *testing.T) {
	t.Parallel()
	server := framework.NewServer(t, cp, framework.Flags())
	require.NoError(t, server.Start(t.Context()))
	code, err := codeOf(framework.ConfigFor(t, cp, server, "stranger"), "PUT", "/debug/flags/v", "6")
	require.NoError(t, err)
	require.Equal(t, 403, code)
	code, err = codeOf(framework.AdminConfig(t, cp, server), "PUT", "/debug/flags/v", "6")
	require.NoError(t, err)
	require.Equal(t, 200, code)
	framework.Get(t, cp, server, "/version")
	framework.WaitForLog(t, server, `"HTTP" verb="GET" URI="/version"`)
}
