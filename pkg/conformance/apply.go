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
	"fmt"
	"net/http"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/yaml"
)

const serverSideApply = "https://kubernetes.io/docs/reference/using-api/server-side-apply/"

func applyChecks() []Check {
	const needs = "create get update patch"
	return []Check{
		basic("apply/create", serverSideApply+"#serialization", needs,
			"Apply creates an object that does not exist, from YAML as well, and changes nothing when it is repeated.", func(p *Probe) {
				body, err := yaml.Marshal(p.New("create").Object)
				p.Require(Answer{}, err == nil, "the example is no YAML: %v", err)
				apply := func() Answer {
					return p.Patch(p.Name("create"), types.ApplyPatchType, body, Query("fieldManager", "alice"))
				}
				created := p.Object(apply(), http.StatusCreated)
				answer := apply()
				p.Same(answer, "the object", created, p.Object(answer, http.StatusOK))
			}),
		basic("apply/refused", serverSideApply, needs,
			"Apply without a field manager, of another name or kind than that of the path, of managedFields, or of a stale resourceVersion is refused.", func(p *Probe) {
				name := p.Create("refused").GetName()
				for _, refusal := range []struct {
					manager, kind string
					metadata      map[string]any
					code          int
				}{
					{"", p.Kind, map[string]any{"name": name}, http.StatusUnprocessableEntity},
					{"alice", "Unknown", map[string]any{"name": name}, http.StatusBadRequest},
					{"alice", p.Kind, map[string]any{"name": p.Name("other")}, http.StatusBadRequest},
					{"alice", p.Kind, map[string]any{"name": name, "managedFields": []any{map[string]any{"manager": "x"}}}, http.StatusBadRequest},
					{"alice", p.Kind, map[string]any{"name": name, "resourceVersion": "1"}, http.StatusConflict},
				} {
					object := map[string]any{"apiVersion": p.GroupVersion().String(), "kind": refusal.kind, "metadata": refusal.metadata}
					p.Refused(p.Patch(name, types.ApplyPatchType, object, Query("fieldManager", refusal.manager), Query("force", "true")), refusal.code, "")
				}
			}),
		basic("apply/ownership", serverSideApply+"#field-management", needs,
			"A manager owns just the fields that it has applied.", func(p *Probe) {
				_, document := p.openAPI()
				answer := p.Apply("alice", p.New("ownership"))
				owners := p.owners(answer)
				typed, err := typedBy(document, p.New("ownership"))
				p.Require(answer, err == nil, "an object that fits OpenAPI v3 is expected: %v", err)
				set, err := typed.ToFieldSet()
				p.Require(answer, err == nil, "the fields of the object: %v", err)
				want := slices.DeleteFunc(paths(set), func(path string) bool {
					return slices.Contains([]string{".apiVersion", ".kind", ".metadata", ".metadata.labels", ".metadata.name", ".metadata.namespace"}, path)
				})
				p.Equal(answer, "the fields of the manager", map[string][]string{"alice Apply " + p.Version: want}, owners)
			}),
		basic("apply/shared", serverSideApply+"#field-management", needs,
			"Managers that apply the same value own it together. A field goes when the last of them no longer applies it.", func(p *Probe) {
				p.Create("shared")
				p.Object(p.Apply("alice", p.partial("shared", map[string]string{"mine": "1", "shared": "1"})), http.StatusOK)
				p.Object(p.Apply("bob", p.partial("shared", map[string]string{"shared": "1", "yours": "1"})), http.StatusOK)
				for _, step := range []struct {
					manager       string
					applied, want map[string]string
				}{
					{"alice", map[string]string{"mine": "2"}, map[string]string{"mine": "2", "shared": "1", "yours": "1"}},
					{"alice", nil, map[string]string{"shared": "1", "yours": "1"}},
					{"bob", map[string]string{"yours": "1"}, map[string]string{"yours": "1"}},
					{"bob", nil, map[string]string{}},
				} {
					p.Annotated(p.Apply(step.manager, p.partial("shared", step.applied)), step.want)
				}
			}),
		basic("apply/conflict", serverSideApply+"#conflicts", needs,
			"Apply of another value than another manager has applied is refused with 409. The cause names field and manager.", func(p *Probe) {
				p.Create("conflict")
				p.Object(p.Apply("alice", p.partial("conflict", map[string]string{"x": "1"})), http.StatusOK)
				p.conflicts(p.Apply("bob", p.partial("conflict", map[string]string{"x": "2"})), annotation("x"), `conflict with "alice"`)
			}),
		basic("apply/force", serverSideApply+"#conflicts", needs,
			"Apply with force takes the fields from their managers.", func(p *Probe) {
				p.Create("force")
				p.Object(p.Apply("alice", p.partial("force", map[string]string{"x": "1", "y": "1"})), http.StatusOK)
				answer := p.Apply("bob", p.partial("force", map[string]string{"x": "2"}), Query("force", "true"))
				p.Annotated(answer, map[string]string{"x": "2", "y": "1"})
				p.Equal(answer, "the fields of the managers", map[string][]string{
					"alice Apply " + p.Version: {annotation("y")}, "bob Apply " + p.Version: {annotation("x")},
				}, p.owners(answer))
			}),
		basic("apply/update", serverSideApply+"#field-management", needs,
			"An update takes the fields that it changes from the managers that have applied them, and is named in conflicts.", func(p *Probe) {
				p.Create("update")
				p.Object(p.Apply("alice", p.partial("update", map[string]string{"x": "1", "y": "1"})), http.StatusOK)
				answer := p.Rewrite(p.Name("update"), func(object *unstructured.Unstructured) { annotate(object, "x", "2") }, Query("fieldManager", "carol"))
				p.Equal(answer, "the fields of the managers", map[string][]string{
					"alice Apply " + p.Version: {annotation("y")}, "carol Update " + p.Version: {annotation("x")},
				}, p.owners(answer))
				p.conflicts(p.Apply("bob", p.partial("update", map[string]string{"x": "1"})), annotation("x"), `conflict with "carol" using `+p.GroupVersion().String())
			}),
		basic("apply/clear", serverSideApply+"#clearing-managedfields", needs,
			"A list of one empty entry clears managedFields.", func(p *Probe) {
				p.Create("clear")
				p.Object(p.Apply("alice", p.partial("clear", map[string]string{"x": "1"})), http.StatusOK)
				answer := p.Patch(p.Name("clear"), types.MergePatchType, `{"metadata":{"managedFields":[{}]}}`)
				p.Equal(answer, "the owners", map[string][]string{}, p.owners(answer))
			}),
		basic("apply/gone-version", serverSideApply+"#field-management", needs,
			"Fields that are owned in a version that is no longer served keep nobody from applying, and are dropped.", func(p *Probe) {
				p.Create("gone-version")
				p.Update(p.Name("gone-version"), func(object *unstructured.Unstructured) {
					object.SetManagedFields(append(object.GetManagedFields(), metav1.ManagedFieldsEntry{
						Manager: "gone", Operation: metav1.ManagedFieldsOperationApply, APIVersion: strings.TrimPrefix(p.Group+"/v0gone", "/"), FieldsType: "FieldsV1",
						FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:` + annotationPrefix + `x":{}}}}`),
					}))
				})
				answer := p.Apply("alice", p.partial("gone-version", map[string]string{"x": "1"}))
				p.Equal(answer, "the fields of the managers", map[string][]string{"alice Apply " + p.Version: {annotation("x")}}, p.owners(answer))
			}),
		basic("apply/versions", serverSideApply+"#field-management", needs+" versions",
			"A manager that moves on to another version owns the same as before, and nothing twice.", func(p *Probe) {
				created := p.Object(p.Apply("alice", p.New("versions")), http.StatusCreated)
				for _, version := range p.Versions {
					other := p.in(version)
					read := p.Object(other.Get(created.GetName()), http.StatusOK)
					read.Object["metadata"] = map[string]any{"name": created.GetName(), "labels": created.Object["metadata"].(map[string]any)["labels"]}
					delete(read.Object, "status")
					answer := other.Apply("alice", read)
					owners := other.owners(answer)
					p.Require(answer, len(owners) == 1 && owners["alice Apply "+version] != nil, "one entry in managedFields is expected, with the version %s", version)
					answer = p.Get(created.GetName())
					p.Equal(answer, "what was applied in "+version, content(created), content(p.Object(answer, http.StatusOK)))
				}
			}),
		basic("apply/versions-conflict", serverSideApply+"#conflicts", needs+" versions",
			"A field that a manager has applied in a version is a conflict in each other version, too.", func(p *Probe) {
				p.Create("versions-conflict")
				p.Object(p.Apply("alice", p.partial("versions-conflict", map[string]string{"x": "1"})), http.StatusOK)
				for _, version := range p.Versions {
					other := p.in(version)
					p.Object(other.Apply("bob", other.partial("versions-conflict", map[string]string{"x": "1"})), http.StatusOK)
					p.Object(other.Apply("bob", other.partial("versions-conflict", nil)), http.StatusOK)
					other.conflicts(other.Apply("bob", other.partial("versions-conflict", map[string]string{"x": "2"})), annotation("x"), `conflict with "alice"`)
				}
			}),
		basic("apply/status", serverSideApply+"#field-management", needs+" status/patch",
			"The status is applied apart: its fields have owners of their own, and apply of the object leaves it alone.", func(p *Probe) {
				p.Create("status")
				applied := p.partial("status", nil)
				applied.Object["status"] = p.status(p.Name("status"))
				isStatus := func(path string) bool { return strings.HasPrefix(path, ".status") }
				answer := p.Apply("baker", applied, At(p.Collection(applied.GetName(), "status")))
				owned := p.owners(answer)["baker Apply "+p.Version+" status"]
				p.Require(answer, len(owned) > 0 && !slices.ContainsFunc(owned, func(path string) bool { return !isStatus(path) }),
					"an entry of the manager is expected in managedFields, with the subresource \"status\" and only fields of the status")
				var before *unstructured.Unstructured
				answer = p.Eventually(func() Answer {
					before = p.Object(p.Get(applied.GetName()), http.StatusOK)
					object := applied.DeepCopy()
					object.SetResourceVersion(before.GetResourceVersion())
					object.Object["status"] = map[string]any{}
					return p.Apply("alice", object)
				}, conflict)
				p.Equal(answer, "the status, after apply of the object", before.Object["status"], p.Object(answer, http.StatusOK).Object["status"])
				owned = p.owners(answer)["alice Apply "+p.Version]
				p.Require(answer, !slices.ContainsFunc(owned, isStatus), "no field of the status is expected to be owned by the manager of the object: %s", owned)
			}),
		basic("apply/scale", serverSideApply+"#transferring-ownership", needs+" scale/patch",
			"A client of the scale owns the field of the object that has the replicas, and others that apply it have conflicts.", func(p *Probe) {
				// Apply of a scale fails on custom resources: https://github.com/kubernetes/kubernetes/issues/116311.
				var scaled autoscalingv1.Scale
				name := p.Create("scale").GetName()
				// One of the patches changes the number of the example. Otherwise its owner would stay.
				for _, replicas := range []int32{2, 3} {
					patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
					answer := p.Patch(name, types.MergePatchType, patch, At(p.Collection(name, "scale")), Query("fieldManager", "scaler"))
					p.Decode(answer, http.StatusOK, &scaled)
					p.Equal(answer, "the replicas", replicas, scaled.Spec.Replicas)
				}
				answer := p.Get(name)
				owned := p.owners(answer)["scaler Update "+p.Version+" scale"]
				p.Require(answer, len(owned) == 1, "an entry of the client is expected in managedFields, with the subresource \"scale\" and one field of the object. "+
					"Custom resources have none if the replicas were never set: https://github.com/kubernetes/kubernetes/issues/131892")
				object := p.partial("scale", nil)
				err := unstructured.SetNestedField(object.Object, int64(4), strings.Split(strings.TrimPrefix(owned[0], "."), ".")...)
				p.Require(answer, err == nil, "the path of a number is expected in managedFields: %v", err)
				p.conflicts(p.Apply("alice", object), owned[0], `conflict with "scaler" with subresource "scale" using `+p.GroupVersion().String())
			}),
	}
}

// annotation returns the path of an annotation in conflicts and managedFields.
func annotation(name string) string { return ".metadata.annotations." + annotationPrefix + name }

// partial returns an object to apply that has only annotations.
func (p *Probe) partial(suffix string, annotations map[string]string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(p.GroupVersionKind())
	object.SetName(p.Name(suffix))
	for name, value := range annotations {
		annotate(object, name, value)
	}
	return object
}

// owners returns the fields of each manager, by its name, operation, version and subresource. It
// leaves out managers that the check has not named.
func (p *Probe) owners(answer Answer) map[string][]string {
	p.Require(answer, answer.Code == http.StatusOK || answer.Code == http.StatusCreated, "an object is expected")
	owners, object := map[string][]string{}, p.Object(answer, answer.Code)
	p.Require(answer, len(object.GetManagedFields()) > 0 || strings.HasSuffix(object.GetName(), "-clear"), "managedFields are expected")
	for _, entry := range object.GetManagedFields() {
		version := entry.APIVersion[strings.LastIndex(entry.APIVersion, "/")+1:]
		owner := strings.TrimSpace(fmt.Sprintf("%s %s %s %s", entry.Manager, entry.Operation, version, entry.Subresource))
		if entry.Manager == manager || !slices.Contains(managers(), entry.Manager) {
			continue
		}
		p.Require(answer, owners[owner] == nil && entry.FieldsV1 != nil, "one entry with fields is expected for %s", owner)
		var set fieldpath.Set
		err := set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes()))
		p.Require(answer, err == nil, "fields that can be read are expected for %s: %v", owner, err)
		owners[owner] = paths(&set)
	}
	return owners
}

// paths returns the sorted paths of a set.
func paths(set *fieldpath.Set) []string {
	paths := []string{}
	for path := range set.All() {
		paths = append(paths, path.String())
	}
	slices.Sort(paths)
	return paths
}

// conflicts requires an answer to refuse an apply for one field that another manager owns.
func (p *Probe) conflicts(answer Answer, field, message string) {
	status := p.Refused(answer, http.StatusConflict, metav1.StatusReasonConflict)
	want := []metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict, Field: field, Message: message}}
	p.Require(answer, slices.Equal(status.Details.Causes, want), "one cause is expected: %s", inJSON(want))
}
