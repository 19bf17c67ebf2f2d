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
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// annotationPrefix begins the names of annotations that checks write. Every kind has annotations,
// unlike a field of the spec.
const annotationPrefix = "conformance.example.com/"

// annotate gives an object an annotation.
func annotate(object *unstructured.Unstructured, name, value string) {
	object.SetAnnotations(labels.Merge(object.GetAnnotations(), map[string]string{annotationPrefix + name: value}))
}

// labeled returns a change that gives an object a label.
func labeled(name, value string) func(*unstructured.Unstructured) {
	return func(object *unstructured.Unstructured) {
		object.SetLabels(labels.Merge(object.GetLabels(), map[string]string{name: value}))
	}
}

// annotations returns the annotations that checks have written, without annotationPrefix.
func annotations(object *unstructured.Unstructured) map[string]string {
	own := map[string]string{}
	for name, value := range object.GetAnnotations() {
		if name, found := strings.CutPrefix(name, annotationPrefix); found {
			own[name] = value
		}
	}
	return own
}

// annotated returns a change that gives an object annotations, each with its name as the value.
func annotated(names ...string) func(*unstructured.Unstructured) {
	return func(object *unstructured.Unstructured) {
		for _, name := range names {
			annotate(object, name, name)
		}
	}
}

// Annotated ends the check unless an answer is an object with exactly these annotations of checks.
func (p *Probe) Annotated(answer Answer, want map[string]string) {
	p.Equal(answer, "annotations", want, annotations(p.Object(answer, http.StatusOK)))
}

// Listed returns a list, and ends the check unless its objects are those with these suffixes.
func (p *Probe) Listed(answer Answer, suffixes string) *unstructured.UnstructuredList {
	list := p.Items(answer)
	p.Equal(answer, "names", p.names(suffixes), names(list))
	return list
}

// unnamed returns a new object with generateName instead of a name.
func (p *Probe) unnamed(prefix string) *unstructured.Unstructured {
	object := p.New("")
	object.SetName("")
	object.SetGenerateName(p.Name(prefix))
	return object
}

// Update changes an object, and ends the check if it can't.
func (p *Probe) Update(name string, change func(*unstructured.Unstructured), options ...Option) *unstructured.Unstructured {
	return p.Object(p.Rewrite(name, change, options...), http.StatusOK)
}

// Rewrite updates the present object, and tries again if a controller has written it meanwhile.
func (p *Probe) Rewrite(name string, change func(*unstructured.Unstructured), options ...Option) Answer {
	return p.Eventually(func() Answer {
		object := p.Object(p.Get(name), http.StatusOK)
		change(object)
		return p.Put(object, options...)
	}, conflict)
}

// until returns a condition for Probe.Eventually. Something is missing until answers meet it.
func until(missing string, met func(Answer) bool) func(Answer) string {
	return func(answer Answer) string {
		if met(answer) {
			return ""
		}
		return missing
	}
}

// while returns a condition for Probe.Eventually. Something is missing as long as answers have one
// of the codes.
func while(missing string, codes ...int) func(Answer) string {
	return until(missing, func(answer Answer) bool { return !slices.Contains(codes, answer.Code) })
}

// conflict is a condition for Probe.Eventually. It fails as long as a controller writes between a
// read and an update.
func conflict(answer Answer) string {
	return while("an update of what was just read is expected", http.StatusConflict)(answer)
}

// AtOnce sends requests side by side, and ends the check if one gets no answer.
func (p *Probe) AtOnce(count int, request func(int) Request) []Answer {
	answers, errs := make([]Answer, count), make([]error, count)
	var group sync.WaitGroup
	for i := range count {
		group.Go(func() { answers[i], errs[i] = p.send(p.ctx, request(i)) })
	}
	group.Wait()
	for i, err := range errs {
		if err != nil {
			p.unanswered(answers[i], err)
		}
	}
	return answers
}

// Change gives an object a valid change, and ends the check if none is known.
func (p *Probe) Change(object *unstructured.Unstructured) {
	if len(p.Example.Changes) == 0 {
		p.NotOffered("no field is known to have another valid value: a second example of the kind shows one")
	}
	change := p.Example.Changes[0]
	if err := unstructured.SetNestedField(object.Object, change.Value, change.Path...); err != nil {
		p.NotOffered("%v", err)
	}
}

// names returns the sorted names of a list's objects.
func names(list *unstructured.UnstructuredList) []string {
	names := []string{}
	for _, item := range list.Items {
		names = append(names, item.GetName())
	}
	slices.Sort(names)
	return names
}

// names returns the names of objects with these suffixes.
func (p *Probe) names(suffixes string) []string {
	names := []string{}
	for _, suffix := range strings.Fields(suffixes) {
		names = append(names, p.Name(suffix))
	}
	return names
}

// identity returns the kind, name and namespace of an object.
func identity(object *unstructured.Unstructured) []string {
	return []string{object.GroupVersionKind().String(), object.GetName(), object.GetNamespace()}
}

// Same ends the check if two states of an object differ. It ignores fields that other clients own,
// since a controller may have written between the two.
func (p *Probe) Same(answer Answer, what string, want, got *unstructured.Unstructured) {
	want, got = want.DeepCopy(), got.DeepCopy()
	for _, entry := range append(want.GetManagedFields(), got.GetManagedFields()...) {
		var fields map[string]any
		if slices.Contains(managers(), entry.Manager) || entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for _, object := range []*unstructured.Unstructured{want, got} {
			if entry.Subresource == "status" { // The server may set more of it, such as times of transitions.
				delete(object.Object, "status")
			}
			for _, always := range []string{"resourceVersion", "generation", "managedFields"} {
				unstructured.RemoveNestedField(object.Object, "metadata", always)
			}
			without(object.Object, fields)
		}
	}
	p.Equal(answer, what, want.Object, got.Object)
}

// manager is the field manager of requests that name none.
const manager = "conformance"

// managers returns the field managers of all requests.
func managers() []string {
	return []string{manager, "alice", "bob", "carol", "baker", "scaler", "gone"}
}

// without removes fields, in the form of managedFields, from an object. It removes whole lists.
func without(object, fields map[string]any) {
	for key, below := range fields {
		name, _ := strings.CutPrefix(key, "f:")
		inner, isObject := object[name].(map[string]any)
		if owned, _ := below.(map[string]any); isObject && len(owned) > 0 {
			without(inner, owned)
		}
		if owned, _ := below.(map[string]any); !isObject || len(owned) == 0 || len(inner) == 0 {
			delete(object, name)
		}
	}
}

// onlyMetadata returns an object as PartialObjectMetadata.
func onlyMetadata(object *unstructured.Unstructured) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object.Object["metadata"]}}
}

// revision returns the resource version of an object or a list as a number. Since Kubernetes 1.35,
// clients may compare them.
func (p *Probe) revision(answer Answer, object interface{ GetResourceVersion() string }) uint64 {
	revision, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	p.Require(answer, err == nil && !strings.HasPrefix(object.GetResourceVersion(), "0"), "a decimal number that is not 0 is expected as the resource version, %q came", object.GetResourceVersion())
	return revision
}

// missing ends the check unless an answer says that the object does not exist.
func (p *Probe) missing(answer Answer) {
	status := p.Refused(answer, http.StatusNotFound, metav1.StatusReasonNotFound)
	want := metav1.StatusDetails{Name: p.Name("missing"), Group: p.Group, Kind: p.GroupVersionResource.Resource}
	p.Equal(answer, "the details' name, group and resource", want, metav1.StatusDetails{Name: status.Details.Name, Group: status.Details.Group, Kind: status.Details.Kind})
}

// gone waits until an object can't be read. Objects of some kinds end gracefully, or once a controller allows it.
func (p *Probe) gone(name string) {
	p.Within(controllerPatience, func() Answer { return p.Get(name) }, until("404 is expected", func(answer Answer) bool { return answer.Code == http.StatusNotFound }))
}

// beingDeleted waits until an object is being deleted.
func (p *Probe) beingDeleted(name string) {
	p.Eventually(func() Answer { return p.Get(name) }, until("an object that is being deleted is expected", func(answer Answer) bool {
		return p.Object(answer, http.StatusOK).GetDeletionTimestamp() != nil
	}))
}

// refusedFor ends the check unless the answer is 422 with a cause about a field or its content.
func (p *Probe) refusedFor(answer Answer, field string) {
	status := p.Refused(answer, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	p.Require(answer, slices.ContainsFunc(status.Details.Causes, func(cause metav1.StatusCause) bool { return strings.HasPrefix(cause.Field, field) }), "a cause with the field %s is expected", field)
}
