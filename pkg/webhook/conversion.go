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

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// converter answers conversion reviews.
type converter struct {
	codec codec
}

// answer converts all objects or none. They keep their order.
func (c converter) answer(_ context.Context, review *apiextensionsv1.ConversionReview) error {
	request := review.Request
	if request == nil {
		return errNoRequest
	}
	review.Request, review.Response = nil, &apiextensionsv1.ConversionResponse{UID: request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	converted, err := c.convertAll(request)
	if err != nil {
		converted, review.Response.Result = []runtime.RawExtension{}, metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
	}
	review.Response.ConvertedObjects = converted
	return nil
}

func (c converter) convertAll(request *apiextensionsv1.ConversionRequest) ([]runtime.RawExtension, error) {
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
	return json.Marshal(content)
}
