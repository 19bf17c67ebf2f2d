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
	"context"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/openapi/openapitest"
)

// podV2 is a pod in another version, which is converted by way of the internal one, as
// generated conversions are.
type podV2 struct {
	examplev1.Pod `json:",inline"`
}

func (p *podV2) DeepCopyObject() runtime.Object { return &podV2{*p.DeepCopy()} }

// labelling is a mutation, in the version of the policy.
type labelling struct{}

func (labelling) Patch(_ context.Context, request patch.Request, _ int64) (runtime.Object, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(request.VersionedAttributes.VersionedObject.Object())
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(request.VersionedAttributes.VersionedKind)
	object.SetLabels(map[string]string{"mutated": "true"})
	return object, nil
}

// equivalent says that two versions serve the same objects.
type equivalent struct {
	admission.ObjectInterfaces
	runtime.EquivalentResourceMapper
}

func (e equivalent) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper {
	return e.EquivalentResourceMapper
}

func TestMutatingPolicyOfAnotherVersionFails(t *testing.T) {
	scheme, _ := newScheme()
	v1, v2 := examplev1.SchemeGroupVersion, schema.GroupVersion{Group: example.GroupName, Version: "v2"}
	scheme.AddKnownTypeWithName(v2.WithKind("Pod"), &podV2{})
	for _, err := range []error{
		scheme.AddConversionFunc((*podV2)(nil), (*example.Pod)(nil), func(from, to any, scope conversion.Scope) error {
			return scope.Convert(&from.(*podV2).Pod, to)
		}),
		scheme.AddConversionFunc((*example.Pod)(nil), (*podV2)(nil), func(from, to any, scope conversion.Scope) error {
			return scope.Convert(from, &to.(*podV2).Pod)
		}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	versions := runtime.NewEquivalentResourceRegistry()
	for _, version := range []schema.GroupVersion{v1, v2} {
		versions.RegisterKindFor(version.WithResource("pods"), "", version.WithKind("Pod"))
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	client := fake.NewClientset(namespace)
	factory := informers.NewSharedInformerFactory(client, 0)
	namespaces := factory.Core().V1().Namespaces().Lister()
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	types := patch.NewTypeConverterManager(managedfields.NewDeducedTypeConverter(), openapitest.NewEmbeddedFileClient())
	dispatcher := mutating.NewDispatcher(authorizerfactory.NewAlwaysAllowAuthorizer(), matching.NewMatcher(namespaces, client), types)
	if err := dispatcher.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	mutate := func(version schema.GroupVersion) (*example.Pod, error) {
		pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}}
		attributes := admission.NewAttributesRecord(pod, nil, version.WithKind("Pod"), "default", "a", version.WithResource("pods"), "", admission.Create, &metav1.CreateOptions{}, false, nil)
		return pod, dispatcher.Dispatch(t.Context(), attributes, equivalent{admission.NewObjectInterfacesFromScheme(scheme), versions}, []mutating.PolicyHook{{
			Policy: &mutating.Policy{ObjectMeta: metav1.ObjectMeta{Name: "policy"}, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{
					MatchPolicy:       new(admissionregistrationv1.Equivalent),
					NamespaceSelector: &metav1.LabelSelector{},
					ObjectSelector:    &metav1.LabelSelector{},
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{"*"},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{v1.Group}, APIVersions: []string{v1.Version}, Resources: []string{"pods"}},
					}}},
				},
				Mutations: []admissionregistrationv1.Mutation{{PatchType: admissionregistrationv1.PatchTypeApplyConfiguration}},
			}},
			Bindings:  []*mutating.PolicyBinding{{Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "policy"}}},
			Evaluator: mutating.PolicyEvaluator{Mutators: []patch.Patcher{labelling{}}},
		}})
	}
	if pod, err := mutate(v1); err != nil || pod.Labels["mutated"] != "true" {
		t.Fatalf("a policy does not mutate an object of its version: %v, %v", pod.Labels, err)
	}
	if pod, err := mutate(v2); err == nil || !strings.Contains(err.Error(), "conver") {
		fixed(t, "a policy mutates an object of another version: %v, %v", pod.Labels, err)
	}
}
