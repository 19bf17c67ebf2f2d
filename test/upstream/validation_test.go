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

package upstream

import (
	"bytes"
	"context"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// TestMistakeInMetadataIsLoggedAsMismatch has a kind with a validation tag of its own. No
// tag says anything about metadata.
func TestMistakeInMetadataIsLoggedAsMismatch(t *testing.T) {
	scheme, _ := newScheme()
	scheme.AddValidationFunc(&examplev1.Pod{}, func(context.Context, operation.Operation, any, any) field.ErrorList {
		return field.ErrorList{field.Required(field.NewPath("spec", "nodeName"), "")}
	})
	pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "b"}}}}
	errs := validation.ValidateObjectMeta(&pod.ObjectMeta, true, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	if len(errs) == 0 {
		t.Fatal("an owner without a UID is valid")
	}
	var log bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{APIGroup: example.GroupName, APIVersion: "v1", Resource: "pods", Verb: "create"})
	rest.DeclarativeValidation{Scheme: scheme}.ValidateDeclaratively(ctx, pod, nil, errs, operation.Create, rest.DeclarativeValidationConfig{})
	if !strings.Contains(log.String(), "ownerReferences") {
		fixed(t, "a mistake in metadata is not logged as one of the server: %s", log.String())
	}
}

// TestLibraryHasNoInternalScale decodes a Scale as the handlers of requests do.
func TestLibraryHasNoInternalScale(t *testing.T) {
	scheme, codecs := newScheme()
	if err := autoscalingv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	internal := schema.GroupVersion{Group: autoscalingv1.GroupName, Version: runtime.APIVersionInternal}
	_, err := runtime.Decode(codecs.UniversalDecoder(internal), []byte(`{"apiVersion":"autoscaling/v1","kind":"Scale"}`))
	if !runtime.IsNotRegisteredError(err) {
		fixed(t, "a Scale is decoded without an internal version of it: %v", err)
	}
}
