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

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/transport"
)

const (
	// requestTimeout is the longest that kube-apiserver waits for a webhook.
	requestTimeout = 30 * time.Second
	// maxBody is the most that kube-apiserver accepts of its own clients.
	maxBody = 3 << 20
	// decodeFactor is how many times its size a review takes while it is answered: a list of empty
	// objects takes most.
	decodeFactor = 60
)

// serve answers requests until the context ends, and then those that have begun.
func serve(ctx context.Context, serving *genericapiserver.SecureServingInfo, hooks Webhooks, callers callers, delay time.Duration) error {
	informing, stopInforming := context.WithCancel(context.WithoutCancel(ctx))
	defer stopInforming()
	for _, informer := range hooks.Informers {
		go informer.RunWithContext(informing)
	}

	// In HTTP/2, bodies arrive before they are read, 256 KiB of each stream.
	serving.DisableHTTP2 = true
	connections := transport.NewConnections(limits.DefaultBounds())
	serving.Listener = connections.Listener(serving.Listener)
	stop := make(chan struct{})
	// No request goes on for longer than its timeout.
	handler := connections.Handler(withTimeout(newHandler(ctx, hooks, callers), requestTimeout))
	stopped, listenerStopped, err := serving.Serve(handler, requestTimeout, stop)
	if err != nil {
		return err
	}
	<-ctx.Done()
	time.Sleep(delay)
	connections.Leave()
	close(stop)
	<-listenerStopped
	<-stopped
	return nil
}

// newHandler serves exact paths only, so that it never redirects to another one.
// The end of the context makes it unready.
func newHandler(ctx context.Context, hooks Webhooks, callers callers) http.Handler {
	reviews := mux.NewPathRecorderMux("reviews")
	memory := newMemory(int64(limits.DefaultBounds().RequestMemory))
	codec := newCodec(hooks.Scheme)
	judge := admission{hooks, codec}
	review := schema.GroupKind{Group: "admission.k8s.io", Kind: "AdmissionReview"}
	for path, answer := range map[string]func(context.Context, *admissionv1.AdmissionReview) error{"/admit": judge.admit, "/validate": judge.validate} {
		reviews.Handle(path, callers.authenticated(handleReviews(review, memory, answer)))
	}
	// kube-apiserver has no other credentials for conversions than their path.
	conversion := schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "ConversionReview"}
	reviews.Handle("/convert", handleReviews(conversion, memory, converter{codec}.answer))

	paths := mux.NewPathRecorderMux("webhook")
	paths.NotFoundHandler(callers.belowPath(reviews))
	ready := []healthz.HealthChecker{healthz.PingHealthz, healthz.NewShutdownHealthz(ctx.Done())}
	for _, resource := range slices.Sorted(maps.Keys(hooks.Informers)) {
		ready = append(ready, healthz.NamedCheck("informer-"+resource, func(*http.Request) error {
			if !hooks.Informers[resource].HasSynced() {
				return errors.New("not all objects have been read yet")
			}
			return nil
		}))
	}
	healthz.InstallLivezHandler(paths, healthz.PingHealthz, healthz.LogHealthz)
	healthz.InstallReadyzHandler(paths, ready...)
	return paths
}

// withTimeout ends requests, also those of clients that send or read slowly.
// Upstream fault 10.
func withTimeout(next http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithTimeout(req.Context(), timeout)
		defer cancel()
		deadline, connection := time.Now().Add(timeout), http.NewResponseController(w)
		if err := errors.Join(connection.SetReadDeadline(deadline), connection.SetWriteDeadline(deadline)); err != nil {
			refuse(w, http.StatusInternalServerError, "", err.Error())
			return
		}
		next.ServeHTTP(w, req.WithContext(ctx))
	})
}

var errNoRequest = errors.New("the review has no request")

// memory bounds the memory of all reviews in work. They wait for it when their bodies have arrived.
type memory struct {
	*semaphore.Weighted
	total int64
}

func newMemory(total int64) memory { return memory{semaphore.NewWeighted(total), total} }

// handleReviews answers the reviews of a kind in v1 and v1beta1, each in its version. Other bodies
// are refused with a Status and not passed on.
func handleReviews[Review any, Pointer interface {
	*Review
	GetObjectKind() schema.ObjectKind
}](kind schema.GroupKind, memory memory, answer func(context.Context, Pointer) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			refuse(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "send a POST")
			return
		}
		if mediaType, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || mediaType != runtime.ContentTypeJSON {
			refuse(w, http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "send "+runtime.ContentTypeJSON)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			refuse(w, http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, fmt.Sprintf("a review may have %d bytes", tooLarge.Limit))
			return
		}
		if err != nil {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf("the body can't be read: %v", err))
			return
		}
		size := min(int64(len(body))*decodeFactor, memory.total)
		if err := memory.Acquire(req.Context(), size); err != nil {
			refuse(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "other reviews take all the memory that there is for them: try again")
			return
		}
		defer memory.Release(size)
		review := Pointer(new(Review))
		if err := utiljson.Unmarshal(body, review); err != nil {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf("the body is no %s: %v", kind, err))
			return
		}
		if got := review.GetObjectKind().GroupVersionKind(); got.GroupKind() != kind || got.Version != "v1" && got.Version != "v1beta1" {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf("the body is no %s in v1 or v1beta1, but %q", kind, got))
			return
		}
		if err := answer(req.Context(), review); err != nil {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
			return
		}
		respond(w, http.StatusOK, review)
	})
}

func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	respond(w, int(code), &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	})
}

func respond(w http.ResponseWriter, code int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	_, _ = w.Write(data) // It fails if the client has gone.
}
