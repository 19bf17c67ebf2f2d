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
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// kitchen is the name under which the cook manages fields.
const kitchen = "kitchen"

// A reviewedRequest is a request of the cook, whose objects are of a kind.
type reviewedRequest struct {
	t       *testing.T
	scope   *scope
	kind    servedKind
	version string
	client  dynamic.ResourceInterface
	// existing are the objects that exist before the request.
	existing []*unstructured.Unstructured
	// suffix is for the name of another one.
	suffix string
	dryRun []string
}

// changed is the first existing object with another spec.
func (r reviewedRequest) changed() *unstructured.Unstructured {
	object := r.existing[0].DeepCopy()
	field, value := r.change()
	require.NoError(r.t, unstructured.SetNestedField(object.Object, value, "spec", field))
	return object
}

// change is a change of a spec.
func (r reviewedRequest) change() (field string, value any) {
	if r.kind.namespaced {
		return "replicas", int64(3)
	}
	return "cost", "2"
}

func (r reviewedRequest) patch(patchType types.PatchType, patch any, subresources ...string) error {
	body, err := json.Marshal(patch)
	require.NoError(r.t, err)
	_, err = r.client.Patch(r.t.Context(), r.existing[0].GetName(), patchType, body, r.patchOptions(), subresources...)
	return err
}

func (r reviewedRequest) patchOptions() metav1.PatchOptions {
	return metav1.PatchOptions{FieldManager: kitchen, DryRun: r.dryRun, FieldValidation: "Strict"}
}

func (r reviewedRequest) apply(suffix string, content map[string]any, subresources ...string) error {
	object := r.kind.object(r.scope, r.version, suffix)
	maps.Copy(object.Object, content)
	_, err := r.client.Apply(r.t.Context(), object.GetName(), object, metav1.ApplyOptions{FieldManager: kitchen, DryRun: r.dryRun, Force: true}, subresources...)
	return err
}

// A reviewCase is a request, and what webhooks are told about it: first a mutating
// webhook, then a validating one.
type reviewCase struct {
	// existing is the number of objects that exist before.
	existing int
	send     func(reviewedRequest) error
	// of are kinds it is not for all of.
	of          []servedKind
	operation   admissionv1.Operation
	subresource string
	// unnamed requests do not say the name of the object.
	unnamed           bool
	object, oldObject bool
	// options are those of the request, without dryRun.
	options string
	// alone is for what the reference cannot do.
	alone bool
}

// sees is the kind of the object that a webhook for a version sees.
func (r reviewCase) sees(kind servedKind, version string) metav1.GroupVersionKind {
	switch r.subresource {
	case "scale":
		return metav1.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
	case "bake":
		return metav1.GroupVersionKind{Group: kind.group, Version: version, Kind: "Bake"}
	}
	return metav1.GroupVersionKind{Group: kind.group, Version: version, Kind: kind.kind}
}

var reviews = map[string]reviewCase{
	"create": {
		send: func(r reviewedRequest) error {
			_, err := r.client.Create(r.t.Context(), r.kind.object(r.scope, r.version, r.suffix), metav1.CreateOptions{FieldManager: kitchen, DryRun: r.dryRun, FieldValidation: "Strict"})
			return err
		},
		operation: "CREATE", object: true,
		options: `{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kitchen","fieldValidation":"Strict"}`,
	},
	"create without options": {
		send: func(r reviewedRequest) error {
			_, err := r.client.Create(r.t.Context(), r.kind.object(r.scope, r.version, r.suffix), metav1.CreateOptions{DryRun: r.dryRun})
			return err
		},
		operation: "CREATE", object: true,
		options: `{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`,
	},
	"create with a generated name": {
		send: func(r reviewedRequest) error {
			object := r.kind.object(r.scope, r.version, r.suffix)
			object.SetGenerateName(object.GetName() + "-")
			object.SetName("")
			_, err := r.client.Create(r.t.Context(), object, metav1.CreateOptions{DryRun: r.dryRun})
			return err
		},
		operation: "CREATE", object: true,
		options: `{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`,
	},
	"create by apply": {
		send:      func(r reviewedRequest) error { return r.apply(r.suffix, nil) },
		operation: "CREATE", object: true,
		options: `{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kitchen"}`,
	},
	"update": {
		existing: 1,
		send: func(r reviewedRequest) error {
			_, err := r.client.Update(r.t.Context(), r.changed(), metav1.UpdateOptions{FieldManager: kitchen, DryRun: r.dryRun, FieldValidation: "Ignore"})
			return err
		},
		operation: "UPDATE", object: true, oldObject: true,
		options: `{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kitchen","fieldValidation":"Ignore"}`,
	},
	"JSON patch": {
		existing: 1,
		send: func(r reviewedRequest) error {
			field, value := r.change()
			return r.patch(types.JSONPatchType, []any{map[string]any{"op": "replace", "path": "/spec/" + field, "value": value}})
		},
		operation: "UPDATE", object: true, oldObject: true,
		options: `{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kitchen","fieldValidation":"Strict"}`,
	},
	"merge patch": {
		existing: 1,
		send: func(r reviewedRequest) error {
			field, value := r.change()
			return r.patch(types.MergePatchType, map[string]any{"spec": map[string]any{field: value}})
		},
		operation: "UPDATE", object: true, oldObject: true,
		options: `{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kitchen","fieldValidation":"Strict"}`,
	},
	"strategic merge patch": {
		existing: 1,
		send: func(r reviewedRequest) error {
			field, value := r.change()
			patchType := types.StrategicMergePatchType
			if r.kind.group == referenceGroup {
				// Custom resources have none.
				patchType = types.MergePatchType
			}
			return r.patch(patchType, map[string]any{"spec": map[string]any{field: value}})
		},
		operation: "UPDATE", object: true, oldObject: true,
		options: `{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kitchen","fieldValidation":"Strict"}`,
	},
	"apply": {
		existing: 1,
		send: func(r reviewedRequest) error {
			field, value := r.change()
			return r.apply(r.suffix, map[string]any{"spec": map[string]any{field: value}})
		},
		operation: "UPDATE", object: true, oldObject: true,
		options: `{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kitchen"}`,
	},
	"delete": {
		existing: 1,
		send: func(r reviewedRequest) error {
			return r.client.Delete(r.t.Context(), r.existing[0].GetName(), metav1.DeleteOptions{DryRun: r.dryRun})
		},
		operation: "DELETE", oldObject: true,
		options: `{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1"}`,
	},
	"delete with options": {
		existing: 1,
		send: func(r reviewedRequest) error {
			return r.client.Delete(r.t.Context(), r.existing[0].GetName(), metav1.DeleteOptions{
				DryRun: r.dryRun, GracePeriodSeconds: ptr.To[int64](7), PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
			})
		},
		operation: "DELETE", oldObject: true,
		options: `{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1","gracePeriodSeconds":7,"propagationPolicy":"Background"}`,
	},
	"deletecollection": {
		existing: 3,
		send: func(r reviewedRequest) error {
			return r.client.DeleteCollection(r.t.Context(), metav1.DeleteOptions{DryRun: r.dryRun, PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)},
				metav1.ListOptions{LabelSelector: "dish=" + r.scope.Name(r.suffix)})
		},
		operation: "DELETE", oldObject: true, unnamed: true,
		options: `{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1","propagationPolicy":"Background"}`,
	},
	"update status": {
		existing: 1, of: []servedKind{pizzaKind},
		send: func(r reviewedRequest) error {
			object := r.existing[0].DeepCopy()
			object.Object["status"] = map[string]any{"replicas": int64(1)}
			_, err := r.client.UpdateStatus(r.t.Context(), object, metav1.UpdateOptions{FieldManager: kitchen, DryRun: r.dryRun})
			return err
		},
		operation: "UPDATE", subresource: "status", object: true, oldObject: true,
		options: `{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kitchen"}`,
	},
	"patch status": {
		existing: 1, of: []servedKind{pizzaKind},
		send: func(r reviewedRequest) error {
			return r.patch(types.MergePatchType, map[string]any{"status": map[string]any{"replicas": 1}}, "status")
		},
		operation: "UPDATE", subresource: "status", object: true, oldObject: true,
		options: `{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kitchen","fieldValidation":"Strict"}`,
	},
	"apply status": {
		existing: 1, of: []servedKind{pizzaKind},
		send: func(r reviewedRequest) error {
			return r.apply(r.suffix, map[string]any{"status": map[string]any{"replicas": int64(1)}}, "status")
		},
		operation: "UPDATE", subresource: "status", object: true, oldObject: true,
		options: `{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kitchen"}`,
	},
	"update scale": {
		existing: 1, of: []servedKind{pizzaKind},
		send: func(r reviewedRequest) error {
			scale, err := r.client.Get(r.t.Context(), r.existing[0].GetName(), metav1.GetOptions{}, "scale")
			require.NoError(r.t, err)
			require.NoError(r.t, unstructured.SetNestedField(scale.Object, int64(4), "spec", "replicas"))
			_, err = r.client.Update(r.t.Context(), scale, metav1.UpdateOptions{FieldManager: kitchen, DryRun: r.dryRun}, "scale")
			return err
		},
		operation: "UPDATE", subresource: "scale", object: true, oldObject: true,
		options: `{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kitchen"}`,
	},
	"patch scale": {
		existing: 1, of: []servedKind{pizzaKind},
		send: func(r reviewedRequest) error {
			return r.patch(types.MergePatchType, map[string]any{"spec": map[string]any{"replicas": 4}}, "scale")
		},
		operation: "UPDATE", subresource: "scale", object: true, oldObject: true,
		options: `{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kitchen","fieldValidation":"Strict"}`,
	},
	"bake": {
		existing: 1, of: []servedKind{pizzaKind},
		send: func(r reviewedRequest) error {
			order := r.scope.bake(r.version, r.suffix, 1)
			_, err := r.client.Create(r.t.Context(), order, metav1.CreateOptions{FieldManager: kitchen, DryRun: r.dryRun}, "bake")
			return err
		},
		operation: "CREATE", subresource: "bake", object: true,
		options: `{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kitchen"}`,
		alone:   true,
	},
	"apply scale": {
		existing: 1, of: []servedKind{pizzaKind},
		send: func(r reviewedRequest) error {
			scale := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "autoscaling/v1", "kind": "Scale",
				"metadata": map[string]any{"name": r.existing[0].GetName()}, "spec": map[string]any{"replicas": int64(4)},
			}}
			_, err := r.client.Apply(r.t.Context(), scale.GetName(), scale, metav1.ApplyOptions{FieldManager: kitchen, DryRun: r.dryRun, Force: true}, "scale")
			return err
		},
		operation: "UPDATE", subresource: "scale", object: true, oldObject: true,
		options: `{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kitchen"}`,
		alone:   true,
	},
}

// bake is an order to bake a pizza of the test.
func (s *scope) bake(version, suffix string, count int64) *unstructured.Unstructured {
	return s.Objects("Bake", version).With(suffix, map[string]any{"count": count})
}

// TestReviews compares what webhooks are told about every request, in every version,
// with what is expected. All fields are as kube-apiserver fills them for a custom
// resource.
func TestReviews(t *testing.T) {
	for _, kind := range []servedKind{pizzaKind, toppingKind} {
		for _, version := range framework.Versions() {
			t.Run(kind.kind+"/"+version, func(t *testing.T) {
				s := newScopeWithReferences(t)
				mutating, validating := s.recorder(), s.recorder()
				m, v := mutating.mutating(kind.recordingRule()), validating.validating(kind.recordingRule())
				m.ObjectSelector, v.ObjectSelector = nil, nil
				m.MatchConditions, v.MatchConditions = s.forCook(), s.forCook()
				s.registerEverywhere("reviews", []admissionregistrationv1.MutatingWebhook{m}, []admissionregistrationv1.ValidatingWebhook{v})
				for i, name := range slices.Sorted(maps.Keys(reviews)) {
					test := reviews[name]
					if test.of != nil && !slices.Contains(test.of, kind) {
						continue
					}
					t.Run(name, func(t *testing.T) {
						suffix := fmt.Sprint(i)
						got := s.sendReviewed(t, kind, version, suffix, test.existing, test.send, mutating, validating)
						if !test.alone {
							want := s.sendReviewed(t, kind.reference(), version, suffix, test.existing, test.send, mutating, validating)
							require.Empty(t, cmp.Diff(comparableReviews(t, want), comparableReviews(t, got)), "kube-apiserver says something else (-) than this server (+).")
						}

						require.Len(t, got, 2*2*max(1, test.existing), "Once to be tried, once to be done, each by a mutating and a validating webhook.")
						for i, call := range got {
							dryRun := i < len(got)/2
							request := call.request
							gvk := test.sees(kind, version)
							gvr := metav1.GroupVersionResource{Group: kind.group, Version: version, Resource: kind.resource}
							require.Equal(t, gvk, request.Kind)
							require.Equal(t, &gvk, request.RequestKind)
							require.Equal(t, gvr, request.Resource)
							require.Equal(t, &gvr, request.RequestResource)
							require.Equal(t, test.subresource, request.SubResource)
							require.Equal(t, test.subresource, request.RequestSubResource)
							require.Equal(t, test.operation, request.Operation)
							require.Equal(t, authenticationv1.UserInfo{
								Username: s.ID, UID: "uid-of-" + s.ID, Groups: []string{"kitchen", "system:masters", "system:authenticated"},
								Extra: map[string]authenticationv1.ExtraValue{"example.com/shift": {"late", "früh"}, "tables": {"1 & 2"}},
							}, request.UserInfo)
							if test.unnamed {
								require.Empty(t, request.Name)
							} else {
								require.Equal(t, objectName(t, call), request.Name)
							}
							if kind.namespaced {
								require.Equal(t, s.Namespace, request.Namespace)
							} else {
								require.Empty(t, request.Namespace)
							}
							require.Equal(t, &dryRun, request.DryRun)
							options := test.options
							if dryRun {
								options = strings.TrimSuffix(options, "}") + `,"dryRun":["All"]}`
							}
							require.JSONEq(t, options, string(request.Options.Raw))
							for object, present := range map[*runtime.RawExtension]bool{&request.Object: test.object, &request.OldObject: test.oldObject} {
								require.Equal(t, present, object.Raw != nil)
								if !present {
									continue
								}
								var meta metav1.TypeMeta
								require.NoError(t, json.Unmarshal(object.Raw, &meta))
								require.Equal(t, schema.GroupVersionKind(gvk), meta.GroupVersionKind())
							}
						}
					})
				}
			})
		}
	}
}

// newReviewedRequest prepares a request by creating the objects that exist before.
func (s *scope) newReviewedRequest(t *testing.T, kind servedKind, version, suffix string, existing int) reviewedRequest {
	t.Helper()
	r := reviewedRequest{t: t, scope: s, kind: kind, version: version, client: kind.client(s, s.cook(), version), suffix: suffix}
	for i := range existing {
		name := suffix
		if i > 0 {
			name += fmt.Sprintf("-%d", i)
		}
		object := kind.object(s, version, name)
		object.SetLabels(map[string]string{framework.Label: s.ID, "dish": s.Name(suffix)})
		created, err := r.client.Create(t.Context(), object, metav1.CreateOptions{})
		require.NoError(t, err)
		r.existing = append(r.existing, created)
		// An update that begins with a stale object is tried again, with webhooks.
		_, err = r.client.List(t.Context(), metav1.ListOptions{
			ResourceVersion: created.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		})
		require.NoError(t, err)
	}
	if !kind.namespaced {
		s.Cleanup(func(ctx context.Context) error {
			return kind.client(s, s.cook(), version).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: framework.Label + "=" + s.ID})
		})
	}
	return r
}

// sendReviewed sends a request about a kind, first to be tried only, and returns
// what the webhooks were told about it.
func (s *scope) sendReviewed(t *testing.T, kind servedKind, version, suffix string, existing int, send func(reviewedRequest) error, webhooks ...*webhook) []call {
	t.Helper()
	r := s.newReviewedRequest(t, kind, version, suffix, existing)
	var calls []call
	for _, r.dryRun = range [][]string{{metav1.DryRunAll}, nil} {
		before := make([]int, len(webhooks))
		for i, webhook := range webhooks {
			before[i] = len(webhook.ofCook())
		}
		require.NoError(t, send(r))
		for i, webhook := range webhooks {
			received := webhook.ofCook()[before[i]:]
			// Objects of a collection are deleted side by side.
			slices.SortStableFunc(received, func(a, b call) int { return strings.Compare(objectName(t, a), objectName(t, b)) })
			calls = append(calls, received...)
		}
	}
	return calls
}

// objectName is the name of what a request is about, which deletecollection does
// not say itself.
func objectName(t *testing.T, c call) string {
	t.Helper()
	for _, raw := range [][]byte{c.request.Object.Raw, c.request.OldObject.Raw} {
		if raw == nil {
			continue
		}
		var object metav1.PartialObjectMetadata
		require.NoError(t, json.Unmarshal(raw, &object))
		return object.Name
	}
	return ""
}

func comparableReviews(t *testing.T, calls []call) (reviews []map[string]any) {
	t.Helper()
	for _, call := range calls {
		reviews = append(reviews, call.comparable(t))
	}
	return reviews
}

// TestReviewVersions shows that a webhook gets the first of its versions that there
// is, with the same content in each.
func TestReviewVersions(t *testing.T) {
	s := newScope(t)
	tests := map[string]struct {
		accepted []string
		want     string
	}{
		"v1":                              {[]string{"v1"}, "v1"},
		"v1beta1":                         {[]string{"v1beta1"}, "v1beta1"},
		"the first":                       {[]string{"v1", "v1beta1"}, "v1"},
		"the first, though it is older":   {[]string{"v1beta1", "v1"}, "v1beta1"},
		"the first that is not too young": {[]string{"v3", "v2", "v1beta1", "v1"}, "v1beta1"},
	}
	recorders := map[string]*webhook{}
	var mutating []admissionregistrationv1.MutatingWebhook
	var validating []admissionregistrationv1.ValidatingWebhook
	for i, name := range slices.Sorted(maps.Keys(tests)) {
		recorders[name] = s.webhook(allow)
		m, v := recorders[name].mutating(rule(on("*"), "pizzas")), recorders[name].validating(rule(on("*"), "pizzas"))
		m.Name, v.Name = fmt.Sprintf("m%d.example.com", i), fmt.Sprintf("v%d.example.com", i)
		m.AdmissionReviewVersions, v.AdmissionReviewVersions = tests[name].accepted, tests[name].accepted
		mutating, validating = append(mutating, m), append(validating, v)
	}
	s.registerMutating("mutating", mutating...)
	s.registerValidating("validating", validating...)
	// With options and an old object, so that no field is empty.
	pizza := s.createPizza("v1alpha1", "a")
	_, err := s.pizzas("v1alpha1").Patch(t.Context(), pizza.GetName(), types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{FieldManager: kitchen, DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err)

	byReviewer := func(name string) (creates, updates []call) {
		for _, call := range recorders[name].received() {
			switch {
			case call.request.Operation == admissionv1.Create:
				creates = append(creates, call)
			case call.request.DryRun != nil && *call.request.DryRun:
				updates = append(updates, call)
			}
		}
		return creates, updates
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			creates, updates := byReviewer(name)
			require.Len(t, creates, 2, "A mutating and a validating webhook.")
			require.Len(t, updates, 2, "A mutating and a validating webhook.")
			_, wantUpdates := byReviewer("v1")
			for i, call := range append(creates, updates...) {
				require.Equal(t, "admission.k8s.io/"+test.want, call.apiVersion, i)
			}
			for i := range updates {
				want, got := wantUpdates[i].comparable(t), updates[i].comparable(t)
				want["apiVersion"] = "admission.k8s.io/" + test.want
				require.Empty(t, cmp.Diff(want, got))
			}
		})
	}
}

// TestReviewsOfUsers shows that webhooks are told of a user all that kube-apiserver
// knows.
func TestReviewsOfUsers(t *testing.T) {
	s := newScopeWithReferences(t)
	recorder := s.webhook(allow)
	webhook := recorder.validating(pizzaKind.recordingRule())
	webhook.ObjectSelector, webhook.NamespaceSelector = nil, s.Selector()
	s.registerEverywhere("users", nil, []admissionregistrationv1.ValidatingWebhook{webhook})

	accounts := framework.Kube(cp).CoreV1().ServiceAccounts(s.Namespace)
	account, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "waiter"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	token, err := accounts.CreateToken(t.Context(), account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	waiter := framework.Config(cp)
	waiter.CertData, waiter.KeyData, waiter.BearerToken = nil, nil, token.Status.Token
	editor, err := cp.RESTConfigFor(s.Name("editor"), "editors")
	require.NoError(t, err)
	_, err = framework.Kube(cp).RbacV1().RoleBindings(s.Namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "users"},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.ServiceAccountKind, Name: account.Name, Namespace: s.Namespace},
			{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: s.Name("editor")},
		},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	for name, test := range map[string]struct {
		config    *rest.Config
		want      authenticationv1.UserInfo
		wantExtra []string
	}{
		"with a certificate": {editor, authenticationv1.UserInfo{
			Username: s.Name("editor"), Groups: []string{"editors", "system:authenticated"},
		}, []string{"authentication.kubernetes.io/credential-id"}},
		"a service account": {waiter, authenticationv1.UserInfo{
			Username: "system:serviceaccount:" + s.Namespace + ":waiter", UID: string(account.UID),
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + s.Namespace, "system:authenticated"},
		}, []string{"authentication.kubernetes.io/credential-id"}},
		"impersonated": {s.cook(), authenticationv1.UserInfo{
			Username: s.ID, UID: "uid-of-" + s.ID, Groups: []string{"kitchen", "system:masters", "system:authenticated"},
		}, []string{"example.com/shift", "tables"}},
	} {
		t.Run(name, func(t *testing.T) {
			var users []authenticationv1.UserInfo
			for _, kind := range []servedKind{pizzaKind.reference(), pizzaKind} {
				// It takes its time until a server knows what a role binding grants.
				controlplane.Eventually(t, func() error {
					_, err := kind.client(s, test.config, "v1").Create(t.Context(), kind.object(s, "v1", "a"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
					return err
				})
				calls := recorder.received()
				users = append(users, calls[len(calls)-1].request.UserInfo)
			}
			require.Equal(t, users[0], users[1])
			require.ElementsMatch(t, test.wantExtra, slices.Collect(maps.Keys(users[1].Extra)))
			users[1].Extra = nil
			require.Equal(t, test.want, users[1])
		})
	}
}
