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
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	registrytesting "restaurant.programming-kubernetes.info/apiserver/pkg/registry/testing"
	"restaurant.programming-kubernetes.info/apiserver/test/workshop"
	types "restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop"
)

// storeCounter counts the existing stores that are made with its options.
type storeCounter struct {
	generic.RESTOptionsGetter
	made, running int
}

func (c *storeCounter) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := c.RESTOptionsGetter.GetRESTOptions(resource, example)
	decorate := options.Decorator
	options.Decorator = func(config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error), newObject, newList func() runtime.Object, attributes storage.AttrFunc, trigger storage.IndexerFuncs, indexers *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
		store, destroy, err := decorate(config, prefix, key, newObject, newList, attributes, trigger, indexers)
		c.made++
		c.running++
		return store, func() { c.running--; destroy() }, err
	}
	return options, err
}

// TestRefusedDeclarations checks that the start refuses declarations by name, and
// leaves nothing behind.
func TestRefusedDeclarations(t *testing.T) {
	scheme := runtime.NewScheme()
	registry.InstallMeta(scheme)
	workshop.Install(scheme)
	options := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig("/refused", serializer.NewCodecFactory(scheme).LegacyCodec(schema.GroupVersion{Group: types.GroupName, Version: "v1"})))
	options.StorageConfig.Transport.ServerList = []string{registrytesting.StartEtcd(t).Endpoint()}
	getter := &storeCounter{RESTOptionsGetter: options.CreateRESTOptionsGetter(&genericoptions.SimpleStorageFactory{StorageConfig: options.StorageConfig}, nil)}
	site, half, taken, estimate := workshop.Site(), workshop.Machine(), workshop.Machine(), workshop.Estimate()
	yard, renamed := workshop.Site(), workshop.Machine()
	yard.Resource, yard.Singular, yard.ShortNames = "yards", "yard", nil
	renamed.ShortNames = []string{"site"}
	elsewhere, everywhere := standing(), workshop.Site()
	elsewhere.References[0].Resource = "halls"
	everywhere.References = []registry.Reference[*types.Site]{{Resource: "machines", Field: "spec.machine", Names: func(*types.Site) []string { return nil }}}
	site.Spec = nil
	half.KeepSpec = nil
	taken.Subresources = map[string]registry.Subresource[*types.Machine]{"status": workshop.Run()}
	estimate.Answer = nil
	connect := func(connect registry.Connect[*types.Machine, *types.ProgressOptions]) registry.Declaration {
		machine := workshop.Machine()
		machine.Subresources = map[string]registry.Subresource[*types.Machine]{"shell": connect}
		return machine
	}
	handles := func(path string, handler registry.Handler) registry.Runtime {
		return registry.Runtime{Handlers: map[string]registry.Handler{path: handler}}
	}
	handler := registry.HandlerFunc[*types.Machine, *types.ProgressOptions](func(context.Context, *types.Machine, *types.ProgressOptions, rest.Responder) (http.Handler, error) {
		return nil, nil
	})
	unhandled := registry.Connect[*types.Machine, *types.ProgressOptions]{NewOptions: workshop.Progress().NewOptions, Methods: []string{http.MethodPost}}
	methodless := unhandled
	methodless.Methods = nil
	handled := unhandled
	handled.Handler = handler
	answer := registry.AnswerFunc[*types.Estimate](func(context.Context, *types.Estimate) error { return nil })
	for name, test := range map[string]struct {
		kind    registry.Declaration
		runtime registry.Runtime
		want    string
	}{
		"no Spec":                   {kind: site, want: "creating the storage of sites.workshop.example.com: set Spec, which says when the generation changes"},
		"half of a status":          {kind: half, want: "creating the storage of machines.workshop.example.com: set either both of KeepStatus and KeepSpec, or neither"},
		"a subresource twice":       {kind: taken, want: "creating the storage of machines.workshop.example.com: machines/status is declared as a subresource, but exists already"},
		"a Connect without options": {kind: connect(registry.Connect[*types.Machine, *types.ProgressOptions]{}), want: "creating the storage of machines.workshop.example.com: serving machines/shell: set NewOptions"},
		"a Connect without methods": {kind: connect(methodless), want: "creating the storage of machines.workshop.example.com: serving machines/shell: set Methods: GET, which roles for viewers allow, or POST"},
		"a Connect unhandled":       {kind: connect(unhandled), want: "creating the storage of machines.workshop.example.com: serving machines/shell: set Handler in the declaration, or for its path in the Runtime of the group"},
		"handled twice":             {kind: connect(handled), runtime: handles("machines/shell", handler), want: "creating the storage of machines.workshop.example.com: serving machines/shell: set Handler in the declaration or in the Runtime, not in both"},
		"handled wrongly":           {kind: connect(unhandled), runtime: handles("machines/shell", registry.HandlerFunc[*types.Site, *types.ProgressOptions](nil)), want: "creating the storage of machines.workshop.example.com: serving machines/shell: the Runtime has a registry.HandlerFunc[*restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop.Site,*restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop.ProgressOptions] for it instead of a registry.HandlerFunc[*restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop.Machine,*restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop.ProgressOptions]"},
		"a handler of nothing":      {kind: connect(handled), runtime: handles("machines/ssh", handler), want: `the Runtime of workshop.example.com serves "machines/ssh", which is not a resource of the group: declare it in Kinds`},
		"a Review unanswered":       {kind: estimate, want: "creating the storage of estimates.workshop.example.com: set Answer in the declaration, or for its path in the Runtime of the group"},
		"a Custom unserved":         {kind: registry.Custom{Resource: "sites", New: workshop.Site().Describe().New}, want: "creating the storage of sites.workshop.example.com: set Serve in the declaration, or for its path in the Runtime of the group"},
		"an answer to nothing":      {kind: workshop.Estimate(), runtime: registry.Runtime{Answers: map[string]registry.Answer{"estimate": answer}}, want: `the Runtime of workshop.example.com serves "estimate", which is not a resource of the group: declare it in Kinds`},
		"a kind twice":              {kind: yard, want: "the resources sites and yards of workshop.example.com have the same kind Site: give each its own type"},
		"a reference to nothing":    {kind: elsewhere, want: `spec.site of machines.workshop.example.com refers to "halls": declare it as a Kind of the group`},
		"a reference to namespaces": {kind: everywhere, want: `spec.machine of sites.workshop.example.com refers to "machines", whose objects are in namespaces: make both Namespaced`},
		"a name twice":              {kind: renamed, want: `"site" is a name of the kinds Site and Machine of workshop.example.com: change Resource, Singular or ShortNames of one of them`},
	} {
		t.Run(name, func(t *testing.T) {
			group := workshop.Group()
			group.Kinds = []registry.Declaration{workshop.Site(), test.kind}
			if test.kind.Describe().Resource == "sites" {
				group.Kinds[0] = workshop.Machine()
			}
			_, err := group.Storage(scheme, getter, test.runtime)
			if err == nil || err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
			if getter.running != 0 {
				t.Errorf("%d stores run still", getter.running)
			}
		})
	}
	if getter.made == 0 {
		t.Error("no store has been made that could be destroyed")
	}
}

func TestDescriptionsOfGroup(t *testing.T) {
	group := workshop.Group()
	names, err := group.APIServices()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"v1.workshop.example.com", "v1alpha1.workshop.example.com"}, names); diff != "" {
		t.Errorf("unexpected APIServices (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[schema.GroupResource]registry.LongRunning{types.Resource("machines/progress"): registry.IfFollowed}, group.LongRunning()); diff != "" {
		t.Errorf("unexpected long-running subresources (-want +got):\n%s", diff)
	}
	var resources []string
	for _, resource := range group.Resources() {
		resources = append(resources, resource.Resource)
	}
	if !slices.Equal(resources, []string{"machines", "sites", "prototypes", "estimates"}) {
		t.Errorf("got the resources %v", resources)
	}
	if diff := cmp.Diff(map[schema.GroupResource]string{
		types.Resource("machines"): "workshop.example.com/machines", types.Resource("sites"): "workshop.example.com/sites", types.Resource("prototypes"): "workshop.example.com/prototypes",
	}, group.StoragePrefixes()); diff != "" {
		t.Errorf("unexpected prefixes (-want +got):\n%s", diff)
	}
}
