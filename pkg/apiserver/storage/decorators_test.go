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

package storage

import (
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	registrytesting "restaurant.programming-kubernetes.info/apiserver/pkg/registry/testing"
)

// The package comment lists the decorators of a storage, in the order of an object.
func TestDecoratorsAreListed(t *testing.T) {
	doc, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments)
	require.NoError(t, err)
	var listed []string
	for _, match := range regexp.MustCompile(`(?m)^ {2}- (\w+) `).FindAllStringSubmatch(doc.Doc.Text(), -1) {
		listed = append(listed, match[1])
	}
	etcd := registrytesting.StartEtcd(t)
	require.Equal(t, listed, decoratorsOf(newPods(t, registry.StatusErrors(newGetter(t, etcd.Endpoint(), true)))))

	listed = slices.DeleteFunc(listed, func(name string) bool { return name == "Cacher" || name == "historicStorage" })
	require.Equal(t, listed, decoratorsOf(newPods(t, registry.StatusErrors(newGetter(t, etcd.Endpoint(), false)))), "without a watch cache")
}

// newGetter returns how a server stores its kinds.
func newGetter(t *testing.T, endpoint string, cached bool) generic.RESTOptionsGetter {
	t.Helper()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	require.NoError(t, example.AddToScheme(scheme))
	require.NoError(t, examplev1.AddToScheme(scheme))
	codecs := serializer.NewCodecFactory(scheme)
	options := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry", nil))
	options.StorageConfig.Transport.ServerList = []string{endpoint}
	options.EnableWatchCache = cached
	config := genericapiserver.NewConfig(codecs)
	s, err := Config{Etcd: options, Embedded: true, Transactions: true}.ApplyTo(config, scheme, codecs)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return config.RESTOptionsGetter
}

// newPods returns the storage that a kind of a server has, for a kind of k8s.io/apiserver's tests.
func newPods(t *testing.T, getter generic.RESTOptionsGetter) storage.Interface {
	t.Helper()
	pods, err := getter.GetRESTOptions(example.Resource("pods"), &example.Pod{})
	require.NoError(t, err)
	stored, destroy, err := pods.Decorator(pods.StorageConfig, "/pods/", func(object runtime.Object) (string, error) { return storage.NamespaceKeyFunc("/pods/", object) },
		func() runtime.Object { return &example.Pod{} }, func() runtime.Object { return &example.PodList{} }, storage.DefaultNamespaceScopedAttr, nil, nil)
	require.NoError(t, err)
	t.Cleanup(destroy)
	return stored
}

// decoratorsOf walks from a storage to its transformer. Of k8s.io/apiserver's types, it returns only the Cacher.
func decoratorsOf(stored storage.Interface) (built []string) {
	for layer := reflect.ValueOf(stored); layer.IsValid(); {
		for layer.Kind() == reflect.Interface || layer.Kind() == reflect.Pointer {
			layer = layer.Elem()
		}
		if own := strings.HasPrefix(layer.Type().PkgPath(), "restaurant.programming-kubernetes.info/"); own || layer.Type() == reflect.TypeFor[cacher.Cacher]() {
			built = append(built, layer.Type().Name())
		}
		outer := layer
		layer = reflect.Value{}
		for _, inner := range []string{"Interface", "cacher", "storage", "transformer", "Transformer"} {
			if !layer.IsValid() && outer.Kind() == reflect.Struct {
				layer = outer.FieldByName(inner)
			}
		}
	}
	return built
}
