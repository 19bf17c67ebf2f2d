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

// Package webhook is a server for the webhooks of an API group, over HTTPS:
//
//	/admit     fills in what an object leaves out (mutating admission)
//	/validate  refuses what must not be stored (validating admission)
//	/convert   converts custom resources between their versions
//	/livez     reports whether the process works
//	/readyz    reports whether admission can judge, and names what is missing
//
// The first three are below a path that only kube-apiserver knows, if there is one.
//
// It knows nothing of any group. Webhooks declares how to fill in and refuse objects, and a
// scheme declares versions and conversions.
//
// Until its informers have synced, the server is not ready. It answers /validate with 503
// and the request to try again a second later. /convert has to work at once: the informers
// may read custom resources that are stored in another version, and kube-apiserver has
// those converted here. So pods must be reached before they are ready: their readiness
// probe should exclude the checks "informer-…".
package webhook

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// Webhooks declares the webhooks of an API group.
type Webhooks struct {
	// Scheme knows all versions of the group with their conversions, defaults and
	// declarative validation, and nothing else.
	Scheme *runtime.Scheme
	// Mutate changes Request.New of a request that creates or updates an object. An
	// error refuses the request.
	Mutate func(context.Context, *Request) error
	// ValidateObject returns the errors of an object of the internal version that
	// declarative validation can't find.
	ValidateObject func(runtime.Object) field.ErrorList
	// Validate refuses a valid request that is wrong for the cluster. It is not called
	// before all informers have synced.
	Validate func(context.Context, *Request) error
	// Informers are the sources of Validate, by the resource. The server starts them.
	Informers map[string]cache.SharedIndexInformer
}

// Request is an admission request.
type Request struct {
	*admissionv1.AdmissionRequest
	// New is the object that is to be stored, and Old the stored one, in the internal
	// version. Each is nil if there is none.
	New, Old runtime.Object
}

// codec reads and writes objects in the versions of a scheme.
type codec struct {
	scheme  *runtime.Scheme
	decoder runtime.Decoder
}

func newCodec(scheme *runtime.Scheme) codec {
	return codec{scheme, serializer.NewCodecFactory(scheme).UniversalDecoder()}
}

// decode returns an object in its internal version, with defaults, and the version
// that it was in.
func (c codec) decode(raw []byte) (runtime.Object, schema.GroupVersion, error) {
	if len(raw) == 0 { // It was null.
		return nil, schema.GroupVersion{}, errors.New("there is no object")
	}
	if err := limits.CheckQuantities(raw); err != nil {
		return nil, schema.GroupVersion{}, err
	}
	kind, err := json.DefaultMetaFactory.Interpret(raw)
	if err != nil {
		return nil, schema.GroupVersion{}, err
	}
	// The internal version does not count as registered.
	if !c.scheme.IsVersionRegistered(kind.GroupVersion()) {
		return nil, schema.GroupVersion{}, fmt.Errorf("the version %q is not known", kind.GroupVersion())
	}
	obj, _, err := c.decoder.Decode(raw, nil, nil)
	if err != nil {
		return nil, schema.GroupVersion{}, err
	}
	if _, err := meta.Accessor(obj); err != nil {
		return nil, schema.GroupVersion{}, fmt.Errorf("a %s is not an object by itself: %w", kind.Kind, err)
	}
	return obj, kind.GroupVersion(), nil
}

// encode returns the content of an object of the internal version in another one.
func (c codec) encode(obj runtime.Object, version schema.GroupVersion) (map[string]any, error) {
	versioned, err := c.scheme.ConvertToVersion(obj, version)
	if err != nil {
		return nil, err
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(versioned)
}
