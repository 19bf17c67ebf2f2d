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
package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/v3"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// scene is a cluster and a server for a plan.
type scene struct {
	// definition and object are JSON, or empty for none.
	definition, object string
	// revision is kube-apiserver's etcd's.
	revision   string
	store      keys.Objects
	apiService *apiregistrationv1.APIService
	kube       []runtime.Object
	// etcd is what the server's etcd has. kubeEtcd says that the same is kube-apiserver's, and otherEtcd that it is
	// that of another one.
	etcd                map[string]string
	kubeEtcd, otherEtcd bool
	// defined says that the server serves what the definition defines.
	defined bool
	// atKube is kube-apiserver's copy, as JSON.
	atKube string
	// refusedUpdate and refusedList are the errors of updates, and of listing the object.
	refusedUpdate, refusedList error
	// refusedFreeze has the errors of changes of the objects that freeze writes, by verb and
	// resource.
	refusedFreeze map[string]error
	// forbidden says that this process's user is no cluster administrator.
	forbidden bool
}

const usualDefinition = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"},
	"spec": {"group": "example.com", "names": {"plural": "things", "kind": "Thing"}, "scope": "Namespaced", "conversion": {"strategy": "None"},
		"versions": [{"name": "v1", "served": true, "storage": true}, {"name": "v1beta1", "served": false, "storage": false}]},
	"status": {"storedVersions": ["v1"], "conditions": [{"type": "Established", "status": "True"}]}}`

const usualObject = `{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"namespace": "default", "name": "one", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}}`

func usualScene() *scene {
	store := things
	store.StorageVersion = "v1"
	store.Codec, store.Strict = unstructured.UnstructuredJSONScheme, unstructured.UnstructuredJSONScheme
	store.Transformer = identity.NewEncryptCheckTransformer()
	return &scene{
		definition: usualDefinition, object: usualObject, revision: "2", store: store, etcd: map[string]string{},
		apiService: &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1.example.com", Labels: map[string]string{cluster.ManagedLabel: "true"}}},
	}
}

func (s *scene) inDefinition(before, after string) {
	s.definition = strings.Replace(s.definition, before, after, 1)
}

func (s *scene) inMetadata(member string) {
	s.object = strings.Replace(s.object, `"name": "one"`, `"name": "one", `+member, 1)
}

// registered makes the server of the scene serve the group.
func (s *scene) registered() {
	s.apiService.Spec.Service = &apiregistrationv1.ServiceReference{}
	s.etcd["/state"] = `{"phase": "Moved", "switched": "2026-02-01T00:00:00Z"}`
}

func unmarshal(t *testing.T, text string) []unstructured.Unstructured {
	t.Helper()
	if text == "" {
		return nil
	}
	var object unstructured.Unstructured
	require.NoError(t, object.UnmarshalJSON([]byte(text)))
	return []unstructured.Unstructured{object}
}

// migration has fakes for all of the cluster but the etcd.
func (s *scene) migration(t *testing.T, etcd *clientv3.Client) *Migration {
	t.Helper()
	_, err := etcd.Delete(t.Context(), "/", clientv3.WithPrefix())
	require.NoError(t, err)
	for key, value := range s.etcd {
		_, err = etcd.Put(t.Context(), key, value)
		require.NoError(t, err)
	}
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	objects := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		definitions: "CustomResourceDefinitionList",
		{Group: "example.com", Version: "v1", Resource: "things"}: "ThingList",
		local(thingsV1): "ThingList",
	})
	if s.kubeEtcd && !s.otherEtcd {
		response, err := etcd.Put(t.Context(), "/registry/apiextensions.k8s.io/customresourcedefinitions/things.example.com", "")
		require.NoError(t, err)
		s.inDefinition(`"metadata": {`, fmt.Sprintf(`"metadata": {"resourceVersion": "%d", `, response.Header.Revision))
	}
	for name, text := range map[string]string{"customresourcedefinitions": s.definition, "things": s.object, local(thingsV1).Resource: s.atKube} {
		list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}, Items: unmarshal(t, text)}
		list.SetResourceVersion(s.revision)
		objects.PrependReactor("list", name, func(clienttesting.Action) (bool, runtime.Object, error) { return true, list, nil })
		objects.PrependReactor("get", name, func(clienttesting.Action) (bool, runtime.Object, error) { return true, list.Items[0].DeepCopy(), nil })
		objects.PrependReactor("update", name, func(clienttesting.Action) (bool, runtime.Object, error) { return true, &list.Items[0], s.refusedUpdate })
	}
	for _, resource := range []string{"flowschemas", "prioritylevelconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
		for _, verb := range []string{"patch", "delete"} {
			objects.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, &unstructured.Unstructured{}, s.refusedFreeze[verb+" "+resource]
			})
		}
	}
	if s.refusedList != nil {
		objects.PrependReactor("list", "things", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, s.refusedList })
	}
	kube := kubefake.NewClientset(s.kube...)
	kube.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{}, nil
	})
	kube.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: !s.forbidden}}, nil
	})
	m := &Migration{
		config: Config{
			Group: "example.com", APIServices: []string{"v1.example.com"}, Stores: []keys.Objects{s.store}, Etcd: etcd, StateKey: "/state", HistoryKey: "/history",
			Defined: s.defined, Lease: "controllers", MaxElements: 20, MaxOwners: 2, Service: apiregistrationv1.ServiceReference{Namespace: "server"}, KubePrefix: "/registry",
			Report: func(progress Progress) { t.Log(progress.Message) },
		},
		dynamic: objects, kube: kube, aggregator: aggregatorfake.NewClientset(s.apiService),
	}
	if s.kubeEtcd {
		m.config.KubeEtcd = etcd
	}
	return m
}

// refusingDecoder knows none of the fields.
type refusingDecoder struct{ runtime.Decoder }

func (refusingDecoder) Decode([]byte, *schema.GroupVersionKind, runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	return nil, nil, errors.New("unknown field")
}

// requireError requires an error with this text, or none if that is empty.
func requireError(t *testing.T, want string, err error) {
	t.Helper()
	if want == "" {
		require.NoError(t, err)
	} else {
		require.ErrorContains(t, err, want)
	}
}

// causes returns the findings with one of some reasons.
func causes(findings []Finding, reasons ...Reason) (found []string) {
	for _, finding := range findings {
		if slices.Contains(reasons, finding.Reason) {
			found = append(found, string(finding.Status)+" "+finding.Cause)
		}
	}
	return found
}

// findings are the scenes that lead to each finding of a plan, with its text.
var findings = map[Reason]struct {
	change func(*scene)
	want   string
	// back says that a plan of the way back has the finding, and finish that a plan of "finish" has
	// it.
	back, finish bool
}{
	DefinitionsNotKept: {
		change: func(s *scene) { s.defined = true },
		want: "notice this cluster has no MutatingAdmissionPolicies in admissionregistration.k8s.io/v1: when a CustomResourceDefinition of the group is applied again, " +
			"a kube-apiserver that starts may answer for its objects, as if there were none, until the group is registered again",
	},
	DefinitionShown: {
		change: func(s *scene) {
			s.defined = true
			s.inDefinition(`"metadata": {`, `"metadata": {"managedFields": [{"manager": "argocd-controller"}], `)
		},
		want: "notice the CustomResourceDefinition things.example.com: it is applied by Argo CD, which shows it as OutOfSync, since kube-apiserver serves none of its versions any more: " +
			"tell Argo CD to use server-side diff with mutations, or to ignore .spec.versions[].served of CustomResourceDefinitions",
	},
	NothingDefined: {change: func(s *scene) { s.definition = "" }, want: "failure no CustomResourceDefinition defines a resource of example.com"},
	DefinitionDeleted: {
		change: func(s *scene) {
			s.inDefinition(`"metadata": {`, `"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", `)
		},
		want: "failure the CustomResourceDefinition things.example.com is being deleted",
	},
	NotEstablished: {
		change: func(s *scene) { s.inDefinition(`"status": "True"`, `"status": "False"`) },
		want:   "failure the CustomResourceDefinition things.example.com is not established, so that its objects can't be read",
	},
	NotStored:   {change: func(s *scene) { s.store.Resource = "others" }, want: "failure the server does not store things.example.com"},
	KindDiffers: {change: func(s *scene) { s.store.Kind = "Other" }, want: "failure the kind of things.example.com is Thing, and at the server Other"},
	ScopeDiffers: {
		change: func(s *scene) { s.store.Namespaced = false },
		want:   "failure the scope of things.example.com is Namespaced, and at the server Cluster",
	},
	NothingServed: {
		change: func(s *scene) { s.inDefinition(`"served": true`, `"served": false`) },
		want:   "failure no version of things.example.com is served, so that its objects can't be read",
	},
	VersionMissing: {
		change: func(s *scene) { s.store.Versions = []string{"v1"} },
		want:   "failure the server does not serve things.example.com in the version v1beta1",
	},
	StorageVersionNotServed: {
		change: func(s *scene) { s.inDefinition(`"served": true`, `"served": false`) },
		want:   "failure things.example.com is stored in the version v1, which is not served",
	},
	ConversionWebhook: {
		change: func(s *scene) { s.inDefinition(`"None"`, `"Webhook"`) },
		want:   "notice a webhook converts things.example.com: reading all objects calls it for each one that is stored in another version than v1",
	},
	LeadsToServer: {
		change: func(s *scene) { s.apiService.Spec.Service = &apiregistrationv1.ServiceReference{} },
		want:   "failure the APIService v1.example.com leads to a server, so that clients do not see the custom resources",
	},
	NotManaged: {
		change: func(s *scene) { s.apiService.Labels = nil },
		want:   "failure the APIService v1.example.com has no label kube-aggregator.kubernetes.io/automanaged",
	},
	ServerHasObjects: {
		change: func(s *scene) { s.etcd["/registry/example.com/things/default/other"] = "{}" },
		want:   "failure the server has 1 things.example.com already",
	},
	RevisionTooLow: {
		change: func(s *scene) { s.revision = "9000000" },
		want:   "failure the server's etcd is <missing> revisions behind kube-apiserver's, so that clients that watch would see nothing until it has caught up",
	},
	ControllersRun: {
		change: func(s *scene) {
			holder := "server-0"
			s.kube = append(s.kube, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "server", Name: "controllers"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}})
		},
		want: "failure the Lease server/controllers says that controllers of the server run, in server-0",
	},
	UpdateRefused: {
		change: func(s *scene) {
			s.refusedUpdate = apierrors.NewForbidden(schema.GroupResource{Resource: "customresourcedefinitions"}, "things.example.com", errors.New("no upgrades"))
		},
		want: "failure an update that moving the objects takes is refused: ending the watches of the CustomResourceDefinition things.example.com: customresourcedefinitions \"things.example.com\" is forbidden: no upgrades",
	},
	ObjectsMove: {
		change: func(s *scene) {
			s.inMetadata(`"finalizers": ["a"], "deletionTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [{"kind": "Thing"}]`)
		},
		want: "notice 1 things.example.com would move, 0 kB as JSON: 1 have finalizers, 1 are being deleted, 1 have owners",
	},
	ObjectsRefused: {
		change: func(s *scene) { s.store.Strict = refusingDecoder{} },
		want:   "failure 1 of 1 things.example.com can't be stored by the server without loss: default/one (unknown field)",
	},
	ObjectsTooLarge: {
		change: func(s *scene) {
			s.inMetadata(`"annotations": {"large": "` + strings.Repeat("a", 3<<19+16<<10) + `"}`)
		},
		want: "failure 1 of 1 things.example.com are too large for the server's etcd: default/one (etcd refuses it: 1589423 bytes)",
	},
	BoundExceeded: {
		change: func(s *scene) {
			s.store.Convert = func(runtime.Object, string) error { return nil }
			s.inMetadata(`"finalizers": ["a"` + strings.Repeat(`, "a"`, 20) + `]`)
		},
		want: "notice 1 of 1 things.example.com exceed a bound of the server, so that clients can change them and make them smaller, but not larger: default/one (all lists and objects together must not have more than 20 elements)",
	},
	FractionsLost: {
		change: func(s *scene) {
			s.object = strings.Replace(s.object, "00:00:00Z", "00:00:00.5Z", 1)
			s.store.Strict = seconds{unstructured.UnstructuredJSONScheme}
		},
		want: "notice 1 of 1 things.example.com have fractions of seconds, which the server does not store: default/one (2026-01-01T00:00:00.5Z)",
	},
	NotConverted: {
		change: func(s *scene) {
			s.store.Convert = func(_ runtime.Object, version string) error {
				if version == "v1" {
					return nil
				}
				return errors.New("no such kind")
			}
		},
		want: "failure 1 of 1 things.example.com can't be converted by the server to a version that it serves: default/one (v1beta1: no such kind)",
	},
	ObjectsInvalid: {
		change: func(s *scene) {
			s.store.Validate = func(_ context.Context, _ runtime.Object, version string) field.ErrorList {
				if version == "v1" {
					return nil
				}
				return field.ErrorList{field.Required(field.NewPath("spec", "size"), "")}
			}
		},
		want: "notice 1 of 1 things.example.com would be refused by the server's validation: default/one (spec.size: Required value)",
	},
	NamespaceDeleted: {
		change: func(s *scene) {
			s.kube = append(s.kube, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}})
		},
		want: "failure the namespace default, which has some of the objects, is being deleted",
	},
	NotMoved: {back: true,
		change: func(s *scene) { s.etcd["/state"] = `{"phase": "Freezing"}` },
		want:   "failure the migration is in the phase Freezing, and not in Moved",
	},
	NotRegistered: {back: true,
		change: func(*scene) {},
		want:   "failure no version of example.com leads to a server: there is nothing to move back",
	},
	Encrypted: {back: true,
		change: func(s *scene) {
			s.registered()
			s.kubeEtcd = true
			s.etcd["/registry/example.com/things/default/one"] = "k8s:enc:aescbc:v1:"
		},
		want: "failure kube-apiserver encrypts the things.example.com in its etcd: leave out --kube-etcd-servers, so that it writes them itself",
	},
	NewUIDs: {back: true,
		change: func(s *scene) {
			s.registered()
			s.object = strings.Replace(s.object, "2026-01", "2026-03", 1)
		},
		want: "notice 1 things.example.com would move back, and 1 of them get another UID, since kube-apiserver has no copies with the same: the garbage collector deletes what they own: [default/one]",
	},
	Quotas: {back: true,
		change: func(s *scene) {
			s.registered()
			s.object = strings.Replace(s.object, "2026-01", "2026-03", 1)
			for name, counted := range map[string]corev1.ResourceName{"things": "count/things.example.com", "pods": "count/pods", "cpu": "cpu"} {
				s.kube = append(s.kube, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{counted: resource.MustParse("1")}}})
			}
		},
		want: "notice quotas count the new things.example.com twice while they move back, and may refuse them: default/things",
	},
	ObjectsUndefined: {back: true,
		change: func(s *scene) {
			s.registered()
			s.defined = true
			s.etcd["/registry/example.com/gadgets/default/one"] = usualObject
		},
		want: "failure the server has 1 objects of example.com without a CustomResourceDefinition, which clients would not reach any more",
	},
	OtherEtcd: {back: true,
		change: func(s *scene) {
			s.registered()
			s.kubeEtcd, s.otherEtcd = true, true
		},
		want: "failure things.example.com is not in the etcd of --kube-etcd-servers, below --kube-etcd-prefix, as in kube-apiserver",
	},
	NotEnded: {finish: true,
		change: func(s *scene) { s.etcd["/state"] = `{"phase": "Switching"}` },
		want:   "failure the migration is in the phase Switching",
	},
	CopiesFinalized: {finish: true,
		change: func(s *scene) { s.etcd["/state"] = `{"phase": "Moved", "finalized": ["things/default/one"]}` },
		want:   "failure the copies that kube-apiserver has of things/default/one, and perhaps of others, have finalizers, which nobody would remove",
	},
	CopiesUsed: {finish: true,
		change: func(s *scene) {
			s.registered()
			s.etcd["/state"] = `{"phase": "Returned"}`
		},
		want: "failure the APIService v1.example.com leads to a server, so that clients use what would be deleted",
	},
	VersionNotMoved: {finish: true,
		change: func(s *scene) {
			s.registered()
			s.inDefinition(`"served": false`, `"served": true`)
		},
		want: "failure the CustomResourceDefinition things.example.com serves the version v1beta1, which the server does not have, so that kube-apiserver answers for it, and what was written there would be deleted",
	},
	CopiesWritten: {finish: true,
		change: func(s *scene) {
			s.registered()
			s.defined = true
			s.etcd["/state"] = `{"phase": "Moved", "revisions": {"things": "5"}}`
			s.atKube = strings.Replace(usualObject, `"uid"`, `"resourceVersion": "6", "uid"`, 1)
		},
		want: "failure 1 objects were written at kube-apiserver past the server, which does not have them like that: things/default/one",
	},
	CopiesDeleted: {finish: true,
		change: func(s *scene) { s.etcd["/state"] = `{"phase": "Moved", "objects": {"things": 3}}` },
		want:   "notice kube-apiserver's own copies of the 3 things.example.com would be deleted with their definition",
	},
}

// Each finding of a plan has a scene that leads to it, and is in the documentation.
func TestFindings(t *testing.T) {
	m := newMigration(t)
	for range 10 {
		_, err := m.config.Etcd.Put(t.Context(), "/revision", "")
		require.NoError(t, err)
	}
	_, err := m.config.Etcd.Compact(t.Context(), 5)
	require.NoError(t, err)
	for reason, test := range findings {
		t.Run(string(reason), func(t *testing.T) {
			scene := usualScene()
			test.change(scene)
			planned := scene.migration(t, m.config.Etcd)
			revision, err := planned.serverRevision(t.Context())
			require.NoError(t, err)
			want := strings.Replace(test.want, "<missing>", strconv.FormatInt(9_000_000-revision, 10), 1)
			plan := planned.Plan
			if test.back {
				plan = planned.PlanBack
			}
			if test.finish {
				plan = planned.PlanFinish
			}
			all, err := plan(t.Context())
			require.NoError(t, err)
			assert.Equal(t, []string{want}, causes(all, reason), "%+v", all)
		})
	}
	t.Run("nothing but the objects", func(t *testing.T) {
		scene := usualScene()
		all, err := scene.migration(t, m.config.Etcd).Plan(t.Context())
		require.NoError(t, err)
		for _, finding := range all {
			assert.True(t, finding.Status == OK || finding.Reason == ObjectsMove, "got %+v", finding)
		}
	})
	t.Run("documented", func(t *testing.T) {
		declared, documented := names(t, "plan.go", `Reason = "(\w+)"`), names(t, "../../docs/migration.md", "(?m)^\\| `([A-Z]\\w+)` \\|")
		var shown []string
		for _, reason := range slices.Sorted(maps.Keys(findings)) {
			shown = append(shown, string(reason))
		}
		for what, got := range map[string][]string{"shown by tests": shown, "documented": documented} {
			assert.Equal(t, declared, got, what)
		}
	})
}

// kube-apiserver's etcd, or else its default limit, tells which objects are too large to go back.
func TestTooLargeToGoBack(t *testing.T) {
	m := newMigration(t)
	for name, test := range map[string]struct {
		annotation int
		kubeEtcd   bool
		want       []string
	}{
		"not large":       {1_400_000, false, nil},
		"perhaps":         {1_500_000, false, []string{"notice 1 of 1 things.example.com may be too large for kube-apiserver's etcd: default/one (etcd refuses it with its default of 1.5 MiB: 1500175 bytes)"}},
		"no, by its etcd": {1_500_000, true, nil},
		"by its etcd":     {3<<19 + 16<<10, true, []string{"failure 1 of 1 things.example.com are too large for kube-apiserver's etcd: default/one (etcd refuses it: 1589423 bytes)"}},
	} {
		t.Run(name, func(t *testing.T) {
			scene := usualScene()
			scene.kubeEtcd = test.kubeEtcd
			scene.registered()
			scene.inMetadata(`"annotations": {"large": "` + strings.Repeat("a", test.annotation) + `"}`)
			all, err := scene.migration(t, m.config.Etcd).PlanBack(t.Context())
			require.NoError(t, err)
			assert.Equal(t, test.want, causes(all, ObjectsTooLarge))
		})
	}
}

// Objects that a webhook does not convert can't be read, and so can't move.
func TestNotConvertedByWebhook(t *testing.T) {
	scene := usualScene()
	scene.inDefinition(`"None"`, `"Webhook"`)
	scene.refusedList = apierrors.NewInternalError(errors.New("Key: /things/default/one: no colour"))
	all, err := scene.migration(t, newMigration(t).config.Etcd).Plan(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"failure reading the things.example.com from kube-apiserver: Internal error occurred: Key: /things/default/one: no colour"}, causes(all, NotConverted))
}

// names returns the sorted matches of a pattern in a file.
func names(t *testing.T, file, pattern string) (found []string) {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(content), -1) {
		found = append(found, match[1])
	}
	slices.Sort(found)
	return found
}

// things are the objects that the server of the tests stores.
var things = keys.Objects{
	GroupResource: schema.GroupResource{Group: "example.com", Resource: "things"},
	Kind:          "Thing", Namespaced: true, Versions: []string{"v1", "v1beta1"}, Prefix: "/registry/example.com/things/",
}

// seconds decodes times as types in Go do.
type seconds struct{ runtime.Decoder }

func (s seconds) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	return s.Decoder.Decode(bytes.ReplaceAll(data, []byte(".5Z"), []byte("Z")), defaults, into)
}
