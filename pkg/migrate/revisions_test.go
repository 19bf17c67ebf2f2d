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
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Missing revisions are written only if that is allowed, and there are not too many.
func TestCheckRevision(t *testing.T) {
	m := newMigration(t)
	server, err := m.serverRevision(t.Context())
	require.NoError(t, err)
	for name, test := range map[string]struct {
		// ahead is how far kube-apiserver's etcd is ahead of the server's.
		ahead           int64
		back, raise     bool
		byEtcd          bool
		missed, refused string
	}{
		"the server is ahead":                           {-1, false, false, false, "", ""},
		"neither is":                                    {0, false, false, false, "", ""},
		"the server is behind, and raised":              {2_000_000, false, true, false, "the server's etcd is 2000000 revisions behind kube-apiserver's", ""},
		"kube-apiserver is ahead, on the way back":      {1, true, false, false, "", ""},
		"kube-apiserver is behind, and raised":          {-100_000, true, true, false, "kube-apiserver's etcd is 100000 revisions behind the server's", ""},
		"kube-apiserver is behind, and raised directly": {-100_001, true, true, true, "kube-apiserver's etcd is 100001 revisions behind the server's", ""},
		"the server is behind": {1, false, false, false, "the server's etcd is 1 revisions behind kube-apiserver's",
			`restore a snapshot of the server's etcd by "etcdutl snapshot restore --bump-revision=1001 --mark-compacted", or of an embedded etcd by "snapshot restore", so that it goes on above the revision <goal>, ` +
				`or give --raise-revision: "migrate run" or "migrate back" then writes up to 2000000 empty revisions there`},
		"the server is far behind": {2_000_001, false, true, false, "the server's etcd is 2000001 revisions behind kube-apiserver's",
			`restore a snapshot of the server's etcd by "etcdutl snapshot restore --bump-revision=2001001 --mark-compacted", or of an embedded etcd by "snapshot restore", so that it goes on above the revision <goal>, ` +
				`or give --raise-revision: "migrate run" or "migrate back" then writes up to 2000000 empty revisions there`},
		"kube-apiserver is behind": {-1, true, false, true, "kube-apiserver's etcd is 1 revisions behind the server's",
			`restore a snapshot of kube-apiserver's etcd by "etcdutl snapshot restore --bump-revision=1001 --mark-compacted", so that it goes on above the revision <goal>, ` +
				`or give --raise-revision: "migrate run" or "migrate back" then writes up to 2000000 empty revisions there`},
		"kube-apiserver is far behind": {-100_001, true, true, false, "kube-apiserver's etcd is 100001 revisions behind the server's",
			`restore a snapshot of kube-apiserver's etcd by "etcdutl snapshot restore --bump-revision=101001 --mark-compacted", so that it goes on above the revision <goal>, ` +
				`or give --raise-revision: "migrate run" or "migrate back" then writes up to 100000 empty revisions there`},
	} {
		t.Run(name, func(t *testing.T) {
			scene, goal := usualScene(), server
			scene.revision = strconv.FormatInt(server+test.ahead, 10)
			if !test.back {
				goal += test.ahead
			}
			m := scene.migration(t, m.config.Etcd)
			m.config.RaiseRevision = test.raise
			if test.byEtcd {
				m.config.KubeEtcd = m.config.Etcd
			}
			missed, err := m.checkRevision(t.Context(), test.back)
			require.Equal(t, test.missed, missed)
			if test.refused == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, test.missed+", so that clients that watch would see nothing until it has caught up: "+strings.Replace(test.refused, "<goal>", strconv.FormatInt(goal, 10), 1))
		})
	}
}

// Without permission to write revisions, a run stops while clients can write, and leaves the etcd
// unchanged.
func TestMissingRevisions(t *testing.T) {
	scene := usualScene()
	scene.revision = "5000"
	m := scene.migration(t, newMigration(t).config.Etcd)
	found, err := m.definitions(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.begin(t.Context(), Copying, found...))
	const want = "revisions behind kube-apiserver's, so that clients that watch would see nothing until it has caught up"
	for phase, step := range map[Phase]func() error{
		Copying:  func() error { return m.copyAll(t.Context(), m.forward()) },
		Freezing: func() error { return m.freezeAndCompare(t.Context(), m.forward()) },
	} {
		m.state.Phase = phase
		require.ErrorContains(t, step(), want)
		require.Equal(t, Copying, m.state.Phase)
		revision, err := m.serverRevision(t.Context())
		require.NoError(t, err)
		require.Less(t, revision, int64(100))
	}
}
