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

package migrate

import (
	"encoding/json"
	"path"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func parse(t *testing.T, text string) []any {
	t.Helper()
	var versions []any
	require.NoError(t, json.Unmarshal([]byte(text), &versions))
	return versions
}

// Changes to a definition while objects move are undone afterwards.
func TestChangeVersions(t *testing.T) {
	const schema = `"schema": {"openAPIV3Schema": {"type": "object"}}`
	for name, test := range map[string]struct {
		change       func([]any) []any
		before, want string
	}{
		"schemaMarker without a description": {func(versions []any) []any { touchVersions(versions, true); return versions },
			`[{"name": "v1", ` + schema + `}]`, `[{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "description": " (objects are being moved)"}}}]`},
		"schemaMarker twice": {func(versions []any) []any {
			touchVersions(versions, true)
			touchVersions(versions, true)
			return versions
		},
			`[{"schema": {"openAPIV3Schema": {"description": "A."}}}]`, `[{"schema": {"openAPIV3Schema": {"description": "A. (objects are being moved)"}}}]`},
		"schemaMarker and changed back": {func(versions []any) []any {
			touchVersions(versions, true)
			touchVersions(versions, false)
			return versions
		},
			`[{"schema": {"openAPIV3Schema": {"description": "A."}}}, {"name": "v2", ` + schema + `}]`, `[{"schema": {"openAPIV3Schema": {"description": "A."}}}, {"name": "v2", ` + schema + `}]`},
		"schemaMarker in equal schemas": {func(versions []any) []any { touchVersions(versions, true); return versions },
			`[{"name": "v1", ` + schema + `}, {"name": "v2", ` + schema + `}]`,
			`[{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "description": " (objects are being moved)"}}}, {"name": "v2", "schema": {"openAPIV3Schema": {"type": "object", "description": " (objects are being moved)"}}}]`},
		"changed back without a description": {func(versions []any) []any {
			touchVersions(versions, true)
			touchVersions(versions, false)
			return versions
		},
			`[{"name": "v1", ` + schema + `}]`, `[{"name": "v1", ` + schema + `}]`},
		"no versions":      {func(versions []any) []any { touchVersions(versions, true); return versions }, `[]`, `[]`},
		"served as before": {func(versions []any) []any { setServed(versions, []string{"v2"}); return versions }, `[{"name": "v1"}, {"name": "v2"}]`, `[{"name": "v1", "served": false}, {"name": "v2", "served": true}]`},
		"served, nobody knows how before": {func(versions []any) []any { setServed(versions, nil); return versions },
			`[{"name": "v1"}, {"name": "v2", "served": false}]`, `[{"name": "v1", "served": true}, {"name": "v2", "served": true}]`},
		"without a bypass": {withoutBypass, `[{"name": "v1"}, {"name": "migrate"}, {"name": "v2"}]`, `[{"name": "v1"}, {"name": "v2"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Empty(t, cmp.Diff(parse(t, test.want), test.change(parse(t, test.before))))
		})
	}
}

func TestLocalPath(t *testing.T) {
	for group, want := range map[string]string{
		"argoproj.io":                            "/apis/io/v1/workflows.argoproj",
		"restaurant.programming-kubernetes.info": "/apis/info/v1/workflows.restaurant.programming-kubernetes",
		// Both groups may have moved.
		"acme.cert-manager.io": "/apis/io/v1/workflows.acme.cert-manager",
	} {
		resource := local(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "workflows"})
		assert.Equal(t, want, path.Join("/apis", resource.Group, resource.Version, resource.Resource))
	}
}
