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
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// undecidedRetrySeconds is the Retry-After of requests that kube-apiserver could not be asked
// about.
const undecidedRetrySeconds = 1

// tokensRetrySeconds is the Retry-After of clients that present too many unknown tokens.
const tokensRetrySeconds = 1

// retryable replaces texts of k8s.io/apiserver with a metav1.Status that says when to try again.
// k8s.io/apiserver answers with text if there are too many requests. If kube-apiserver could not
// be asked whether a request is allowed, k8s.io/apiserver answers with an internal error, which
// no client repeats.
// Upstream fault 18.
type retryable struct {
	http.ResponseWriter
	req        *http.Request
	serializer runtime.NegotiatedSerializer
	// undecided is set if the authorizer could not decide.
	undecided atomic.Bool
	// tooManyTokens is set if that is why the client was not authenticated.
	tooManyTokens atomic.Bool
	// answered is set when a Status has replaced k8s.io/apiserver's text.
	answered bool
}

type retryableKey struct{}

// WithRetryableErrors answers with a metav1.Status that says when to try again. It does so if
// there are too many requests, after a RetryableDenial, and to a client of
// NoteTooManyTokens. It belongs around k8s.io/apiserver's handlers.
func WithRetryableErrors(next http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		answer := &retryable{ResponseWriter: w, req: req, serializer: serializer}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(answer), req.WithContext(context.WithValue(req.Context(), retryableKey{}, answer)))
	})
}

// Unwrap is for k8s.io/apiserver's wrapper.
func (r *retryable) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// refusalTime is how long a client may take to read a refusal, which strangers can have, too.
const refusalTime = time.Second

// WriteHeader sends a Status in place of such an answer.
func (r *retryable) WriteHeader(code int) {
	if code >= http.StatusBadRequest {
		_ = http.NewResponseController(r.ResponseWriter).SetWriteDeadline(time.Now().Add(refusalTime))
	}
	err := r.status(code)
	if err == nil {
		r.ResponseWriter.WriteHeader(code)
		return
	}
	r.answered = true
	responsewriters.ErrorNegotiated(err, r.serializer, metav1.Unversioned, r.ResponseWriter, r.req)
}

// Write drops text that a Status has replaced.
func (r *retryable) Write(content []byte) (int, error) {
	if r.answered {
		return len(content), nil
	}
	return r.ResponseWriter.Write(content)
}

func (r *retryable) status(code int) error {
	if code == http.StatusUnauthorized && r.tooManyTokens.Load() {
		return apierrors.NewTooManyRequests("this client presents too many bearer tokens that are not known to be valid", tokensRetrySeconds)
	}
	if !strings.HasPrefix(r.Header().Get("Content-Type"), "text/plain") {
		return nil
	}
	switch {
	// Upstream fault 19.
	case code == http.StatusTooManyRequests:
		seconds, _ := strconv.Atoi(r.Header().Get("Retry-After"))
		return apierrors.NewTooManyRequests("this server has too many requests to work on", seconds)
	case code == http.StatusInternalServerError && r.undecided.Load():
		err := apierrors.NewServiceUnavailable("kube-apiserver can't be asked whether this request is allowed")
		err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: undecidedRetrySeconds}
		return err
	}
	return nil
}

// NoteTooManyTokens makes WithRetryableErrors answer the request of a context with 429 in
// place of 401. The handler must be inside it.
func NoteTooManyTokens(ctx context.Context) {
	if answer, ok := ctx.Value(retryableKey{}).(*retryable); ok {
		answer.tooManyTokens.Store(true)
	}
}

// RetryableDenial makes WithRetryableErrors answer the request of a context with 503 in place
// of 500. kube-apiserver could not be asked whether the request is allowed. The handler must
// be inside WithRetryableErrors.
func RetryableDenial(ctx context.Context) {
	if answer, ok := ctx.Value(retryableKey{}).(*retryable); ok {
		answer.undecided.Store(true)
	}
}
