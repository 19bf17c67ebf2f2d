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
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/testing/requests"
)

// Requests that are not followed, and other methods than GET, once went past priority and
// fairness.
func TestLongRunning(t *testing.T) {
	streams := NewStreams(limits.DefaultBounds(), limits.NewWatches(limits.DefaultBounds()),
		[]schema.GroupResource{{Group: "example.com", Resource: "things/exec"}}, []schema.GroupResource{{Group: "example.com", Resource: "things/track"}}, nil)
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

// A stream takes a seat of kube-apiserver's priority and fairness. One user took all of a priority
// level by following 640 of them, and others of it waited for more than a minute.
func TestStreamsPerUser(t *testing.T) {
	forwarded := false
	bounds := limits.Bounds{ForwardedStreamsPerUser: 1, UpgradesPerUser: 3, RequestMemory: 18 * 192 << 10}
	streams := NewStreams(bounds, limits.NewWatches(bounds),
		[]schema.GroupResource{{Group: "example.com", Resource: "things/exec"}}, []schema.GroupResource{{Group: "example.com", Resource: "things/track"}},
		func(user.Info) bool { return forwarded })
	config := &genericapiserver.Config{Serializer: requests.NewCodecs(), WatchRequestWaitGroup: &utilwaitgroup.RateLimitedSafeWaitGroup{}}
	follow := func(name, subresource string, upgrade bool) *http.Request {
		req := httptest.NewRequest(http.MethodGet, "/?follow=true", nil)
		if upgrade {
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", "websocket")
		}
		ctx := genericapirequest.WithUser(req.Context(), &user.DefaultInfo{Name: name})
		return req.WithContext(genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
			IsResourceRequest: true, APIGroup: "example.com", APIVersion: "v1", Resource: "things", Subresource: subresource,
		}))
	}
	// Each of these is called by the handler of the next stream.
	var meanwhile []func()
	handler := streams.WithShutdown(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if len(meanwhile) > 0 {
			next := meanwhile[0]
			meanwhile = meanwhile[1:]
			next()
		}
	}), config)
	const tooMany = "this user has as many watches and streams…"
	const one, two, other = "system:serviceaccount:a:one", "system:serviceaccount:a:two", "system:serviceaccount:b:one"
	for name, test := range map[string]struct {
		forwarded   bool
		subresource string
		upgrade     bool
		most        int
		// users are those of the first streams, of the next one, and another user.
		users [3]string
		want  string
	}{
		"directly":                        {false, "track", false, 4, [3]string{"first", "first", "second"}, tooMany},
		"through kube-apiserver":          {true, "track", false, 1, [3]string{"first", "first", "second"}, "a user must not follow more than 1 streams at once through kube-apiserver"},
		"long-running for kube-apiserver": {true, "exec", false, 4, [3]string{"first", "first", "second"}, tooMany},
		"an upgraded stream":              {true, "exec", true, 3, [3]string{"first", "first", "second"}, "a user must not have more than 3 connections, such as WebSockets, upgraded at once"},
		"a watch by a WebSocket":          {true, "", true, 3, [3]string{"first", "first", "second"}, "a user must not have more than 3 connections, such as WebSockets, upgraded at once"},
		"of a namespace, directly":        {false, "track", false, 4, [3]string{one, two, other}, tooMany},
		"of a namespace, forwarded":       {true, "track", false, 1, [3]string{one, two, other}, "a user must not follow more than 1 streams at once through kube-apiserver"},
		"of a namespace, upgraded":        {true, "exec", true, 3, [3]string{one, two, other}, "a user must not have more than 3 connections, such as WebSockets, upgraded at once"},
	} {
		t.Run(name, func(t *testing.T) {
			forwarded = test.forwarded
			meanwhile = nil
			for range test.most - 1 {
				meanwhile = append(meanwhile, func() {
					requests.RequireStatus(t, requests.Serve(handler, follow(test.users[0], test.subresource, test.upgrade)), "", http.StatusOK)
				})
			}
			meanwhile = append(meanwhile, func() {
				requests.RequireStatus(t, requests.Serve(handler, follow(test.users[1], test.subresource, test.upgrade)), test.want, http.StatusTooManyRequests)
				requests.RequireStatus(t, requests.Serve(handler, follow(test.users[2], test.subresource, test.upgrade)), "", http.StatusOK)
			})
			for range 2 {
				requests.RequireStatus(t, requests.Serve(handler, follow(test.users[0], test.subresource, test.upgrade)), "", http.StatusOK)
			}
			require.Empty(t, meanwhile, "not called")
			require.Empty(t, streams.users, "still counted")
		})
	}
}

// A WebSocket that watches ends when the server stops. It once held the stop up for ten seconds.
func TestWebSocketsEndWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streams := NewStreams(limits.DefaultBounds(), limits.NewWatches(limits.DefaultBounds()), nil, nil, func(user.Info) bool { return true })
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
