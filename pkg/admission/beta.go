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

package admission

import (
	"encoding/json"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
)

// fromBeta returns what was read as v1beta1 as an object of v1, and other objects unchanged.
func fromBeta(obj any) (any, error) {
	switch object := obj.(type) {
	case *admissionregistrationv1beta1.MutatingAdmissionPolicy:
		return toV1[admissionregistrationv1.MutatingAdmissionPolicy](object)
	case *admissionregistrationv1beta1.MutatingAdmissionPolicyBinding:
		return toV1[admissionregistrationv1.MutatingAdmissionPolicyBinding](object)
	}
	return obj, nil
}

// toV1 converts between versions with the same fields.
func toV1[T any](beta runtime.Object) (*T, error) {
	content, err := json.Marshal(beta)
	if err != nil {
		return nil, err
	}
	object := new(T)
	if err := json.Unmarshal(content, object); err != nil {
		return nil, fmt.Errorf("converting from admissionregistration.k8s.io/v1beta1: %w", err)
	}
	return object, nil
}
