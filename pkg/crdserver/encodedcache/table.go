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

package encodedcache

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/tidwall/gjson"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/registry/rest"
)

// columns are the printer columns of a version.
type columns struct {
	convertor rest.TableConvertor
	// paths are those of the fields that the columns show, for gjson. They are nil if all fields have to be decoded.
	paths []string
}

var plainPath = regexp.MustCompile(`^\.(metadata\.\w+|\w+)`)

// newColumns returns the columns of a version of a definition. As in k8s.io/apiextensions-apiserver, those that can't be
// parsed, and those after them, are not shown.
func newColumns(definition *apiextensionsv1.CustomResourceDefinition, version string) columns {
	shown := columnsOf(definition, version)
	var c columns
	c.convertor, _ = tableconvertor.New(shown)
	for _, column := range shown {
		match := plainPath.FindStringSubmatch(column.JSONPath)
		if len(match) == 0 || match[1] == "metadata" {
			return columns{convertor: c.convertor}
		}
		c.paths = append(c.paths, match[1])
	}
	return c
}

// columnsOf returns the columns that k8s.io/apiextensions-apiserver shows.
func columnsOf(definition *apiextensionsv1.CustomResourceDefinition, version string) []apiextensionsv1.CustomResourceColumnDefinition {
	for _, v := range definition.Spec.Versions {
		if v.Name == version && len(v.AdditionalPrinterColumns) > 0 {
			return v.AdditionalPrinterColumns
		}
	}
	return []apiextensionsv1.CustomResourceColumnDefinition{{
		Name: "Age", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"], JSONPath: ".metadata.creationTimestamp",
	}}
}

// decode decodes the fields that the columns show, and the name.
func (c columns) decode(text string) (*unstructured.Unstructured, error) {
	decoded := &unstructured.Unstructured{}
	if c.paths == nil {
		err := decoded.UnmarshalJSON([]byte(text))
		return decoded, err
	}
	meta := map[string]any{"name": gjson.Get(text, "metadata.name").String()}
	decoded.Object = map[string]any{"metadata": meta}
	for _, path := range c.paths {
		found := gjson.Get(text, path)
		if !found.Exists() {
			continue
		}
		var value any
		if err := utiljson.Unmarshal([]byte(found.Raw), &value); err != nil {
			return nil, err
		}
		if field, ok := strings.CutPrefix(path, "metadata."); ok {
			meta[field] = value
		} else {
			decoded.Object[path] = value
		}
	}
	return decoded, nil
}

// cells returns the cells of an object.
func (c columns) cells(text string) ([]any, error) {
	decoded, err := c.decode(text)
	if err != nil {
		return nil, err
	}
	row, err := c.convertor.ConvertToTable(context.Background(), decoded, &metav1.TableOptions{NoHeaders: true})
	if err != nil {
		return nil, err
	}
	return row.Rows[0].Cells, nil
}

// table is a list as a metav1.Table.
type table struct {
	objects
	columns columns
	version schema.GroupVersion
	include metav1.IncludeObjectPolicy
}

// DeepCopyObject copies the table but not its objects.
func (t *table) DeepCopyObject() runtime.Object {
	copied := *t
	return &copied
}

// writeTo writes the table. A row's object, or its metadata, is copied.
func (t *table) writeTo(b buffer) error {
	empty, err := t.columns.convertor.ConvertToTable(context.Background(), &unstructured.UnstructuredList{}, &metav1.TableOptions{})
	if err != nil {
		return err
	}
	version := t.version.String()
	b.text(`"kind":"Table","apiVersion":"`, version, `","metadata":`)
	if err := b.json(t.ListMeta); err != nil {
		return err
	}
	b.text(`,"columnDefinitions":`)
	if err := b.json(empty.ColumnDefinitions); err != nil {
		return err
	}
	b.text(`,"rows":[`)
	for i := range t.Items {
		text, err := t.Items[i].text()
		if err != nil {
			return err
		}
		cells, err := t.columns.cells(text)
		if err != nil {
			return err
		}
		if i > 0 {
			b.text(",")
		}
		b.text(`{"cells":`)
		if err := b.json(cells); err != nil {
			return err
		}
		switch t.include {
		case metav1.IncludeObject:
			b.text(`,"object":`, text, "}")
		case metav1.IncludeNone:
			b.text(`,"object":null}`)
		default:
			b.text(`,"object":{"kind":"PartialObjectMetadata","apiVersion":"`, version, `","metadata":`, gjson.Get(text, "metadata").Raw, "}}")
		}
	}
	b.text("]")
	return nil
}

// metadata returns the list for clients that ask for metadata only.
func (l *objects) metadata() (*metav1.PartialObjectMetadataList, error) {
	list := &metav1.PartialObjectMetadataList{ListMeta: l.ListMeta, Items: make([]metav1.PartialObjectMetadata, len(l.Items))}
	for i := range l.Items {
		text, err := l.Items[i].text()
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(gjson.Get(text, "metadata").Raw), &list.Items[i].ObjectMeta); err != nil {
			return nil, err
		}
	}
	return list, nil
}
