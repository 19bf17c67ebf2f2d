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

package references

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
)

const (
	screw = "/registry/example.com/parts/screw"
	board = "/registry/example.com/parts/shop/board"
	table = "/registry/example.com/things/shop/table"
)

var (
	parts     = schema.GroupResource{Group: "example.com", Resource: "parts"}
	screwName = types.NamespacedName{Name: "screw"}
	boardName = types.NamespacedName{Namespace: "shop", Name: "board"}
)

func absent(names []types.NamespacedName) error {
	return errors.New(strings.Join(texts(names), " "))
}

func texts(names []types.NamespacedName) (texts []string) {
	for _, name := range names {
		texts = append(texts, name.String())
	}
	return texts
}

// many are names of objects that do not exist.
func many(count int) (names []types.NamespacedName) {
	for i := range count {
		names = append(names, types.NamespacedName{Name: strconv.Itoa(i)})
	}
	return names
}

// workshop is an etcd with two parts, as two servers see it.
type workshop struct {
	*References
	test    *testing.T
	storage kubernetes.Interface
}

func newWorkshop(t *testing.T) workshop {
	t.Helper()
	config := etcd.Config{Dir: t.TempDir(), QuotaBytes: 64 << 20}
	server, err := config.Start(t.Context())
	require.NoError(t, err)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{config.Endpoint()}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, errors.Join(client.Close(), server.Close()))
	})
	references := New(client, "registry")
	w := workshop{references, t, references.Client(parts).Kubernetes}
	w.put(t.Context(), screw, 0)
	w.put(t.Context(), board, 0)
	return w
}

func (w workshop) request() context.Context { return w.withWrite(w.test.Context()) }

// revision returns the revision of a key, or 0.
func (w workshop) revision(key string) int64 {
	w.test.Helper()
	response, err := w.storage.Get(w.test.Context(), key, kubernetes.GetOptions{})
	if err != nil {
		w.test.Fatal(err)
	}
	if response.KV == nil {
		return 0
	}
	return response.KV.ModRevision
}

func (w workshop) put(ctx context.Context, key string, revision int64) {
	w.test.Helper()
	if response, err := w.storage.OptimisticPut(ctx, key, []byte("{}"), revision, kubernetes.PutOptions{}); err != nil || !response.Succeeded {
		w.test.Fatalf("%s was not stored: %v", key, err)
	}
}

// delete deletes a part as k8s.io/apiserver does: again if it has changed, but admitted only once.
func (w workshop) delete(ctx context.Context, key string) (attempts int, err error) {
	w.test.Helper()
	for {
		attempts++
		response, err := w.storage.OptimisticDelete(ctx, key, w.revision(key), kubernetes.DeleteOptions{GetOnFailure: true})
		if err != nil || response.Succeeded {
			return attempts, err
		}
		if response.KV.ModRevision != w.revision(key) {
			w.test.Fatalf("the answer has revision %d of %s, which has %d", response.KV.ModRevision, key, w.revision(key))
		}
	}
}

func (w workshop) unused(ctx context.Context) {
	w.test.Helper()
	if err := Unused(ctx, parts, screwName); err != nil {
		w.test.Fatal(err)
	}
}

func (w workshop) keys() (keys []string) {
	w.test.Helper()
	response, err := w.client.Get(w.test.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		w.test.Fatal(err)
	}
	for _, kv := range response.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

func requireKeys(t *testing.T, w workshop, want ...string) {
	t.Helper()
	assert.Equal(t, want, w.keys())
}

func TestRequire(t *testing.T) {
	for name, test := range map[string]struct {
		require [][]types.NamespacedName
		want    string
		// wantUses are the keys of uses.
		wantUses []string
	}{
		"nothing":           {},
		"what exists":       {require: [][]types.NamespacedName{{screwName, boardName}}, wantUses: []string{"/registry/uses/example.com/parts/screw", "/registry/uses/example.com/parts/shop/board"}},
		"the same twice":    {require: [][]types.NamespacedName{{screwName, screwName}}, wantUses: []string{"/registry/uses/example.com/parts/screw"}},
		"what does not":     {require: [][]types.NamespacedName{{screwName, {Name: "board"}}}, want: "/board"},
		"no longer":         {require: [][]types.NamespacedName{{{Name: "board"}}, nil}},
		"as many as may be": {require: [][]types.NamespacedName{many(MaxRequired)}, want: strings.Join(texts(many(MaxRequired)), " ")},
		"one too many": {
			require: [][]types.NamespacedName{many(MaxRequired + 1)},
			want:    "Request entity too large: the object refers to 128 others that have to exist; there may be 127",
		},
		"something else now": {require: [][]types.NamespacedName{{boardName}, {screwName}}, wantUses: []string{"/registry/uses/example.com/parts/screw"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkshop(t)
			ctx := w.request()
			for _, names := range test.require {
				Require(ctx, parts, names, absent)
			}
			response, err := w.storage.OptimisticPut(ctx, table, []byte("{}"), 0, kubernetes.PutOptions{})
			if test.want != "" {
				if err == nil {
					require.Failf(t, "unexpected", "got no error, want %s", test.want)
				}
				// Requirements have no order.
				if diff := cmp.Diff(strings.Fields(test.want), strings.Fields(err.Error()), cmpopts.SortSlices(strings.Compare)); diff != "" {
					require.Failf(t, "unexpected", "unexpected error (-want +got):\n%s", diff)
				}
				requireKeys(t, w, screw, board)
				return
			}
			if err != nil || !response.Succeeded || response.Revision != w.revision(table) {
				require.Failf(t, "unexpected", "got %+v and %v", response, err)
			}
			requireKeys(t, w, append([]string{screw, board, table}, test.wantUses...)...)
		})
	}
}

// The object itself has been changed by somebody else.
func TestRequireAndConflict(t *testing.T) {
	w := newWorkshop(t)
	w.put(t.Context(), table, 0)
	ctx := w.request()
	Require(ctx, parts, []types.NamespacedName{screwName}, absent)
	response, err := w.storage.OptimisticPut(ctx, table, []byte("{}"), 1, kubernetes.PutOptions{GetOnFailure: true})
	if err != nil || response.Succeeded || response.KV.ModRevision != w.revision(table) {
		require.Failf(t, "unexpected", "got %+v and %v", response, err)
	}
	requireKeys(t, w, screw, board, table)
}

// A deletion that nothing comes between leaves nothing.
func TestUnused(t *testing.T) {
	w := newWorkshop(t)
	use := w.request()
	Require(use, parts, []types.NamespacedName{screwName}, absent)
	w.put(use, table, 0)

	ctx := w.request()
	w.unused(ctx)
	if attempts, err := w.delete(ctx, screw); attempts != 1 || err != nil {
		require.Failf(t, "unexpected", "got %d attempts and %v", attempts, err)
	}
	requireKeys(t, w, board, table)
}

// A use between the check and the deletion makes the deletion wait for another check.
func TestUsedAfterTheCheck(t *testing.T) {
	w := newWorkshop(t)
	ctx := w.request()
	w.unused(ctx)
	use := w.request()
	Require(use, parts, []types.NamespacedName{screwName}, absent)
	w.put(use, table, 0)

	attempts, err := w.delete(ctx, screw)
	if want := `Operation cannot be fulfilled on parts.example.com "screw": it has come into use meanwhile; try again`; attempts != 2 || err == nil || err.Error() != want || !apierrors.IsConflict(err) {
		require.Failf(t, "unexpected", "got %d attempts and %v, want 2 and %s", attempts, err, want)
	}
	w.unused(ctx)
	if attempts, err := w.delete(ctx, screw); attempts != 1 || err != nil {
		require.Failf(t, "unexpected", "after another check, got %d attempts and %v", attempts, err)
	}
}

// A check says nothing about an object of the same name that is made later.
func TestCheckOfAnEarlierObject(t *testing.T) {
	w := newWorkshop(t)
	ctx := w.request()
	w.unused(ctx)
	revision := w.revision(screw)
	other := w.request()
	w.unused(other)
	_, err := w.delete(other, screw)
	require.NoError(t, err)
	w.put(t.Context(), screw, 0)
	response, err := w.storage.OptimisticDelete(ctx, screw, revision, kubernetes.DeleteOptions{GetOnFailure: true})
	if err != nil || response.Succeeded {
		require.Failf(t, "unexpected", "got %+v and %v", response, err)
	}
}

// Objects in another etcd can't be a condition.
func TestAnotherEtcd(t *testing.T) {
	w := newWorkshop(t)
	elsewhere := schema.GroupResource{Group: "example.com", Resource: "elsewhere"}
	ctx := w.request()
	Require(ctx, elsewhere, []types.NamespacedName{screwName}, absent)
	require.NoError(t, Unused(ctx, elsewhere, screwName))
	w.put(ctx, table, 0)
	requireKeys(t, w, screw, board, table)
}

// Outside of a request, objects are written as they always were.
func TestWithoutRequest(t *testing.T) {
	w := newWorkshop(t)
	Require(t.Context(), parts, []types.NamespacedName{{Name: "none"}}, absent)
	w.put(t.Context(), table, 0)
	require.NoError(t, Unused(t.Context(), parts, screwName))
	if attempts, err := w.delete(t.Context(), screw); attempts != 1 || err != nil {
		require.Failf(t, "unexpected", "got %d attempts and %v", attempts, err)
	}
	requireKeys(t, w, board, table)
}
