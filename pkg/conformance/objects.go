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
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// annotationPrefix begins the names of annotations that checks write: unlike a field of the spec, every kind has them.
const annotationPrefix = "conformance.example.com/"

// annotate gives an object an annotation.
func annotate(object *unstructured.Unstructured, name, value string) {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationPrefix+name] = value
	object.SetAnnotations(annotations)
}

// annotations are those that checks have written.
func annotations(object *unstructured.Unstructured) map[string]string {
	own := map[string]string{}
	for name, value := range object.GetAnnotations() {
		if name, found := strings.CutPrefix(name, annotationPrefix); found {
			own[name] = value
		}
	}
	return own
}

// annotated creates an object with annotations, each with its name as the value.
func (p *Probe) annotated(suffix string, names ...string) *unstructured.Unstructured {
	object := p.New(suffix)
	for _, name := range names {
		annotate(object, name, name)
	}
	return p.Object(p.Post(object), http.StatusCreated)
}

// Update changes an object as it is now, and again if a controller has written it meanwhile.
func (p *Probe) Update(name string, change func(*unstructured.Unstructured), options ...Option) *unstructured.Unstructured {
	return p.Object(p.Eventually(func() Answer {
		object := p.Object(p.Get(name), http.StatusOK)
		change(object)
		return p.Put(object, options...)
	}, conflict), http.StatusOK)
}

// while is a condition of Probe.Eventually: something is missing as long as answers have a code.
func while(code int, missing string) func(Answer) string {
	return func(answer Answer) string { return map[int]string{code: missing}[answer.Code] }
}

// conflict is there as long as a controller writes between a read and an update.
func conflict(answer Answer) string {
	return while(http.StatusConflict, "an update of what was just read is expected")(answer)
}

// AtOnce sends requests side by side, and ends the check if one gets no answer.
func (p *Probe) AtOnce(count int, request func(int) Request) []Answer {
	answers, errs := make([]Answer, count), make([]error, count)
	var group sync.WaitGroup
	for i := range count {
		group.Go(func() { answers[i], errs[i] = p.run.send(p.ctx, request(i)) })
	}
	group.Wait()
	for i, err := range errs {
		if err != nil {
			p.Fail(answers[i], "no answer has come: %v", err)
		}
	}
	return answers
}

// Change gives an object a valid change, and ends the check if none is known.
func (p *Probe) Change(object *unstructured.Unstructured) {
	if err := p.Example.Change(object); err != nil {
		p.NotOffered("%v", err)
	}
}

// names are those of a list's objects, in order.
func names(list *unstructured.UnstructuredList) []string {
	names := []string{}
	for _, item := range list.Items {
		names = append(names, item.GetName())
	}
	slices.Sort(names)
	return names
}

// names are those of objects with the suffixes in a text.
func (p *Probe) names(suffixes string) []string {
	names := []string{}
	for _, suffix := range strings.Fields(suffixes) {
		names = append(names, p.Name(suffix))
	}
	return names
}

// identity is what a client says of an object to name it.
func identity(object *unstructured.Unstructured) []any {
	return []any{object.GroupVersionKind().String(), object.GetName(), object.GetNamespace(), object.GetLabels()}
}

// bare is an object without what controllers write.
func bare(object *unstructured.Unstructured) map[string]any {
	object = object.DeepCopy()
	delete(object.Object, "status")
	object.SetManagedFields(nil)
	object.SetResourceVersion("")
	return object.Object
}

// revision is the resource version of an object or a list, which since Kubernetes 1.35 clients may compare.
func (p *Probe) revision(answer Answer, object interface{ GetResourceVersion() string }) uint64 {
	revision, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil || strings.HasPrefix(object.GetResourceVersion(), "0") {
		p.Fail(answer, "a decimal number that is not 0 is expected as the resource version, %q came", object.GetResourceVersion())
	}
	return revision
}

// missing ends the check unless an answer says that the object does not exist.
func (p *Probe) missing(answer Answer) {
	status := p.Refused(answer, http.StatusNotFound, metav1.StatusReasonNotFound)
	if status.Details == nil || status.Details.Name != p.Name("missing") {
		p.Fail(answer, "details with the object's name are expected")
	}
}

// gone waits until an object can't be read. Objects of some kinds end gracefully.
func (p *Probe) gone(name string) {
	p.Eventually(func() Answer { return p.Get(name) }, func(answer Answer) string {
		if answer.Code == http.StatusNotFound {
			return ""
		}
		return "404 is expected"
	})
}

// beingDeleted waits until an object is being deleted.
func (p *Probe) beingDeleted(name string) {
	p.Eventually(func() Answer { return p.Get(name) }, func(answer Answer) string {
		if p.Object(answer, http.StatusOK).GetDeletionTimestamp() == nil {
			return "an object that is being deleted is expected"
		}
		return ""
	})
}

// refusedFor ends the check unless the answer is 422 with a cause about a field or what is in it.
func (p *Probe) refusedFor(answer Answer, field string) {
	status := p.Refused(answer, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	if status.Details == nil || !slices.ContainsFunc(status.Details.Causes, func(cause metav1.StatusCause) bool { return strings.HasPrefix(cause.Field, field) }) {
		p.Fail(answer, "a cause with the field %s is expected", field)
	}
}
