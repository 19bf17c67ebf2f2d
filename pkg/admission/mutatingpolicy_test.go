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
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
)

// TestPolicyConvertor converts an object that a policy has changed, for a request in another
// version than the policy's.
func TestPolicyConvertor(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{example.AddToScheme, examplev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	convertor := policyInterfaces{admission.NewObjectInterfacesFromScheme(scheme)}.GetObjectConvertor()
	mutated := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.apiserver.k8s.io/v1", "kind": "Pod",
		"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"nodeName": "b"},
	}}
	got, err := convertor.ConvertToVersion(mutated, schema.GroupVersion{Group: "example.apiserver.k8s.io", Version: "v2"})
	if err != nil {
		t.Fatal(err)
	}
	want := &examplev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "example.apiserver.k8s.io/v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: examplev1.PodSpec{NodeName: "b"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unexpected object (-want +got):\n%s", diff)
	}
	mutated.SetAPIVersion("unknown/v1")
	if _, err := convertor.ConvertToVersion(mutated, examplev1.SchemeGroupVersion); err == nil {
		t.Error("an object of no known version has been converted")
	}
}
