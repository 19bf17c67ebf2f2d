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

package authorization_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/tracing"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/authentication"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/authorization"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// echo answers with the body of the question after a second, and counts.
func echo(asked *atomic.Int32) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		asked.Add(1)
		select {
		case <-req.Context().Done():
			return nil, req.Context().Err()
		case <-time.After(time.Second):
		}
		return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"text/plain"}}, Body: req.Body}, nil
	})
}

func ask(ctx context.Context, t *testing.T, transport http.RoundTripper, question string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://kubernetes/reviews", strings.NewReader(question))
	require.NoError(t, err)
	response, err := transport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer func() { assert.NoError(t, response.Body.Close()) }()
	require.Equal(t, http.StatusCreated, response.StatusCode)
	require.Same(t, req, response.Request)
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func TestShareReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		transport := authorization.ShareReviews(echo(&asked))
		var all sync.WaitGroup
		for _, question := range []string{"may the reader get?", "may the reader get?", "may the reader get?", "may the stranger get?"} {
			all.Go(func() {
				if got, err := ask(t.Context(), t, transport, question); assert.NoError(t, err) {
					assert.Equal(t, question, got)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 2, asked.Load(), "Each question is asked once.")

		_, err := ask(t.Context(), t, transport, "may the reader get?")
		require.NoError(t, err)
		require.EqualValues(t, 3, asked.Load(), "No answer is kept.")
	})
}

// A client that asked first may leave without taking the answer away from others.
func TestShareReviewsOfWhoGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		transport := authorization.ShareReviews(echo(&asked))
		first, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			_, err := ask(first, t, transport, "may the reader get?")
			assert.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		all.Go(func() {
			if got, err := ask(t.Context(), t, transport, "may the reader get?"); assert.NoError(t, err) {
				assert.Equal(t, "may the reader get?", got)
			}
		})
		synctest.Wait()
		leave()
		all.Wait()
		require.EqualValues(t, 1, asked.Load())
	})
}

// The authorizer of a server shares reviews, and asks for all names if a front proxy has named the user.
func TestReviewsOfAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		kube := roundTripper(func(req *http.Request) (*http.Response, error) {
			asked.Add(1)
			time.Sleep(time.Second)
			question, err := io.ReadAll(req.Body)
			assert.NotContains(t, string(question), "rye")
			answer := `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`
			return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(answer))}, err
		})
		config := &genericapiserver.Config{RequestTimeout: time.Minute, TracerProvider: tracing.NewNoopTracerProvider()}
		options := authorization.NewOptions(genericoptions.NewDelegatingAuthorizationOptions())
		require.NoError(t, options.ApplyTo(config, &rest.Config{Host: "https://kubernetes", Transport: kube}, nil))
		ctx := genericapirequest.WithRequestInfo(t.Context(), &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "get", APIVersion: "v1", Resource: "breads", Name: "rye"})
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				decision, _, err := config.Authorization.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
					User: authentication.FrontProxied{Info: &user.DefaultInfo{Name: "reader"}}, ResourceRequest: true, Verb: "get", APIVersion: "v1", Resource: "breads", Name: "rye",
				})
				if assert.NoError(t, err) {
					assert.Equal(t, authorizer.DecisionAllow, decision)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 1, asked.Load())
	})
}

// Nobody waits longer than the client's timeout.
func TestShareReviewsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := ask(ctx, t, authorization.ShareReviews(echo(&asked)), "may the reader get?")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(2 * time.Millisecond) // The request that is sent has ended, too; synctest would complain otherwise.
	})
}
