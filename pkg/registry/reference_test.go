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

package registry_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/references"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	registrytesting "restaurant.programming-kubernetes.info/apiserver/pkg/registry/testing"
	"restaurant.programming-kubernetes.info/apiserver/test/workshop"
	types "restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop"
)

// inRequest returns the context of a request that a server checks for references.
func inRequest(ctx context.Context) context.Context {
	var request *http.Request
	references.New(nil, "").Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { request = r })).
		ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil))
	return request.Context()
}

// standing declares machines that refer to their site.
func standing() registry.Kind[*types.Machine] {
	machine := workshop.Machine()
	machine.Validate = nil
	delete(machine.Fields, "spec.site")
	machine.References = []registry.Reference[*types.Machine]{
		{Resource: "sites", Field: "spec.site", Names: func(m *types.Machine) []string { return []string{m.Spec.Site} }},
	}
	return machine
}

func TestReferences(t *testing.T) {
	group := workshop.Group()
	group.Kinds = []registry.Declaration{standing(), workshop.Site()}
	group.Runtime = func(registry.Clients) (registry.Runtime, error) {
		return registry.Runtime{Authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetVerb() == "get" && a.GetResource() == "machines" && a.GetNamespace() == "default" && a.GetUser().GetName() == "reader" {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		})}, nil
	}
	storage := registrytesting.NewStorage(t, group)
	machines, sites := storage.ByVersion["v1"]["machines"].(rest.StandardStorage), storage.ByVersion["v1"]["sites"].(rest.StandardStorage)
	of := func(name string) context.Context {
		return genericapirequest.WithUser(inRequest(storage.Context(t.Context(), "v1", "machines", "default")), &user.DefaultInfo{Name: name})
	}
	create := func(name, site string) error {
		machine := drill()
		machine.Name, machine.Spec.Site = name, site
		_, err := machines.Create(of("reader"), machine, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
		return err
	}
	build := func(name string) {
		_, err := sites.Create(storage.Context(t.Context(), "v1", "sites", ""), &types.Site{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: types.SiteSpec{Capacity: 1}}, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
		require.NoError(t, err)
	}
	demolish := func(by, name string) error {
		_, _, err := sites.Delete(genericapirequest.WithNamespace(of(by), ""), name, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
		return err
	}

	const missing = `Machine.workshop.example.com "drill" is invalid: spec.site: Not found: `
	require.EqualError(t, create("drill", "hall"), missing+`"hall"`)
	require.EqualError(t, create("drill", "../sites/hall"), missing+`"../sites/hall"`)
	require.NoError(t, create("saw", ""), "An empty name refers to nothing.")
	build("hall")
	build("yard")
	require.NoError(t, create("drill", "hall"))

	// The site is also an index of the machines.
	listed, err := machines.List(of("reader"), &metainternalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.site", "hall")})
	require.NoError(t, err)
	require.Len(t, listed.(*types.MachineList).Items, 1)

	const inUse = `sites.workshop.example.com "hall" is forbidden: 1 machine refers to it by spec.site`
	require.EqualError(t, demolish("reader", "hall"), inUse+": default/drill")
	require.EqualError(t, demolish("stranger", "hall"), inUse)
	require.NoError(t, demolish("stranger", "yard"))

	// A name that the stored object has may stay.
	move := func(site string) error {
		_, _, err := machines.Update(of("reader"), "drill", rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
			machine := old.DeepCopyObject().(*types.Machine)
			machine.Spec.Site = site
			machine.Spec.Replicas++
			return machine, nil
		}), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
		return err
	}
	require.EqualError(t, move("attic"), missing+`"attic"`)
	finalizers := func(ctx context.Context, finalizers ...string) error {
		_, _, err := sites.Update(ctx, "hall", rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
			site := old.DeepCopyObject().(*types.Site)
			site.Finalizers = finalizers
			return site, nil
		}), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
		return err
	}
	outside := storage.Context(t.Context(), "v1", "sites", "") // Of a request. Nothing is checked.
	require.NoError(t, finalizers(outside, "example.com/demolition"))
	_, _, err = sites.Delete(outside, "hall", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
	require.NoError(t, err)
	require.NoError(t, move("hall"))

	// It is being deleted, and stays.
	require.EqualError(t, create("mill", "hall"), `Machine.workshop.example.com "mill" is invalid: spec.site: Invalid value: "hall": is being deleted`)
	require.EqualError(t, finalizers(genericapirequest.WithNamespace(of("reader"), "")), inUse+": default/drill")
	require.NoError(t, finalizers(outside))
	require.NoError(t, move("hall"), "It is gone, but its name may stay.")
}
