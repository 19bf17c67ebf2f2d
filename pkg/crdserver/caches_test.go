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

package crdserver

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver"
)

const widgets = "/apis/example.com/v1/widgets"

// filling is a server whose watch caches are filled at some time. It counts the requests.
type filling struct {
	until time.Time
	mu    sync.Mutex
	asked map[string]int
}

func (f *filling) RoundTrip(request *http.Request) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[request.URL.Path]++
	response := &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}")), Header: http.Header{}, Request: request}
	if time.Now().Before(f.until) {
		response.StatusCode = http.StatusTooManyRequests
	}
	return response, nil
}

// requests are those so far, by path.
func (f *filling) requests() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.asked)
}

func cachesOf(t *testing.T, server http.RoundTripper) *caches {
	t.Helper()
	config := &apiserver.Config{Etcd: &genericoptions.EtcdOptions{EnableWatchCache: server != nil}, Generic: &genericapiserver.RecommendedConfig{}}
	config.Generic.LoopbackClientConfig = &rest.Config{Host: "loopback", Transport: server, QPS: -1}
	c, err := newCaches(config)
	require.NoError(t, err)
	return c
}

func copiedAt(resourceVersion string) *apiextensions.CustomResourceDefinition {
	return &apiextensions.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", ResourceVersion: resourceVersion},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: "example.com", Names: apiextensions.CustomResourceDefinitionNames{Plural: "widgets"},
			Versions: []apiextensions.CustomResourceDefinitionVersion{{Name: "v1", Served: true}, {Name: "v2"}},
		},
	}
}

// A server is ready when its watch caches are filled. Otherwise the first clients after a start, or after
// a migration, would get a 429.
func TestReadyWhenCachesAreFilled(t *testing.T) {
	for name, test := range map[string]struct {
		fills, ready time.Duration
	}{
		"filled":               {0, 0},
		"filled later":         {30 * time.Second, 30 * time.Second},
		"that can't be filled": {time.Hour, fillTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				server := &filling{until: began.Add(test.fills), asked: map[string]int{}}
				c := cachesOf(t, server)
				c.fill(t.Context(), copiedAt("1"))
				require.EqualError(t, c.check(nil), "the objects of the CustomResourceDefinitions are being read")
				c.start()
				for c.check(nil) != nil {
					time.Sleep(fillInterval)
					synctest.Wait()
				}
				require.InDelta(t, test.ready.Seconds(), time.Since(began).Seconds(), 2*fillInterval.Seconds())
				first := server.requests()
				require.Equal(t, []string{widgets}, slices.Collect(maps.Keys(first)))

				// The same copy has the same caches. Another copy has new ones, and readiness does not
				// wait for them.
				c.fill(t.Context(), copiedAt("1"))
				synctest.Wait()
				require.Equal(t, first, server.requests())
				c.fill(t.Context(), copiedAt("2"))
				require.NoError(t, c.check(nil))
				synctest.Wait()
				require.Greater(t, server.requests()[widgets], first[widgets])
				time.Sleep(2 * fillTimeout)
			})
		})
	}
}

func TestReadyWithoutCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &filling{until: time.Now().Add(time.Hour), asked: map[string]int{}}
		none, one := cachesOf(t, nil), cachesOf(t, server)
		one.sizes = map[schema.GroupResource]int{{Group: "example.com", Resource: "widgets"}: 0}
		for _, c := range []*caches{none, one} {
			c.fill(t.Context(), copiedAt("1"))
			c.start()
			synctest.Wait()
			require.NoError(t, c.check(nil))
		}
		require.Empty(t, server.requests())
	})
}
