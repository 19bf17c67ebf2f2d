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
	"sigs.k8s.io/yaml"
)

const (
	asJSON     = runtime.ContentTypeJSON
	asYAML     = runtime.ContentTypeYAML
	asProtobuf = runtime.ContentTypeProtobuf
	asCBOR     = runtime.ContentTypeCBOR
	asTable    = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asMetadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
)

func formsChecks() []Check {
	return []Check{
		basic("forms/accept", concepts+"#alternate-representations-of-resources", "create get list",
			"The answer has the first form in Accept that the server has, and is JSON if the client has no preference.", func(p *Probe) {
				for accept, want := range map[string]string{
					"": asJSON, "*/*": asJSON, asJSON + ";charset=utf-8": asJSON, asYAML: asYAML, asYAML + ", " + asJSON: asYAML,
					"text/html, " + asJSON + ";q=0.9": asJSON, strings.Replace(asTable, "v=v1", "v=v9", 1) + ", " + asJSON: asJSON,
				} {
					answer := p.List(Header("Accept", accept))
					p.Require(answer, answer.Code == http.StatusOK && answer.Header.Get("Content-Type") == want, "%s is expected", want)
				}
			}),
		basic("forms/yaml", concepts+"#yaml-resource-encoding", "create get list",
			"YAML is read and written, and has the same objects as JSON.", func(p *Probe) {
				body, err := yaml.Marshal(p.New("a").Object)
				p.Require(Answer{}, err == nil, "the example is no YAML: %v", err)
				p.ledger.note(p.ID, Request{Method: http.MethodPut, Path: p.Collection(p.Name("a"))})
				answer := p.Do(http.MethodPost, p.Collection(), body, Header("Content-Type", asYAML), Header("Accept", asYAML))
				created := &unstructured.Unstructured{}
				err = yaml.Unmarshal(answer.Body, created)
				p.Require(answer, answer.Code == http.StatusCreated && err == nil && !bytes.HasPrefix(answer.Body, []byte("{")), "201 and YAML are expected: %v", err)
				p.Same(answer, "the object, as it is in JSON", p.Object(p.Get(p.Name("a")), http.StatusOK), created)
			}),
		binary("forms/protobuf", concepts+"#kubernetes-protobuf", asProtobuf, "k8s\x00", "as it is for custom resources"),
		binary("forms/cbor", concepts+"#cbor-resource-encoding", asCBOR, "\xd9\xd9\xf7", "as it is without the feature CBORServingAndStorage"),
		basic("forms/table", concepts+"#receiving-resources-as-tables", "create get list",
			"A Table has a column for the name, a cell for each column, and in each row what includeObject asks for.", func(p *Probe) {
				created := p.Create("a")
				for include, kind := range map[string]string{"": "PartialObjectMetadata", "Metadata": "PartialObjectMetadata", "Object": p.Kind, "None": ""} {
					options := []Option{Header("Accept", asTable), Query("includeObject", include)}
					for _, answer := range []Answer{p.List(options...), p.Get(created.GetName(), options...)} {
						var table metav1.Table
						p.Decode(answer, http.StatusOK, &table)
						p.Require(answer, table.Kind == "Table" && table.ResourceVersion != "" && len(table.Rows) == 1, "a Table with one row and a resourceVersion is expected")
						name := slices.IndexFunc(table.ColumnDefinitions, func(column metav1.TableColumnDefinition) bool { return column.Format == "name" })
						row, object := table.Rows[0], &unstructured.Unstructured{}
						p.Require(answer, name >= 0 && len(row.Cells) == len(table.ColumnDefinitions) && row.Cells[name] == created.GetName(), "a cell for each column is expected, and the name in the column of the format \"name\"")
						if raw := row.Object.Raw; raw != nil && string(raw) != "null" {
							err := object.UnmarshalJSON(raw)
							p.Require(answer, err == nil && object.GetUID() == created.GetUID(), "the object of the row is expected: %v", err)
						}
						p.Equal(answer, fmt.Sprintf("the kind of the row's object with includeObject=%q", include), kind, object.GetKind())
					}
				}
			}),
		basic("forms/table-watch", concepts+"#receiving-resources-as-tables", "create list watch",
			"A watch as Table has the columns in its first event only, and one row in each, bookmarks included.", func(p *Probe) {
				p.Create("a")
				w := p.Watch(initialEvents, Header("Accept", asTable))
				for i, kind := range []string{"ADDED", "BOOKMARK", "ADDED"} {
					event := w.Expect(kind)
					columns, _, _ := unstructured.NestedSlice(event.Object, "columnDefinitions")
					rows, _, _ := unstructured.NestedSlice(event.Object, "rows")
					p.Require(w.Answer(), event.GetKind() == "Table" && len(rows) == 1 && (len(columns) > 0) == (i == 0), "a Table with one row is expected, the first with columns; event %d is %s", i+1, inJSON(event))
					if kind == "BOOKMARK" {
						p.Create("b")
					}
				}
			}),
		basic("forms/metadata", concepts+"#metadata-only-representation", "create get list watch",
			"PartialObjectMetadata has the metadata of an object and nothing else, and so have lists and watches of it.", func(p *Probe) {
				created := p.Create("a")
				want := onlyMetadata(created)
				answer := p.Get(created.GetName(), Header("Accept", asMetadata))
				p.Same(answer, "the object", want, p.Object(answer, http.StatusOK))
				w := p.Watch(initialEvents, Header("Accept", asMetadata))
				p.Same(w.Answer(), "the object of the event", want, w.Expect("ADDED"))
				p.Equal(w.Answer(), "the kind of the bookmark", "PartialObjectMetadata", w.Expect("BOOKMARK").GetKind())

				answer = p.List(Header("Accept", strings.Replace(asMetadata, "Metadata;", "MetadataList;", 1)))
				list := p.Items(answer)
				p.Require(answer, list.GetKind() == "PartialObjectMetadataList" && len(list.Items) == 1 && list.Items[0].Object["spec"] == nil, "a PartialObjectMetadataList of one object is expected")
				p.Same(answer, "the metadata in the list", want, onlyMetadata(&list.Items[0]))
			}),
		basic("forms/gzip", "https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates/", "create get list",
			"A large answer is compressed if the client accepts gzip, and has the same content.", func(p *Probe) {
				object := p.New("a")
				// Answers of less than 128 KiB are not compressed.
				object.SetAnnotations(map[string]string{"example.com/long": strings.Repeat("conformance ", 20_000)})
				p.Object(p.Post(object), http.StatusCreated)
				plain, answer := p.Get(p.Name("a")), p.Get(p.Name("a"), Header("Accept-Encoding", "gzip"))
				p.Require(answer, answer.Header.Get("Content-Encoding") == "gzip" && plain.Header.Get("Content-Encoding") == "", "Content-Encoding: gzip is expected, and only if it is asked for")
				reader, err := gzip.NewReader(bytes.NewReader(answer.Body))
				p.Require(answer, err == nil, "gzip is expected: %v", err)
				unpacked := answer
				unpacked.Body, err = io.ReadAll(reader)
				p.Require(answer, err == nil, "gzip is expected: %v", err)
				p.Same(answer, "the object, as it is without compression", p.Object(plain, http.StatusOK), p.Object(unpacked, http.StatusOK))
			}),
	}
}

// binary returns the check of an optional form that begins with magic bytes.
func binary(id, source, media, magic, unless string) Check {
	return basic(id, source, "create get update",
		"Where "+media+" is offered, it begins with its magic number, and an object that was read in it can be written in it unchanged.", func(p *Probe) {
			created := p.Create("a")
			answer := p.Eventually(func() Answer {
				read := p.Get(created.GetName(), Header("Accept", media))
				p.OnlyIf(read.Code != http.StatusNotAcceptable, "%s is refused with 406, %s", media, unless)
				p.Require(read, read.Code == http.StatusOK && read.Header.Get("Content-Type") == media && bytes.HasPrefix(read.Body, []byte(magic)), "%s is expected, which begins with %q", media, magic)
				return p.Do(http.MethodPut, p.Collection(created.GetName()), read.Body, Header("Content-Type", media))
			}, conflict)
			p.Same(answer, "the object that was written as it was read", created, p.Object(answer, http.StatusOK))
		})
}
