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

package apiserver

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/filters"
)

// fixedStorage has lists of one length, with objects of one size.
type fixedStorage struct {
	storage.Interface
	length int
	stats  storage.Stats
	err    error
}

func (s fixedStorage) GetList(_ context.Context, _ string, _ storage.ListOptions, list runtime.Object) error {
	list.(*metav1.PartialObjectMetadataList).Items = make([]metav1.PartialObjectMetadata, s.length)
	return nil
}

func (s fixedStorage) Stats(context.Context) (storage.Stats, error) { return s.stats, s.err }

// A list takes memory by its own length, however many objects there are.
func TestListsTakeMemory(t *testing.T) {
	const average = 1 << 10
	for name, test := range map[string]struct {
		fixedStorage
		tooMany bool
	}{
		"few of many":     {fixedStorage: fixedStorage{length: 10, stats: storage.Stats{ObjectCount: 1000, EstimatedAverageObjectSizeBytes: average}}},
		"many":            {fixedStorage: fixedStorage{length: 100, stats: storage.Stats{ObjectCount: 100, EstimatedAverageObjectSizeBytes: average}}, tooMany: true},
		"none":            {},
		"of unknown size": {fixedStorage: fixedStorage{length: 100, err: errors.New("etcd does not answer")}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bounds := filters.DefaultBounds()
				bounds.RequestMemory = 4 * 4 * 50 * average // So a user has memory for lists of 50.
				store := &boundedStorage{Interface: test.fixedStorage}
				list := func(ctx context.Context) error {
					return store.GetList(ctx, "/", storage.ListOptions{}, &metav1.PartialObjectMetadataList{})
				}
				// The first list learns the size for those after it.
				require.NoError(t, list(t.Context()))
				synctest.Wait()
				serve := func(handler http.Handler) {
					request := httptest.NewRequest(http.MethodGet, "/", nil)
					handler.ServeHTTP(httptest.NewRecorder(), request.WithContext(genericapirequest.WithRequestInfo(t.Context(),
						&genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "list"})))
				}
				// One list is being sent when the same user asks for another.
				var handler http.Handler
				depth := 0
				handler = filters.WithMemoryBounds(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
					err := list(req.Context())
					if depth++; depth == 1 {
						assert.NoError(t, err)
						serve(handler)
						return
					}
					assert.Equal(t, test.tooMany, apierrors.IsTooManyRequests(err), "%v", err)
				}), serializer.NewCodecFactory(runtime.NewScheme()), func(*http.Request, *genericapirequest.RequestInfo) bool { return false }, bounds, 1<<20)
				serve(handler)
				require.Equal(t, 2, depth)
			})
		})
	}
}
