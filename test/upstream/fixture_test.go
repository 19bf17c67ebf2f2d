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
	"net/http"
	"net/http/httptest"
	"runtime/metrics"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/example"
	exampleinstall "k8s.io/apiserver/pkg/apis/example/install"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	restclient "k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// newScheme knows k8s.io/apiserver's own example group, and no type of ours.
func newScheme() (*runtime.Scheme, serializer.CodecFactory) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	scheme.AddUnversionedTypes(schema.GroupVersion{Version: "v1"},
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	exampleinstall.Install(scheme)
	scheme.AddKnownTypes(example.SchemeGroupVersion, &example.PodList{})
	scheme.AddKnownTypes(examplev1.SchemeGroupVersion, &examplev1.PodList{})
	return scheme, serializer.NewCodecFactory(scheme)
}

// newConfig returns the configuration of a server without authentication,
// authorization and admission, whose parts a test replaces.
func newConfig(t *testing.T) (*genericapiserver.RecommendedConfig, *runtime.Scheme, serializer.CodecFactory) {
	t.Helper()
	scheme, codecs := newScheme()
	config := genericapiserver.NewRecommendedConfig(codecs)
	config.ExternalAddress = "localhost:443"
	config.LoopbackClientConfig = &restclient.Config{}
	config.EffectiveVersion = basecompatibility.NewEffectiveVersionFromString("", "", "")
	namer := openapi.NewDefinitionNamer(scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	config.OpenAPIConfig.Info.Version = "unversioned"
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	config.OpenAPIV3Config.Info.Version = "unversioned"
	config.Authentication.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: "alice"}}, true, nil
	})
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	return config, scheme, codecs
}

// serve makes a server of a configuration and returns its address.
func serve(t *testing.T, config *genericapiserver.RecommendedConfig, groups ...*genericapiserver.APIGroupInfo) string {
	t.Helper()
	generic, err := config.Complete().New("upstream", genericapiserver.NewEmptyDelegate())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(generic.Destroy)
	if err := generic.InstallAPIGroups(groups...); err != nil {
		t.Fatal(err)
	}
	generic.PrepareRun()
	server := httptest.NewServer(generic.Handler)
	t.Cleanup(server.Close)
	return server.URL
}

// servePods serves k8s.io/apiserver's example kind, and returns the address of the pods of a
// namespace.
func servePods(t *testing.T) string {
	t.Helper()
	config, scheme, codecs := newConfig(t)
	options := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry", codecs.LegacyCodec(examplev1.SchemeGroupVersion)))
	options.StorageConfig.Transport.ServerList = testserver.RunEtcd(t, nil).Endpoints()
	strategy := podStrategy{scheme, names.SimpleNameGenerator}
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &example.Pod{} },
		NewListFunc:               func() runtime.Object { return &example.PodList{} },
		DefaultQualifiedResource:  example.Resource("pods"),
		SingularQualifiedResource: example.Resource("pod"),
		CreateStrategy:            strategy,
		UpdateStrategy:            strategy,
		DeleteStrategy:            strategy,
		TableConvertor:            rest.NewDefaultTableConvertor(example.Resource("pods")),
	}
	getter := options.CreateRESTOptionsGetter(&genericoptions.SimpleStorageFactory{StorageConfig: options.StorageConfig}, nil)
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: getter}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Destroy)
	info := genericapiserver.NewDefaultAPIGroupInfo(example.GroupName, scheme, runtime.NewParameterCodec(scheme), codecs)
	info.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{"pods": store}
	return serve(t, config, &info) + "/apis/" + example.GroupName + "/v1/namespaces/default/pods"
}

// podStrategy has no rules.
type podStrategy struct {
	runtime.ObjectTyper
	names.NameGenerator
}

func (podStrategy) NamespaceScoped() bool                                            { return true }
func (podStrategy) AllowCreateOnUpdate(context.Context) bool                         { return false }
func (podStrategy) AllowUnconditionalUpdate(context.Context) bool                    { return true }
func (podStrategy) Canonicalize(runtime.Object)                                      {}
func (podStrategy) PrepareForCreate(context.Context, runtime.Object)                 {}
func (podStrategy) PrepareForUpdate(context.Context, runtime.Object, runtime.Object) {}
func (podStrategy) Validate(context.Context, runtime.Object) field.ErrorList         { return nil }
func (podStrategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}
func (podStrategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }
func (podStrategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// definitions let every type have any fields.
func definitions(common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	anything := common.OpenAPIDefinition{Schema: spec.Schema{
		VendorExtensible: spec.VendorExtensible{Extensions: spec.Extensions{"x-kubernetes-preserve-unknown-fields": true}},
		SchemaProps:      spec.SchemaProps{Type: []string{"object"}},
	}}
	all := map[string]common.OpenAPIDefinition{}
	for _, name := range []string{
		examplev1.Pod{}.OpenAPIModelName(), examplev1.PodList{}.OpenAPIModelName(),
		metav1.APIGroup{}.OpenAPIModelName(), metav1.APIGroupList{}.OpenAPIModelName(), metav1.APIResourceList{}.OpenAPIModelName(),
		metav1.APIVersions{}.OpenAPIModelName(), metav1.DeleteOptions{}.OpenAPIModelName(), metav1.Patch{}.OpenAPIModelName(),
		metav1.Status{}.OpenAPIModelName(), metav1.WatchEvent{}.OpenAPIModelName(),
		"io.k8s.apimachinery.pkg.version.Info",
	} {
		all[name] = anything
	}
	return all
}

// allocated returns how many bytes are allocated while f runs. Allocations of other
// goroutines meanwhile are counted, too.
func allocated(f func()) uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	before := sample[0].Value.Uint64()
	f()
	metrics.Read(sample)
	return sample[0].Value.Uint64() - before
}
