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
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
)

func TestUndecidedAuthorizationIsInternalError(t *testing.T) {
	config, _, _ := newConfig(t)
	config.Authorization.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", errors.New("kube-apiserver does not answer")
	})
	a := send(t, http.MethodGet, serve(t, config)+"/apis", "", "")
	if a.code != http.StatusInternalServerError || !strings.HasPrefix(a.contentType, "text/plain") {
		fixed(t, "a request that nobody could authorize is answered with %d and %s", a.code, a.contentType)
	}
}

// serveHandler serves what is behind k8s.io/apiserver's chain of handlers.
func serveHandler(t *testing.T, handler http.HandlerFunc, configure func(*genericapiserver.Config)) string {
	t.Helper()
	config, _, _ := newConfig(t)
	config.BuildHandlerChainFunc = func(_ http.Handler, c *genericapiserver.Config) http.Handler {
		return genericapiserver.DefaultBuildHandlerChain(handler, c)
	}
	configure(&config.Config)
	return serve(t, config)
}

func TestTooManyRequestsIsText(t *testing.T) {
	entered, enter := onceChannel()
	leave, end := onceChannel()
	server := serveHandler(t, func(http.ResponseWriter, *http.Request) {
		enter()
		<-leave
	}, func(config *genericapiserver.Config) { config.MaxRequestsInFlight = 1 })
	t.Cleanup(end)
	go func() {
		if response, err := http.Get(server + "/apis"); err == nil {
			response.Body.Close()
		}
	}()
	<-entered
	a := send(t, http.MethodGet, server+"/apis", "", "")
	if a.code != http.StatusTooManyRequests || !strings.HasPrefix(a.contentType, "text/plain") {
		fixed(t, "one request too many is answered with %d and %s", a.code, a.contentType)
	}
}

func TestAuthorizationOfWatchHasNoDeadline(t *testing.T) {
	deadlines := make(chan bool, 1)
	server := serveHandler(t, func(http.ResponseWriter, *http.Request) {}, func(config *genericapiserver.Config) {
		config.Authorization.Authorizer = authorizer.AuthorizerFunc(func(ctx context.Context, _ authorizer.Attributes) (authorizer.Decision, string, error) {
			_, ok := ctx.Deadline()
			deadlines <- ok
			return authorizer.DecisionAllow, "", nil
		})
	})
	send(t, http.MethodGet, server+"/apis/example.apiserver.k8s.io/v1/pods", "", "")
	if !<-deadlines {
		t.Fatal("the authorization of a list has no deadline")
	}
	send(t, http.MethodGet, server+"/apis/example.apiserver.k8s.io/v1/pods?watch=true", "", "")
	if <-deadlines {
		fixed(t, "the authorization of a watch has a deadline")
	}
}

func TestOnlyWatchesLearnOfShutdown(t *testing.T) {
	told := make(chan bool, 1)
	server := serveHandler(t, func(_ http.ResponseWriter, req *http.Request) {
		told <- genericapirequest.ServerShutdownSignalFrom(req.Context()) != nil
	}, func(config *genericapiserver.Config) {
		config.ShutdownWatchTerminationGracePeriod = time.Second
		config.LongRunningFunc = func(*http.Request, *genericapirequest.RequestInfo) bool { return true }
	})
	send(t, http.MethodGet, server+"/apis/example.apiserver.k8s.io/v1/pods?watch=true", "", "")
	if !<-told {
		t.Fatal("a watch is not told that the server stops")
	}
	send(t, http.MethodGet, server+"/apis/example.apiserver.k8s.io/v1/namespaces/default/pods/a/log", "", "")
	if <-told {
		fixed(t, "long-running requests other than watches are told that the server stops")
	}
}

// TestBodyIsAwaitedAfterItsTimeout stops in the middle of a body until the time for the
// request is over, and goes on then. A machine can be too slow to wait for the rest by
// then, and gets more time.
func TestBodyIsAwaitedAfterItsTimeout(t *testing.T) {
	for timeout := 10 * time.Millisecond; timeout < patience; timeout *= 4 {
		switch err := readSlowBody(t, timeout); {
		case err == nil:
			return
		case !errors.Is(err, http.ErrBodyReadAfterClose):
			fixed(t, "a body is not waited for longer than its request may take: %v", err)
			return
		}
	}
	fixed(t, "a body is closed when the time for its request is over")
}

func readSlowBody(t *testing.T, timeout time.Duration) error {
	t.Helper()
	over, end := onceChannel()
	read := make(chan error, 1)
	server := serveHandler(t, func(_ http.ResponseWriter, req *http.Request) {
		defer context.AfterFunc(req.Context(), end)()
		_, err := io.ReadAll(req.Body)
		read <- err
	}, func(config *genericapiserver.Config) { config.RequestTimeout = timeout })
	body, rest := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server+"/apis", body)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if response, err := http.DefaultClient.Do(req); err == nil {
			response.Body.Close()
		}
	}()
	go func() {
		_, _ = io.WriteString(rest, "{")
		<-over
		_, _ = io.WriteString(rest, "}")
		_ = rest.Close()
	}()
	return <-read
}

// unreadWriter writes to a client that reads nothing.
type unreadWriter struct {
	http.ResponseWriter
	begin func()
	end   <-chan struct{}
}

func (w unreadWriter) Write([]byte) (int, error) {
	w.begin()
	<-w.end
	return 0, io.ErrClosedPipe
}

func TestUnreadResponseOutlivesItsTimeout(t *testing.T) {
	writing, begin := onceChannel()
	end, leave := onceChannel()
	defer leave()
	handler := genericfilters.WithTimeoutForNonLongRunningRequests(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("a list"))
	}), func(*http.Request, *genericapirequest.RequestInfo) bool { return false })
	ctx, timeOut := context.WithCancel(genericapirequest.WithRequestInfo(t.Context(), &genericapirequest.RequestInfo{}))
	ended, answered := onceChannel()
	go func() {
		defer answered()
		defer func() { _ = recover() }() // The library ends a response by a panic.
		handler.ServeHTTP(unreadWriter{httptest.NewRecorder(), begin, end}, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	}()
	<-writing
	timeOut()
	select {
	case <-ended:
		fixed(t, "a request whose time is over does not wait for a client that reads nothing")
	case <-time.After(time.Second):
	}
	leave()
	<-ended
}
