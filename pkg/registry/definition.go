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
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	runtimejson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kube-openapi/pkg/common"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Definition decides which objects of a kind are valid in each version. Package definition makes one from a
// CustomResourceDefinition.
type Definition interface {
	// Schema returns the schema of a version.
	Schema(version string) (Schema, error)
}

// Schema has the rules of a Definition for one version. It gets objects as JSON values, which distinguish null,
// missing and empty.
type Schema interface {
	// Coerce drops unknown fields, and returns their paths.
	Coerce(object map[string]any) (unknown []string, err error)
	// CheckDefaults returns an error if Default would add too much.
	CheckDefaults(object map[string]any) error
	// Default fills in missing fields.
	Default(object map[string]any)
	// Validate returns the errors of an object, which it may change. Old is the object that it replaces, or nil. For an
	// update of /status, status is true.
	Validate(ctx context.Context, object, old map[string]any, status bool) field.ErrorList
	// ValidateSent returns the errors of an object in a request, but for rules about an old object. For an update of
	// /status, status is true.
	ValidateSent(ctx context.Context, object map[string]any, status bool) field.ErrorList
	// Table prints objects of the version, and lists of them, in the columns of the version.
	Table() rest.TableConvertor
	// Replicas is the path of the number of replicas that /scale writes, or nil without /scale.
	Replicas() fieldpath.Path
	// SetReplicas changes that number.
	SetReplicas(object map[string]any, replicas int32) error
	// Scale returns the spec and the status of /scale for an object, or 404 without /scale.
	Scale(object map[string]any) (autoscalingv1.ScaleSpec, autoscalingv1.ScaleStatus, error)
	// OpenAPI returns the schema for OpenAPI documents.
	OpenAPI(ref common.ReferenceCallback) common.OpenAPIDefinition
}

var errNoVersion = errors.New("the request has no version")

// schemas returns the schemas of all kinds with a Definition, in all versions.
func (g Group) schemas(scheme *runtime.Scheme) (map[schema.GroupVersionKind]Schema, error) {
	all := map[schema.GroupVersionKind]Schema{}
	for _, kind := range g.Kinds {
		features := kind.Describe().Features
		if features == nil || features.Definition == nil {
			continue
		}
		gvk, err := internalKind(scheme, kind)
		if err != nil {
			return nil, err
		}
		for _, version := range scheme.PrioritizedVersionsForGroup(g.Name) {
			versioned := version.WithKind(gvk.Kind)
			if !scheme.Recognizes(versioned) {
				continue
			}
			if all[versioned], err = features.Definition.Schema(version.Version); err != nil {
				return nil, fmt.Errorf("the definition of %s: %w", versioned, err)
			}
		}
	}
	return all, nil
}

// installDefaults makes the scheme fill in the defaults of definitions, after the defaults of the types.
func (g Group) installDefaults(scheme *runtime.Scheme) error {
	schemas, err := g.schemas(scheme)
	if err != nil || len(schemas) == 0 {
		return err
	}
	// A scheme has one defaulting function for each type.
	typed := runtime.NewScheme()
	g.Install(typed)
	for gvk, of := range schemas {
		object, err := scheme.New(gvk)
		if err != nil {
			return err
		}
		scheme.AddTypeDefaultingFunc(object, func(object any) {
			typed.Default(object.(runtime.Object))
			fields, err := toFields(object)
			if err == nil {
				err = of.CheckDefaults(fields)
			}
			if err == nil {
				of.Default(fields)
				err = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, object)
			}
			if err != nil {
				utilruntime.HandleError(fmt.Errorf("the defaults of %s: %w", gvk, err))
			}
		})
	}
	return nil
}

func toFields(object any) (map[string]any, error) {
	return runtime.DefaultUnstructuredConverter.ToUnstructured(object)
}

// Definitions returns the OpenAPI definitions of the group's types, and of the types of Kubernetes that all groups have.
func (g Group) Definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	all := openapi.GetOpenAPIDefinitions(ref)
	maps.Copy(all, g.OpenAPI(ref))
	return all
}

// Models returns the OpenAPI definitions of the group's types, with the schemas of Definitions for kinds that have
// one. It returns an error if a type and its Definition have different fields. The scheme must have the types.
func (g Group) Models(scheme *runtime.Scheme) (common.GetOpenAPIDefinitions, error) {
	schemas, err := g.schemas(scheme)
	if err != nil {
		return nil, err
	}
	names, typed := map[schema.GroupVersionKind]string{}, g.Definitions(refer)
	for gvk, of := range schemas {
		if names[gvk], err = scheme.ToOpenAPIDefinitionName(gvk); err != nil {
			return nil, err
		}
		if err := checkDefined(gvk, names[gvk], typed, of); err != nil {
			return nil, err
		}
	}
	return func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		models := g.Definitions(ref)
		for gvk, of := range schemas {
			models[names[gvk]] = of.OpenAPI(ref)
		}
		return models
	}, nil
}

// Serializer returns a serializer that decodes objects of kinds with a Definition by its schemas, and everything
// else as the given one does. The scheme must have the types.
func (g Group) Serializer(scheme *runtime.Scheme, serializer runtime.NegotiatedSerializer) (runtime.NegotiatedSerializer, error) {
	schemas, err := g.schemas(scheme)
	if err != nil || len(schemas) == 0 {
		return serializer, err
	}
	typed := runtimejson.NewSerializerWithOptions(runtimejson.DefaultMetaFactory, scheme, scheme, runtimejson.SerializerOptions{})
	return definedSerializer{serializer, schemas, typed}, nil
}

type definedSerializer struct {
	runtime.NegotiatedSerializer
	schemas map[schema.GroupVersionKind]Schema
	typed   runtime.Decoder
}

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (s definedSerializer) DecoderToVersion(decoder runtime.Decoder, version runtime.GroupVersioner) runtime.Decoder {
	strict := slices.ContainsFunc(s.SupportedMediaTypes(), func(of runtime.SerializerInfo) bool { return of.StrictSerializer == decoder })
	return s.NegotiatedSerializer.DecoderToVersion(definedDecoder{decoder, s.schemas, s.typed, strict}, version)
}

// definedDecoder decodes bodies of requests and results of JSON patches. It validates only fields that would be lost
// in Go: everything else is validated after admission.
type definedDecoder struct {
	runtime.Decoder
	schemas map[schema.GroupVersionKind]Schema
	typed   runtime.Decoder
	// strict is true if unknown fields are errors.
	strict bool
}

// ofStatus returns the kind of an empty object into which an update of /status is decoded. Nothing else tells the decoder.
func ofStatus() schema.GroupVersionKind { return schema.GroupVersionKind{Kind: "status"} }

// Decode implements runtime.Decoder.
func (d definedDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	status := into != nil && into.GetObjectKind().GroupVersionKind() == ofStatus()
	if status {
		into.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	sent := &unstructured.Unstructured{}
	_, gvk, err := d.Decoder.Decode(data, nil, sent)
	twice, isStrict := runtime.AsStrictDecodingError(err)
	if err != nil && !isStrict || d.schemas[*gvk] == nil {
		if defaults == nil || d.schemas[*defaults] == nil {
			return d.Decoder.Decode(data, defaults, into)
		}
		// Definitions add no missing kind and no missing version.
		if err == nil && gvk.Version == "" {
			err = runtime.NewMissingVersionErr(string(data))
		}
		if err != nil {
			return nil, defaults, err
		}
		return d.Decoder.Decode(data, defaults, into)
	}
	of := d.schemas[*gvk]
	unknown, err := of.Coerce(sent.Object)
	if err != nil {
		return nil, gvk, err
	}
	if err := of.CheckDefaults(sent.Object); err != nil {
		return nil, gvk, err
	}
	of.Default(sent.Object)
	coerced, err := json.Marshal(sent.Object)
	if err != nil {
		return nil, gvk, err
	}
	object, _, err := d.typed.Decode(coerced, gvk, into)
	if err != nil {
		return nil, gvk, err
	}
	if err := validateLost(of, sent.Object, object, status); err != nil {
		return nil, gvk, err
	}
	if !d.strict {
		return object, gvk, nil
	}
	var errs []error
	if isStrict {
		errs = twice.Errors()
	}
	for _, path := range unknown {
		errs = append(errs, fmt.Errorf("unknown field %q", path))
	}
	if len(errs) > 0 {
		return object, gvk, runtime.NewStrictDecodingError(errs)
	}
	return object, gvk, nil
}

// validateLost returns the errors of an object as it was sent, if its Go type can't hold all of it. It leaves out errors
// of other fields, which are validated after admission, and beside the old object. An update of /status has no others.
func validateLost(of Schema, sent map[string]any, object runtime.Object, status bool) error {
	kept, err := toFields(object)
	if err != nil {
		return err
	}
	var lost []string
	for name, value := range kept {
		// Structs and nulls are written even if they were not sent. Other such fields are validated as they are written.
		_, isStruct := value.(map[string]any)
		if _, isSent := sent[name]; (isStruct || value == nil) && !isSent && name != "metadata" {
			lost = append(lost, name)
		}
	}
	for name, value := range sent {
		if name != "metadata" {
			lost = append(lost, lostIn(value, kept[name], name)...)
		}
	}
	if status {
		lost = slices.DeleteFunc(lost, func(path string) bool { return !concerns("status", path) })
	}
	if len(lost) == 0 {
		return nil
	}
	// Without metadata, which the rest of the request completes, validation would skip rules.
	metadata := map[string]any{"name": "unnamed", "namespace": "unnamed"}
	if of, ok := sent["metadata"].(map[string]any); ok {
		maps.Copy(metadata, of)
	}
	complete := maps.Clone(sent)
	complete["metadata"] = metadata
	errs := slices.DeleteFunc(of.ValidateSent(context.Background(), complete, status), func(err *field.Error) bool {
		return !slices.ContainsFunc(lost, func(path string) bool { return concerns(err.Field, path) })
	})
	// One without a field and a value only tells that there are other errors.
	if !slices.ContainsFunc(errs, func(err *field.Error) bool { return err.BadValue != nil || !isRoot(err.Field) }) {
		return nil
	}
	return errs.ToAggregate()
}

// concerns reports whether an error of a field is about a path, or what is above or below.
func concerns(field, path string) bool {
	// Errors of a scale are about JSON paths.
	field = strings.TrimPrefix(strings.NewReplacer("[", ".", "]", "").Replace(field), ".")
	return isRoot(field) || strings.HasPrefix(field+".", path+".") || strings.HasPrefix(path+".", field+".")
}

func isRoot(field string) bool { return field == "" || field == "<nil>" }

// lostIn returns the paths of what the decoded value lacks of the one that was sent, and of nulls that it adds.
func lostIn(sent, kept any, path string) (lost []string) {
	switch sent := sent.(type) {
	case map[string]any:
		kept, ok := kept.(map[string]any)
		if !ok {
			return []string{path}
		}
		for name, value := range sent {
			if other, found := kept[name]; found {
				lost = append(lost, lostIn(value, other, path+"."+name)...)
			} else {
				lost = append(lost, path+"."+name)
			}
		}
		for name, value := range kept {
			// A field that may be null, but not missing, is written as null.
			if _, isSent := sent[name]; !isSent && value == nil {
				lost = append(lost, path+"."+name)
			}
		}
		return lost
	case []any:
		kept, ok := kept.([]any)
		if !ok || len(kept) != len(sent) {
			return []string{path}
		}
		for i := range sent {
			lost = append(lost, lostIn(sent[i], kept[i], fmt.Sprintf("%s.%d", path, i))...)
		}
		return lost
	case int64:
		// Numbers that may have fractions are float64 in Go, and the same for all rules.
		if kept, ok := kept.(float64); ok && kept == float64(sent) && int64(kept) == sent {
			return nil
		}
	}
	// CEL rules distinguish 1.0 from 1.
	if sent != kept {
		return []string{path}
	}
	return nil
}

// addDefined adds the errors of the kind's Definition in the version of the request. It leaves out those that the kind
// has found.
func (s strategy[O]) addDefined(ctx context.Context, obj, old runtime.Object, errs field.ErrorList) field.ErrorList {
	type place struct {
		of    field.ErrorType
		field string
	}
	known := sets.New[place]()
	for _, err := range errs {
		known.Insert(place{err.Type, err.Field})
	}
	for _, err := range s.validateDefined(ctx, obj, old) {
		if !known.Has(place{err.Type, err.Field}) {
			errs = append(errs, err)
		}
	}
	return errs
}

func (s strategy[O]) validateDefined(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	if s.kind.Definition == nil {
		return nil
	}
	of, _, object, err := s.definedFields(ctx, obj)
	var before map[string]any
	if err == nil && old != nil {
		_, _, before, err = s.definedFields(ctx, old)
	}
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	// Decoding checks only bodies that are whole objects, so not the bodies of server-side apply.
	if err := of.CheckDefaults(object); err != nil {
		return field.ErrorList{field.Forbidden(nil, err.Error())}
	}
	info, _ := genericapirequest.RequestInfoFrom(ctx)
	return of.Validate(ctx, object, before, info.Subresource == "status")
}

// defined returns the schema for the version of the request, and the object in that version.
func (s strategy[O]) defined(ctx context.Context, obj runtime.Object) (Schema, runtime.Object, error) {
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	if !ok {
		return nil, nil, errNoVersion
	}
	of, err := s.kind.Definition.Schema(info.APIVersion)
	if err != nil {
		return nil, nil, err
	}
	versioned, err := s.ConvertToVersion(obj, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion})
	return of, versioned, err
}

// definedFields returns the results of defined, and the fields of the object in that version.
func (s strategy[O]) definedFields(ctx context.Context, obj runtime.Object) (of Schema, versioned runtime.Object, fields map[string]any, err error) {
	if of, versioned, err = s.defined(ctx, obj); err == nil {
		fields, err = toFields(versioned)
	}
	return of, versioned, fields, err
}

// definedTable prints objects in the columns that the kind's Definition has in the version of the request.
type definedTable[O Object] struct{ strategy[O] }

// ConvertToTable implements rest.TableConvertor.
func (t definedTable[O]) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	of, versioned, err := t.defined(ctx, obj)
	if err != nil {
		return nil, err
	}
	return of.Table().ConvertToTable(ctx, versioned, options)
}
