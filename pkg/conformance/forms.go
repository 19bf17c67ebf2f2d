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
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"sigs.k8s.io/yaml"
)

const (
	asJSON         = "application/json"
	asYAML         = "application/yaml"
	asProtobuf     = runtime.ContentTypeProtobuf
	asCBOR         = runtime.ContentTypeCBOR
	asTable        = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asMetadata     = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	asMetadataList = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
)

func formsChecks() []Check {
	return []Check{{
		ID:     "forms/kinds",
		Rule:   "An object has the version and kind that discovery says, and a list that kind with \"List\" and a resourceVersion.",
		Source: conventions + "#types-kinds",
		Needs:  []string{"create", "get", "list"},
		Run: func(p *Probe) {
			answer := p.Get(p.Create("a").GetName())
			p.Equal(answer, "the kind", p.GroupVersionKind(), p.Object(answer, http.StatusOK).GroupVersionKind())
			answer = p.List()
			list := p.Items(answer)
			p.Equal(answer, "the kind", p.GroupVersion().WithKind(p.Kind+"List"), list.GroupVersionKind())
			if list.GetResourceVersion() == "" || len(list.Items) != 1 {
				p.Fail(answer, "one object and a resourceVersion are expected")
			}
		},
	}, {
		ID:     "forms/accept",
		Rule:   "The answer has the first form in Accept that the server has, and is JSON if the client has no preference.",
		Source: concepts + "#alternate-representations-of-resources",
		Needs:  []string{"list"},
		Run: func(p *Probe) {
			for _, accept := range []struct{ accept, want string }{
				{"", asJSON},
				{"*/*", asJSON},
				{asJSON + ";charset=utf-8", asJSON},
				{asYAML, asYAML},
				{asYAML + ", " + asJSON, asYAML},
				{"text/html, " + asJSON + ";q=0.9", asJSON},
				{asJSON + ";as=Table;v=v9;g=meta.k8s.io, " + asJSON, asJSON},
			} {
				answer := p.List(Header("Accept", accept.accept))
				if kind := answer.Header.Get("Content-Type"); answer.Code != http.StatusOK || kind != accept.want {
					p.Fail(answer, "%s is expected", accept.want)
				}
			}
		},
	}, {
		ID:     "forms/yaml",
		Rule:   "YAML is read and written, and has the same objects as JSON.",
		Source: concepts + "#yaml-resource-encoding",
		Needs:  []string{"create", "get"},
		Run: func(p *Probe) {
			body, err := yaml.Marshal(p.New("a").Object)
			if err != nil {
				p.Fail(Answer{}, "the example is no YAML: %v", err)
			}
			answer := p.Do(http.MethodPost, p.Collection(), body, Header("Content-Type", asYAML), Header("Accept", asYAML))
			created := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(answer.Body, created); answer.Code != http.StatusCreated || err != nil {
				p.Fail(answer, "201 and YAML are expected: %v", err)
			}
			if bytes.HasPrefix(answer.Body, []byte("{")) {
				p.Fail(answer, "YAML is expected, not JSON")
			}
			p.Equal(answer, "the object, as it is in JSON", p.Object(p.Get(p.Name("a")), http.StatusOK).Object, created.Object)
		},
	}, {
		ID:     "forms/protobuf",
		Rule:   "Protobuf, where it is offered, begins with its magic number and names the kind, and what was read can be written.",
		Source: concepts + "#kubernetes-protobuf",
		Needs:  []string{"create", "get", "update"},
		Run: func(p *Probe) {
			created := p.Create("a")
			answer := p.Get(created.GetName(), Header("Accept", asProtobuf))
			if answer.Code == http.StatusNotAcceptable {
				p.NotOffered("protobuf is refused with 406, as it is for custom resources")
			}
			var envelope runtime.Unknown
			magic := []byte("k8s\x00")
			if !bytes.HasPrefix(answer.Body, magic) || envelope.Unmarshal(answer.Body[len(magic):]) != nil || answer.Header.Get("Content-Type") != asProtobuf {
				p.Fail(answer, "protobuf in its envelope is expected")
			}
			p.Equal(answer, "the kind", runtime.TypeMeta{APIVersion: p.GroupVersion().String(), Kind: p.Kind}, envelope.TypeMeta)
			answer = p.Do(http.MethodPut, p.Collection(created.GetName()), answer.Body, Header("Content-Type", asProtobuf))
			p.Equal(answer, "the object that was written as it was read", created.Object, p.Object(answer, http.StatusOK).Object)
		},
	}, {
		ID:     "forms/cbor",
		Rule:   "CBOR, where it is offered, has the same object as JSON, and what was read can be written.",
		Source: concepts + "#cbor-resource-encoding",
		Needs:  []string{"create", "get", "update"},
		Run: func(p *Probe) {
			created := p.Create("a")
			answer := p.Get(created.GetName(), Header("Accept", asCBOR))
			if answer.Code == http.StatusNotAcceptable {
				p.NotOffered("CBOR is refused with 406, as it is without the feature CBORServingAndStorage")
			}
			var got map[string]any
			if err := direct.Unmarshal(answer.Body, &got); err != nil || answer.Header.Get("Content-Type") != asCBOR {
				p.Fail(answer, "CBOR is expected: %v", err)
			}
			p.Equal(answer, "the object, as it is in JSON", inJSON(created.Object), inJSON(got))
			answer = p.Do(http.MethodPut, p.Collection(created.GetName()), answer.Body, Header("Content-Type", asCBOR))
			p.Equal(answer, "the object that was written as it was read", created.Object, p.Object(answer, http.StatusOK).Object)
		},
	}, {
		ID:     "forms/table",
		Rule:   "A Table has a column for the name, a cell for each column, and the list's resourceVersion.",
		Source: concepts + "#receiving-resources-as-tables",
		Needs:  []string{"create", "get", "list"},
		Run: func(p *Probe) {
			created := p.Create("a")
			for _, answer := range []Answer{p.List(Header("Accept", asTable)), p.Get(created.GetName(), Header("Accept", asTable))} {
				table := p.table(answer)
				if len(table.ColumnDefinitions) == 0 || table.ResourceVersion == "" || len(table.Rows) != 1 {
					p.Fail(answer, "columns, one row and a resourceVersion are expected")
				}
				name := slices.IndexFunc(table.ColumnDefinitions, func(column metav1.TableColumnDefinition) bool { return column.Format == "name" })
				if name < 0 {
					p.Fail(answer, "a column of the format \"name\" is expected")
				}
				p.Equal(answer, "the number of cells", len(table.ColumnDefinitions), len(table.Rows[0].Cells))
				p.Equal(answer, "the cell of the name", any(created.GetName()), table.Rows[0].Cells[name])
				for _, column := range table.ColumnDefinitions {
					if column.Name == "" || !slices.Contains([]string{"string", "integer", "number", "boolean", "date"}, column.Type) {
						p.Fail(answer, "a column with a name and a type of OpenAPI is expected: %q is of the type %q", column.Name, column.Type)
					}
				}
			}
		},
	}, {
		ID:     "forms/table-objects",
		Rule:   "A row of a Table has the metadata of its object, or the object, or nothing, as includeObject says.",
		Source: concepts + "#receiving-resources-as-tables",
		Needs:  []string{"create", "list"},
		Run: func(p *Probe) {
			created := p.Create("a")
			for _, include := range []struct{ include, kind string }{{"", "PartialObjectMetadata"}, {"Metadata", "PartialObjectMetadata"}, {"Object", p.Kind}, {"None", ""}} {
				answer := p.List(Header("Accept", asTable), Query("includeObject", include.include))
				table := p.table(answer)
				if len(table.Rows) != 1 {
					p.Fail(answer, "one row is expected")
				}
				object := &unstructured.Unstructured{}
				if raw := table.Rows[0].Object.Raw; raw != nil && string(raw) != "null" {
					if err := object.UnmarshalJSON(raw); err != nil || object.GetUID() != created.GetUID() {
						p.Fail(answer, "the object of the row is expected: %v", err)
					}
				}
				p.Equal(answer, fmt.Sprintf("the kind of the row's object with includeObject=%q", include.include), include.kind, object.GetKind())
			}
		},
	}, {
		ID:     "forms/table-watch",
		Rule:   "A watch as Table has the columns in its first event only, and a row for each object.",
		Source: concepts + "#receiving-resources-as-tables",
		Needs:  []string{"create", "list", "watch"},
		Run: func(p *Probe) {
			w := p.Watch(Header("Accept", asTable))
			for i, suffix := range []string{"a", "b"} {
				p.Create(suffix)
				event := w.Expect("ADDED")
				columns, _, _ := unstructured.NestedSlice(event.Object, "columnDefinitions")
				rows, _, _ := unstructured.NestedSlice(event.Object, "rows")
				if event.GetKind() != "Table" || len(rows) != 1 || (len(columns) > 0) != (i == 0) {
					p.Fail(w.Answer(), "a Table with one row is expected, the first with columns; event %d is %s", i+1, inJSON(event))
				}
			}
		},
	}, {
		ID:     "forms/metadata",
		Rule:   "PartialObjectMetadata has the metadata of an object, and nothing else; so do lists of it.",
		Source: concepts + "#metadata-only-representation",
		Needs:  []string{"create", "get", "list"},
		Run: func(p *Probe) {
			created := p.Create("a")
			want := map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": created.Object["metadata"]}
			answer := p.Get(created.GetName(), Header("Accept", asMetadata))
			p.Equal(answer, "the metadata", want, p.Object(answer, http.StatusOK).Object)

			var list map[string]any
			answer = p.List(Header("Accept", asMetadataList))
			p.Decode(answer, http.StatusOK, &list)
			items, _, _ := unstructured.NestedSlice(list, "items")
			if list["kind"] != "PartialObjectMetadataList" || len(items) != 1 {
				p.Fail(answer, "a PartialObjectMetadataList of one object is expected")
			}
			item, _ := items[0].(map[string]any)
			// In a list the kind of an item goes without saying.
			item["apiVersion"], item["kind"] = want["apiVersion"], want["kind"]
			p.Equal(answer, "the metadata in the list", any(want), items[0])
		},
	}, {
		ID:     "forms/metadata-watch",
		Rule:   "A watch as PartialObjectMetadata brings the metadata of objects, and nothing else.",
		Source: concepts + "#metadata-only-representation",
		Needs:  []string{"create", "list", "watch"},
		Run: func(p *Probe) {
			w := p.Watch(Header("Accept", asMetadata))
			created := p.Create("a")
			want := map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": created.Object["metadata"]}
			p.Equal(w.Answer(), "the object of the event", want, w.Expect("ADDED").Object)
		},
	}, {
		ID:     "forms/gzip",
		Rule:   "A large answer is compressed if the client accepts gzip, and has the same content.",
		Source: concepts + "#compression",
		Needs:  []string{"create", "get"},
		Run: func(p *Probe) {
			object := p.New("a")
			// Answers of less than 128 KiB are not compressed.
			object.SetAnnotations(map[string]string{"example.com/long": strings.Repeat("conformance ", 20_000)})
			p.Object(p.Post(object), http.StatusCreated)
			plain, answer := p.Get(p.Name("a")), p.Get(p.Name("a"), Header("Accept-Encoding", "gzip"))
			if answer.Header.Get("Content-Encoding") != "gzip" || plain.Header.Get("Content-Encoding") != "" {
				p.Fail(answer, "Content-Encoding: gzip is expected, and only if it is asked for")
			}
			reader, err := gzip.NewReader(bytes.NewReader(answer.Body))
			if err != nil {
				p.Fail(answer, "gzip is expected: %v", err)
			}
			content, err := io.ReadAll(reader)
			if err != nil || !bytes.Equal(plain.Body, content) {
				p.Fail(answer, "the same content as without compression is expected: %v", err)
			}
		},
	}}
}

// table returns the Table that an answer has.
func (p *Probe) table(answer Answer) *metav1.Table {
	table := &metav1.Table{}
	p.Decode(answer, http.StatusOK, table)
	if table.Kind != "Table" || table.APIVersion != "meta.k8s.io/v1" {
		p.Fail(answer, "a Table of meta.k8s.io/v1 is expected")
	}
	return table
}
