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
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/references"
)

// Reference says that objects of a kind name objects of another kind of the group. A write that names an object is
// refused unless that exists. While it is named, it can't be deleted, nor lose its last finalizer. Both hold however many
// servers write to one etcd, see package references. Names that the stored object has stay valid. Writes of
// subresources are not checked.
type Reference[O Object] struct {
	// Resource is the other kind's. If that is namespaced, the names are of objects in the same namespace.
	Resource string
	// Field is the path of the field that has the names, such as "spec.stationName". It is one of the Indexes of
	// the kind, too.
	Field string
	// Names returns the names. Empty ones refer to nothing.
	Names func(O) []string
}

const (
	// maxUsers is how many objects a refusal counts, and maxNamed how many it names.
	maxUsers, maxNamed = 100, 3
)

// reference is a Reference of a kind of any type.
type reference struct {
	resource, field string
	names           func(runtime.Object) []string
	// from and to are the kinds.
	from, to *objectREST
}

func (k Kind[O]) references(from *objectREST) (all []*reference) {
	for _, declared := range k.References {
		all = append(all, &reference{
			resource: declared.Resource, field: declared.Field, from: from,
			names: func(o runtime.Object) []string { return named(declared.Names(o.(O))) },
		})
	}
	return all
}

// indexes returns the Indexes, with the fields of the References.
func (k Kind[O]) indexes() map[string]func(O) []string {
	all := maps.Clone(k.Indexes)
	for _, declared := range k.References {
		if all == nil {
			all = map[string]func(O) []string{}
		}
		all[declared.Field] = func(o O) []string { return named(declared.Names(o)) }
	}
	return all
}

func named(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "" })
}

// link tells the kinds of a group which others they refer to.
func (g Group) link(storage map[string]rest.Storage) error {
	for _, kind := range g.Kinds {
		from, ok := storage[kind.Describe().Resource].(*objectREST)
		if !ok {
			continue
		}
		for _, r := range from.references {
			if r.to, ok = storage[r.resource].(*objectREST); !ok {
				return fmt.Errorf("%s of %s refers to %q: declare it as a Kind of the group", r.field, from.DefaultQualifiedResource, r.resource)
			}
			if r.to.namespaced && !from.namespaced {
				return fmt.Errorf("%s of %s refers to %q, whose objects are in namespaces: make both Namespaced", r.field, from.DefaultQualifiedResource, r.resource)
			}
			r.to.referrers = append(r.to.referrers, r)
		}
	}
	return nil
}

// creating returns a validation that also refuses names of objects that do not exist.
func (r *objectREST) creating(validate rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, object runtime.Object) error {
		if err := validate(ctx, object); err != nil {
			return err
		}
		return r.requireNamed(ctx, object, nil)
	}
}

// updating returns a validation that also refuses new names of objects that do not exist, and the removal of the last
// finalizer of an object that is named.
func (r *objectREST) updating(validate rest.ValidateObjectUpdateFunc) rest.ValidateObjectUpdateFunc {
	return func(ctx context.Context, object, old runtime.Object) error {
		if err := validate(ctx, object, old); err != nil {
			return err
		}
		to, from := object.(Object), old.(Object)
		if from.GetDeletionTimestamp() != nil && len(to.GetFinalizers()) == 0 {
			if err := r.requireUnused(ctx, old); err != nil {
				return err
			}
		}
		return r.requireNamed(ctx, object, old)
	}
}

// deleting returns a validation that also refuses to delete an object that is named.
func (r *objectREST) deleting(validate rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, object runtime.Object) error {
		if err := validate(ctx, object); err != nil {
			return err
		}
		return r.requireUnused(ctx, object)
	}
}

// requireNamed returns an error unless the objects exist that an object names and the old one, if any, does not. The
// write of the object then fails if they are deleted meanwhile.
func (r *objectREST) requireNamed(ctx context.Context, object, old runtime.Object) error {
	if !references.Checked(ctx) {
		return nil
	}
	namespace, name := object.(Object).GetNamespace(), object.(Object).GetName()
	invalid := func(errs field.ErrorList) error { return apierrors.NewInvalid(r.kind, name, errs) }
	var errs field.ErrorList
	required := map[*objectREST]map[types.NamespacedName]field.ErrorList{}
	for _, reference := range r.references {
		absent := required[reference.to]
		if absent == nil {
			absent = map[types.NamespacedName]field.ErrorList{}
			required[reference.to] = absent
		}
		at, names := field.NewPath(reference.field), sets.New(reference.names(object)...)
		if old != nil {
			names.Delete(reference.names(old)...)
		}
		for _, name := range sets.List(names) {
			found, err := reference.to.find(ctx, name)
			switch {
			case apierrors.IsNotFound(err):
				errs = append(errs, field.NotFound(at, name))
			case err != nil:
				return err
			case found.GetDeletionTimestamp() != nil:
				errs = append(errs, field.Invalid(at, name, "is being deleted"))
			}
			key := reference.to.key(namespace, name)
			absent[key] = append(absent[key], field.NotFound(at, name))
		}
	}
	if len(errs) > 0 {
		return invalid(errs)
	}
	for to, absent := range required {
		references.Require(ctx, to.DefaultQualifiedResource, slices.Collect(maps.Keys(absent)), func(missing []types.NamespacedName) error {
			var errs field.ErrorList
			for _, name := range missing {
				errs = append(errs, absent[name]...)
			}
			return invalid(errs)
		})
	}
	return nil
}

// key is the full name of an object that one in a namespace names.
func (r *objectREST) key(namespace, name string) types.NamespacedName {
	if !r.namespaced {
		namespace = ""
	}
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// find returns an object of the request's namespace.
func (r *objectREST) find(ctx context.Context, name string) (Object, error) {
	if len(content.IsPathSegmentName(name)) > 0 {
		return nil, apierrors.NewNotFound(r.DefaultQualifiedResource, name)
	}
	found, err := r.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return found.(Object), nil
}

// requireUnused returns an error if other objects name this one. Its deletion then fails if one does meanwhile.
func (r *objectREST) requireUnused(ctx context.Context, object runtime.Object) error {
	if len(r.referrers) == 0 || !references.Checked(ctx) {
		return nil
	}
	used := object.(Object)
	if err := references.Unused(ctx, r.DefaultQualifiedResource, r.key(used.GetNamespace(), used.GetName())); err != nil {
		return err
	}
	for _, reference := range r.referrers {
		if err := reference.requireUnused(ctx, used); err != nil {
			return err
		}
	}
	return nil
}

// requireUnused returns a Forbidden if an object is named. The list is consistent, since it has no resourceVersion.
func (r *reference) requireUnused(ctx context.Context, used Object) error {
	listed, err := r.from.List(genericapirequest.WithNamespace(ctx, used.GetNamespace()), &metainternalversion.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(r.field, used.GetName()), Limit: maxUsers + 1,
	})
	if err != nil {
		return err
	}
	var users []Object
	err = meta.EachListItem(listed, func(item runtime.Object) error {
		if user := item.(Object); user.GetUID() != used.GetUID() {
			users = append(users, user)
		}
		return nil
	})
	if err != nil || len(users) == 0 {
		return err
	}
	text := inUse(len(users), r.from.SingularQualifiedResource.Resource, r.from.DefaultQualifiedResource.Resource, r.field, r.from.visible(ctx, users))
	return apierrors.NewForbidden(r.to.DefaultQualifiedResource, used.GetName(), errors.New(text))
}

// inUse says how many objects of a kind name another one by a field, and the visible names of some.
func inUse(count int, singular, plural, by string, visible []string) string {
	text := fmt.Sprintf("%d %s refer to it by %s", min(count, maxUsers), plural, by)
	rest := fmt.Sprintf(" and %d more", count-len(visible))
	switch {
	case count == 1:
		text = fmt.Sprintf("1 %s refers to it by %s", singular, by)
	case count > maxUsers:
		text, rest = "more than "+text, " and others"
	}
	if len(visible) == 0 {
		return text
	}
	text += ": " + strings.Join(visible, ", ")
	if count > len(visible) {
		text += rest
	}
	return text
}

// visible returns the names of some objects that the request's user may read.
func (r *objectREST) visible(ctx context.Context, objects []Object) (names []string) {
	user, ok := genericapirequest.UserFrom(ctx)
	if !ok || r.authorizer == nil {
		return nil
	}
	allowed := map[string]bool{}
	for _, object := range objects {
		namespace := object.GetNamespace()
		if _, asked := allowed[namespace]; !asked && len(allowed) < maxNamed {
			decision, _, err := r.authorizer.Authorize(ctx, authorizer.AttributesRecord{
				User: user, Verb: "get", Namespace: namespace, ResourceRequest: true,
				APIGroup: r.DefaultQualifiedResource.Group, APIVersion: r.version, Resource: r.DefaultQualifiedResource.Resource,
			})
			allowed[namespace] = err == nil && decision == authorizer.DecisionAllow
		}
		if allowed[namespace] && len(names) < maxNamed {
			names = append(names, strings.TrimPrefix(namespace+"/"+object.GetName(), "/"))
		}
	}
	return names
}
