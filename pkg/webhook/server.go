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
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/transport"
)

const (
	// requestTimeout is the longest that kube-apiserver waits for a webhook.
	requestTimeout = 30 * time.Second
	// maxAdmissionBody is more than the two objects of a request can have. Each is limited to 3 MiB.
	maxAdmissionBody = 8 << 20
	// maxConversionBody is more than an object can have: kube-apiserver converts the objects
	// of a list one by one.
	maxConversionBody = 16 << 20
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
	memory := newMemory(limits.DefaultBounds().RequestMemory)
	codec := newCodec(hooks.Scheme)
	judge := admission{hooks, codec}
	review := schema.GroupKind{Group: "admission.k8s.io", Kind: "AdmissionReview"}
	for path, answer := range map[string]func(context.Context, *admissionv1.AdmissionReview) error{"/admit": judge.admit, "/validate": judge.validate} {
		reviews.Handle(path, callers.authenticated(handleReviews(review, memory, maxAdmissionBody, answer)))
	}
	// kube-apiserver has no other credentials for conversions than their path.
	conversion := schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "ConversionReview"}
	reviews.Handle("/convert", handleReviews(conversion, memory, maxConversionBody, converter{codec}.answer))

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
