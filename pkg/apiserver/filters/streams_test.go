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

package filters

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilwaitgroup "k8s.io/apimachinery/pkg/util/waitgroup"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/internal/testing/requests"
)

// Requests that are not followed, and other methods than GET, once went past priority and
// fairness.
func TestLongRunning(t *testing.T) {
	streams := NewStreams([]schema.GroupResource{{Group: "example.com", Resource: "things/exec"}}, []schema.GroupResource{{Group: "example.com", Resource: "things/track"}})
	check := streams.LongRunning(func(*http.Request, *genericapirequest.RequestInfo) bool { return false })
	for name, test := range map[string]struct {
		method, query, subresource string
		want                       bool
	}{
		"followed":            {"GET", "?follow=true", "track", true},
		"followed by 1":       {"GET", "?follow=1", "track", true},
		"followed by default": {"GET", "?follow", "track", true},
		"not followed":        {"GET", "", "track", false},
		"followed by no":      {"GET", "?follow=false", "track", false},
		"followed by 0":       {"GET", "?follow=0", "track", false},
		"followed by No":      {"GET", "?follow=False", "track", false},
		"the first counts":    {"GET", "?follow=false&follow=true", "track", false},
		"a POST":              {"POST", "?follow=true", "track", false},
		"another subresource": {"GET", "?follow=true", "status", false},
		"always by GET":       {"GET", "", "exec", true},
		"always by POST":      {"POST", "?follow=false", "exec", true},
		"no subresource":      {"GET", "?follow=true", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			info := &genericapirequest.RequestInfo{IsResourceRequest: true, APIGroup: "example.com", Resource: "things", Subresource: test.subresource}
			assert.Equal(t, test.want, check(httptest.NewRequest(test.method, "/"+test.query, nil), info))
		})
	}
}

// A WebSocket that watches ends when the server stops. It once held the stop up for ten seconds.
func TestWebSocketsEndWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streams := NewStreams(nil, nil)
		config := &genericapiserver.Config{Serializer: requests.NewCodecs(), WatchRequestWaitGroup: &utilwaitgroup.RateLimitedSafeWaitGroup{}}
		ended := false
		handler := streams.WithShutdown(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			<-req.Context().Done()
			ended = true
		}), config)
		req := requests.WithInfo(httptest.NewRequest(http.MethodGet, "/", nil), "watch")
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "websocket")
		go requests.Serve(handler, req)
		synctest.Wait()
		require.False(t, ended, "before the server stops")
		close(streams.shutdown)
		synctest.Wait()
		require.True(t, ended, "while the server stops")
	})
}
