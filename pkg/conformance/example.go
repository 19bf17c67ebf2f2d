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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

const (
	// attempts is how often an example is corrected after validation refuses it.
	attempts = 20
	// tried is how many changes of an example are tried, and kept how many valid ones it gets.
	tried, kept = 40, 3
)

// Example is an object that the API accepts.
type Example struct {
	object *unstructured.Unstructured
	// Changes are valid values of fields other than the object's.
	Changes []Change
	// persists reports whether a dry run has created an object.
	persists bool
}

// Change is a field and a valid value.
type Change struct {
	Path  []string
	Value any
}

// in reports whether an object has the value.
func (c Change) in(object *unstructured.Unstructured) bool {
	value, _, _ := unstructured.NestedFieldNoCopy(object.Object, c.Path...)
	return reflect.DeepEqual(value, c.Value)
}

// New returns a copy of the object without a name.
func (e *Example) New() *unstructured.Unstructured { return e.object.DeepCopy() }

// example returns an object that the API accepts. It is a given one, or made from the schema and
// corrected after refusals. Its changes are the differences between two given examples, and other
// values of the schema. The API accepts all of them.
func (r *run) example(ctx context.Context, resource *Resource, namespace string) (*Example, error) {
	if r.ReadOnly || resource.lacks("", "create") != "" {
		return nil, errors.New("no objects can be created")
	}
	document, err := r.schemas(ctx, resource.GroupVersion())
	if err != nil {
		return nil, err
	}
	maker := exampleMaker{probe: r.probe(ctx, resource, namespace), resource: resource, schemas: document}
	defer maker.probe.clean(ctx)
	given := slices.DeleteFunc(slices.Clone(r.Examples), func(given *unstructured.Unstructured) bool {
		return given.GroupVersionKind() != resource.GroupVersionKind()
	})
	example, created := &Example{}, &unstructured.Unstructured{}
	if len(given) > 0 {
		example.object = stripped(given[0])
		var answer Answer
		if answer, err = maker.create(example.object, created); err == nil && created.Object == nil {
			err = fmt.Errorf("the example of %s is refused: %s", resource.Kind, statusOf(answer))
		}
	} else {
		example.object, err = maker.make(created)
	}
	if err != nil {
		return nil, err
	}
	var others []Change
	if len(given) > 1 {
		others = differences(example.object.Object, stripped(given[1]).Object, nil)
	}
	dry := maker.probe.New("dry")
	if _, err := maker.probe.send(ctx, newRequest(http.MethodPost, maker.probe.Collection(), dry.Object, Query("dryRun", "All"))); err != nil {
		return nil, err
	}
	read, err := maker.probe.send(ctx, newRequest(http.MethodGet, maker.probe.Collection(dry.GetName()), nil))
	if err != nil {
		return nil, err
	}
	example.persists = read.Code == http.StatusOK
	example.Changes, err = maker.changes(created, append(others, maker.candidates(example.object.Object, maker.root(), nil)...))
	return example, err
}

// ReadExamples returns the objects of YAML files, and of files in directories.
func ReadExamples(paths ...string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	visit := func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text))
		for {
			object, document := &unstructured.Unstructured{}, json.RawMessage(nil)
			err := documents.Decode(&document)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil && document != nil {
				err = utiljson.Unmarshal(document, &object.Object)
			}
			if err != nil {
				return fmt.Errorf("%s is not YAML of objects: %w", path, err)
			}
			if len(object.Object) > 0 {
				objects = append(objects, object)
			}
		}
	}
	for _, path := range paths {
		if err := filepath.WalkDir(path, visit); err != nil {
			return nil, fmt.Errorf("an example can't be read: %w", err)
		}
	}
	return objects, nil
}

// stripped returns a copy of an object's content.
func stripped(object *unstructured.Unstructured) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content(object))}
}

// schemas returns the schemas of a group version in OpenAPI v3, by their names.
func (r *run) schemas(ctx context.Context, version schema.GroupVersion) (map[string]*spec.Schema, error) {
	var document struct {
		Components struct {
			Schemas map[string]*spec.Schema `json:"schemas"`
		} `json:"components"`
	}
	err := r.read(ctx, "/openapi/v3"+root(version), &document)
	return document.Components.Schemas, err
}

type exampleMaker struct {
	probe    *Probe
	resource *Resource
	schemas  map[string]*spec.Schema
}

// root returns the schema of the kind, or an empty one if OpenAPI has none.
func (m exampleMaker) root() *spec.Schema {
	if models := modelsOf(m.schemas, m.resource.GroupVersionKind()); len(models) > 0 {
		return models[0]
	}
	return &spec.Schema{}
}

func (m exampleMaker) resolve(schema *spec.Schema) *spec.Schema { return resolve(m.schemas, schema) }

// make returns an object with all required fields, and with those that validation asks for.
func (m exampleMaker) make(created *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	object, ok := m.value(m.root(), 0).(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	if _, found := m.root().Properties["spec"]; found && object["spec"] == nil {
		object["spec"] = m.value(m.at("spec"), 0)
	}
	made := stripped(&unstructured.Unstructured{Object: object})
	for attempt := 0; ; attempt++ {
		answer, err := m.create(made, created)
		if err != nil || created.Object != nil {
			return made, err
		}
		if attempt == attempts || !m.correct(made, answer, attempt) {
			return nil, fmt.Errorf("no example can be made from the schema, so one has to be given: %s", statusOf(answer))
		}
	}
}

// create creates an object, without a dry run, which the server may not know. If it is refused, created stays empty.
func (m exampleMaker) create(object, created *unstructured.Unstructured) (Answer, error) {
	m.probe.Example = &Example{object: object}
	answer, err := m.probe.send(m.probe.ctx, newRequest(http.MethodPost, m.probe.Collection(), m.probe.New("example").Object))
	if err == nil && (answer.Code == http.StatusCreated || answer.Code == http.StatusOK) {
		err = created.UnmarshalJSON(answer.Body)
	}
	return answer, err
}

// index matches an index or a key in the path of a field.
var index = regexp.MustCompile(`\[([^\]]*)\]`)

// correct changes the fields of an object that validation refused. It reports whether it changed any.
func (m exampleMaker) correct(object *unstructured.Unstructured, refusal Answer, attempt int) bool {
	var status metav1.Status
	if json.Unmarshal(refusal.Body, &status) != nil || status.Details == nil {
		return false
	}
	corrected := false
	for _, cause := range status.Details.Causes {
		path := strings.Split(strings.Trim(index.ReplaceAllString(cause.Field, ".$1"), "."), ".")
		schema := m.at(path...)
		value := m.value(schema, attempt)
		if supported := supportedValue.FindStringSubmatch(cause.Message); supported != nil {
			value = supported[1]
		}
		if value != nil && m.set(object.Object, path, nil, value) {
			corrected = true
		}
	}
	return corrected
}

// supportedValue matches the first supported value that validation names.
var supportedValue = regexp.MustCompile(`supported values: "([^"]*)"`)

// set sets a field or an element of a list within a value, and reports whether it could. The value is
// at a path of the example.
func (m exampleMaker) set(value any, path, at []string, to any) bool {
	at = append(at, path[0])
	switch value := value.(type) {
	case map[string]any:
		switch {
		case len(path) == 1:
			value[path[0]] = to
			return true
		case value[path[0]] == nil:
			value[path[0]] = m.value(m.at(at...), 0)
		}
		return m.set(value[path[0]], path[1:], at, to)
	case []any:
		i, err := strconv.Atoi(path[0])
		switch {
		case err != nil || i < 0 || i >= len(value):
			return false
		case len(path) == 1:
			value[i] = to
			return true
		}
		return m.set(value[i], path[1:], at, to)
	}
	return false
}

// at returns the schema of a field.
func (m exampleMaker) at(path ...string) *spec.Schema {
	schema := m.root()
	for _, name := range path {
		schema = m.resolve(schema)
		property, found := schema.Properties[name]
		switch {
		case found:
			schema = &property
		case schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil:
			schema = schema.AdditionalProperties.Schema
		case schema.Items != nil && schema.Items.Schema != nil:
			schema = schema.Items.Schema
		default:
			return &spec.Schema{}
		}
	}
	return m.resolve(schema)
}

// value returns a value of a schema, or nil if it finds none. Another variant gives another value
// if the schema allows several.
func (m exampleMaker) value(schema *spec.Schema, variant int) any {
	schema = m.resolve(schema)
	switch {
	case len(schema.Enum) > 0:
		return schema.Enum[variant%len(schema.Enum)]
	case schema.Default != nil && variant == 0:
		return schema.Default
	case schema.Extensions["x-kubernetes-int-or-string"] == true:
		return int64(1 + variant)
	case len(schema.Type) == 0:
		return nil
	}
	switch schema.Type[0] {
	case "object":
		return m.objectOf(schema, variant)
	case "array":
		return m.listOf(schema, variant)
	case "string":
		return text(schema, variant)
	case "integer":
		return int64(least(schema)) + int64(variant)
	case "number":
		return least(schema) + float64(variant)
	case "boolean":
		return variant%2 == 1
	}
	return nil
}

func (m exampleMaker) objectOf(schema *spec.Schema, variant int) any {
	object := map[string]any{}
	for _, name := range schema.Required {
		property := schema.Properties[name]
		if value := m.value(&property, variant); value != nil {
			object[name] = value
		}
	}
	if schema.MinProperties != nil && schema.AdditionalProperties != nil {
		for i := range *schema.MinProperties {
			object[fmt.Sprint("key", i)] = m.value(schema.AdditionalProperties.Schema, variant)
		}
	}
	return object
}

func (m exampleMaker) listOf(schema *spec.Schema, variant int) any {
	list := []any{}
	if schema.Items == nil || schema.Items.Schema == nil {
		return list
	}
	length := 1
	if schema.MinItems != nil {
		length = max(1, int(*schema.MinItems))
	}
	for i := range length {
		list = append(list, m.value(schema.Items.Schema, variant+i))
	}
	return list
}

func least(schema *spec.Schema) float64 {
	least := 1.0
	if schema.Maximum != nil {
		least = min(least, *schema.Maximum)
	}
	if schema.Minimum != nil {
		least = max(least, *schema.Minimum)
		if schema.ExclusiveMinimum && least == *schema.Minimum {
			least++
		}
	}
	return least
}

// text returns a string that fits the schema, or nil if it knows none.
func text(schema *spec.Schema, variant int) any {
	texts, found := map[string][]string{
		"date-time": {"2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"}, "date": {"2026-01-01", "2026-01-02"}, "byte": {"YQ==", "Yg=="}, "duration": {"1h", "2h"},
		"uuid": {"00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"},
	}[schema.Format]
	if !found {
		texts = []string{"a", "b", "example", "example.com", "a/b", "https://example.com", "A", "Example", "1", "0", "1Gi", "1h", "v1", "* * * * *", "10.0.0.0/8", "127.0.0.1", "a=b", "sha256:" + strings.Repeat("0", 64)}
	}
	if schema.MinLength != nil {
		for i := range texts {
			texts[i] += strings.Repeat("a", max(0, int(*schema.MinLength)-len(texts[i])))
		}
	}
	pattern, err := regexp.Compile(schema.Pattern)
	texts = slices.DeleteFunc(texts, func(text string) bool {
		return err == nil && !pattern.MatchString(text) || schema.MaxLength != nil && len(text) > int(*schema.MaxLength)
	})
	if len(texts) == 0 {
		return nil
	}
	return texts[variant%len(texts)]
}

// changes returns the candidates that the API accepts for an object.
func (m exampleMaker) changes(created *unstructured.Unstructured, candidates []Change) ([]Change, error) {
	if m.resource.lacks("", "patch") != "" || m.resource.lacks("", "delete") != "" {
		return nil, nil
	}
	var changes []Change
	for _, change := range candidates[:min(tried, len(candidates))] {
		patch := map[string]any{}
		// A default value changes nothing.
		if change.in(created) || unstructured.SetNestedField(patch, change.Value, change.Path...) != nil {
			continue
		}
		answer, err := m.probe.send(m.probe.ctx, newRequest(http.MethodPatch, m.probe.Collection(m.probe.Name("example")), patch, Query("dryRun", "All"), Header("Content-Type", string(types.MergePatchType))))
		if err != nil {
			return nil, err
		}
		changed := &unstructured.Unstructured{}
		if answer.Code == http.StatusOK && changed.UnmarshalJSON(answer.Body) == nil && change.in(changed) {
			changes = append(changes, change)
		}
		if len(changes) == kept {
			break
		}
	}
	return changes, nil
}

// candidates returns other values for fields. Fields of the object come first, and other fields of
// the schema follow.
func (m exampleMaker) candidates(object map[string]any, schema *spec.Schema, path []string) []Change {
	var has, lacks []Change
	m.collect(object, schema, path, &has, &lacks)
	for _, changes := range [][]Change{has, lacks} {
		slices.SortStableFunc(changes, func(a, b Change) int { return strings.Compare(strings.Join(a.Path, "."), strings.Join(b.Path, ".")) })
	}
	return append(has, lacks...)
}

func (m exampleMaker) collect(object map[string]any, schema *spec.Schema, path []string, has, lacks *[]Change) {
	if len(path) > 3 {
		return
	}
	for name, property := range m.resolve(schema).Properties {
		if len(path) == 0 && slices.Contains([]string{"apiVersion", "kind", "metadata", "status", "immutable"}, name) {
			continue
		}
		at := append(slices.Clone(path), name)
		current, found := object[name]
		if child, isObject := current.(map[string]any); isObject && len(m.resolve(&property).Properties) > 0 {
			m.collect(child, &property, at, has, lacks)
			continue
		}
		into := lacks
		if found {
			into = has
		}
		for variant := range 3 {
			value := m.value(&property, variant)
			if additional := m.resolve(&property).AdditionalProperties; additional != nil && additional.Schema != nil {
				value = map[string]any{"changed": m.value(additional.Schema, variant)}
			}
			if value != nil && !reflect.DeepEqual(value, current) {
				*into = append(*into, Change{at, value})
			}
		}
	}
}

// differences returns the values of another object that differ from this one's.
func differences(object, other map[string]any, path []string) []Change {
	var changes []Change
	for name, value := range other {
		at := append(slices.Clone(path), name)
		theirs, isObject := value.(map[string]any)
		ours, both := object[name].(map[string]any)
		switch {
		case reflect.DeepEqual(value, object[name]):
		case isObject && both:
			changes = append(changes, differences(ours, theirs, at)...)
		default:
			changes = append(changes, Change{at, value})
		}
	}
	return changes
}
