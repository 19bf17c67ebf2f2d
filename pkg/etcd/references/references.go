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

// Package references keeps objects from being deleted while others refer to them,
// exactly, however many servers write to one etcd.
//
// A check in admission alone can't: between the look at other objects and the write,
// another request may change them. So admission plugins declare their conditions here.
// These become part of the transaction in etcd that writes the object:
//
//   - A plugin that admits references calls Require. The transaction fails unless each object
//     that is referred to exists, and leaves a trace of having used it.
//   - A plugin that admits a deletion calls Unused, and then looks for references. The
//     transaction fails if there is a new trace; admission then looks again.
//
// Nothing is locked, so nothing waits, and nothing remains of a server that ends halfway.
package references

import (
	"context"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// MaxRequired is how many objects a write may require: one less than etcd's default for the comparisons of a
// transaction.
const MaxRequired = 127

// usesDir is where traces are, in etcd. Resources are in directories of their groups, whose
// names have dots.
const usesDir = "uses/"

// References keeps the references between the objects of one etcd.
type References struct {
	client *clientv3.Client
	// prefix begins all keys, and ends with a slash.
	prefix string

	mu sync.RWMutex
	// here are the resources whose objects this etcd has.
	here sets.Set[schema.GroupResource]
}

// New returns the references between objects below a prefix.
func New(client *clientv3.Client, prefix string) *References {
	return &References{client: client, prefix: strings.TrimSuffix(path.Join("/", prefix), "/") + "/", here: sets.New[schema.GroupResource]()}
}

// has reports whether this etcd has the objects of a resource. A transaction can't look into another one.
func (r *References) has(resource schema.GroupResource) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.here.Has(resource)
}

// object is the key of an object.
func (r *References) object(resource schema.GroupResource, name types.NamespacedName) string {
	return r.prefix + path.Join(resource.Group, resource.Resource, name.Namespace, name.Name)
}

// use returns the key whose revision tells the last write that required an object.
func (r *References) use(object string) string {
	return r.prefix + usesDir + strings.TrimPrefix(object, r.prefix)
}

// Handler lets admission plugins call Require and Unused.
func (r *References) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		next.ServeHTTP(w, request.WithContext(r.withWrite(request.Context())))
	})
}

func (r *References) withWrite(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, &write{References: r})
}

type contextKey struct{}

// write has the conditions of a request's writes. Only the deletion of a collection has several writes, and most
// requests have none.
type write struct {
	*References

	mu       sync.Mutex // of this write only
	required map[schema.GroupResource]requirement
	checks   map[string]*check // by the key of the object
}

type requirement struct {
	resource schema.GroupResource
	names    []types.NamespacedName
	missing  func([]types.NamespacedName) error
}

// check is the condition that an object is not used.
type check struct {
	resource schema.GroupResource
	name     string
	// since is the revision of the last use before the check, or 0.
	since int64
	// outdated is set if it has been used after the check.
	outdated bool
}

// Require makes the write of the admitted object fail unless these objects of a resource exist at that very moment.
// The error is the one of missing. The names replace the names of an earlier call for the resource, since admission runs
// again after a conflict. So call it even with no names, from the Validate of a plugin for creations and updates.
//
// A write that requires more than MaxRequired in all is refused. Outside of a request, or for objects in another etcd,
// it does nothing.
func Require(ctx context.Context, resource schema.GroupResource, names []types.NamespacedName, missing func([]types.NamespacedName) error) {
	w, ok := ctx.Value(contextKey{}).(*write)
	if !ok || !w.has(resource) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.required == nil {
		w.required = map[schema.GroupResource]requirement{}
	}
	w.required[resource] = requirement{resource, sets.New(names...).UnsortedList(), missing}
}

// Unused makes the deletion of the admitted object fail if a write requires it from now on. Admission of the deletion
// then runs again. Call it from the Validate of a plugin, for deletions and for updates that remove the last
// finalizer. Look for references after that, in the objects that are stored now.
//
// Outside of a request, or for objects in another etcd, it does nothing.
func Unused(ctx context.Context, resource schema.GroupResource, name types.NamespacedName) error {
	w, ok := ctx.Value(contextKey{}).(*write)
	if !ok || !w.has(resource) {
		return nil
	}
	key := w.object(resource, name)
	response, err := w.client.Get(ctx, w.use(key))
	if err != nil {
		return err
	}
	c := &check{resource: resource, name: name.Name}
	for _, use := range response.Kvs {
		c.since = use.ModRevision
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.checks == nil {
		w.checks = map[string]*check{}
	}
	w.checks[key] = c
	return nil
}

// Checked reports whether the context is one of a request, so that Require and Unused have an effect.
func Checked(ctx context.Context) bool {
	_, ok := ctx.Value(contextKey{}).(*write)
	return ok
}

// requirements returns what the request's write requires.
func requirements(ctx context.Context) []requirement {
	w, ok := ctx.Value(contextKey{}).(*write)
	if !ok {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.required))
}
