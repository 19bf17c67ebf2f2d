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
	past := &historicStorage{Interface: versionedStorage{}, size: func(runtime.Object) int64 { return size }}
	past.present.Store(1000)
	for at := range 100 {
		event, keep := past.refillIfCompacted(watch.Event{Type: watch.Modified, Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: "a", ResourceVersion: strconv.Itoa(at + 1),
		}}})
		require.True(t, keep)
		if at < mostHistory/size {
			require.Equal(t, watch.Modified, event.Type, at)
			continue
		}
		require.True(t, apierrors.IsResourceExpired(apierrors.FromObject(event.Object)), "%v", event)
		break
	}
	require.Zero(t, past.present.Load(), "the cache does not list what is stored now")
}

// versionedStorage knows the versions of all objects.
type versionedStorage struct{ storage.Interface }

func (versionedStorage) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }
