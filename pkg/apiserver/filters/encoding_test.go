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

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

func TestWithoutProtobuf(t *testing.T) {
	const (
		protobuf = "application/vnd.kubernetes.protobuf"
		metadata = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	)
	withoutMessages := map[schema.GroupVersionResource]bool{{Group: "example.com", Version: "v1", Resource: "things"}: true}
	for name, test := range map[string]struct {
		version, accept, want string
	}{
		"protobuf before JSON":        {"v1", protobuf + ",application/json", "application/json"},
		"protobuf after anything":     {"v1", "*/*, " + protobuf, "*/*"},
		"a watch":                     {"v1", "application/json;stream=watch, " + protobuf + ";stream=watch", "application/json;stream=watch"},
		"metadata":                    {"v1", protobuf + metadata + ",application/json" + metadata + "," + protobuf + ",application/json", protobuf + metadata + ",application/json" + metadata + ",application/json"},
		"nothing else":                {"v1", protobuf, protobuf},
		"nothing":                     {"v1", "", ""},
		"malformed":                   {"v1", ";," + protobuf, ";"},
		"a version that has messages": {"v2", protobuf + ",application/json", protobuf + ",application/json"},
	} {
		t.Run(name, func(t *testing.T) {
			req := httptest.NewRequest(http.MethodGet, "/", nil)
			req.Header.Set("Accept", test.accept)
			req = req.WithContext(genericapirequest.WithRequestInfo(req.Context(), &genericapirequest.RequestInfo{APIGroup: "example.com", APIVersion: test.version, Resource: "things", Subresource: "status"}))
			got := ""
			WithoutProtobuf(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got = req.Header.Get("Accept") }), withoutMessages).
				ServeHTTP(httptest.NewRecorder(), req)
			require.Equal(t, test.want, got)
		})
	}
}
