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
	"net/url"
	"os"
	"path/filepath"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
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
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	restclient "k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// patience bounds every wait for something that happens at once unless upstream has
// changed, or the machine has stopped.
const patience = 30 * time.Second

var pods = schema.GroupResource{Group: example.GroupName, Resource: "pods"}

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
func servePods(t *testing.T) string { return servePodsIn(t, sharedEtcd()) }

// servePodsIn does so from another etcd.
func servePodsIn(t *testing.T, endpoint string) string {
	t.Helper()
	config, scheme, codecs := newConfig(t)
	info := genericapiserver.NewDefaultAPIGroupInfo(example.GroupName, scheme, runtime.NewParameterCodec(scheme), codecs)
	info.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{"pods": podREST{newPodStore(t, endpoint, func(*storagebackend.Config) {})}}
	return serve(t, config, &info) + "/apis/" + example.GroupName + "/v1/namespaces/default/pods"
}

// sharedEtcd returns the address of an etcd in which each test has a prefix of its own. It
// is started by the first that asks: the testing package writes to os.Stderr, which etcd
// reads, when the tests begin.
var sharedEtcd = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "upstream")
	if err != nil {
		panic(err)
	}
	config := embed.NewConfig()
	config.Dir = dir
	config.UnsafeNoFsync = true
	config.ListenPeerUrls = nil
	config.ListenClientUrls = []url.URL{{Scheme: "unix", Path: filepath.Join(dir, "sock")}}
	config.AdvertiseClientUrls = config.ListenClientUrls
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		panic(err)
	}
	<-etcd.Server.ReadyNotify()
	stopSharedEtcd = func() {
		etcd.Close()
		_ = os.RemoveAll(dir)
	}
	return config.ListenClientUrls[0].String()
})

// stopSharedEtcd is set when there is one to stop.
var stopSharedEtcd = func() {}

func TestMain(m *testing.M) {
	code := m.Run()
	stopSharedEtcd()
	os.Exit(code)
}

// newPodStore returns a store as every server of k8s.io/apiserver has one for each kind.
func newPodStore(t *testing.T, endpoint string, configure func(*storagebackend.Config)) *genericregistry.Store {
	t.Helper()
	scheme, codecs := newScheme()
	options := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig("/"+t.Name(), codecs.LegacyCodec(examplev1.SchemeGroupVersion)))
	options.StorageConfig.Transport.ServerList = []string{endpoint}
	options.StorageConfig.CompactionInterval = 0
	// Counting would read the storage while a test replaces it.
	options.StorageConfig.CountMetricPollPeriod = 0
	configure(&options.StorageConfig)
	strategy := podStrategy{scheme, names.SimpleNameGenerator}
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &example.Pod{} },
		NewListFunc:               func() runtime.Object { return &example.PodList{} },
		DefaultQualifiedResource:  pods,
		SingularQualifiedResource: schema.GroupResource{Group: example.GroupName, Resource: "pod"},
		CreateStrategy:            strategy,
		UpdateStrategy:            strategy,
		DeleteStrategy:            strategy,
		TableConvertor:            rest.NewDefaultTableConvertor(pods),
	}
	getter := options.CreateRESTOptionsGetter(&genericoptions.SimpleStorageFactory{StorageConfig: options.StorageConfig}, nil)
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: getter}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Destroy)
	return store
}

type podREST struct{ *genericregistry.Store }

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

// onceChannel is a channel that is closed the first time that close is called.
func onceChannel() (_ <-chan struct{}, closeIt func()) {
	done := make(chan struct{})
	return done, sync.OnceFunc(func() { close(done) })
}
