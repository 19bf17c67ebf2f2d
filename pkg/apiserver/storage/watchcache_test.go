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

package storage

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// filling is a storage whose cache is ready after some time.
type filling struct {
	storage.Interface
	ready time.Time
}

func (f filling) ReadinessCheck() error {
	if time.Now().Before(f.ready) {
		return storage.ErrStorageNotReady
	}
	return nil
}

func (f filling) wait(ctx context.Context) error {
	select {
	case <-time.After(time.Until(f.ready)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (f filling) GetList(context.Context, string, storage.ListOptions, runtime.Object) error {
	return f.ReadinessCheck()
}

func (f filling) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return nil, f.ReadinessCheck()
}

// Lists during a migration were answered with 429, since the change of a definition makes new caches.
func TestListsWaitForANewCache(t *testing.T) {
	for name, test := range map[string]struct {
		fills, age, deadline time.Duration
		want                 time.Duration
		err                  error
	}{
		"filled":                        {0, 0, time.Minute, 0, nil},
		"filled soon":                   {2 * time.Second, 0, time.Minute, 2 * time.Second, nil},
		"not filled in time":            {time.Hour, 0, time.Minute, fillTimeout, storage.ErrStorageNotReady},
		"a client that does not wait":   {time.Hour, 0, time.Second, time.Second, storage.ErrStorageNotReady},
		"not new, as after an outage":   {time.Hour, time.Hour, time.Minute, 0, storage.ErrStorageNotReady},
		"not new, and it will be ready": {time.Second, time.Hour, time.Minute, 0, storage.ErrStorageNotReady},
	} {
		t.Run(name, func(t *testing.T) {
			for what, read := range map[string]func(context.Context, *currentStorage) error{
				"list": func(ctx context.Context, c *currentStorage) error {
					return c.GetList(ctx, "/", storage.ListOptions{}, nil)
				},
				"watch": func(ctx context.Context, c *currentStorage) error {
					_, err := c.Watch(ctx, "/", storage.ListOptions{})
					return err
				},
			} {
				synctest.Test(t, func(t *testing.T) {
					began := time.Now()
					inner := filling{ready: began.Add(test.fills)}
					c := &currentStorage{Interface: inner, wait: inner.wait, filled: began.Add(fillTimeout - test.age), history: newHistory()}
					ctx, cancel := context.WithTimeout(t.Context(), test.deadline)
					defer cancel()
					require.ErrorIs(t, read(ctx, c), test.err, what)
					require.Equal(t, test.want, time.Since(began), what)
				})
			}
		})
	}
}

func TestHistoryThatIsTooLarge(t *testing.T) {
	const size = 1 << 20
	past := &historicStorage{Interface: versionedStorage{}, large: new(largeObjects), key: nameKey}
	past.present.Store(1000)
	for at := range 100 {
		event, keep := past.refillIfCompacted(watch.Event{Type: watch.Modified, Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: "a", ResourceVersion: strconv.Itoa(at + 1), Annotations: map[string]string{"a": strings.Repeat("x", size)},
		}}})
		require.True(t, keep)
		if at < mostHistory/size-1 {
			require.Equal(t, watch.Modified, event.Type, at)
			continue
		}
		require.True(t, apierrors.IsResourceExpired(apierrors.FromObject(event.Object)), "%v", event)
		break
	}
	require.Zero(t, past.present.Load(), "the cache does not list what is stored now")
}

func nameKey(object runtime.Object) (string, error) {
	return storage.NoNamespaceKeyFunc("/things/", object)
}

// Large objects are known from the cache, also those that were stored before a server started, or by another.
func TestLargeObjects(t *testing.T) {
	object := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1", Annotations: map[string]string{"a": strings.Repeat("x", 100<<10)}}}
	small := object
	small.Annotations = nil
	source := &historicStorage{Interface: versionedStorage{object: object}, large: new(largeObjects), key: nameKey}
	for _, step := range []struct {
		name string
		see  func()
		want bool
	}{
		{"nothing", func() {}, false},
		{"listed", func() {
			require.NoError(t, source.GetList(t.Context(), "/", storage.ListOptions{ResourceVersion: "1"}, &metav1.PartialObjectMetadataList{}))
		}, true},
		{"changed to a small one", func() { source.refillIfCompacted(watch.Event{Type: watch.Modified, Object: &small}) }, false},
		{"changed to a large one", func() { source.refillIfCompacted(watch.Event{Type: watch.Modified, Object: &object}) }, true},
		{"a bookmark", func() {
			source.refillIfCompacted(watch.Event{Type: watch.Bookmark, Object: &metav1.PartialObjectMetadata{}})
		}, true},
		{"deleted", func() { source.refillIfCompacted(watch.Event{Type: watch.Deleted, Object: &object}) }, false},
	} {
		step.see()
		require.Equal(t, step.want, source.large.size("/things/a") > 100<<10, step.name)
	}
}

// versionedStorage has one object, and knows the versions of all.
type versionedStorage struct {
	storage.Interface
	object metav1.PartialObjectMetadata
}

func (s versionedStorage) GetList(_ context.Context, _ string, _ storage.ListOptions, list runtime.Object) error {
	list.(*metav1.PartialObjectMetadataList).Items = []metav1.PartialObjectMetadata{s.object}
	return nil
}

func (versionedStorage) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }
