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

package testing

import (
	"maps"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/kube-aggregator/pkg/generated/openapi"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// Note has one version, so that one type serves as the internal one, too.
type Note struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              NoteSpec `json:"spec"`
}

type NoteSpec struct {
	Text string `json:"text"`
}

type NoteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Note `json:"items"`
}

// NoteReadOptions are the parameters of /read.
type NoteReadOptions struct {
	metav1.TypeMeta `json:",inline"`
}

func (n *Note) DeepCopyObject() runtime.Object {
	out := *n
	n.DeepCopyInto(&out.ObjectMeta)
	return &out
}

func (l *NoteList) DeepCopyObject() runtime.Object {
	out := *l
	l.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Note, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Note)
	}
	return &out
}

func (o *NoteReadOptions) DeepCopyObject() runtime.Object { return new(*o) }

// The names of the types in OpenAPI documents.
func (Note) OpenAPIModelName() string            { return "com.example.notes.v1.Note" }
func (NoteSpec) OpenAPIModelName() string        { return "com.example.notes.v1.NoteSpec" }
func (NoteList) OpenAPIModelName() string        { return "com.example.notes.v1.NoteList" }
func (NoteReadOptions) OpenAPIModelName() string { return "com.example.notes.v1.NoteReadOptions" }

// noteDefinitions are what openapi-gen generates from the types.
func noteDefinitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	text := *spec.StringProperty()
	object := func(properties map[string]spec.Schema, dependencies ...string) common.OpenAPIDefinition {
		return common.OpenAPIDefinition{
			Schema:       spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Properties: properties}},
			Dependencies: dependencies,
		}
	}
	to := func(name string) spec.Schema { return spec.Schema{SchemaProps: spec.SchemaProps{Ref: ref(name)}} }
	note, noteSpec := Note{}.OpenAPIModelName(), NoteSpec{}.OpenAPIModelName()
	objectMeta, listMeta := metav1.ObjectMeta{}.OpenAPIModelName(), metav1.ListMeta{}.OpenAPIModelName()

	all := openapi.GetOpenAPIDefinitions(ref)
	maps.Copy(all, map[string]common.OpenAPIDefinition{
		note: object(map[string]spec.Schema{
			"apiVersion": text, "kind": text, "metadata": to(objectMeta), "spec": to(noteSpec),
		}, objectMeta, noteSpec),
		noteSpec: object(map[string]spec.Schema{"text": text}),
		NoteList{}.OpenAPIModelName(): object(map[string]spec.Schema{
			"apiVersion": text, "kind": text, "metadata": to(listMeta), "items": *spec.ArrayProperty(new(to(note))),
		}, listMeta, note),
		NoteReadOptions{}.OpenAPIModelName(): object(map[string]spec.Schema{"apiVersion": text, "kind": text}),
	})
	return all
}

// notesIn returns a group of this name with notes, and their subresource /read, which goes on
// until a note says "the end".
func notesIn(group string) registry.Group {
	install := func(scheme *runtime.Scheme) {
		for _, version := range []string{runtime.APIVersionInternal, "v1"} {
			gv := schema.GroupVersion{Group: group, Version: version}
			scheme.AddKnownTypes(gv, &Note{}, &NoteList{}, &NoteReadOptions{})
			if version == "v1" {
				metav1.AddToGroupVersion(scheme, gv)
				utilruntime.Must(scheme.SetVersionPriority(gv))
				utilruntime.Must(scheme.AddConversionFunc((*url.Values)(nil), (*NoteReadOptions)(nil), func(any, any, conversion.Scope) error { return nil }))
			}
		}
	}
	return registry.Group{
		Name: group, Install: install, OpenAPI: noteDefinitions,
		Kinds: []registry.Declaration{registry.Kind[*Note]{
			New:        func() *Note { return &Note{} },
			NewList:    func() runtime.Object { return &NoteList{} },
			Resource:   "notes",
			Singular:   "note",
			Namespaced: true,
			Columns:    []registry.Column[*Note]{registry.NameColumn[*Note](), registry.AgeColumn[*Note]()},
			Spec:       func(n *Note) any { return n.Spec },
			Subresources: map[string]registry.Subresource[*Note]{"read": registry.Stream[*Note, *NoteReadOptions]{
				NewOptions: func() *NoteReadOptions { return &NoteReadOptions{} },
				Follow:     func(*NoteReadOptions) time.Duration { return time.Hour },
				Line:       func(n *Note) (string, bool) { return n.Spec.Text, n.Spec.Text == "the end" },
			}},
		}},
	}
}
