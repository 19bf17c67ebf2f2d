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

package cluster

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

func TestAnsweringServer(t *testing.T) {
	t.Parallel()
	answer := func(status int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path != "/prefix/apis/example.com/v1" {
				status = http.StatusTeapot
			}
			w.WriteHeader(status)
		})
	}
	for name, test := range map[string]struct {
		handler http.Handler
		server  string
		err     string
	}{
		"kube-apiserver":                      {handler: answer(http.StatusOK)},
		"a server":                            {handler: WithServerHeader(answer(http.StatusOK), "bakery"), server: "bakery"},
		"a server that is busy":               {handler: WithServerHeader(answer(http.StatusTooManyRequests), "bakery"), server: "bakery"},
		"a server that lacks the version":     {handler: WithServerHeader(answer(http.StatusNotFound), "bakery"), server: "bakery"},
		"kube-apiserver, for one that is not": {handler: answer(http.StatusServiceUnavailable), err: "the server is currently unable to handle the request"},
		"nobody":                              {handler: answer(http.StatusNotFound), err: "the server could not find the requested resource"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kube := httptest.NewServer(test.handler)
			defer kube.Close()
			server, err := AnsweringServer(t.Context(), &rest.Config{Host: kube.URL + "/prefix"}, "example.com", "v1")
			require.Equal(t, test.server, server)
			if test.err != "" {
				require.EqualError(t, err, "GET "+kube.URL+"/prefix/apis/example.com/v1: "+test.err)
				return
			}
			require.NoError(t, err)
		})
	}
}
