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

// Package testing tests the storage of API groups on a real etcd.
//
// TestKind runs k8s.io/apiserver's own tests of a storage on a kind. Fuzz looks for bodies of requests that cause a fault of
// the server, without an etcd. StartEtcd and Etcd.Storage make the storage of a whole group for further tests. The
// directory workshop has a group for tests of packages that serve any group.
package testing

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

const (
	// startTime is how long an etcd, or a watch cache, may take to start.
	startTime = 3 * time.Minute
	// quotaBytes bounds the database of a test.
	quotaBytes = 64 << 20
)

// Etcd is an embedded etcd that runs until the end of a test.
type Etcd struct {
	endpoint string
}

// StartEtcd starts an etcd in a temporary directory.
func StartEtcd(t testing.TB) Etcd {
	t.Helper()
	config := etcd.Config{Dir: t.TempDir(), QuotaBytes: quotaBytes}
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	running, err := config.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := running.Close(); err != nil {
			t.Error(err)
		}
	})
	return Etcd{config.Endpoint()}
}

// Endpoint is the address of etcd for a client in this process.
func (e Etcd) Endpoint() string { return e.endpoint }

// Storage is the storage of a group on an etcd.
type Storage struct {
	// Scheme has the types of the group.
	Scheme *runtime.Scheme
	// Codecs encode and decode them.
	Codecs serializer.CodecFactory
	// ByVersion is the storage by version and path, such as ["v1"]["machines/status"].
	ByVersion map[string]map[string]rest.Storage

	group  registry.Group
	stores *stores
}

// NewStorage returns the storage of a group on an etcd of its own. Its watch caches
// are ready.
func NewStorage(t testing.TB, group registry.Group) *Storage {
	t.Helper()
	return StartEtcd(t).Storage(t, group)
}

// Storage returns the storage of a group, with watch caches that are ready. It has a prefix of its own in etcd, so that
// tests that share the etcd do not see each other's objects. The clients of the group's Runtime reach no server.
func (e Etcd) Storage(t testing.TB, group registry.Group) *Storage {
	t.Helper()
	recorded := &stores{byResource: map[schema.GroupResource]store{}}
	s, err := newStorage(group, runtime.ContentTypeJSON, "/"+t.Name(), e.endpoint, func(options generic.RESTOptionsGetter) generic.RESTOptionsGetter {
		return recorder{options, recorded}
	})
	s.stores = recorded
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, paths := range s.ByVersion {
		for path, storage := range paths {
			if seen[path] {
				continue // One storage serves all versions.
			}
			seen[path] = true
			t.Cleanup(storage.Destroy)
			awaitReady(t, path, storage)
		}
	}
	return s
}

// newStorage returns the storage of a group in an encoding, below a prefix of an etcd. Change adapts the options of the
// stores.
func newStorage(group registry.Group, mediaType, prefix, endpoint string, change func(generic.RESTOptionsGetter) generic.RESTOptionsGetter) (*Storage, error) {
	scheme := runtime.NewScheme()
	registry.InstallMeta(scheme)
	s := &Storage{Scheme: scheme, Codecs: serializer.NewCodecFactory(scheme, serializer.WithSerializer(cbor.NewSerializerInfo)), group: group}
	if err := group.InstallTypes(scheme); err != nil {
		return s, err
	}
	options := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig(prefix, nil))
	options.StorageConfig.Transport.ServerList = []string{endpoint}
	encoding := serverstorage.NewDefaultResourceEncodingConfig(scheme)
	versions, err := group.StorageVersions(scheme)
	if err != nil {
		return s, err
	}
	for resource, version := range versions {
		encoding.SetResourceEncoding(resource, version, schema.GroupVersion{Group: group.Name, Version: runtime.APIVersionInternal})
	}
	factory := serverstorage.NewDefaultStorageFactory(options.StorageConfig, mediaType, s.Codecs, encoding, serverstorage.NewResourceConfig(), group.StoragePrefixes())
	var beside registry.Runtime
	if group.Runtime != nil {
		if beside, err = group.Runtime(registry.Clients{Loopback: &restclient.Config{}, Cluster: &restclient.Config{}}); err != nil {
			return s, err
		}
	}
	s.ByVersion, err = group.Storage(scheme, change(options.CreateRESTOptionsGetter(factory, nil)), beside)
	return s, err
}

func awaitReady(t testing.TB, path string, storage rest.Storage) {
	t.Helper()
	cache, ok := storage.(rest.StorageWithReadiness)
	if !ok {
		return
	}
	var err error
	if wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, startTime, true, func(context.Context) (bool, error) {
		err = cache.ReadinessCheck()
		return err == nil, nil
	}) != nil {
		t.Fatalf("the watch cache of %s does not become ready: %v", path, err)
	}
}

// Context returns the context of a request to a path such as "machines/status". The namespace is empty for
// cluster-scoped resources.
func (s *Storage) Context(ctx context.Context, version, path, namespace string) context.Context {
	resource, subresource, _ := strings.Cut(path, "/")
	ctx = genericapirequest.WithNamespace(ctx, namespace)
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true,
		APIGroup:          s.group.Name,
		APIVersion:        version,
		Namespace:         namespace,
		Resource:          resource,
		Subresource:       subresource,
	})
}

// Write stores an object unchanged. It uses no strategy, which would set metadata and refuse invalid objects.
func (s *Storage) Write(ctx context.Context, resource string, obj runtime.Object) error {
	store, err := s.stores.of(schema.GroupResource{Group: s.group.Name, Resource: resource})
	if err != nil {
		return err
	}
	key, err := store.key(obj)
	if err != nil {
		return err
	}
	return store.Create(ctx, key, obj, store.newObject(), 0)
}

// store reaches the objects of a kind in etcd.
type store struct {
	storage.Interface
	key       func(runtime.Object) (string, error)
	newObject func() runtime.Object
}

type stores struct {
	mu         sync.Mutex
	byResource map[schema.GroupResource]store
}

func (s *stores) of(resource schema.GroupResource) (store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.byResource[resource]
	if !ok {
		return store{}, fmt.Errorf("%s is not stored", resource)
	}
	return found, nil
}

// recorder remembers the stores that are made with its options.
type recorder struct {
	generic.RESTOptionsGetter
	stores *stores
}

func (r recorder) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := r.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	decorate := options.Decorator
	options.Decorator = func(config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error), newObject, newList func() runtime.Object, attributes storage.AttrFunc, trigger storage.IndexerFuncs, indexers *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
		inner, destroy, err := decorate(config, prefix, key, newObject, newList, attributes, trigger, indexers)
		r.stores.mu.Lock()
		defer r.stores.mu.Unlock()
		r.stores.byResource[resource] = store{inner, key, newObject}
		return inner, destroy, err
	}
	return options, nil
}
