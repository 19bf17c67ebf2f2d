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
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// conversionReview is the ConversionReview of apiextensions.k8s.io, the same in v1
// and v1beta1. The library's types would bring the whole module of custom resources
// with them.
type conversionReview struct {
	metav1.TypeMeta `json:",inline"`
	Request         *conversionRequest  `json:"request,omitempty"`
	Response        *conversionResponse `json:"response,omitempty"`
}

type conversionRequest struct {
	UID               types.UID              `json:"uid"`
	DesiredAPIVersion string                 `json:"desiredAPIVersion"`
	Objects           []runtime.RawExtension `json:"objects"`
}

type conversionResponse struct {
	UID              types.UID              `json:"uid"`
	ConvertedObjects []runtime.RawExtension `json:"convertedObjects"`
	Result           metav1.Status          `json:"result"`
}

// converter answers conversion reviews.
type converter struct {
	codec codec
}

// answer converts all objects or none. They keep their order.
func (c converter) answer(_ context.Context, review *conversionReview) error {
	if review.Request == nil {
		return errNoRequest
	}
	review.Response = c.respond(review.Request)
	review.Request = nil
	return nil
}

func (c converter) respond(request *conversionRequest) *conversionResponse {
	converted, err := c.convertAll(request)
	if err != nil {
		failure := metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
		return &conversionResponse{UID: request.UID, ConvertedObjects: []runtime.RawExtension{}, Result: failure}
	}
	return &conversionResponse{UID: request.UID, ConvertedObjects: converted, Result: metav1.Status{Status: metav1.StatusSuccess}}
}

func (c converter) convertAll(request *conversionRequest) ([]runtime.RawExtension, error) {
	path := field.NewPath("request")
	desired, err := schema.ParseGroupVersion(request.DesiredAPIVersion)
	if err != nil || !c.codec.scheme.IsVersionRegistered(desired) {
		return nil, fmt.Errorf("%s: the version %q is not known", path.Child("desiredAPIVersion"), request.DesiredAPIVersion)
	}
	converted := make([]runtime.RawExtension, len(request.Objects))
	for i, object := range request.Objects {
		if converted[i].Raw, err = c.convert(object.Raw, desired); err != nil {
			return nil, fmt.Errorf("%s: %w", path.Child("objects").Index(i), err)
		}
	}
	return converted, nil
}

// convert passes the metadata on as they are, unknown fields included: a converter must not
// change them.
func (c converter) convert(raw []byte, desired schema.GroupVersion) ([]byte, error) {
	obj, version, err := c.codec.decode(raw)
	if err != nil {
		return nil, err
	}
	if version == desired {
		return raw, nil
	}
	if version.Group != desired.Group {
		return nil, fmt.Errorf("the group %q is not the one to convert to, %q", version.Group, desired.Group)
	}
	content, err := c.codec.encode(obj, desired)
	if err != nil {
		return nil, err
	}
	var original struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := utiljson.Unmarshal(raw, &original); err != nil {
		return nil, err
	}
	if original.Metadata != nil {
		content["metadata"] = original.Metadata
	}
	return marshal(content)
}
