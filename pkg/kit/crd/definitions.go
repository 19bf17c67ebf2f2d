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

// Package crd makes CustomResourceDefinitions from the kinds of a group that is declared in Go.
// With it, an API server can become custom resources again, or be compared with them.
//
// The parts of a definition come from the same sources as in the server. Types, defaults and lists
// come from the generated OpenAPI definitions, and validation from the tags of the versioned types.
// Names, subresources and field selectors come from the declaration. A column is a Go function, so
// it is tried out: it is exported if it shows one field unchanged. Features that a definition can't
// have, or that this package can't find, are returned in sentences.
package crd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/deprecation"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry/definition"
)

// Options has facts that the declaration lacks.
type Options struct {
	// Sources has a directory for each version, with the Go files of its types.
	Sources fs.FS
	// Namespace is the namespace of the Service "webhook", which converts between versions with
	// different types.
	Namespace string
}

// ForGroup returns the definitions of all kinds of a group, and the features of the server that
// they lack.
func ForGroup(group registry.Group, options Options) (crds []*apiextensionsv1.CustomResourceDefinition, findings []string, err error) {
	scheme := runtime.NewScheme()
	group.Install(scheme)
	e := &exporter{
		Options: options, group: group.Name, scheme: scheme,
		models: group.Definitions(func(name string) spec.Ref { return spec.MustCreateRef("#/definitions/" + name) }),
	}
	for _, declaration := range group.Kinds {
		description := declaration.Describe()
		if description.Features == nil {
			e.finding(description.Resource + ": only kinds that are stored can be custom resources")
			continue
		}
		crd, err := e.definition(description)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", description.Resource, err)
		}
		crds = append(crds, crd)
	}
	return crds, e.findings, nil
}

type exporter struct {
	Options
	group    string
	scheme   *runtime.Scheme
	models   models
	findings []string
}

func (e *exporter) finding(sentence string) {
	if !slices.Contains(e.findings, sentence) {
		e.findings = append(e.findings, sentence)
	}
}

func (e *exporter) definition(d registry.Description) (*apiextensionsv1.CustomResourceDefinition, error) {
	kinds, _, err := e.scheme.ObjectKinds(d.New())
	if err != nil {
		return nil, err
	}
	kind := kinds[0].Kind
	crd := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: d.Resource + "." + e.group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: e.group,
			Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Kind: kind, ListKind: kind + "List", Plural: d.Resource, Singular: d.Features.Singular,
				ShortNames: d.Features.ShortNames, Categories: d.Features.Categories,
			},
		},
	}
	if d.Namespaced {
		crd.Spec.Scope = apiextensionsv1.NamespaceScoped
	}
	for _, gv := range e.scheme.PrioritizedVersionsForGroup(e.group) {
		if gvk := gv.WithKind(kind); e.scheme.Recognizes(gvk) {
			version, err := e.version(d, gvk)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", gv.Version, err)
			}
			crd.Spec.Versions = append(crd.Spec.Versions, *version)
		}
	}
	if len(crd.Spec.Versions) == 0 {
		return nil, fmt.Errorf("no version has the kind %s", kind)
	}
	storage := cmp.Or(d.StorageVersion, crd.Spec.Versions[0].Name)
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Storage = crd.Spec.Versions[i].Name == storage
	}
	e.convert(crd)
	e.limits(d)
	return crd, validateDefinition(crd)
}

// version returns one version of a kind.
func (e *exporter) version(d registry.Description, gvk schema.GroupVersionKind) (*apiextensionsv1.CustomResourceDefinitionVersion, error) {
	tags, err := readTags(e.Sources, gvk.Version)
	if err != nil {
		return nil, err
	}
	kept, err := keptVersion(d, gvk)
	if err != nil {
		return nil, err
	}
	props, err := e.schema(kept, gvk, tags)
	if err != nil {
		return nil, err
	}
	version := &apiextensionsv1.CustomResourceDefinitionVersion{
		Name: gvk.Version, Served: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: props},
	}
	object, err := e.scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	// The warning has the words of the server, whatever the release of Kubernetes.
	if _, deprecated := object.(interface{ APILifecycleDeprecated() (major, minor int) }); deprecated {
		object.GetObjectKind().SetGroupVersionKind(gvk)
		warning := deprecation.WarningMessage(object)
		version.Deprecated, version.DeprecationWarning = true, &warning
	}
	p := &prober{exporter: e, gvk: gvk, features: d.Features, schema: props, constants: tags.constants}
	if d.Features.Status {
		version.Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	}
	var scale *apiextensionsv1.CustomResourceSubresourceScale
	if d.Features.StatusReplicas != nil {
		scale = p.scale()
	} else if kept != nil && kept.Subresources != nil {
		scale = kept.Subresources.Scale
	}
	if scale != nil && version.Subresources == nil {
		version.Subresources = &apiextensionsv1.CustomResourceSubresources{}
	}
	if scale != nil {
		version.Subresources.Scale = scale
	}
	if kept != nil && len(d.Features.Columns) == 0 {
		version.AdditionalPrinterColumns = slices.Clone(kept.AdditionalPrinterColumns)
	} else {
		version.AdditionalPrinterColumns = p.columns()
	}
	version.SelectableFields = p.selectable()
	return version, nil
}

// keptVersion returns the version in the Definition of the kind, or nil if the kind has none.
func keptVersion(d registry.Description, gvk schema.GroupVersionKind) (*apiextensionsv1.CustomResourceDefinitionVersion, error) {
	kept, ok := d.Features.Definition.(*definition.Definition)
	if !ok {
		return nil, nil
	}
	crd, err := kept.CRD()
	if err != nil {
		return nil, err
	}
	for i, version := range crd.Spec.Versions {
		if version.Name == gvk.Version && version.Schema != nil {
			return &crd.Spec.Versions[i], nil
		}
	}
	return nil, fmt.Errorf("the definition of the kind %s has no schema of this version", gvk.Kind)
}

// schema returns the schema of the kept version, or one made from the types.
func (e *exporter) schema(kept *apiextensionsv1.CustomResourceDefinitionVersion, gvk schema.GroupVersionKind, tags *tagsOfVersion) (*props, error) {
	if kept != nil {
		return kept.Schema.OpenAPIV3Schema.DeepCopy(), nil
	}
	model, err := e.scheme.ToOpenAPIDefinitionName(gvk)
	if err != nil {
		return nil, err
	}
	converter := &converter{exporter: e, tags: tags, prefix: strings.TrimSuffix(model, gvk.Kind), where: gvk.Version + " " + gvk.Kind}
	return converter.root(model)
}

// convert sets the conversion between versions with different types.
func (e *exporter) convert(crd *apiextensionsv1.CustomResourceDefinition) {
	versions := crd.Spec.Versions
	differ := func(version apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return !reflect.DeepEqual(version.Schema, versions[0].Schema)
	}
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	if !slices.ContainsFunc(versions, differ) {
		return
	}
	path := "/convert"
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: e.Namespace, Name: "webhook", Path: &path}},
		},
	}
	e.finding(fmt.Sprintf("%s: the types of its versions differ, so that a webhook has to convert them, as \"kit create webhook %s\" writes it; the definition names the Service %s/webhook, and needs the caBundle", crd.Spec.Names.Plural, crd.Spec.Names.Kind, e.Namespace))
	// kube-apiserver moves lists that are equal in all versions to the definition, and then misses
	// the schema there (kubernetes/kubernetes#140689).
	last := &versions[len(versions)-1]
	switch equal := !slices.ContainsFunc(versions, func(version apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return !slices.Equal(version.SelectableFields, last.SelectableFields)
	}); {
	case equal && len(last.SelectableFields) > 1:
		last.SelectableFields = slices.Clone(last.SelectableFields)
		slices.Reverse(last.SelectableFields)
	case equal && len(last.SelectableFields) == 1:
		e.finding(fmt.Sprintf("%s: in %s, no field can be selected: kube-apiserver refuses a single field that all versions have (kubernetes/kubernetes#140689)", crd.Spec.Names.Plural, last.Name))
		last.SelectableFields = nil
	}
}

// limits reports the features that no definition can have.
func (e *exporter) limits(d registry.Description) {
	if len(d.Features.Subresources) > 0 {
		e.finding(fmt.Sprintf("%s: a custom resource can't have the subresources %s", d.Resource, strings.Join(d.Features.Subresources, ", ")))
	}
	if d.Features.Validates {
		e.finding(fmt.Sprintf("%s: the rules in Go, of the function Validate, are not exported: write them as rules in CEL, or call them by a webhook", d.Resource))
	}
}

// validateDefinition returns an error if kube-apiserver would refuse the definition.
func validateDefinition(crd *apiextensionsv1.CustomResourceDefinition) error {
	defaulted := crd.DeepCopy()
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(defaulted)
	var internal apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(defaulted, &internal, nil); err != nil {
		return err
	}
	for _, version := range internal.Spec.Versions {
		if version.Storage {
			internal.Status.StoredVersions = []string{version.Name}
		}
	}
	return validation.ValidateCustomResourceDefinition(context.Background(), &internal).ToAggregate()
}

// Write writes the definitions of a group to out, in YAML, and the features that they lack to
// notes.
func Write(out, notes io.Writer, group registry.Group, options Options) error {
	crds, findings, err := ForGroup(group, options)
	if err != nil {
		return err
	}
	for _, finding := range findings {
		fmt.Fprintln(notes, "not exported: "+finding)
	}
	for i, crd := range crds {
		text, err := toYAML(crd)
		if err != nil {
			return err
		}
		if i > 0 {
			fmt.Fprintln(out, "---")
		}
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// toYAML encodes a definition without the fields that kube-apiserver sets.
func toYAML(crd *apiextensionsv1.CustomResourceDefinition) ([]byte, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	if err != nil {
		return nil, err
	}
	delete(object, "status")
	unstructured.RemoveNestedField(object, "metadata", "creationTimestamp")
	return yaml.Marshal(object)
}
