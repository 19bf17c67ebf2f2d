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
	"context"
	"encoding/json"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
)

// ListMutatingPolicies returns the mutating policies of the cluster, and their bindings.
// Kubernetes 1.34 and 1.35 serve them as v1beta1 only, which has the same fields. Without
// v1beta1, this server would admit objects that kube-apiserver changes or refuses. The
// error is NotFound if no version is served.
func ListMutatingPolicies(ctx context.Context, client kubernetes.Interface) (*admissionregistrationv1.MutatingAdmissionPolicyList, *admissionregistrationv1.MutatingAdmissionPolicyBindingList, error) {
	policies, err := client.AdmissionregistrationV1().MutatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if err == nil {
		bindings, err := client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
		return policies, bindings, err
	}
	if !apierrors.IsNotFound(err) {
		return nil, nil, err
	}
	oldPolicies, err := client.AdmissionregistrationV1beta1().MutatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	oldBindings, err := client.AdmissionregistrationV1beta1().MutatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	policies, err = toV1[admissionregistrationv1.MutatingAdmissionPolicyList](oldPolicies)
	if err != nil {
		return nil, nil, err
	}
	bindings, err := toV1[admissionregistrationv1.MutatingAdmissionPolicyBindingList](oldBindings)
	return policies, bindings, err
}

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
