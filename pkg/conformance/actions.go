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
	"maps"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// action is a verb of the resource or of one of its subresources.
type action struct{ verb, subresource string }

// writes reports whether admission is asked about the action. A get of a subresource may be a
// connection, but nothing in discovery says so.
func (a action) writes() bool { return !slices.Contains([]string{"get", "list", "watch"}, a.verb) }

// resource is the action's resource as roles name it.
func (a action) resource(p *Probe) string {
	if a.subresource == "" {
		return p.GroupVersionResource.Resource
	}
	return p.GroupVersionResource.Resource + "/" + a.subresource
}

// actions returns the actions that discovery lists. In a run that only reads, it leaves out actions
// that write, and always those that could delete objects of others.
func (p *Probe) actions() []action {
	var all []action
	for _, verb := range p.Discovered.Verbs {
		if verb != "deletecollection" || p.lacks("", verb) == "" {
			all = append(all, action{verb, ""})
		}
	}
	for _, subresource := range slices.Sorted(maps.Keys(p.Subresources)) {
		for _, verb := range p.Subresources[subresource].Verbs {
			all = append(all, action{verb, subresource})
		}
	}
	return slices.DeleteFunc(all, func(a action) bool { return p.run.ReadOnly && a.writes() })
}

// writing returns the actions that admission is asked about.
func (p *Probe) writing() []action {
	return slices.DeleteFunc(p.actions(), func(a action) bool { return !a.writes() })
}

// subject creates an object for actions. If the API creates no objects, or no valid one is known,
// the object has only a name. That is enough for requests that are refused.
func (p *Probe) subject(suffix string) *unstructured.Unstructured {
	if p.Example != nil && !p.run.ReadOnly && p.lacks("", "create") == "" && p.lacks("", "get") == "" {
		return p.Create(suffix)
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(p.GroupVersionKind())
	object.SetName(p.Name(suffix))
	object.SetNamespace(p.Namespace)
	return object
}

// unchanged ends the check if the object is not as before. Beside controllers it looks at the metadata only: they also
// remove what they do not own, such as taints.
func (p *Probe) unchanged(object *unstructured.Unstructured) {
	if object.GetUID() == "" {
		return
	}
	answer := p.Get(object.GetName())
	now := p.Object(answer, http.StatusOK)
	if slices.ContainsFunc(now.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool { return !slices.Contains(managers(), entry.Manager) }) {
		object, now = onlyMetadata(object), onlyMetadata(now)
	}
	p.Same(answer, "the object after requests that were refused", object, now)
}

// act does an action on an object, as a dry run. It succeeds with the permission, unless a
// subresource takes more than its kind.
func (p *Probe) act(a action, object *unstructured.Unstructured, options ...Option) Answer {
	var body any
	switch {
	case a.verb == "patch":
		body = "{}"
	case a.verb == "create" && a.subresource == "":
		other := object.DeepCopy()
		other.SetName(object.GetName() + "-new")
		if p.Example != nil {
			other = p.New("new")
			other.SetNamespace(object.GetNamespace())
		}
		body = other.Object
	case a.verb == "update" && (a.subresource == "" || a.subresource == "status"):
		body = object.Object
		if object.GetUID() != "" { // A controller may have written it meanwhile.
			body = p.Object(p.Get(object.GetName()), http.StatusOK).Object
		}
	case a.verb == "create" || a.verb == "update":
		body = p.stub(a, object)
	}
	return p.try(a, object.GetNamespace(), object.GetName(), body, options...)
}

// try sends the request of an action on an object of that name, as a dry run.
func (p *Probe) try(a action, namespace, name string, body any, options ...Option) Answer {
	method, found := map[string]string{
		"create": http.MethodPost, "update": http.MethodPut, "patch": http.MethodPatch, "delete": http.MethodDelete, "deletecollection": http.MethodDelete,
	}[a.verb]
	if !found {
		method = http.MethodGet
	}
	if a.writes() {
		options = append(options, Query("dryRun", "All"))
	}
	path := p.CollectionIn(namespace, p.Version)
	switch {
	case a.subresource != "":
		path = p.CollectionIn(namespace, p.Version, name, a.subresource)
	case a.verb == "list", a.verb == "deletecollection":
		options = append(options, p.Selector())
	case a.verb == "watch":
		options = append(options, p.Selector(), Query("watch", "true"), Query("timeoutSeconds", "1"))
	case a.verb != "create":
		path += "/" + name
	}
	if a.verb == "patch" {
		options = append(options, Header("Content-Type", string(types.MergePatchType)))
	}
	return p.Do(method, path, body, options...)
}

// connects reports whether a subresource is a connection, which refuses dry runs.
func connects(answer Answer) bool {
	return answer.Code == http.StatusBadRequest && strings.Contains(statusOf(answer), "dryRun is not supported")
}

// stub returns a body for a subresource. It is the present content, or else an object with only a
// name.
func (p *Probe) stub(a action, object *unstructured.Unstructured) any {
	entry := p.Subresources[a.subresource]
	if slices.Contains(entry.Verbs, "get") && object.GetUID() != "" {
		if answer := p.Do(http.MethodGet, p.Collection(object.GetName(), a.subresource), nil); answer.Code == http.StatusOK {
			return answer.Body
		}
	}
	version := p.GroupVersion()
	if entry.Version != "" {
		version.Group, version.Version = entry.Group, entry.Version
	}
	return map[string]any{"apiVersion": version.String(), "kind": entry.Kind, "metadata": map[string]any{"name": object.GetName(), "namespace": object.GetNamespace()}}
}
