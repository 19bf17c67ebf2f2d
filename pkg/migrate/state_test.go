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
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
)

// newMigration has an etcd of its own.
func newMigration(t *testing.T, options ...grpc.DialOption) *Migration {
	t.Helper()
	config := etcd.Config{Dir: filepath.Join(t.TempDir(), "data"), QuotaBytes: 64 << 20}
	member, err := config.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, member.Close())
	})
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{config.Endpoint()}, DialOptions: options})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return &Migration{config: Config{Group: "example.com", Etcd: client, StateKey: "/state", Report: func(progress Progress) { t.Log(progress.Message) }}}
}

// savedState has all fields of a state as they are in etcd. Those of a release never change.
const savedState = `{
	"group": "example.com",
	"phase": "Switching",
	"started": "2026-01-01T00:00:00Z",
	"changed": "2026-01-01T00:01:00Z",
	"lease": 7587899184414435001,
	"definitions": {"things.example.com": {"uid": "1", "spec": "abc"}},
	"objects": {"things": 3},
	"revisions": {"things": "41"},
	"prefixes": ["/registry/example.com/things/"],
	"finalized": ["things/default/a"],
	"switched": "2026-01-01T00:02:00Z",
	"returning": true,
	"newUIDs": ["things/default/b"],
	"conversions": {"things.example.com": {"strategy": "None"}},
	"registered": {"v1.example.com": {"service": {"namespace": "server", "name": "server", "port": 443}, "group": "example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100}},
	"service": "server/server"
}`

// A migration that another release has begun can be continued: the state has the same names.
func TestSavedState(t *testing.T) {
	m := newMigration(t)
	_, err := m.config.Etcd.Put(t.Context(), m.config.StateKey, savedState)
	require.NoError(t, err)
	at := func(minute int) time.Time { return time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC) }
	want := State{
		Group: "example.com", Phase: Switching, Started: at(0), Changed: at(1), Lease: 7587899184414435001,
		Definitions: map[string]Digest{"things.example.com": {UID: "1", Spec: "abc"}},
		Objects:     map[string]int{"things": 3}, Revisions: map[string]string{"things": "41"}, Finalized: []string{"things/default/a"},
		Switched: at(2), Returning: true, NewUIDs: []string{"things/default/b"},
		Conversions: map[string]*apiextensionsv1.CustomResourceConversion{"things.example.com": {Strategy: "None"}}, Service: "server/server",
		Prefixes: []string{"/registry/example.com/things/"},
		Registered: map[string]apiregistrationv1.APIServiceSpec{"v1.example.com": {
			Service: &apiregistrationv1.ServiceReference{Namespace: "server", Name: "server", Port: new(int32(443))},
			Group:   "example.com", Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 100,
		}},
	}
	got, err := m.Status(t.Context())
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(want, got))
	_, err = m.resume(t.Context(), anyState)
	require.NoError(t, err)
	response, err := m.config.Etcd.Get(t.Context(), m.config.StateKey)
	require.NoError(t, err)
	var before, after map[string]any
	require.NoError(t, errors.Join(json.Unmarshal([]byte(savedState), &before), json.Unmarshal(response.Kvs[0].Value, &after)))
	delete(before, "changed")
	delete(after, "changed")
	delete(after, "writer")
	delete(before, "lease")
	delete(after, "lease")
	assert.Empty(t, cmp.Diff(before, after))
}

func anyState(State) error { return nil }

// A process that continues a migration keeps all others from writing.
func TestClaim(t *testing.T) {
	m := newMigration(t)
	_, err := m.Status(t.Context())
	require.ErrorIs(t, err, ErrNone)
	_, err = m.resume(t.Context(), anyState)
	require.ErrorIs(t, err, ErrNone)
	first, err := m.begin(t.Context(), Copying)
	require.NoError(t, err)
	_, err = m.begin(t.Context(), Copying)
	require.ErrorIs(t, err, errSuperseded)
	_, err = first.write(t.Context(), clientv3.OpPut("/key", "first"))
	assert.NoError(t, err)
	assert.NoError(t, first.enter(t.Context(), Freezing))

	refusal := errors.New("refused")
	_, err = m.resume(t.Context(), func(State) error { return refusal })
	require.ErrorIs(t, err, refusal)
	_, err = first.write(t.Context(), clientv3.OpPut("/key", "still first"))
	require.NoError(t, err, "a claim that is refused must not change anything")
	second, err := m.resume(t.Context(), anyState)
	require.NoError(t, err)
	assert.Equal(t, Freezing, second.state.Phase)
	_, err = first.write(t.Context(), clientv3.OpPut("/key", "late"))
	require.ErrorIs(t, err, errSuperseded)
	require.ErrorIs(t, first.enter(t.Context(), Switching), errSuperseded)
	got, err := m.config.Etcd.Get(t.Context(), "/key")
	require.NoError(t, err)
	assert.Equal(t, "still first", string(got.Kvs[0].Value), "the first process may no longer write")
}

// A process recognizes its own write if the answer was lost.
func TestLostAnswers(t *testing.T) {
	lost := 0
	m := newMigration(t, grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		err := invoke(ctx, method, request, answer, conn, options...)
		if strings.HasSuffix(method, "/Txn") {
			if lost++; lost%2 == 1 {
				return status.Error(codes.Unavailable, "the answer is lost")
			}
		}
		return err
	}))
	s, err := m.begin(t.Context(), Copying)
	require.NoError(t, err)
	require.NoError(t, s.enter(t.Context(), Freezing))
	_, err = s.write(t.Context(), clientv3.OpPut("/key", "a"))
	require.NoError(t, err)
	other, err := m.resume(t.Context(), anyState)
	require.NoError(t, err)
	require.ErrorIs(t, s.save(t.Context()), errSuperseded)
	require.NoError(t, other.enter(t.Context(), Switching))
	require.NoError(t, other.forget(t.Context()))
	require.ErrorIs(t, other.save(t.Context()), errSuperseded)
	require.Positive(t, lost)
}

// Other processes see the progress of the process that moves the objects, until it begins another
// step.
func TestStatusOfAnother(t *testing.T) {
	m := newMigration(t)
	c, err := m.begin(t.Context(), Copying)
	require.NoError(t, err)
	progress := func() *Progress {
		t.Helper()
		other := &Migration{config: m.config}
		state, err := other.Status(t.Context())
		require.NoError(t, err)
		return state.Progress
	}
	assert.Nil(t, progress(), "before there is any")
	left := 7
	want := Progress{Message: "500 of 1000 objects", Objects: 500, Total: 1000, Bytes: 4096, SecondsLeft: &left}
	c.saveProgress(t.Context(), want)
	assert.Empty(t, cmp.Diff(&want, progress()))
	require.NoError(t, c.enter(t.Context(), Freezing))
	assert.Nil(t, progress(), "of the phase before")
	c.saveProgress(t.Context(), want)
	second, err := m.resume(t.Context(), anyState)
	require.NoError(t, err)
	late := want
	late.Objects = 999
	c.saveProgress(t.Context(), late)
	assert.Nil(t, progress(), "of a process that may no longer write")
	require.NoError(t, second.forget(t.Context()))
	response, err := m.config.Etcd.Get(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	assert.Zero(t, response.Count, "keys are left of a migration that is over")
}
