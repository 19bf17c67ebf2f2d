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

package conformance

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	utilproto "k8s.io/kube-openapi/pkg/util/proto"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

const (
	openAPIDocument = "https://kubernetes.io/docs/concepts/overview/kubernetes-api/"
	// kindExtension is the extension that has the kind of a model or of an operation.
	kindExtension = "x-kubernetes-group-version-kind"
)

func openAPIChecks() []Check {
	return []Check{
		basic("openapi/v3-index", openAPIDocument+"#openapi-v3", "",
			"The index of OpenAPI v3 has the group version. Its address is that of a document for good, and an old one leads to the current one.", func(p *Probe) {
				current := p.openAPIAddress()
				answer := p.Decode(p.Do(http.MethodGet, current, nil), http.StatusOK, nil)
				p.Require(answer, strings.Contains(strings.Join(answer.Header.Values("Cache-Control"), ","), "immutable"), "Cache-Control: public, immutable is expected, as the address has the document's hash")
				path, _, _ := strings.Cut(current, "?")
				old := p.Do(http.MethodGet, path+"?hash=OLD", nil)
				redirected := old.Code == http.StatusMovedPermanently && old.Header.Get("Location") == current
				p.Require(old, redirected || old.Code == http.StatusOK && bytes.Equal(old.Body, answer.Body), "the current document is expected, or a redirect to %s", current)
			}),
		basic("openapi/v3-references", "https://spec.openapis.org/oas/v3.0.0#reference-object", "",
			"Each reference of the OpenAPI v3 document leads to a part of the document.", func(p *Probe) {
				p.references(p.Do(http.MethodGet, p.openAPIAddress(), nil))
			}),
		basic("openapi/v3-paths", openAPIDocument+"#openapi-v3", "kind",
			"The OpenAPI v3 document has an operation for each verb that discovery lists, with the kind that it is about.", func(p *Probe) {
				answer, document := p.openAPI()
				collection := root(p.GroupVersion())
				if p.Namespaced {
					collection += "/namespaces/{namespace}"
				}
				collection += "/" + p.GroupVersionResource.Resource
				object, list := document.Paths.Paths[collection+"/{name}"], document.Paths.Paths[collection]
				if object == nil {
					object = &spec3.Path{}
				}
				p.Require(answer, list != nil, "the path %s is expected", collection)
				for verb, operation := range map[string]*spec3.Operation{
					"get": object.Get, "update": object.Put, "patch": object.Patch, "delete": object.Delete,
					"list": list.Get, "create": list.Post, "deletecollection": list.Delete,
				} {
					if !slices.Contains(p.Discovered.Verbs, verb) {
						continue
					}
					p.Require(answer, operation != nil, "an operation for %q is expected below %s", verb, collection)
					p.Equal(answer, "the kind of the operation for "+verb, kindOf(p.GroupVersionKind()), operation.Extensions[kindExtension])
				}
			}),
		basic("openapi/v3-object", "https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy", "create get",
			"An object that the API returns fits the model of its kind. With it, clients merge as the server does.", func(p *Probe) {
				_, document := p.openAPI()
				answer := p.Post(p.New("a"))
				_, err := typedBy(document, p.Object(answer, http.StatusCreated))
				p.Require(answer, err == nil, "an object that fits OpenAPI v3 is expected: %v", err)
			}),
		basic("openapi/v2-references", "https://spec.openapis.org/oas/v2.0.html#reference-object", "",
			"Each reference of the OpenAPI v2 document, which is one for the cluster, leads to a part of the document.", func(p *Probe) { p.references(p.Do(http.MethodGet, "/openapi/v2", nil)) }),
		basic("openapi/v2-models", openAPIDocument+"#openapi-v2", "kind",
			"The models of the OpenAPI v2 document can be read, and one of them is the kind's: no two models have one kind.", func(p *Probe) {
				answer := p.Do(http.MethodGet, "/openapi/v2", nil, Header("Accept", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"))
				document := &openapiv2.Document{}
				err := proto.Unmarshal(answer.Body, document)
				p.Require(answer, answer.Code == http.StatusOK && err == nil, "an OpenAPI document as protobuf is expected: %v", err)
				models, err := utilproto.NewOpenAPIData(document)
				p.Require(answer, err == nil, "models that can be read are expected: %v", err)
				parser, err := managedfields.NewGVKParser(models, false)
				p.Require(answer, err == nil, "models that kinds can be found by are expected: %v", err)
				p.Require(answer, parser.Type(p.GroupVersionKind()) != nil, "a model of %v is expected", p.GroupVersionKind())
			}),
		basic("openapi/agreement", openAPIDocument+"#openapi-interface-definition", "kind",
			"A kind has one model in OpenAPI v2 and one in v3, with the same fields: \"kubectl explain\" shows one of them.", func(p *Probe) {
				answer, document := p.openAPI()
				var old spec.Swagger
				p.Decode(p.Do(http.MethodGet, "/openapi/v2", nil), http.StatusOK, &old)
				definitions := map[string]*spec.Schema{}
				for name, definition := range old.Definitions {
					definitions[name] = &definition
				}
				models, before := modelsOf(document.Components.Schemas, p.GroupVersionKind()), modelsOf(definitions, p.GroupVersionKind())
				p.Require(answer, len(models) == 1 && len(before) == 1, "one model of the kind is expected in each version of OpenAPI: %d in v2, %d in v3", len(before), len(models))
				want, got := fields(definitions, before[0]), fields(document.Components.Schemas, models[0])
				p.Equal(answer, "the fields of the kind, as in OpenAPI v2", slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
				for name, below := range want {
					// OpenAPI v2 leaves out fields that it can't express.
					if len(below) > 0 {
						p.Equal(answer, "the fields of "+name+", as in OpenAPI v2", below, got[name])
					}
				}
			}),
	}
}

// openAPIAddress returns the address of the OpenAPI v3 document of the group version, with its hash.
func (p *Probe) openAPIAddress() string {
	var list handler3.OpenAPIV3Discovery
	index := p.Do(http.MethodGet, "/openapi/v3", nil)
	// kube-apiserver says that the index is text.
	err := json.Unmarshal(index.Body, &list)
	p.Require(index, index.Code == http.StatusOK && err == nil, "an index as JSON is expected: %v", err)
	entry, found := list.Paths[strings.TrimPrefix(root(p.GroupVersion()), "/")]
	p.Require(index, found, "the path of %s is expected", p.GroupVersion())
	return entry.ServerRelativeURL
}

// openAPI returns the OpenAPI v3 document of the group version.
func (p *Probe) openAPI() (Answer, *spec3.OpenAPI) {
	document := &spec3.OpenAPI{}
	answer := p.Decode(p.Do(http.MethodGet, p.openAPIAddress(), nil), http.StatusOK, document)
	p.Require(answer, document.Components != nil && document.Paths != nil, "components and paths are expected")
	return answer, document
}

// typedBy returns an object as a value with the types of a document.
func typedBy(document *spec3.OpenAPI, object *unstructured.Unstructured) (*typed.TypedValue, error) {
	converter, err := managedfields.NewTypeConverter(document.Components.Schemas, false)
	if err != nil {
		return nil, err
	}
	return converter.ObjectToTyped(object)
}

// references ends the check unless each reference of a document leads to a part of it.
func (p *Probe) references(answer Answer) {
	var document map[string]any
	p.Decode(answer, http.StatusOK, &document)
	var walk func(any)
	walk = func(value any) {
		list, _ := value.([]any)
		object, _ := value.(map[string]any)
		reference, found := object["$ref"].(string)
		p.Require(answer, !found || leads(document, reference), "the reference %s leads to nothing", reference)
		for _, item := range slices.AppendSeq(list, maps.Values(object)) {
			walk(item)
		}
	}
	walk(document)
}

// leads reports whether a reference leads to a part of the document.
func leads(document map[string]any, reference string) bool {
	path, isLocal := strings.CutPrefix(reference, "#/")
	var part any = document
	for _, key := range strings.Split(path, "/") {
		parts, _ := part.(map[string]any)
		part = parts[strings.NewReplacer("~1", "/", "~0", "~").Replace(key)]
	}
	return isLocal && part != nil
}

// kindOf returns a kind in the form of OpenAPI.
func kindOf(kind schema.GroupVersionKind) any {
	return map[string]any{"group": kind.Group, "version": kind.Version, "kind": kind.Kind}
}

// modelsOf returns the models that have the kind.
func modelsOf(schemas map[string]*spec.Schema, kind schema.GroupVersionKind) []*spec.Schema {
	var models []*spec.Schema
	for _, model := range schemas {
		kinds, _ := model.Extensions[kindExtension].([]any)
		if slices.ContainsFunc(kinds, func(other any) bool { return inJSON(other) == inJSON(kindOf(kind)) }) {
			models = append(models, model)
		}
	}
	return models
}

// resolve follows the references of a schema. It returns an empty schema for a missing one.
func resolve(schemas map[string]*spec.Schema, schema *spec.Schema) *spec.Schema {
	for depth := 0; schema != nil && depth < 10; depth++ {
		switch reference := schema.Ref.String(); {
		case reference != "":
			schema = schemas[reference[strings.LastIndex(reference, "/")+1:]]
		case len(schema.AllOf) == 1 && len(schema.Properties) == 0:
			schema = &schema.AllOf[0]
		case len(schema.OneOf) > 0 && len(schema.Type) == 0:
			schema = &schema.OneOf[len(schema.OneOf)-1] // For a quantity, the last is the number, which is always valid.
		default:
			return schema
		}
	}
	return &spec.Schema{}
}

// fields returns the names of a schema's fields, each with the names of the fields below it.
func fields(schemas map[string]*spec.Schema, model *spec.Schema) map[string][]string {
	all := map[string][]string{}
	for name, property := range model.Properties {
		all[name] = slices.Sorted(maps.Keys(resolve(schemas, &property).Properties))
	}
	return all
}
