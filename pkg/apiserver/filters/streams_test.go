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

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilwaitgroup "k8s.io/apimachinery/pkg/util/waitgroup"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// What answers with one line, and what is no GET, once went past priority and fairness.
func TestLongRunning(t *testing.T) {
	streams := NewStreams(DefaultBounds(),
		[]schema.GroupResource{{Group: "example.com", Resource: "things/exec"}}, []schema.GroupResource{{Group: "example.com", Resource: "things/track"}})
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
		"the first counts":    {"GET", "?follow=false&follow=true", "track", false},
		"a POST":              {"POST", "?follow=true", "track", false},
		"another subresource": {"GET", "?follow=true", "status", false},
		"always by GET":       {"GET", "", "exec", true},
		"always by POST":      {"POST", "?follow=false", "exec", true},
		"no subresource":      {"GET", "?follow=true", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			info := &genericapirequest.RequestInfo{IsResourceRequest: true, APIGroup: "example.com", Resource: "things", Subresource: test.subresource}
			if got := check(httptest.NewRequest(test.method, "/"+test.query, nil), info); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestStreamsPerUser(t *testing.T) {
	streams := NewStreams(Bounds{StreamsPerUser: 1}, nil, []schema.GroupResource{{Group: "example.com", Resource: "things/track"}})
	config := &genericapiserver.Config{Serializer: newCodecs(), WatchRequestWaitGroup: &utilwaitgroup.RateLimitedSafeWaitGroup{}}
	follow := func(name string) *http.Request {
		req := httptest.NewRequest(http.MethodGet, "/?follow=true", nil)
		ctx := genericapirequest.WithUser(req.Context(), &user.DefaultInfo{Name: name})
		return req.WithContext(genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
			IsResourceRequest: true, APIGroup: "example.com", APIVersion: "v1", Resource: "things", Subresource: "track",
		}))
	}
	var handler http.Handler
	handler = streams.WithShutdown(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if name := userName(req); name == "jane" {
			requireStatus(t, serve(handler, follow(name)), "a user must not follow more than 1 streams at once", http.StatusTooManyRequests)
			requireStatus(t, serve(handler, follow("john")), "", http.StatusOK)
		}
	}), config)
	for range 2 {
		requireStatus(t, serve(handler, follow("jane")), "", http.StatusOK)
	}
	if len(streams.users) > 0 {
		t.Errorf("users are still counted: %v", streams.users)
	}
}
