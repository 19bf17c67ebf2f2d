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

package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Describe implements Declaration.
func (k Kind[O]) Describe() Description {
	longRunning := map[string]LongRunning{}
	for name, subresource := range k.Subresources {
		longRunning[k.Resource+"/"+name] = subresource.LongRunning()
	}
	return Description{
		Resource:       k.Resource,
		New:            func() runtime.Object { return k.New() },
		FieldLabels:    k.fieldLabels(),
		LongRunning:    longRunning,
		Stored:         true,
		StorageVersion: k.StorageVersion,
		Namespaced:     k.Namespaced,
		Features:       k.features(),
		Validate: func(ctx context.Context, scheme *runtime.Scheme, version schema.GroupVersion, object runtime.Object) field.ErrorList {
			ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{APIGroup: version.Group, APIVersion: version.Version, Resource: k.Resource, Verb: "create"})
			if accessor, ok := object.(O); ok && k.Namespaced {
				ctx = genericapirequest.WithNamespace(ctx, accessor.GetNamespace())
			}
			return rest.ValidateCreate(ctx, object, newStrategy(&k, scheme, []schema.GroupVersion{version}))
		},
	}
}

func (k Kind[O]) features() *Features {
	f := &Features{
		Singular: k.Singular, ShortNames: k.ShortNames, Categories: k.Categories,
		Fields: map[string]func(runtime.Object) string{}, Validates: k.Validate != nil, Status: k.KeepStatus != nil,
		Subresources: slices.Sorted(maps.Keys(k.Subresources)), Definition: k.Definition,
	}
	for _, column := range k.Columns {
		f.Columns = append(f.Columns, column.TableColumnDefinition)
	}
	f.Cells = func(o runtime.Object) []any { return tableConvertor[O](k.Columns).cells(o.(O)) }
	for name, value := range k.Fields {
		f.Fields[name] = func(o runtime.Object) string { return value(o.(O)) }
	}
	if k.Scale != nil {
		f.StatusReplicas = func(o runtime.Object) int32 { return k.Scale.StatusReplicas(o.(O)) }
		f.Selector = func(o runtime.Object) string { return k.Scale.Selector(o.(O)) }
	}
	return f
}

// fieldLabels are the field selectors that attributes sets.
func (k Kind[O]) fieldLabels() []string {
	labels := slices.Concat([]string{"metadata.name"}, slices.Collect(maps.Keys(k.Fields)), slices.Collect(maps.Keys(k.indexes())))
	if k.Namespaced {
		labels = append(labels, "metadata.namespace")
	}
	slices.Sort(labels)
	return labels
}

// Storage implements Declaration.
func (k Kind[O]) Storage(in Installation) (map[string]rest.Storage, error) {
	switch {
	case (k.KeepStatus == nil) != (k.KeepSpec == nil):
		return nil, errors.New("set either both of KeepStatus and KeepSpec, or neither")
	case k.Spec == nil:
		return nil, errors.New("set Spec, which says when the generation changes")
	}
	kind, err := groupKind(in.Scheme, k.New())
	if err != nil {
		return nil, err
	}
	k.Indexes = k.indexes()
	main := newStrategy(&k, in.Scheme, in.Versions)
	if main.fresh, err = k.fresh(in.Scheme, kind); err != nil {
		return nil, err
	}
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return k.New() },
		NewListFunc:               k.NewList,
		DefaultQualifiedResource:  schema.GroupResource{Group: in.Group, Resource: k.Resource},
		SingularQualifiedResource: schema.GroupResource{Group: in.Group, Resource: k.Singular},
		CreateStrategy:            main,
		UpdateStrategy:            main,
		DeleteStrategy:            main,
		ResetFieldsStrategy:       main,
		TableConvertor:            main.table(),
		PredicateFunc:             k.predicate,
	}
	if k.CheckGracefulDelete != nil {
		store.DeleteStrategy = gracefulStrategy[O]{main}
	}
	options := &generic.StoreOptions{RESTOptions: statusErrors{in.Options, kind}, AttrFunc: k.attributes, Indexers: k.indexers()}
	if err := store.CompleteWithOptions(options); err != nil {
		return nil, err
	}

	object := &objectREST{
		Store: store, kind: kind, shortNames: k.ShortNames, categories: k.Categories,
		namespaced: k.Namespaced, version: in.Versions[0].Version, authorizer: in.Runtime.Authorizer,
	}
	object.references = k.references(object)
	paths := map[string]rest.Storage{k.Resource: object}
	// An update of a subresource never creates an object.
	updates := main
	updates.createOnUpdate = false
	existing := *store
	existing.UpdateStrategy = updates
	statusStore := existing
	if k.KeepSpec != nil {
		status := newStatusStrategy(main, in.Versions)
		statusStore.UpdateStrategy = status
		statusStore.ResetFieldsStrategy = status
		paths[k.Resource+"/status"] = &statusREST{&statusStore, kind, k.Definition != nil}
	}
	if scale := newScaleREST(main, &existing, in.Versions); len(scale.replicasPaths) > 0 {
		paths[k.Resource+"/scale"] = scale
	}
	if err := addSubresources(paths, Parent[O]{Installation: in, Store: &existing, StatusStore: &statusStore, kind: &k}); err != nil {
		store.Destroy()
		return nil, err
	}
	return paths, nil
}

// fresh returns an empty object with its defaults in the storage version. Reading a stored object fills in
// the same defaults. Without them in a new object, an update without changes would write it.
func (k Kind[O]) fresh(scheme *runtime.Scheme, kind schema.GroupKind) (O, error) {
	object := k.New()
	version, err := storageVersion(scheme, kind, k.StorageVersion)
	if err != nil {
		return object, err
	}
	versioned, err := scheme.ConvertToVersion(object, version)
	if err == nil {
		scheme.Default(versioned)
		err = scheme.Convert(versioned, object, nil)
	}
	if err != nil {
		return object, fmt.Errorf("an empty %s can't be converted: accept objects without fields, which clients can send: %w", kind.Kind, err)
	}
	return object, nil
}

// objectREST serves a kind itself.
type objectREST struct {
	*genericregistry.Store
	kind                   schema.GroupKind
	shortNames, categories []string

	namespaced bool
	// references are the kind's own, and referrers those of other kinds to it.
	references, referrers []*reference
	// authorizer decides whether a refusal may name objects, which are in this version.
	authorizer authorizer.Authorizer
	version    string
}

var (
	_ rest.StandardStorage      = &objectREST{}
	_ rest.Patcher              = &objectREST{}
	_ rest.ShortNamesProvider   = &objectREST{}
	_ rest.CategoriesProvider   = &objectREST{}
	_ rest.SingularNameProvider = &objectREST{}
	_ rest.ResetFieldsStrategy  = &objectREST{}
)

// ShortNames are the abbreviations kubectl accepts.
func (r *objectREST) ShortNames() []string { return r.shortNames }

// Categories are the groups of kinds kubectl lists together.
func (r *objectREST) Categories() []string { return r.categories }

// Create writes a new object.
func (r *objectREST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	return r.Store.Create(ctx, obj, r.creating(validate), options)
}

// Delete deletes an object.
func (r *objectREST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	return r.Store.Delete(ctx, name, r.deleting(validate), options)
}

// DeleteCollection deletes the objects that the list options select.
func (r *objectREST) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, selected *metainternalversion.ListOptions) (runtime.Object, error) {
	return r.Store.DeleteCollection(ctx, r.deleting(validate), options, selected)
}

// Update replaces or patches an object. It creates one if a server-side apply finds none,
// or any update if the kind allows that.
func (r *objectREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.Store.Update(ctx, name, checkedUpdate{info, r.kind}, r.creating(create), r.updating(update), forceAllowCreate, options)
}

// statusREST serves /status.
type statusREST struct {
	store *genericregistry.Store
	kind  schema.GroupKind
	// defined is true for a kind with a Definition.
	defined bool
}

var (
	_ rest.Patcher             = &statusREST{}
	_ rest.TableConvertor      = &statusREST{}
	_ rest.ResetFieldsStrategy = &statusREST{}
)

// New returns an empty object. It tells the decoder of a Definition that a request is for the status.
func (r *statusREST) New() runtime.Object {
	object := r.store.New()
	if r.defined {
		object.GetObjectKind().SetGroupVersionKind(ofStatus())
	}
	return object
}

// Destroy does nothing: the store is destroyed by objectREST.
func (r *statusREST) Destroy() {}

// Get returns the whole object.
func (r *statusREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

// Update replaces or patches the status. It never creates an object.
func (r *statusREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, checkedUpdate{info, r.kind}, create, update, false, options)
}

// ConvertToTable prints the object.
func (r *statusREST) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, obj, options)
}

// GetResetFields are the fields an update of the status does not touch.
func (r *statusREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}
