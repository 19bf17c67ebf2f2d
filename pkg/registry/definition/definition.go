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

// Package definition lets a CustomResourceDefinition decide about the objects of a kind that is declared in
// Go. It calls kube-apiserver's code for custom resources, so that both accept and refuse the same objects.
// Servers that don't import it are without that code.
package definition

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// Definition is a CustomResourceDefinition in YAML.
type Definition struct {
	read    func() (*apiextensionsv1.CustomResourceDefinition, error)
	schemas func() (map[string]*versionSchema, error)
}

var _ registry.Definition = &Definition{}

// New returns the definition in a YAML text. The text is parsed on first use, and an error in it keeps the
// server from starting.
func New(text string) *Definition {
	d := &Definition{read: sync.OnceValues(func() (*apiextensionsv1.CustomResourceDefinition, error) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict([]byte(text), crd); err != nil {
			return nil, fmt.Errorf("the CustomResourceDefinition can't be read: %w", err)
		}
		return crd, nil
	})}
	d.schemas = sync.OnceValues(func() (map[string]*versionSchema, error) {
		crd, err := d.read()
		if err != nil {
			return nil, err
		}
		schemas := map[string]*versionSchema{}
		for _, version := range crd.Spec.Versions {
			if schemas[version.Name], err = newSchema(crd, version); err != nil {
				return nil, fmt.Errorf("%s in version %s: %w", crd.Name, version.Name, err)
			}
		}
		return schemas, nil
	})
	return d
}

// CRD returns the CustomResourceDefinition, which must not be changed.
func (d *Definition) CRD() (*apiextensionsv1.CustomResourceDefinition, error) { return d.read() }

// Schema implements registry.Definition.
func (d *Definition) Schema(version string) (registry.Schema, error) {
	schemas, err := d.schemas()
	if err != nil {
		return nil, err
	}
	of, found := schemas[version]
	if !found {
		return nil, fmt.Errorf("it has no version %s: add that to the CustomResourceDefinition", version)
	}
	return of, nil
}

// strategy is how kube-apiserver validates custom resources.
type strategy interface {
	PrepareForCreate(ctx context.Context, obj runtime.Object)
	Validate(ctx context.Context, obj runtime.Object) field.ErrorList
	ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList
}

// versionSchema has the rules of a definition for one version.
type versionSchema struct {
	structural     *structuralschema.Structural
	table          rest.TableConvertor
	scale          *apiextensions.CustomResourceSubresourceScale
	object, status strategy
	// sent has no rules about an old object.
	sent strategy
}

func newSchema(crd *apiextensionsv1.CustomResourceDefinition, version apiextensionsv1.CustomResourceDefinitionVersion) (*versionSchema, error) {
	if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
		return nil, fmt.Errorf("it has no schema")
	}
	var internal apiextensions.CustomResourceDefinitionVersion
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinitionVersion_To_apiextensions_CustomResourceDefinitionVersion(version.DeepCopy(), &internal, nil); err != nil {
		return nil, err
	}
	props := internal.Schema.OpenAPIV3Schema
	structural, err := structuralschema.NewStructural(props)
	if err != nil {
		return nil, err
	}
	// It shares its defaults with the definition.
	structural = structural.DeepCopy()
	if err := defaulting.PruneDefaults(structural); err != nil {
		return nil, err
	}
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, err
	}
	var status *apiextensions.CustomResourceSubresourceStatus
	var scale *apiextensions.CustomResourceSubresourceScale
	var statusValidator validation.SchemaValidator
	if internal.Subresources != nil {
		status, scale = internal.Subresources.Status, internal.Subresources.Scale
	}
	if of, has := props.Properties["status"]; has && status != nil {
		if statusValidator, _, err = validation.NewSchemaValidator(&of); err != nil {
			return nil, err
		}
	}
	kind := schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}
	newStrategy := func(structural *structuralschema.Structural) (object, ofStatus strategy) {
		of := customresource.NewStrategy(nil, crd.Spec.Scope == apiextensionsv1.NamespaceScoped, kind, validator, statusValidator, structural, status, scale, nil)
		return of, customresource.NewStatusStrategy(of)
	}
	made := &versionSchema{structural: structural, scale: scale}
	made.object, made.status = newStrategy(structural)
	made.sent = made.object
	if others, changed := withoutOptionalRules(structural); changed {
		made.sent, _ = newStrategy(others)
	}
	if made.table, err = tableconvertor.New(columns(version)); err != nil {
		return nil, err
	}
	return made, nil
}

// withoutOptionalRules returns a schema without the rules that compare new objects with nothing, and whether there are
// any.
func withoutOptionalRules(structural *structuralschema.Structural) (without *structuralschema.Structural, changed bool) {
	without = structural.DeepCopy()
	drop := func(from *structuralschema.ValidationExtensions) bool {
		before := len(from.XValidations)
		from.XValidations = slices.DeleteFunc(from.XValidations, func(rule apiextensionsv1.ValidationRule) bool {
			return rule.OptionalOldSelf != nil && *rule.OptionalOldSelf
		})
		dropped := len(from.XValidations) < before
		changed = changed || dropped
		return dropped
	}
	(&structuralschema.Visitor{
		Structural:            func(s *structuralschema.Structural) bool { return drop(&s.ValidationExtensions) },
		NestedValueValidation: func(v *structuralschema.NestedValueValidation) bool { return drop(&v.ValidationExtensions) },
	}).Visit(without)
	return without, changed
}

// columns returns the columns that kube-apiserver shows besides the name.
func columns(version apiextensionsv1.CustomResourceDefinitionVersion) []apiextensionsv1.CustomResourceColumnDefinition {
	if len(version.AdditionalPrinterColumns) > 0 {
		return version.AdditionalPrinterColumns
	}
	return []apiextensionsv1.CustomResourceColumnDefinition{{
		Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
	}}
}

// Coerce implements registry.Schema.
func (s *versionSchema) Coerce(object map[string]any) (unknown []string, err error) {
	metadata, hasMetadata, unknown, err := objectmeta.GetObjectMetaWithOptions(object, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return nil, err
	}
	unknown = append(unknown, pruning.PruneWithOptions(object, s.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
	defaulting.PruneNonNullableNullsWithoutDefaults(object, s.structural)
	invalid, embedded := objectmeta.CoerceWithOptions(nil, object, s.structural, false, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if invalid != nil {
		return nil, invalid
	}
	if hasMetadata {
		if err := objectmeta.SetObjectMeta(object, metadata); err != nil {
			return nil, err
		}
	}
	return slices.Concat(unknown, embedded), nil
}

// CheckDefaults implements registry.Schema.
func (s *versionSchema) CheckDefaults(object map[string]any) error {
	return checkDefaults(object, s.structural)
}

// Default implements registry.Schema.
func (s *versionSchema) Default(object map[string]any) { defaulting.Default(object, s.structural) }

// Table implements registry.Schema.
func (s *versionSchema) Table() rest.TableConvertor { return s.table }

// Replicas implements registry.Schema.
func (s *versionSchema) Replicas() (path fieldpath.Path) {
	if s.scale != nil {
		for _, name := range names(s.scale.SpecReplicasPath) {
			path = append(path, fieldpath.PathElement{FieldName: &name})
		}
	}
	return path
}

// SetReplicas implements registry.Schema.
func (s *versionSchema) SetReplicas(object map[string]any, replicas int32) error {
	return unstructured.SetNestedField(object, int64(replicas), names(s.scale.SpecReplicasPath)...)
}

// Scale implements registry.Schema.
func (s *versionSchema) Scale(object map[string]any) (spec autoscalingv1.ScaleSpec, status autoscalingv1.ScaleStatus, err error) {
	if s.scale == nil {
		return spec, status, apierrors.NewNotFound(schema.GroupResource{Resource: "scale"}, "of this version")
	}
	spec.Replicas, err = number(object, s.scale.SpecReplicasPath)
	if err == nil {
		status.Replicas, err = number(object, s.scale.StatusReplicasPath)
	}
	if err == nil && s.scale.LabelSelectorPath != nil {
		status.Selector, _, err = unstructured.NestedString(object, names(*s.scale.LabelSelectorPath)...)
	}
	return spec, status, err
}

// number returns the integer at a path, or 0 without one. Stored integers may exceed the range of a Scale.
func number(object map[string]any, path string) (int32, error) {
	found, _, err := unstructured.NestedInt64(object, names(path)...)
	return int32(max(min(found, math.MaxInt32), math.MinInt32)), err
}

// names returns the field names on a JSON path, which has no lists.
func names(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// ValidateSent implements registry.Schema.
func (s *versionSchema) ValidateSent(ctx context.Context, object map[string]any, status bool) field.ErrorList {
	created := &unstructured.Unstructured{Object: object}
	if !status {
		s.object.PrepareForCreate(ctx, created) // Which drops a status that has a subresource.
	}
	return s.sent.Validate(ctx, created)
}

// Validate implements registry.Schema.
func (s *versionSchema) Validate(ctx context.Context, object, old map[string]any, status bool) field.ErrorList {
	of := s.object
	if status {
		of = s.status
	}
	if old == nil {
		created := &unstructured.Unstructured{Object: object}
		s.object.PrepareForCreate(ctx, created) // Which drops a status that has a subresource.
		return of.Validate(ctx, created)
	}
	return of.ValidateUpdate(ctx, &unstructured.Unstructured{Object: object}, &unstructured.Unstructured{Object: old})
}
