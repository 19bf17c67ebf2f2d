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

package definitions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

const (
	jsonType = "application/json"
	// asTable is what kubectl asks for.
	asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
)

// entry is a request and its answer, without what differs each time.
type entry struct {
	Request string
	Answer  any
	// Warnings are those of the answer's headers.
	Warnings []string
}

// script does with a kind what users do, and records the answers.
type script struct {
	*kind
	t         *testing.T
	namespace string
	user      rest.Interface
	stranger  rest.Interface

	entries []entry
}

// play returns what a server, whichever it is, answers. It leaves no objects.
func play(t *testing.T, kind *kind, namespace string) []entry {
	t.Helper()
	s := &script{kind: kind, t: t, namespace: namespace, user: clientOf(t, user), stranger: clientOf(t, stranger)}
	kind.accepted = nil
	s.requireEmpty()
	changes := s.watch()
	for _, example := range kind.examples {
		if s.create(example) {
			s.accepted = append(s.accepted, example)
		}
	}
	require.NotEmpty(t, s.accepted, "kube-apiserver accepts none of the %d examples of %s: %v", len(kind.examples), kind.definition.Name, s.entries)
	one := s.accepted[0]
	s.read(one)
	s.change(one)
	s.refuse(one)
	s.finalize(one)
	for _, object := range s.accepted {
		s.do("DELETE", s.path(object), "", nil)
	}
	s.entries = append(s.entries, entry{Request: "watch", Answer: changes()})
	s.requireEmpty()
	return s.entries
}

// collection is the path of all objects in a version.
func (s *script) collection(version string) string {
	spec := s.definition.Spec
	root := path.Join("/apis", spec.Group, version)
	if spec.Scope == "Namespaced" {
		root = path.Join(root, "namespaces", s.namespace)
	}
	return path.Join(root, spec.Names.Plural)
}

func (s *script) path(object *unstructured.Unstructured) string {
	return path.Join(s.collection(object.GroupVersionKind().Version), object.GetName())
}

// do sends a request as the user, and records it.
func (s *script) do(verb, path, contentType string, body any, query ...string) (answer map[string]any, accepted bool) {
	return s.doAs(s.user, verb, path, contentType, jsonType, body, query...)
}

func (s *script) doAs(client rest.Interface, verb, path, contentType, accept string, body any, query ...string) (answer map[string]any, accepted bool) {
	s.t.Helper()
	request := client.Verb(verb).AbsPath(path).SetHeader("Accept", accept)
	if body != nil {
		content, err := json.Marshal(body)
		require.NoError(s.t, err)
		request.SetHeader("Content-Type", contentType).Body(content)
	}
	for i := 0; i < len(query); i += 2 {
		request.Param(query[i], query[i+1])
	}
	result := request.Do(s.t.Context())
	content, err := result.Raw()
	require.NoError(s.t, json.Unmarshal(content, &answer), "%s %s: %v: %s", verb, path, err, content)
	recorded := entry{Request: fmt.Sprint(verb, " ", path, " ", query), Answer: normal(answer)}
	for _, warning := range result.Warnings() {
		recorded.Warnings = append(recorded.Warnings, warning.Text)
	}
	s.entries = append(s.entries, recorded)
	return answer, err == nil
}

// requireEmpty requires that no version has objects.
func (s *script) requireEmpty() {
	s.t.Helper()
	for _, version := range s.served {
		list, listed := s.do("GET", s.collection(version), "", nil)
		require.True(s.t, listed, list)
		require.Empty(s.t, list["items"], "%s in %s", s.definition.Name, version)
	}
}

func (s *script) create(object *unstructured.Unstructured) (accepted bool) {
	_, accepted = s.do("POST", s.collection(object.GroupVersionKind().Version), jsonType, object.Object, "fieldManager", "creator")
	return accepted
}

// read reads everything in every version.
func (s *script) read(one *unstructured.Unstructured) {
	for _, version := range s.served {
		s.do("GET", path.Join("/apis", s.definition.Spec.Group, version), "", nil)
		s.do("GET", s.collection(version), "", nil)
		s.do("GET", path.Join(s.collection(version), one.GetName()), "", nil)
		s.doAs(s.user, "GET", s.collection(version), "", asTable, nil)
	}
	s.do("GET", s.collection(s.served[0]), "", nil, "limit", "1", "fieldSelector", "metadata.name="+one.GetName())
	s.do("GET", s.path(one)+"-missing", "", nil)
	s.doAs(s.stranger, "GET", s.path(one), "", jsonType, nil)
}

// change changes an object in all ways that there are.
func (s *script) change(one *unstructured.Unstructured) {
	label := func(value string) map[string]any {
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{"changed": value}}}
	}
	s.do("PATCH", s.path(one), string(types.MergePatchType), label("by-merge"))
	s.do("PATCH", s.path(one), string(types.StrategicMergePatchType), label("by-strategy"))
	s.do("PATCH", s.path(one), string(types.JSONPatchType), []map[string]any{{"op": "test", "path": "/metadata/name", "value": "another"}})
	applied := map[string]any{"apiVersion": one.GetAPIVersion(), "kind": one.GetKind()}
	maps.Copy(applied, label("by-apply"))
	s.do("PATCH", s.path(one), string(types.ApplyPatchType), applied, "fieldManager", "applier")
	s.do("PATCH", s.path(one), string(types.ApplyPatchType), applied, "fieldManager", "applier", "force", "true")
	current, _ := s.do("GET", s.path(one), "", nil)
	s.do("PUT", s.path(one), jsonType, current)
	s.do("PUT", s.path(one), jsonType, (&unstructured.Unstructured{Object: current}).DeepCopy().Object, "dryRun", "All", "fieldManager", "another")
	status := label("by-status")
	status["status"] = map[string]any{"conditions": []any{map[string]any{
		"type": "Tested", "status": "True", "reason": "Tested", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
	}}}
	s.do("PATCH", s.path(one)+"/status", string(types.MergePatchType), status)
	s.do("GET", s.path(one)+"/status", "", nil)
	s.do("GET", s.path(one)+"/scale", "", nil)
	s.do("PATCH", s.path(one)+"/scale", string(types.MergePatchType), map[string]any{"spec": map[string]any{"replicas": 3}})
	s.do("PUT", s.path(one), jsonType, one.Object)
}

// refuse makes each field of an object what it can't be.
func (s *script) refuse(one *unstructured.Unstructured) {
	spec, _, _ := unstructured.NestedMap(one.Object, "spec")
	for _, field := range slices.Sorted(maps.Keys(spec)) {
		for _, value := range []any{map[string]any{"wrong": true}, int64(-1), ""} {
			wrong := one.DeepCopy()
			wrong.SetName("wrong")
			require.NoError(s.t, unstructured.SetNestedField(wrong.Object, value, "spec", field))
			s.tryOut(wrong, fmt.Sprintf("%s is a %T", field, value))
		}
		lacking := one.DeepCopy()
		lacking.SetName("lacking")
		unstructured.RemoveNestedField(lacking.Object, "spec", field)
		s.tryOut(lacking, field+" is missing")
	}
	unknown := one.DeepCopy()
	unknown.SetName("unknown")
	unknown.Object["unknown"] = "field"
	s.tryOut(unknown, "unknown field")
	s.do("POST", s.collection(one.GroupVersionKind().Version), jsonType, unknown.Object, "dryRun", "All", "fieldValidation", "Strict")
}

func (s *script) tryOut(object *unstructured.Unstructured, why string) {
	s.do("POST", s.collection(object.GroupVersionKind().Version), jsonType, object.Object, "dryRun", "All", "fieldManager", why)
}

// finalize deletes an object that somebody has to finalize, and creates it again.
func (s *script) finalize(one *unstructured.Unstructured) {
	finalizers := func(finalizers ...string) map[string]any {
		return map[string]any{"metadata": map[string]any{"finalizers": finalizers}}
	}
	s.do("PATCH", s.path(one), string(types.MergePatchType), finalizers("example.com/kept"))
	s.do("DELETE", s.path(one), "", nil)
	s.do("GET", s.path(one), "", nil)
	s.do("PATCH", s.path(one), string(types.MergePatchType), finalizers())
	s.create(one)
}

// watch returns a function that returns all events until the last object is deleted.
func (s *script) watch() func() []any {
	s.t.Helper()
	version := s.served[0]
	list := &unstructured.UnstructuredList{}
	content, err := s.user.Get().AbsPath(s.collection(version)).DoRaw(s.t.Context())
	require.NoError(s.t, err)
	require.NoError(s.t, list.UnmarshalJSON(content))
	ctx, cancel := context.WithCancel(s.t.Context())
	stream, err := s.user.Get().AbsPath(s.collection(version)).Param("watch", "true").
		Param("resourceVersion", list.GetResourceVersion()).Param("timeoutSeconds", "600").Stream(ctx)
	require.NoError(s.t, err)
	return func() (events []any) {
		defer cancel()
		defer stream.Close()
		last := s.accepted[len(s.accepted)-1].GetName()
		decoder := json.NewDecoder(stream)
		for {
			var event struct {
				Type   string
				Object map[string]any
			}
			err := decoder.Decode(&event)
			if errors.Is(err, io.EOF) {
				require.FailNow(s.t, "The watch has ended.", events)
			}
			require.NoError(s.t, err)
			events = append(events, event.Type, normal(event.Object))
			name, _, _ := unstructured.NestedString(event.Object, "metadata", "name")
			// The first is deleted twice.
			if event.Type == "DELETED" && name == last && (len(s.accepted) > 1 || deletions(events) == 2) {
				return events
			}
		}
	}
}

func deletions(events []any) (count int) {
	for _, event := range events {
		if event == "DELETED" {
			count++
		}
	}
	return count
}
