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

package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Connect declares a subresource of a kind with internal type O that an http.Handler answers. It
// is for subresources that an Action or a Stream can't express, such as pods/exec, which upgrades
// the connection, and pods/log, which answers with bytes. Its requests are exempt from the
// request timeout. Its query parameters have a kind of their own, with internal type P.
type Connect[O Object, P runtime.Object] struct {
	// NewOptions returns the options of a request without parameters.
	NewOptions func() P
	// Methods are the HTTP methods. Users need the permission to get the subresource for GET, and
	// to create it for POST. An upgrade by GET needs both. WebSockets always use GET.
	Methods []string
	// Handler returns the handler of a request about an object, after authorization, admission
	// and validation of the options. An error is sent to the client; the responder can send later
	// errors. A handler that takes over the connection has to end when the context does. A
	// handler that needs clients or informers belongs into Runtime.Handlers instead.
	Handler HandlerFunc[O, P]
}

// HandlerFunc returns the handler of a request about an object with internal type O, with
// parameters of internal type P.
type HandlerFunc[O Object, P runtime.Object] func(ctx context.Context, o O, options P, responder rest.Responder) (http.Handler, error)

// Handler is a HandlerFunc for objects and parameters of any types.
type Handler interface {
	// Handle returns the handler of a request about an object.
	Handle(ctx context.Context, o Object, options runtime.Object, responder rest.Responder) (http.Handler, error)
}

// Handle implements Handler. An object, or options, of another type are an error.
func (f HandlerFunc[O, P]) Handle(ctx context.Context, o Object, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	typed, ok := o.(O)
	parameters, valid := options.(P)
	if !ok || !valid {
		return nil, fmt.Errorf("a %T with a %T is to be handled by a %T", o, options, f)
	}
	return f(ctx, typed, parameters, responder)
}

// LongRunning implements Subresource.
func (Connect[O, P]) LongRunning() LongRunning { return AlwaysLongRunning }

// Storage implements Subresource.
func (c Connect[O, P]) Storage(of Parent[O]) (rest.Storage, error) {
	if c.NewOptions == nil {
		return nil, errors.New("set NewOptions")
	}
	if len(c.Methods) == 0 {
		return nil, errors.New("set Methods: GET, which roles for viewers allow, or POST")
	}
	handler, found := of.Runtime.Handlers[of.Path]
	var err error
	if c.Handler, err = choose("Handler", c.Handler, c.Handler != nil, handler, found); err != nil {
		return nil, err
	}
	return &connectREST[O, P]{declared: c, of: of}, nil
}

// connectREST serves a Connect.
type connectREST[O Object, P runtime.Object] struct {
	declared Connect[O, P]
	of       Parent[O]
}

var (
	_ rest.Storage   = &connectREST[Object, runtime.Object]{}
	_ rest.Connecter = &connectREST[Object, runtime.Object]{}
)

// New returns empty options. Admission sees the options as the object of the request.
func (r *connectREST[O, P]) New() runtime.Object { return r.declared.NewOptions() }

// Destroy does nothing: the store is destroyed by objectREST.
func (r *connectREST[O, P]) Destroy() {}

// NewConnectOptions returns the options. No field of them is part of the path.
func (r *connectREST[O, P]) NewConnectOptions() (options runtime.Object, hasPath bool, pathField string) {
	return r.declared.NewOptions(), false, ""
}

// ConnectMethods are the HTTP methods.
func (r *connectREST[O, P]) ConnectMethods() []string { return r.declared.Methods }

// Connect returns the handler for an object.
func (r *connectREST[O, P]) Connect(ctx context.Context, name string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	if err := checkOptions(ctx, r.of.Scheme, options); err != nil {
		return nil, err
	}
	obj, err := r.of.Store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	handler, err := r.declared.Handler(ctx, obj.(O), options.(P), responder)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := r.mayUpgrade(ctx, name, req); err != nil {
			responder.Error(err)
			return
		}
		handler.ServeHTTP(w, req)
	}), nil
}

// mayUpgrade returns an error if a request upgrades its connection without the permission to
// create the subresource. An upgraded connection can do more than read.
func (r *connectREST[O, P]) mayUpgrade(ctx context.Context, name string, req *http.Request) error {
	if req.Header.Get("Upgrade") == "" {
		return nil
	}
	asked, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if asked.GetVerb() == createVerb {
		return nil
	}
	if r.of.Runtime.Authorizer == nil {
		return apierrors.NewInternalError(errors.New("the server has no authorizer"))
	}
	decision, reason, err := r.of.Runtime.Authorizer.Authorize(ctx, creation{asked})
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if decision != authorizer.DecisionAllow {
		resource := schema.GroupResource{Group: asked.GetAPIGroup(), Resource: asked.GetResource()}
		return apierrors.NewForbidden(resource, name, fmt.Errorf("to upgrade the connection, one has to be allowed to create %s: %s", r.of.Path, reason))
	}
	return nil
}

const createVerb = "create"

// creation has the attributes of a request, with the verb create.
type creation struct{ authorizer.Attributes }

// GetVerb returns create.
func (creation) GetVerb() string { return createVerb }
