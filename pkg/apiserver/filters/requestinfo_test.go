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

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

func TestRequestInfo(t *testing.T) {
	resolver := ResolveRequestInfo(&genericapirequest.RequestInfoFactory{APIPrefixes: sets.NewString("apis")})
	for path, want := range map[string]genericapirequest.RequestInfo{
		"/apis/example.com/v1/watch":                      {Path: "/apis/example.com/v1/watch", Verb: "get"},
		"/apis/example.com/v1/namespaces/a/things.apps/b": {Path: "/apis/example.com/v1/namespaces/a/things.apps/b", Verb: "get"},
		"/apis/example.com/v1/namespaces/../things":       {Path: "/apis/example.com/v1/namespaces/../things", Verb: "get"},
		"/apis/example.com/v1/namespaces/a%25b/things":    {Path: "/apis/example.com/v1/namespaces/a%b/things", Verb: "get"},
		"/apis/example.com/v1/things": {
			Path: "/apis/example.com/v1/things", Verb: "list", IsResourceRequest: true, APIPrefix: "apis",
			APIGroup: "example.com", APIVersion: "v1", Resource: "things", Parts: []string{"things"},
		},
	} {
		t.Run(path, func(t *testing.T) {
			got, err := resolver.NewRequestInfo(httptest.NewRequest(http.MethodGet, path, nil))
			require.NoError(t, err)
			assert.Empty(t, cmp.Diff(want, *got), "unexpected request info (-want +got)")
		})
	}
}
