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

package definition

import (
	"slices"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	openapiv2 "k8s.io/apiextensions-apiserver/pkg/controller/openapi/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// OpenAPI implements registry.Schema. It returns the schema that kube-apiserver publishes for the
// definition.
func (s *versionSchema) OpenAPI(ref common.ReferenceCallback) common.OpenAPIDefinition {
	metadata := metav1.ObjectMeta{}.OpenAPIModelName()
	model := func(of *structuralschema.Structural, v2 bool) common.OpenAPIDefinition {
		made := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
		// kubectl would refuse all fields but the named ones.
		if !v2 || !of.XPreserveUnknownFields {
			made = of.ToKubeOpenAPI()
			addMetadata(made, ref(metadata))
			embed(made, ref(metadata), v2)
		}
		return common.OpenAPIDefinition{Schema: *made, Dependencies: []string{metadata}}
	}
	unfolded := s.structural.Unfold()
	return common.EmbedOpenAPIDefinitionIntoV2Extension(model(unfolded, false), model(openapiv2.ToStructuralOpenAPIV2(unfolded), true))
}

// addMetadata adds the fields that every object has.
func addMetadata(to *spec.Schema, metadata spec.Ref) {
	docs := metav1.TypeMeta{}.SwaggerDoc()
	for _, name := range []string{"apiVersion", "kind"} {
		to.SetProperty(name, *spec.StringProperty().WithDescription(docs[name]))
	}
	to.SetProperty("metadata", spec.Schema{SchemaProps: spec.SchemaProps{
		Description: "Standard object's metadata.", Default: map[string]any{}, Ref: metadata,
	}})
}

// embed adds the fields that every object has to embedded resources.
func embed(within *spec.Schema, metadata spec.Ref, v2 bool) {
	for name, property := range within.Properties {
		embed(&property, metadata, v2)
		within.Properties[name] = property
	}
	if within.Items != nil && within.Items.Schema != nil {
		embed(within.Items.Schema, metadata, v2)
	}
	if within.AdditionalProperties != nil && within.AdditionalProperties.Schema != nil {
		embed(within.AdditionalProperties.Schema, metadata, v2)
	}
	is := func(extension string) bool {
		value, found := within.Extensions.GetBool(extension)
		return found && value
	}
	if !is("x-kubernetes-embedded-resource") || v2 && is("x-kubernetes-preserve-unknown-fields") {
		return
	}
	addMetadata(within, metadata)
	for _, name := range []string{"kind", "apiVersion"} {
		if !slices.Contains(within.Required, name) {
			within.Required = append(within.Required, name)
		}
	}
}
