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
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/v3"
)

// UIDs are compared where they can be written, and not otherwise.
func TestEncode(t *testing.T) {
	const (
		usual  = `{"apiVersion": "example.com/migrate", "kind": "Thing", "metadata": {"name": "a", "uid": "1", "resourceVersion": "7", "generation": 2, "finalizers": ["example.com/kept"]}, "spec": {"size": 1}}`
		uid    = `{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "uid": "2", "generation": 2, "finalizers": ["example.com/kept"]}, "spec": {"size": 1}}`
		size   = `{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "uid": "1", "generation": 2, "finalizers": ["example.com/kept"]}, "spec": {"size": 2}}`
		going  = `{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "uid": "1", "generation": 2, "finalizers": ["example.com/kept"], "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"size": 1}}`
		later  = `{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "uid": "1", "generation": 2, "finalizers": ["example.com/kept"], "deletionTimestamp": "2026-01-01T00:00:09Z"}, "spec": {"size": 1}}`
		stored = `{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "uid": "1", "resourceVersion": "8", "generation": 2, "finalizers": ["example.com/kept"]}, "spec": {"size": 1}}`
		// managed and bypassed differ in the version of their manager.
		managed  = `{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "uid": "1", "generation": 2, "finalizers": ["example.com/kept"], "managedFields": [{"manager": "a", "apiVersion": "example.com/v1"}]}, "spec": {"size": 1}}`
		bypassed = `{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "uid": "1", "generation": 2, "finalizers": ["example.com/kept"], "managedFields": [{"manager": "a", "apiVersion": "example.com/migrate"}]}, "spec": {"size": 1}}`
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
		"managed":            {usual, managed, true, false},
		"managed by migrate": {managed, bypassed, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			for etcd, want := range map[*clientv3.Client]bool{nil: test.byAPI, {}: test.byEtcd} {
				m := &Migration{config: Config{KubeEtcd: etcd}}
				var contents []content
				for _, text := range []string{test.a, test.b} {
					encoded, err := m.atKube().encode(move{Objects: &things, from: thingsV1}, &unmarshal(t, text)[0])
					require.NoError(t, err)
					contents = append(contents, encoded.content)
				}
				assert.Equal(t, want, contents[0] == contents[1], "with etcd: %t", etcd != nil)
			}
		})
	}
}
