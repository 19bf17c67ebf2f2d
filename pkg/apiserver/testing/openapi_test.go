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

package testing

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// kube-apiserver merges the lists of documents of all servers, and passes no redirect on.
func TestOpenAPIV3(t *testing.T) {
	t.Parallel()
	server := start(t, "--run-controllers=false")
	list, _ := get(t, server.ClientConfig, "/openapi/v3")
	var documents handler3.OpenAPIV3Discovery
	require.NoError(t, json.Unmarshal([]byte(list), &documents))
	const group = "apis/workshop.example.com"
	require.ElementsMatch(t, []string{group, group + "/v1", group + "/v1alpha1"}, slices.Collect(maps.Keys(documents.Paths)))

	for name, document := range documents.Paths {
		current, code := get(t, server.ClientConfig, document.ServerRelativeURL)
		require.Equal(t, http.StatusOK, code)
		outdated, code := get(t, server.ClientConfig, "/openapi/v3/"+name+"?hash=OLD")
		require.Equal(t, http.StatusOK, code)
		require.Equal(t, current, outdated)
	}

	text, _ := get(t, server.ClientConfig, documents.Paths[group+"/v1"].ServerRelativeURL)
	var document spec3.OpenAPI
	require.NoError(t, json.Unmarshal([]byte(text), &document))
	got := map[string]any{}
	for path, operations := range document.Paths.Paths {
		if _, name, found := strings.Cut(path, "/machines/{name}"); found && operations.Post != nil {
			got["POST "+name] = operations.Post.Extensions["x-kubernetes-group-version-kind"]
		} else if found && operations.Put != nil {
			got["PUT "+name] = operations.Put.Extensions["x-kubernetes-group-version-kind"]
		}
	}
	kind := func(group, name string) map[string]any {
		return map[string]any{"group": group, "version": "v1", "kind": name}
	}
	require.Equal(t, map[string]any{
		"PUT ":        kind("workshop.example.com", "Machine"),
		"PUT /status": kind("workshop.example.com", "Machine"),
		"PUT /scale":  kind("autoscaling", "Scale"),
		"POST /run":   kind("workshop.example.com", "Run"),
	}, got)
}

// OpenAPI v2 has one document for all groups, with the title that people see.
func TestOpenAPIV2(t *testing.T) {
	t.Parallel()
	server := start(t, "--run-controllers=false")
	text, code := get(t, server.ClientConfig, "/openapi/v2")
	require.Equal(t, http.StatusOK, code)
	var document spec.Swagger
	require.NoError(t, json.Unmarshal([]byte(text), &document))
	require.Equal(t, "workshop.example.com", document.Info.Title)
	require.Contains(t, document.Definitions, "com.example.workshop.v1.Machine")
}
