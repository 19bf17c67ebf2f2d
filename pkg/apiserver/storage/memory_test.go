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
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/internal/testing/requests"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
	registrytesting "restaurant.programming-kubernetes.info/apiserver/pkg/registry/testing"
)

// besideALargeRequest makes a request of a user who has all the memory that there may be for one in another.
func besideALargeRequest(t *testing.T, verb string, request func(context.Context)) {
	t.Helper()
	var gate http.Handler
	work := func(ctx context.Context) {
		require.NoError(t, limits.ReserveObject(ctx, 1<<40))
		second := requests.As(requests.WithInfo(httptest.NewRequest(http.MethodGet, "/", nil), verb), "anna")
		work := request
		requests.Serve(gate, second.WithContext(context.WithValue(second.Context(), workKey{}, work)))
	}
	gate = limits.WithGate(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		req.Context().Value(workKey{}).(func(context.Context))(req.Context())
	}), requests.NewCodecs(), requests.IsWatch, limits.DefaultBounds(), 1<<20, func(*http.Request) {})
	first := requests.As(requests.WithInfo(httptest.NewRequest(http.MethodGet, "/", nil), "get"), "anna")
	requests.Serve(gate, first.WithContext(context.WithValue(first.Context(), workKey{}, work)))
}

type workKey struct{}

// countedStorage has a number of pods, and notes whether it was asked.
type countedStorage struct {
	storage.Interface
	pods  int
	asked bool
}

func (s *countedStorage) Stats(context.Context) (storage.Stats, error) {
	return storage.Stats{ObjectCount: 10_000, EstimatedAverageObjectSizeBytes: 1 << 10}, nil
}

func (s *countedStorage) GetList(_ context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if opts.Predicate.Limit == 1 {
		remaining := map[string]int64{"/pods/": 9_999, "/pods/a/": 99}[key]
		list.(*example.PodList).Items, list.(*example.PodList).RemainingItemCount = make([]example.Pod, 1), &remaining
		return nil
	}
	s.asked = true
	list.(*example.PodList).Items = make([]example.Pod, s.pods)
	return nil
}

func (s *countedStorage) Get(context.Context, string, storage.GetOptions, runtime.Object) error {
	s.asked = true
	return nil
}

func (s *countedStorage) Delete(context.Context, string, runtime.Object, *storage.Preconditions, storage.ValidateObjectFunc, runtime.Object, storage.DeleteOptions) error {
	s.asked = true
	return nil
}

func (s *countedStorage) GuaranteedUpdate(context.Context, string, runtime.Object, bool, *storage.Preconditions, storage.UpdateFunc, runtime.Object) error {
	s.asked = true
	return nil
}

func TestListsTakeMemory(t *testing.T) {
	exact := storage.ListOptions{Recursive: true, ResourceVersion: "7", ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	page := func(limit int64, token string) storage.ListOptions {
		return storage.ListOptions{Recursive: true, Predicate: storage.SelectionPredicate{Limit: limit, Continue: token}}
	}
	for name, test := range map[string]struct {
		key            string // It is that of all pods, if it is empty.
		opts           storage.ListOptions
		pods           int
		refused, asked bool
		uncached       bool
	}{
		"a short list":                {opts: storage.ListOptions{Recursive: true}, pods: 100, asked: true},
		"a long list of the cache":    {opts: storage.ListOptions{Recursive: true}, pods: 10_000, refused: true, asked: true},
		"of a revision":               {opts: exact, refused: true},
		"a first page":                {opts: page(500, ""), pods: 100, asked: true},
		"a further page":              {opts: page(200, "token"), pods: 100, asked: true},
		"a further page that is long": {opts: page(5000, "token"), pods: 100, refused: true},
		"a single object":             {opts: storage.ListOptions{}, pods: 1, asked: true},
		"a long list without a cache": {opts: storage.ListOptions{Recursive: true}, refused: true, uncached: true},
		"of a namespace":              {key: "/pods/a/", opts: storage.ListOptions{Recursive: true}, pods: 100, asked: true, uncached: true},
		"a page without a cache":      {opts: page(200, ""), asked: true, uncached: true},
	} {
		t.Run(name, func(t *testing.T) {
			inner := &countedStorage{pods: test.pods}
			bounded := &boundedStorage{Interface: inner, large: newLargeObjects(), cached: !test.uncached}
			besideALargeRequest(t, "list", func(ctx context.Context) {
				err := bounded.GetList(ctx, cmp.Or(test.key, "/pods/"), test.opts, &example.PodList{})
				require.Equal(t, test.refused, apierrors.IsTooManyRequests(err), "%v", err)
			})
			require.Equal(t, test.asked, inner.asked)
		})
	}
}

// A store without a cache has no statistics of sizes. They are those of the values that were read.
func TestAverageSize(t *testing.T) {
	large := newLargeObjects()
	bounded := &boundedStorage{Interface: countedOnly{}, average: large.average(schema.GroupResource{Resource: "pods"})}
	average := func() int64 {
		stats, err := bounded.Stats(t.Context())
		require.NoError(t, err)
		return stats.EstimatedAverageObjectSizeBytes
	}
	require.EqualValues(t, unknownObject, average())
	transformer := checksummed{large: large}.TransformerForResource(schema.GroupResource{Resource: "pods"})
	for range 1000 {
		_, _, err := transformer.TransformFromStorage(t.Context(), make([]byte, 5000), value.DefaultContext("/pods/a/b"))
		require.NoError(t, err)
	}
	require.EqualValues(t, 5000, average())
}

type countedOnly struct{ storage.Interface }

func (countedOnly) Stats(context.Context) (storage.Stats, error) {
	return storage.Stats{ObjectCount: 1}, nil
}

func TestLargeObjectsTakeMemory(t *testing.T) {
	const key = "/pods/a/b"
	for verb, do := range map[string]func(context.Context, *boundedStorage) error{
		"get": func(ctx context.Context, s *boundedStorage) error {
			return s.Get(ctx, key, storage.GetOptions{}, &example.Pod{})
		},
		"list": func(ctx context.Context, s *boundedStorage) error {
			return s.GetList(ctx, key, storage.ListOptions{}, &example.PodList{})
		},
		"delete": func(ctx context.Context, s *boundedStorage) error {
			return s.Delete(ctx, key, &example.Pod{}, nil, nil, nil, storage.DeleteOptions{})
		},
		"update": func(ctx context.Context, s *boundedStorage) error {
			return s.GuaranteedUpdate(ctx, key, &example.Pod{}, false, nil, nil, nil)
		},
	} {
		t.Run(verb, func(t *testing.T) {
			for _, isLarge := range []bool{false, true} {
				inner := &countedStorage{}
				bounded := &boundedStorage{Interface: inner, large: newLargeObjects(), prefix: "/registry"}
				if isLarge {
					bounded.large.observe("/registry"+key, 1<<20)
				}
				besideALargeRequest(t, verb, func(ctx context.Context) {
					require.Equal(t, isLarge, apierrors.IsTooManyRequests(do(ctx, bounded)))
				})
				require.Equal(t, !isLarge, inner.asked)
			}
		})
	}
}

// Large objects are known from their values in etcd, also those that were stored before a server started, or by another.
func TestLargeObjects(t *testing.T) {
	endpoint := registrytesting.StartEtcd(t).Endpoint()
	writer := newPods(t, newGetter(t, endpoint, true))
	sizes := map[string]int{"small": 100, "large": 512 << 10}
	for name, size := range sizes {
		pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Annotations: map[string]string{"a": strings.Repeat("x", size)}}}
		require.NoError(t, writer.Create(t.Context(), "/pods/a/"+name, pod, &example.Pod{}, 0))
	}
	reader := newPods(t, newGetter(t, endpoint, true))
	require.NoError(t, reader.GetList(t.Context(), "/pods/", storage.ListOptions{Recursive: true, Predicate: storage.Everything}, &example.PodList{}))
	for server, pods := range map[string]storage.Interface{"writer": writer, "reader": reader} {
		for name, size := range sizes {
			besideALargeRequest(t, "get", func(ctx context.Context) {
				err := pods.Get(ctx, "/pods/a/"+name, storage.GetOptions{}, &example.Pod{})
				require.Equal(t, size >= largeObject, apierrors.IsTooManyRequests(err), "%s, %s: %v", server, name, err)
			})
		}
	}
}
