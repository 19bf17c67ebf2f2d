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
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// A request is about an object in a version, which has the name of the test and the suffix.
type request struct {
	s             *scope
	kind, version string
	suffix        string
	dryRun        []string
}

func (r request) objects() framework.Objects {
	objects := r.s.Objects(r.kind, r.version)
	if r.kind == "PriceReview" {
		objects.Namespace = ""
	}
	return objects
}

func (r request) client() dynamic.ResourceInterface { return r.objects().ClientFor(r.s.user()) }

// changed is the object with another spec.
func (r request) changed() *unstructured.Unstructured {
	object := r.s.object(r.kind, r.version, r.suffix)
	if r.kind == "Pizza" {
		set(object, int64(3), "spec", "replicas")
	} else {
		set(object, "2", "spec", "cost")
	}
	return object
}

func (r request) update(object *unstructured.Unstructured, subresources ...string) error {
	stored, err := r.client().Get(r.s.t.Context(), object.GetName(), metav1.GetOptions{})
	require.NoError(r.s.t, err)
	object.SetResourceVersion(stored.GetResourceVersion())
	_, err = r.client().Update(r.s.t.Context(), object, metav1.UpdateOptions{DryRun: r.dryRun}, subresources...)
	return err
}

func (r request) patch(content any, subresources ...string) error {
	body, err := json.Marshal(content)
	require.NoError(r.s.t, err)
	_, err = r.client().Patch(r.s.t.Context(), r.s.Name(r.suffix), types.MergePatchType, body, metav1.PatchOptions{DryRun: r.dryRun}, subresources...)
	return err
}

func (r request) apply(object *unstructured.Unstructured, subresources ...string) error {
	_, err := r.client().Apply(r.s.t.Context(), r.s.Name(r.suffix), object, metav1.ApplyOptions{FieldManager: "cook", Force: true, DryRun: r.dryRun}, subresources...)
	return err
}

// requests are all ways to write, and what admission is told about them.
var requests = map[string]struct {
	// kind is the kind of the path. Without one, the request is sent for pizzas and for toppings.
	kind string
	// existing is the number of objects before the request.
	existing int
	send     func(request) error
	// told is what admission is told: operation, resource, kind, and which objects. RESOURCE
	// and KIND are the path's.
	told string
	// reads is set for a request that stores nothing, and has no dry run.
	reads bool
}{
	"create": {
		send: func(r request) error {
			_, err := r.client().Create(r.s.t.Context(), r.s.object(r.kind, r.version, r.suffix), metav1.CreateOptions{DryRun: r.dryRun})
			return err
		},
		told: "CREATE RESOURCE KIND object",
	},
	"create by apply": {
		send: func(r request) error { return r.apply(r.s.object(r.kind, r.version, r.suffix)) },
		told: "CREATE RESOURCE KIND object",
	},
	"update": {
		existing: 1,
		send:     func(r request) error { return r.update(r.changed()) },
		told:     "UPDATE RESOURCE KIND object oldObject",
	},
	"patch": {
		existing: 1,
		send:     func(r request) error { return r.patch(map[string]any{"spec": r.changed().Object["spec"]}) },
		told:     "UPDATE RESOURCE KIND object oldObject",
	},
	"apply": {
		existing: 1,
		send:     func(r request) error { return r.apply(r.changed()) },
		told:     "UPDATE RESOURCE KIND object oldObject",
	},
	"delete": {
		existing: 1,
		send: func(r request) error {
			return r.client().Delete(r.s.t.Context(), r.s.Name(r.suffix), metav1.DeleteOptions{DryRun: r.dryRun})
		},
		told: "DELETE RESOURCE KIND oldObject",
	},
	"deletecollection": {
		existing: 3,
		send: func(r request) error {
			return r.client().DeleteCollection(r.s.t.Context(), metav1.DeleteOptions{DryRun: r.dryRun}, r.s.Objects(r.kind, r.version).All())
		},
		told: "DELETE RESOURCE KIND oldObject",
	},
	"update status": {
		kind: "Pizza", existing: 1,
		send: func(r request) error {
			pizza := r.changed()
			set(pizza, int64(1), "status", "replicas")
			return r.update(pizza, "status")
		},
		told: "UPDATE pizzas/status Pizza object oldObject",
	},
	"apply status": {
		kind: "Pizza", existing: 1,
		send: func(r request) error {
			pizza := framework.Object(r.version, "Pizza", r.s.Name(r.suffix), nil)
			set(pizza, int64(1), "status", "replicas")
			return r.apply(pizza, "status")
		},
		told: "UPDATE pizzas/status Pizza object oldObject",
	},
	"update scale": {
		kind: "Pizza", existing: 1,
		send: func(r request) error {
			scale, err := r.client().Get(r.s.t.Context(), r.s.Name(r.suffix), metav1.GetOptions{}, "scale")
			require.NoError(r.s.t, err)
			set(scale, int64(4), "spec", "replicas")
			return r.update(scale, "scale")
		},
		told: "UPDATE pizzas/scale Scale object oldObject",
	},
	"patch scale": {
		kind: "Pizza", existing: 1,
		send: func(r request) error { return r.patch(map[string]any{"spec": map[string]any{"replicas": 4}}, "scale") },
		told: "UPDATE pizzas/scale Scale object oldObject",
	},
	"bake": {
		kind: "Pizza", existing: 1,
		send: func(r request) error {
			_, err := r.client().Create(r.s.t.Context(), r.s.bake(r.version, r.suffix, 1), metav1.CreateOptions{DryRun: r.dryRun}, "bake")
			return err
		},
		told: "CREATE pizzas/bake Bake object",
	},
	"track": {
		kind: "Pizza", existing: 1, reads: true,
		send: func(r request) error {
			_, err := r.s.track(r.version, r.suffix, "")
			return err
		},
		told: "CONNECT pizzas/track PizzaTrackOptions object",
	},
	"review of a price": {
		kind: "PriceReview", reads: true,
		send: func(r request) error {
			review := r.objects().With(r.suffix, map[string]any{"toppings": framework.Toppings("v1", "tomato")})
			_, err := r.client().Create(r.s.t.Context(), review, metav1.CreateOptions{DryRun: r.dryRun})
			return err
		},
		told: "CREATE pricereviews PriceReview object",
	},
}

// Every request in every version passes mutating and validating admission, which is told the
// objects in its own version. A dry run and a refused request store nothing.
func TestRequests(t *testing.T) {
	for _, kind := range []string{"Pizza", "Topping", "PriceReview"} {
		for _, version := range framework.Versions() {
			if kind == "PriceReview" && version != "v1" {
				continue
			}
			t.Run(kind+"/"+version, func(t *testing.T) {
				s := newScope(t)
				var refusing atomic.Bool
				mutating, validating := s.serve(allow), s.serve(func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
					return &admissionv1.AdmissionResponse{Allowed: !refusing.Load(), Result: &metav1.Status{Code: http.StatusForbidden, Message: "closed"}}
				})
				all := of(rule("*", "pizzas", "pizzas/*", "toppings", "pricereviews"), "v1")
				w := s.webhook("all", mutating.Server, all)
				w.SideEffects = ptr.To(admissionregistrationv1.SideEffectClassNoneOnDryRun)
				s.register("Mutating", w)
				s.register("Validating", s.webhook("all", validating.Server, all))
				for name, test := range requests {
					if test.kind != kind && (test.kind != "" || kind == "PriceReview") {
						continue
					}
					t.Run(name, func(t *testing.T) {
						s := &scope{s.Scope, t}
						r := request{s: s, kind: kind, version: version, suffix: strings.ReplaceAll(name, " ", "-")}
						objects := r.objects()
						for i := range test.existing {
							_, err := objects.Client().Create(t.Context(), s.object(kind, version, r.suffix+strings.Repeat("-x", i)), metav1.CreateOptions{})
							require.NoError(t, err)
						}
						before := s.stored(kind)

						refusing.Store(true)
						status := framework.RequireStatus(t, test.send(r), http.StatusForbidden, "")
						require.Equal(t, `admission webhook "all.example.com" denied the request: closed`, status.Message)
						require.Equal(t, before, s.stored(kind), "A refused request has stored something.")
						refusing.Store(false)
						mutating.take()
						validating.take()

						told := strings.NewReplacer("RESOURCE", objects.Resource, "KIND", kind).Replace(test.told)
						want := slices.Repeat([]string{told}, max(1, test.existing))
						for _, r.dryRun = range [][]string{dryRun, nil} {
							if test.reads && r.dryRun != nil {
								continue
							}
							require.NoError(t, test.send(r))
							require.Equal(t, want, r.told(mutating.take()))
							require.Equal(t, want, r.told(validating.take()))
							require.Equal(t, test.reads || r.dryRun != nil, reflect.DeepEqual(before, s.stored(kind)), "Whether the objects are as before.")
						}
						if kind != "PriceReview" {
							require.NoError(t, objects.Client().DeleteCollection(t.Context(), metav1.DeleteOptions{}, objects.All()))
						}
					})
				}
			})
		}
	}
}

// stored are the objects of the test as they are stored. The server knows these revisions afterwards:
// an update that begins with an older one is tried again, with webhooks.
func (s *scope) stored(kind string) []unstructured.Unstructured {
	s.t.Helper()
	if kind == "PriceReview" {
		return nil
	}
	objects := s.Objects(kind, "v1")
	list, err := objects.Client().List(s.t.Context(), objects.All())
	require.NoError(s.t, err)
	return list.Items
}

// told describes what calls of webhooks for v1 are told about the request.
func (r request) told(calls []call) (told []string) {
	t := r.s.t
	for _, call := range calls {
		in := call.request
		require.Equal(t, ptr.To(r.dryRun != nil), in.DryRun)
		require.Equal(t, []string{"v1", r.version}, []string{in.Resource.Version, in.RequestResource.Version})
		require.Equal(t, authenticationv1.UserInfo{
			Username: r.s.ID, UID: "uid-of-" + r.s.ID, Groups: []string{"kitchen", "system:masters", "system:authenticated"},
			Extra: map[string]authenticationv1.ExtraValue{"example.com/shift": {"late", "früh"}},
		}, in.UserInfo)
		fields := []string{string(in.Operation), strings.TrimSuffix(in.Resource.Resource+"/"+in.SubResource, "/"), in.Kind.Kind}
		for _, object := range []struct {
			field string
			runtime.RawExtension
		}{{"object", in.Object}, {"oldObject", in.OldObject}} {
			if object.Raw == nil {
				continue
			}
			var meta metav1.TypeMeta
			require.NoError(t, json.Unmarshal(object.Raw, &meta))
			require.Equal(t, schema.GroupVersionKind(in.Kind), meta.GroupVersionKind())
			fields = append(fields, object.field)
		}
		told = append(told, strings.Join(fields, " "))
	}
	return told
}
