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

package upstream

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
)

func TestFullDatabaseIsInternalError(t *testing.T) {
	config := testserver.NewTestConfig(t)
	etcd, _ := runEtcd(t, config)
	pods := servePodsIn(t, config.ListenClientUrls[0].String())
	_, err := etcd.Server.Alarm(t.Context(), &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE})
	if err != nil {
		t.Fatal(err)
	}
	a := send(t, http.MethodPost, pods, "application/json", newPod("a"))
	if a.code != http.StatusInternalServerError || strings.Contains(a.body, "ServerTimeout") {
		fixed(t, "a full database is answered with %d: %s", a.code, a.body)
	}
}

// storageFunc is a storage that can only create.
type storageFunc struct {
	storage.Interface
	create func(context.Context) error
}

func (s storageFunc) Create(ctx context.Context, _ string, _, _ runtime.Object, _ uint64) error {
	return s.create(ctx)
}

// create creates a pod in a storage that does what is given.
func create(ctx context.Context, t *testing.T, do func(context.Context) error) error {
	t.Helper()
	store := newPodStore(t, sharedEtcd(), func(*storagebackend.Config) {})
	store.Storage.Storage = storageFunc{store.Storage.Storage, do}
	_, err := store.Create(genericapirequest.WithNamespace(ctx, "default"), &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	return err
}

func TestUnavailableEtcdIsInternalError(t *testing.T) {
	err := create(t.Context(), t, func(context.Context) error { return status.Error(codes.Unavailable, "etcdserver: leader changed") })
	if known := apierrors.APIStatus(nil); errors.As(err, &known) {
		fixed(t, "an etcd that is unavailable for a moment is answered with %v", known.Status())
	}
}

func TestSilentEtcdTakesAllTheTimeOfARequest(t *testing.T) {
	want := time.Now().Add(time.Hour)
	ctx, cancel := context.WithDeadline(t.Context(), want)
	defer cancel()
	var got time.Time
	if err := create(ctx, t, func(ctx context.Context) error {
		got, _ = ctx.Deadline()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !got.Equal(want) {
		fixed(t, "a request that may take until %s waits for etcd until %s", want, got)
	}
}

// otherKey can't decrypt anything.
type otherKey struct{ value.Transformer }

func (otherKey) TransformFromStorage(context.Context, []byte, value.Context) ([]byte, bool, error) {
	return nil, false, errors.New("no key matches")
}

func TestUndecryptableObjectIsUntypedError(t *testing.T) {
	if a := send(t, http.MethodPost, servePods(t), "application/json", newPod("a")); a.code != http.StatusCreated {
		t.Fatal(a)
	}
	store := newPodStore(t, sharedEtcd(), func(config *storagebackend.Config) { config.Transformer = otherKey{} })
	_, err := store.Get(genericapirequest.WithNamespace(t.Context(), "default"), "a", &metav1.GetOptions{})
	if !apierrors.IsInternalError(err) {
		fixed(t, "an object that can't be decrypted is %v (%s)", err, apierrors.ReasonForError(err))
	}
}

func TestWatchersGetObjectsOfAnotherType(t *testing.T) {
	store := newPodStore(t, sharedEtcd(), func(*storagebackend.Config) {})
	ctx := genericapirequest.WithNamespace(t.Context(), "default")
	eventually(t, func() bool { return store.ReadinessCheck() == nil })
	var w watch.Interface
	for range 10 {
		var err error
		if w, err = store.Watch(ctx, &metainternalversion.ListOptions{ResourceVersion: "0"}); err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
	}
	if _, err := store.Create(ctx, &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, ok := (<-w.ResultChan()).Object.(*example.Pod); ok {
		fixed(t, "each of many watchers of a store gets an object of the store's own type")
	}
}
