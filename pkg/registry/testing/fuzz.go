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

package testing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

const (
	// fuzzBytes is the maximum size of bodies that Fuzz tries: larger ones show nothing else.
	fuzzBytes = 16 << 10
	// fuzzName and fuzzNamespace are those in the paths of the requests.
	fuzzName, fuzzNamespace = "fuzz", "default"
	// fuzzRevision is the etcd revision of all objects.
	fuzzRevision = 7
)

// Fuzz is the body of a fuzz test of all resources and subresources of a group, in each
// version and encoding. It treats a body as a server does: it decodes, defaults, converts,
// validates, changes and stores it, though in memory. Examples are valid internal objects that
// exist in that storage, one for each stored kind.
//
// The test fails on these faults:
//
//   - a panic
//   - an error that is not the client's
//   - a created object that is invalid when a client of any version writes it back unchanged
//   - an object that changes when it is read and written again
func Fuzz(f *testing.F, group registry.Group, examples ...registry.Object) {
	f.Helper()
	existing := map[string]registry.Object{}
	for _, example := range examples {
		example = example.DeepCopyObject().(registry.Object)
		example.SetName(fuzzName)
		example.SetUID("fuzz")
		existing[typeName(example)] = example
	}
	s, err := newStorage(group, runtime.ContentTypeProtobuf, "", "", func(options generic.RESTOptionsGetter) generic.RESTOptionsGetter {
		return inMemory{options, existing}
	})
	if err != nil {
		f.Fatal(err)
	}
	endpoints := s.endpoints()
	for i, endpoint := range endpoints {
		for j, encoding := range s.Codecs.SupportedMediaTypes() {
			f.Add(uint(i), uint(j), s.seed(f, endpoint, encoding.Serializer, existing))
		}
	}
	f.Fuzz(func(t *testing.T, endpoint, encoding uint, body []byte) {
		encodings := s.Codecs.SupportedMediaTypes()
		s.send(t, endpoints[endpoint%uint(len(endpoints))], encodings[encoding%uint(len(encodings))], body)
	})
}

// endpoint is a path in a version that accepts bodies.
type endpoint struct {
	version, path string
	rest.Storage
}

func (s *Storage) endpoints() (endpoints []endpoint) {
	for _, version := range slices.Sorted(maps.Keys(s.ByVersion)) {
		for _, path := range slices.Sorted(maps.Keys(s.ByVersion[version])) {
			storage := s.ByVersion[version][path]
			_, creates := storage.(rest.Creater)
			_, acts := storage.(rest.NamedCreater)
			_, updates := storage.(rest.Updater)
			if creates || acts || updates {
				endpoints = append(endpoints, endpoint{version, path, storage})
			}
		}
	}
	return endpoints
}

// kind returns the kind of the bodies of an endpoint.
func (s *Storage) kind(e endpoint) (schema.GroupVersionKind, error) {
	version := schema.GroupVersion{Group: s.group.Name, Version: e.version}
	if fixed, ok := e.Storage.(rest.GroupVersionKindProvider); ok {
		return fixed.GroupVersionKind(version), nil
	}
	kinds, _, err := s.Scheme.ObjectKinds(e.New())
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return version.WithKind(kinds[0].Kind), nil
}

// seed returns a body for an endpoint: the example of its kind, or an empty object.
func (s *Storage) seed(f *testing.F, e endpoint, serializer runtime.Serializer, examples map[string]registry.Object) []byte {
	kind, err := s.kind(e)
	if err != nil {
		f.Fatal(err)
	}
	object := e.New()
	if example := examples[typeName(object)]; example != nil {
		object = example
	}
	body, err := runtime.Encode(s.Codecs.EncoderForVersion(serializer, kind.GroupVersion()), object)
	if err != nil {
		f.Fatalf("%s in %s can't be encoded: %v", e.path, e.version, err)
	}
	return body
}

// send sends a body to an endpoint.
func (s *Storage) send(t *testing.T, e endpoint, encoding runtime.SerializerInfo, body []byte) {
	t.Helper()
	// Servers refuse bodies that are larger or have expensive numbers before they decode them.
	if _, err := new(limits.DefaultBounds()).CheckBody("create", encoding.MediaType, body); err != nil || len(body) > fuzzBytes {
		return
	}
	kind, err := s.kind(e)
	if err != nil {
		t.Fatal(err)
	}
	decoder := s.Codecs.DecoderToVersion(encoding.Serializer, schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal})
	decoded, _, err := decoder.Decode(body, &kind, e.New())
	if err != nil {
		return
	}
	object, ok := decoded.(registry.Object)
	if !ok || typeName(object) != typeName(e.New()) {
		return // The handlers refuse another kind than the path's.
	}
	ctx := s.Context(t.Context(), e.version, e.path, namespaceOf(e))
	s.write(ctx, t, e, object)
	creater, ok := e.Storage.(rest.Creater)
	if !ok {
		return
	}
	if object.GetNamespace() == "" {
		object.SetNamespace(namespaceOf(e))
	}
	created, err := creater.Create(ctx, object, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	requireClientError(t, e, err)
	if updater, stored := e.Storage.(rest.Updater); err == nil && stored {
		s.writeBack(t, e, updater, created.(registry.Object))
	}
}

// write creates the object as an Action, or writes it over the existing one.
func (s *Storage) write(ctx context.Context, t *testing.T, e endpoint, object registry.Object) {
	t.Helper()
	if object.GetNamespace() != "" && object.GetNamespace() != namespaceOf(e) || object.GetName() != "" && object.GetName() != fuzzName {
		return // As above, other than the path's.
	}
	if action, ok := e.Storage.(rest.NamedCreater); ok {
		named := object.DeepCopyObject().(registry.Object)
		named.SetNamespace(namespaceOf(e))
		_, err := action.Create(ctx, fuzzName, named, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
		requireClientError(t, e, err)
	}
	if updater, ok := e.Storage.(rest.Updater); ok {
		named := object.DeepCopyObject().(registry.Object)
		named.SetNamespace(namespaceOf(e))
		named.SetName(fuzzName)
		_, _, err := updater.Update(ctx, fuzzName, rest.DefaultUpdatedObjectInfo(named), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
		requireClientError(t, e, err)
	}
}

func typeName(object runtime.Object) string { return fmt.Sprintf("%T", object) }

// writeBack writes an object back unchanged, in each version.
func (s *Storage) writeBack(t *testing.T, e endpoint, updater rest.Updater, created registry.Object) {
	t.Helper()
	for version, paths := range s.ByVersion {
		if paths[e.path] == nil {
			continue
		}
		client, err := s.Scheme.ConvertToVersion(created.DeepCopyObject(), schema.GroupVersion{Group: s.group.Name, Version: version})
		if err != nil {
			t.Fatalf("a valid object of %s in %s can't be read in %s: %v", e.path, e.version, version, err)
		}
		s.Scheme.Default(client)
		server, err := s.Scheme.ConvertToVersion(client, schema.GroupVersion{Group: s.group.Name, Version: runtime.APIVersionInternal})
		if err != nil {
			t.Fatalf("a valid object of %s in %s can't be written in %s: %v", e.path, e.version, version, err)
		}
		ctx := context.WithValue(s.Context(t.Context(), version, e.path, namespaceOf(e)), storedKey{}, created)
		written, _, err := updater.Update(ctx, created.GetName(), rest.DefaultUpdatedObjectInfo(server), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
		if err != nil {
			t.Fatalf("a valid object of %s in %s is refused as it is in %s: %v", e.path, e.version, version, err)
		}
		if generation := written.(registry.Object).GetGeneration(); generation != created.GetGeneration() {
			t.Fatalf("a valid object of %s in %s is another when it is written as it is in %s:\n%+v\n%+v", e.path, e.version, version, created, written)
		}
	}
}

func namespaceOf(e endpoint) string {
	if scoper, ok := e.Storage.(rest.Scoper); ok && !scoper.NamespaceScoped() {
		return metav1.NamespaceNone
	}
	return fuzzNamespace
}

// requireClientError fails the test on an error that blames the server.
func requireClientError(t *testing.T, e endpoint, err error) {
	t.Helper()
	status := apierrors.APIStatus(nil)
	if err != nil && (!errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError) {
		t.Fatalf("%s in %s: %v", e.path, e.version, err)
	}
}

// inMemory makes stores that have only the examples.
type inMemory struct {
	generic.RESTOptionsGetter
	existing map[string]registry.Object
}

func (m inMemory) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := m.RESTOptionsGetter.GetRESTOptions(resource, example)
	options.Decorator = func(config *storagebackend.ConfigForResource, _ string, _ func(runtime.Object) (string, error), newObject, _ func() runtime.Object, _ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
		return memory{codec: config.Codec, newObject: newObject, example: m.existing[typeName(newObject())]}, func() {}, nil
	}
	return options, err
}

// memory encodes and decodes as etcd's storage does. It has the example, and the object in the
// context of a request.
type memory struct {
	storage.Interface
	codec     runtime.Codec
	newObject func() runtime.Object
	example   registry.Object
}

type storedKey struct{}

// Stats are nothing: they are asked for from time to time.
func (memory) Stats(context.Context) (storage.Stats, error) { return storage.Stats{}, nil }

// Versioner returns the versioner of etcd's storage.
func (memory) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

// Create creates an object, even if it exists.
func (m memory) Create(_ context.Context, _ string, obj, out runtime.Object, _ uint64) error {
	return m.store(obj, out)
}

// Get reads the object.
func (m memory) Get(ctx context.Context, key string, _ storage.GetOptions, out runtime.Object) error {
	object, ok := ctx.Value(storedKey{}).(runtime.Object)
	if !ok {
		if m.example == nil {
			return storage.NewKeyNotFoundError(key, 0)
		}
		object = m.example
	}
	return m.store(object, out)
}

// GuaranteedUpdate updates the object.
func (m memory) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, _ bool, preconditions *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object) error {
	object := m.newObject()
	if err := m.Get(ctx, key, storage.GetOptions{}, object); err != nil {
		return err
	}
	if err := preconditions.Check(key, object); err != nil {
		return err
	}
	updated, _, err := update(object, storage.ResponseMeta{ResourceVersion: fuzzRevision})
	if err != nil {
		return err
	}
	return m.store(updated, out)
}

// store encodes an object and decodes it again. Another encoding of the result must be equal.
func (m memory) store(obj, out runtime.Object) error {
	obj = obj.DeepCopyObject()
	if err := m.Versioner().PrepareObjectForStorage(obj); err != nil {
		return err
	}
	data, err := runtime.Encode(m.codec, obj)
	if err != nil {
		return err
	}
	if err := runtime.DecodeInto(m.codec, data, out); err != nil {
		return err
	}
	again, err := runtime.Encode(m.codec, out)
	if err != nil {
		return err
	}
	if !bytes.Equal(data, again) {
		return fmt.Errorf("an object is stored as %q, and when it has been read as %q", data, again)
	}
	return m.Versioner().UpdateObject(out, fuzzRevision)
}
