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
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// strategy creates, updates and deletes objects of any kind.
type strategy[O Object] struct {
	rest.DeclarativeValidation
	names.NameGenerator
	kind *Kind[O]
	// createOnUpdate lets updates create objects.
	createOnUpdate bool
	// reset are the fields that this strategy takes from the stored object instead of the
	// request. Server-side apply gives them no owner.
	reset map[fieldpath.APIVersion]*fieldpath.Set
	// fresh has the status of a new object.
	fresh O
}

var (
	_ rest.RESTCreateStrategy            = strategy[Object]{}
	_ rest.RESTUpdateStrategy            = strategy[Object]{}
	_ rest.RESTDeleteStrategy            = strategy[Object]{}
	_ rest.ResetFieldsStrategy           = strategy[Object]{}
	_ rest.DeclarativeValidationStrategy = strategy[Object]{}
	_ rest.RESTUpdateStrategy            = statusStrategy[Object]{}
	_ rest.ResetFieldsStrategy           = statusStrategy[Object]{}
)

func newStrategy[O Object](kind *Kind[O], scheme *runtime.Scheme, versions []schema.GroupVersion) strategy[O] {
	s := strategy[O]{
		DeclarativeValidation: rest.DeclarativeValidation{Scheme: scheme},
		NameGenerator:         names.SimpleNameGenerator,
		kind:                  kind,
		createOnUpdate:        kind.AllowCreateOnUpdate,
	}
	if kind.KeepStatus != nil {
		s.reset = inAllVersions(versions, "status")
	}
	return s
}

func inAllVersions(versions []schema.GroupVersion, topLevelFields ...string) map[fieldpath.APIVersion]*fieldpath.Set {
	paths := fieldpath.NewSet()
	for _, name := range topLevelFields {
		paths.Insert(fieldpath.MakePathOrDie(name))
	}
	sets := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, version := range versions {
		sets[fieldpath.APIVersion(version.String())] = paths
	}
	return sets
}

func (s strategy[O]) NamespaceScoped() bool { return s.kind.Namespaced }

// AllowCreateOnUpdate is false by default: a PUT to a name that does not exist is NotFound.
func (s strategy[O]) AllowCreateOnUpdate(context.Context) bool { return s.createOnUpdate }

// AllowUnconditionalUpdate is false, as for custom resources. A PUT without
// metadata.resourceVersion would overwrite changes that its author has not seen.
func (strategy[O]) AllowUnconditionalUpdate(context.Context) bool { return false }

func (strategy[O]) Canonicalize(runtime.Object) {}

func (s strategy[O]) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	var none O
	return s.warnings(ctx, obj.(O), none)
}

func (s strategy[O]) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	return s.warnings(ctx, obj.(O), old.(O))
}

func (s strategy[O]) warnings(ctx context.Context, o, old O) []string {
	if s.kind.Warnings == nil {
		return nil
	}
	return s.kind.Warnings(ctx, o, old)
}

func (s strategy[O]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set { return s.reset }

// PrepareForCreate replaces the status of the request with the status of a new object.
func (s strategy[O]) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	o := obj.(O)
	o.SetGeneration(1)
	if s.kind.KeepStatus != nil {
		s.kind.KeepStatus(o, s.fresh.DeepCopyObject().(O))
	}
	if s.kind.Prepare != nil {
		var none O
		s.kind.Prepare(ctx, o, none)
	}
}

// PrepareForUpdate keeps the status, and increases the generation if the spec changes.
func (s strategy[O]) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	to, from := obj.(O), old.(O)
	if s.kind.KeepStatus != nil {
		s.kind.KeepStatus(to, from)
	}
	if s.kind.Prepare != nil {
		s.kind.Prepare(ctx, to, from)
	}
	equal := equality.Semantic.DeepEqual
	if s.kind.Definition != nil {
		// Custom resources distinguish empty lists from missing ones.
		equal = equality.Semantic.DeepEqualWithNilDifferentFromEmpty
	}
	if !equal(s.kind.Spec(to), s.kind.Spec(from)) {
		to.SetGeneration(from.GetGeneration() + 1)
	}
}

// Validate checks a new object. Unlike the store alone it answers an object with a
// resourceVersion with 422. By default it accepts only names that can be part of a host
// name.
// Upstream fault 15.
func (s strategy[O]) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	o := obj.(O)
	metadata := field.NewPath("metadata")
	validName := s.kind.ValidateName
	if validName == nil {
		validName = validation.NameIsDNSSubdomain
	}
	errs := validation.ValidateObjectMetaAccessor(o, s.kind.Namespaced, validName, metadata)
	if version := o.GetResourceVersion(); version != "" {
		errs = append(errs, field.Invalid(metadata.Child("resourceVersion"), version, "must not be set on objects to be created"))
	}
	var none O
	return append(errs, s.kind.validate(ctx, o, none)...)
}

// checkUnstored checks an Action or a Review. As it is never stored, its fields have no
// owners and it needs no name.
func (s strategy[O]) checkUnstored(ctx context.Context, o O) error {
	o.SetManagedFields(nil)
	name := o.GetName()
	if name == "" {
		o.SetName("unnamed")
		defer o.SetName("")
	}
	errs := rest.ValidateCreate(ctx, o, s)
	if len(errs) == 0 {
		return nil
	}
	return invalid(s.Scheme, o, name, errs)
}

// ValidateUpdate checks the new object, also against the stored one. The caller has already
// checked the metadata. While the spec stays as it is, errors that the stored object has, too, are
// none: it can lose a finalizer and be deleted under stricter rules.
func (s strategy[O]) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	o, from := obj.(O), old.(O)
	errs := s.kind.validate(ctx, o, from)
	if len(errs) == 0 || !equality.Semantic.DeepEqual(s.kind.Spec(o), s.kind.Spec(from)) {
		return errs
	}
	stored := s.kind.validate(ctx, from, from)
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		return slices.ContainsFunc(stored, func(other *field.Error) bool { return err.Error() == other.Error() })
	})
}

func (k *Kind[O]) validate(ctx context.Context, o, old O) field.ErrorList {
	if k.Validate == nil {
		return nil
	}
	return k.Validate(ctx, o, old)
}

// DeclarativeValidationConfig returns the enabled options of the validation tags.
func (s strategy[O]) DeclarativeValidationConfig(ctx context.Context, obj, old runtime.Object) rest.DeclarativeValidationConfig {
	if s.kind.ValidationOptions == nil {
		return rest.DeclarativeValidationConfig{}
	}
	from, _ := old.(O)
	return rest.DeclarativeValidationConfig{Options: s.kind.ValidationOptions(ctx, obj.(O), from)}
}

// ValidateDeclaratively runs the generated validation of the requested version. A
// subresource writes the whole object. Therefore all tags apply, also those that don't list
// the subresource.
func (s strategy[O]) ValidateDeclaratively(ctx context.Context, obj, old runtime.Object, errs field.ErrorList, op operation.Type, config rest.DeclarativeValidationConfig) field.ErrorList {
	// k8s.io/apiserver marks errors that tags on its own metadata would find too. No tags of a
	// kind's type do, and each such error of a client would be logged as a fault of the
	// server.
	// Upstream fault 26.
	for _, err := range errs {
		err.CoveredByDeclarative = false
	}
	errs = s.DeclarativeValidation.ValidateDeclaratively(withoutSubresource(ctx), obj, old, errs, op, config)
	return s.addDefined(ctx, obj, old, errs)
}

func withoutSubresource(ctx context.Context) context.Context {
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	if !ok || info.Subresource == "" {
		return ctx
	}
	whole := *info
	whole.Subresource = ""
	return genericapirequest.WithRequestInfo(ctx, &whole)
}

// statusStrategy is strategy for updates of /status: they change nothing else.
type statusStrategy[O Object] struct {
	strategy[O]
}

func newStatusStrategy[O Object](main strategy[O], versions []schema.GroupVersion) statusStrategy[O] {
	main.reset = inAllVersions(versions, "metadata", "spec")
	main.createOnUpdate = false
	return statusStrategy[O]{main}
}

// WarningsOnUpdate is empty: the author of a status can't correct the rest.
func (statusStrategy[O]) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// gracefulStrategy is strategy for deletions of kinds with a grace period.
type gracefulStrategy[O Object] struct {
	strategy[O]
}

var _ rest.RESTGracefulDeleteStrategy = gracefulStrategy[Object]{}

func (s gracefulStrategy[O]) CheckGracefulDelete(ctx context.Context, obj runtime.Object, options *metav1.DeleteOptions) bool {
	return s.kind.CheckGracefulDelete(ctx, obj.(O), options)
}

// PrepareForUpdate keeps all but the status and the managed fields.
func (s statusStrategy[O]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	to, from := obj.(O), old.(O)
	s.kind.KeepSpec(to, from)
	metav1.ResetObjectMetaForStatus(to, from)
}

// attributes returns the labels and fields that selectors match.
func (k *Kind[O]) attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	o := obj.(O)
	set := make(fields.Set, len(k.Fields)+len(k.Indexes)+2)
	set["metadata.name"] = o.GetName()
	if k.Namespaced {
		set["metadata.namespace"] = o.GetNamespace()
	}
	for label, value := range k.Fields {
		set[label] = value(o)
	}
	for label, values := range k.Indexes {
		set[label] = joinValues(values(o))
	}
	return o.GetLabels(), set, nil
}
