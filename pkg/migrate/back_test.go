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
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func parse(t *testing.T, text string) []any {
	t.Helper()
	var versions []any
	if err := json.Unmarshal([]byte(text), &versions); err != nil {
		t.Fatal(err)
	}
	return versions
}

// What is changed in a definition while objects move is as it was afterwards.
func TestChangeVersions(t *testing.T) {
	const schema = `"schema": {"openAPIV3Schema": {"type": "object"}}`
	for name, test := range map[string]struct {
		change       func([]any) []any
		before, want string
	}{
		"schemaMarker without a description": {func(versions []any) []any { touchVersion(versions, true); return versions },
			`[{"name": "v1", ` + schema + `}]`, `[{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "description": " (objects are being moved)"}}}]`},
		"schemaMarker twice": {func(versions []any) []any {
			touchVersion(versions, true)
			touchVersion(versions, true)
			return versions
		},
			`[{"schema": {"openAPIV3Schema": {"description": "A."}}}]`, `[{"schema": {"openAPIV3Schema": {"description": "A. (objects are being moved)"}}}]`},
		"schemaMarker and changed back": {func(versions []any) []any {
			touchVersion(versions, true)
			touchVersion(versions, false)
			return versions
		},
			`[{"schema": {"openAPIV3Schema": {"description": "A."}}}, {"name": "v2"}]`, `[{"schema": {"openAPIV3Schema": {"description": "A."}}}, {"name": "v2"}]`},
		"changed back without a description": {func(versions []any) []any {
			touchVersion(versions, true)
			touchVersion(versions, false)
			return versions
		},
			`[{"name": "v1", ` + schema + `}]`, `[{"name": "v1", ` + schema + `}]`},
		"no versions":      {func(versions []any) []any { touchVersion(versions, true); return versions }, `[]`, `[]`},
		"served as before": {func(versions []any) []any { setServed(versions, []string{"v2"}); return versions }, `[{"name": "v1"}, {"name": "v2"}]`, `[{"name": "v1", "served": false}, {"name": "v2", "served": true}]`},
		"served, nobody knows how before": {func(versions []any) []any { setServed(versions, nil); return versions },
			`[{"name": "v1"}, {"name": "v2", "served": false}]`, `[{"name": "v1", "served": true}, {"name": "v2", "served": true}]`},
		"without a bypass": {withoutBypass, `[{"name": "v1"}, {"name": "migrate"}, {"name": "v2"}]`, `[{"name": "v1"}, {"name": "v2"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			if difference := cmp.Diff(parse(t, test.want), test.change(parse(t, test.before))); difference != "" {
				t.Error(difference)
			}
		})
	}
}

// Who can't write UIDs does not compare them; who can, does.
func TestNormalized(t *testing.T) {
	const (
		usual  = `{"apiVersion": "example.com/migrate", "kind": "Thing", "metadata": {"name": "a", "uid": "1", "resourceVersion": "7", "generation": 2, "finalizers": ["example.com/kept"]}, "spec": {"size": 1}}`
		uid    = `{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "uid": "2", "generation": 2, "finalizers": ["example.com/kept"]}, "spec": {"size": 1}}`
		size   = `{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "uid": "1", "generation": 2, "finalizers": ["example.com/kept"]}, "spec": {"size": 2}}`
		going  = `{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "uid": "1", "generation": 2, "finalizers": ["example.com/kept"], "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"size": 1}}`
		later  = `{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "uid": "1", "generation": 2, "finalizers": ["example.com/kept"], "deletionTimestamp": "2026-01-01T00:00:09Z"}, "spec": {"size": 1}}`
		stored = `{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "uid": "1", "resourceVersion": "8", "generation": 2, "finalizers": ["example.com/kept"]}, "spec": {"size": 1}}`
	)
	for name, test := range map[string]struct {
		a, b          string
		byAPI, byEtcd bool
	}{
		"in another version": {usual, stored, true, true},
		"another UID":        {usual, uid, true, false},
		"another spec":       {usual, size, false, false},
		"being deleted":      {usual, going, false, false},
		"deleted later":      {going, later, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			for etcd, want := range map[*clientv3.Client]bool{nil: test.byAPI, {}: test.byEtcd} {
				m := &Migration{config: Config{KubeEtcd: etcd}}
				var contents []content
				for _, text := range []string{test.a, test.b} {
					object := &unstructured.Unstructured{}
					if err := object.UnmarshalJSON([]byte(text)); err != nil {
						t.Fatal(err)
					}
					_, content, err := m.normalized(object, schema.GroupVersion{Group: "example.com", Version: "v1"})
					if err != nil {
						t.Fatal(err)
					}
					contents = append(contents, content)
				}
				if got := contents[0] == contents[1]; got != want {
					t.Errorf("got %t, want %t with etcd: %t", got, want, etcd != nil)
				}
			}
		})
	}
}
