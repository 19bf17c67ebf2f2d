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
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// checkDefined returns an error if a type and its definition have different fields. Objects would silently lose
// those that only one of them has. Model is the name of the type among the models of the group.
func checkDefined(kind schema.GroupVersionKind, model string, models map[string]common.OpenAPIDefinition, of Schema) error {
	d := &difference{models: models, own: model[:strings.LastIndexByte(model, '.')+1]}
	typed := models[model].Schema
	defined := of.OpenAPI(refer).Schema
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		delete(defined.Properties, name)
	}
	// A definition with the subresource needs no schema of the status.
	d.compare("", typed, defined, []string{"apiVersion", "kind", "metadata", "status"})
	if len(d.problems) == 0 {
		return nil
	}
	return fmt.Errorf("the Go type of %s and its definition have different fields, which objects would lose: %s", kind, strings.Join(d.problems, "; "))
}

// refer returns a reference that difference.resolve reads.
func refer(model string) spec.Ref { return spec.MustCreateRef("#/" + model) }

// difference collects the fields that only a type or only a definition has.
type difference struct {
	models map[string]common.OpenAPIDefinition
	// own is the prefix of the models that belong to the module.
	own      string
	problems []string
}

// resolve returns the model of a type. It returns false for types of other modules, whose fields may differ.
func (d *difference) resolve(typed spec.Schema) (spec.Schema, bool) {
	name := strings.TrimPrefix(typed.Ref.String(), "#/")
	if name == "" {
		return typed, true
	}
	model, found := d.models[name]
	return model.Schema, found && strings.HasPrefix(name, d.own)
}

// compare reports the differences at a path. It ignores the properties in except.
func (d *difference) compare(path string, typed, defined spec.Schema, except []string) {
	typed, own := d.resolve(typed)
	if !own {
		return
	}
	if typed.Items != nil && typed.Items.Schema != nil && defined.Items != nil && defined.Items.Schema != nil {
		d.compare(path+"[]", *typed.Items.Schema, *defined.Items.Schema, nil)
	}
	if typed.AdditionalProperties != nil && typed.AdditionalProperties.Schema != nil && defined.AdditionalProperties != nil && defined.AdditionalProperties.Schema != nil {
		d.compare(path+"{}", *typed.AdditionalProperties.Schema, *defined.AdditionalProperties.Schema, nil)
	}
	for _, name := range slices.Sorted(maps.Keys(defined.Properties)) {
		at := strings.TrimPrefix(path+"."+name, ".")
		if property, has := typed.Properties[name]; has {
			d.compare(at, property, defined.Properties[name], nil)
		} else if typed.AdditionalProperties == nil {
			d.problems = append(d.problems, fmt.Sprintf("%s is only in the definition: add it to the type, or remove it there", at))
		}
	}
	if keeps, _ := defined.Extensions.GetBool("x-kubernetes-preserve-unknown-fields"); keeps || defined.AdditionalProperties != nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(typed.Properties)) {
		if _, has := defined.Properties[name]; !has && !slices.Contains(except, name) {
			d.problems = append(d.problems, fmt.Sprintf("%s is only in the type: add it to the definition, or remove it there", strings.TrimPrefix(path+"."+name, ".")))
		}
	}
}
