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
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Sources of the checks.
const (
	conventions = "https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md"
	concepts    = "https://kubernetes.io/docs/reference/using-api/api-concepts/"
	objects     = "https://kubernetes.io/docs/concepts/overview/working-with-objects/"
)

func verbChecks() []Check {
	return slices.Concat([]Check{
		basic("verbs/create", conventions+"#metadata", "create get",
			"A create brings the object with what only the server sets: UID, resource version and time are its own, whatever the client sent.", func(p *Probe) {
				sent := p.New("a")
				sent.SetUID("00000000-0000-0000-0000-000000000000")
				sent.SetDeletionTimestamp(&metav1.Time{Time: metav1.Now().Add(-1e12)})
				answer := p.Post(sent)
				created := p.Object(answer, http.StatusCreated)
				p.Require(answer, created.GetUID() != "" && created.GetUID() != sent.GetUID(), "a new UID is expected")
				p.Require(answer, created.GetResourceVersion() != "" && !created.GetCreationTimestamp().Time.IsZero(), "a resource version and the time of creation are expected")
				p.Require(answer, created.GetDeletionTimestamp() == nil, "an object that is not being deleted is expected")
				p.Equal(answer, "kind, name and namespace", identity(sent), identity(created))
				p.Require(answer, within(sent.GetLabels(), created.GetLabels()), "the labels that were sent are expected")
				read := p.Get(sent.GetName())
				p.Same(read, "the object", created, p.Object(read, http.StatusOK))
			}),
		basic("verbs/create-existing", conventions+"#http-status-codes", "create get",
			"An object of a name that exists is not created: 409, AlreadyExists.", func(p *Probe) {
				p.Create("a")
				p.Refused(p.Post(p.New("a")), http.StatusConflict, metav1.StatusReasonAlreadyExists)
			}),
		basic("verbs/names", objects+"names/#path-segment-names", "create get",
			"An object without a name, or with one that can't be part of a path, is refused: 422 with the field metadata.name.", func(p *Probe) {
				for _, name := range []string{"", ".", "..", "a/b", "a%b"} {
					object := p.New("a")
					object.SetName(name)
					p.refusedFor(p.Post(object), "metadata.name")
				}
			}),
		basic("verbs/generate-name", conventions+"#idempotency", "create get",
			"An object with generateName but no name gets a new name of that prefix and five letters and digits.", func(p *Probe) {
				object := p.unnamed("")
				first, second := p.Post(object), p.Post(object)
				a, b := p.Object(first, http.StatusCreated), p.Object(second, http.StatusCreated)
				p.Require(first, regexp.MustCompile("^"+p.Name("")+"[a-z0-9]{5}$").MatchString(a.GetName()), "a name of the prefix and five characters is expected")
				p.Require(second, a.GetName() != b.GetName(), "another name than that of the first object is expected")
			}),
		basic("verbs/bodies", conventions+"#http-status-codes", "create update",
			"A body that is no object of the kind, or not the one that the path names, is refused: 400.", func(p *Probe) {
				for _, body := range []any{"", "{", "[]", `"a"`} {
					p.Refused(p.Do(http.MethodPost, p.Collection(), body, Header("Content-Type", "application/json")), http.StatusBadRequest, "")
				}
				existing := p.Create("a")
				for _, change := range []struct{ field, value string }{
					{"kind", "Other"}, {"apiVersion", "other.example.com/v1"}, {"metadata.name", p.Name("other")}, {"metadata.namespace", "other"},
				} {
					if change.field == "metadata.namespace" && !p.Namespaced {
						continue
					}
					object := existing.DeepCopy()
					_ = unstructured.SetNestedField(object.Object, change.value, strings.Split(change.field, ".")...)
					answer := p.Put(object, At(p.Collection(existing.GetName())))
					// Custom resources validate their kind.
					if answer.Code == http.StatusUnprocessableEntity && change.field == "kind" {
						p.refusedFor(answer, "kind")
						continue
					}
					p.Refused(answer, http.StatusBadRequest, "")
				}
			}),
		basic("verbs/media-types", concepts+"#alternate-representations-of-resources", "create get list",
			"A body of an unknown media type is refused with 415, and a request for an answer in one with 406.", func(p *Probe) {
				p.Refused(p.Post(p.New("a"), Header("Content-Type", "text/plain")), http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType)
				for _, accept := range []string{"text/html", "application/json;as=Other;v=v1;g=meta.k8s.io"} {
					p.Refused(p.List(Header("Accept", accept)), http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable)
				}
			}),
		basic("verbs/methods", conventions+"#http-status-codes", "create update patch",
			"A method that a path does not have is refused: 405. Custom resources miss the name: 400.", func(p *Probe) {
				object := p.Create("a")
				// A POST to an object's path is left out: custom resources take it for a create.
				media := map[string]string{http.MethodPut: "application/json", http.MethodPatch: string(types.MergePatchType)}
				for method := range media {
					if answer := p.Do(method, p.Collection(), object.Object, Header("Content-Type", media[method])); answer.Code != http.StatusBadRequest {
						p.Refused(answer, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed)
					}
				}
			}),
		basic("verbs/get-missing", conventions+"#http-status-codes", "get",
			"An object that does not exist can't be read: 404, NotFound.", func(p *Probe) {
				p.missing(p.Get(p.Name("missing")))
			}),
		basic("verbs/write-missing", conventions+"#verbs-on-resources", "create update patch delete",
			"An object that does not exist can't be changed or deleted: 404, NotFound. Few kinds are created by an update.", func(p *Probe) {
				p.missing(p.Patch(p.Name("missing"), types.MergePatchType, "{}"))
				p.missing(p.Delete(p.Name("missing"), nil))
				if answer := p.Put(p.New("missing")); answer.Code != http.StatusCreated {
					p.missing(answer)
				}
			}),
		basic("verbs/list", concepts+"#collections", "create list",
			"A list has all objects of a namespace, or of all namespaces, and a resource version.", func(p *Probe) {
				var raw struct {
					Items []struct{ APIVersion, Kind string }
				}
				empty := p.Decode(p.List(), http.StatusOK, &raw)
				p.Require(empty, raw.Items != nil, "an empty list of items is expected: clients in Go and in other languages don't expect null")
				a := p.Create("a")
				p.Create("b")
				for _, path := range []string{p.Collection(), p.CollectionIn("", p.Version)} {
					answer := p.Decode(p.List(At(path)), http.StatusOK, &raw)
					for _, item := range raw.Items { // Many lists say it once for all items.
						p.Equal(answer, "apiVersion and kind of an item", [2]string{p.GroupVersionKind().GroupVersion().String(), p.Kind},
							[2]string{cmp.Or(item.APIVersion, p.GroupVersionKind().GroupVersion().String()), cmp.Or(item.Kind, p.Kind)})
					}
					list := p.Listed(answer, "a b")
					p.Equal(answer, "the kind", p.Kind+"List", list.GetKind())
					p.Equal(answer, "the first object's UID", a.GetUID(), list.Items[0].GetUID())
					p.Require(answer, list.GetResourceVersion() != "", "a resource version is expected")
				}
			}),
		basic("verbs/label-selectors", objects+"labels/#api", "create list",
			"A list by labels has the objects that match.", func(p *Probe) {
				p.Create("a", labeled("size", "small"))
				p.Create("b", labeled("size", "large"))
				p.Create("c")
				for selector, want := range map[string]string{
					"size": "a b", "!size": "c", "size=small": "a", "size==small": "a", "size!=small": "b c", "size=none": "",
					"size in (small,large)": "a b", "size notin (large)": "a c", "size,size!=small": "b",
				} {
					p.Listed(p.Do(http.MethodGet, p.Collection(), nil, p.Selector(selector)), want)
				}
			}),
		basic("verbs/field-selectors", objects+"field-selectors/", "create list",
			"A list by metadata.name has the objects that match, for every kind.", func(p *Probe) {
				p.Create("a")
				p.Create("b")
				for selector, want := range map[string]string{"=" + p.Name("a"): "a", "==" + p.Name("b"): "b", "!=" + p.Name("a"): "b", "=a": ""} {
					p.Listed(p.List(Query("fieldSelector", "metadata.name"+selector)), want)
				}
			}),
		basic("verbs/bad-selectors", objects+"field-selectors/#supported-fields", "create get list watch",
			"A selector that is malformed, or by a field that the kind does not have, is refused: 400. Nothing is deleted.", func(p *Probe) {
				if p.Namespaced { // The server may delete all there.
					p.OwnNamespace()
				}
				name := p.Create("a").GetName()
				for _, selectors := range [][2]string{{"", "nonexistent="}, {"", "metadata.name"}, {",a in (", ""}, {",a=b=c", ""}} {
					options := []Option{Query("labelSelector", Label+"="+p.ID+selectors[0]), Query("fieldSelector", selectors[1])}
					p.Refused(p.Do(http.MethodGet, p.Collection(), nil, options...), http.StatusBadRequest, "")
					if p.lacks("", "deletecollection") == "" {
						p.Refused(p.Do(http.MethodDelete, p.Collection(), nil, options...), http.StatusBadRequest, "")
					}
					p.Refused(p.Do(http.MethodGet, p.Collection(), nil, append(options, Query("watch", "true"), Query("timeoutSeconds", "1"))...), http.StatusBadRequest, "")
				}
				p.Object(p.Get(name), http.StatusOK)
			}),
		basic("verbs/delete", conventions+"#response-status-kind", "create get delete",
			"A delete tells by the UID which object it has deleted, by a Status or by the object, which can't be read any more.", func(p *Probe) {
				created := p.Create("a")
				answer := p.Delete(created.GetName(), nil)
				var deleted struct {
					Status   any
					Details  metav1.StatusDetails
					Metadata metav1.ObjectMeta
				}
				p.Require(answer, json.Unmarshal(answer.Body, &deleted) == nil && (answer.Code == http.StatusOK || answer.Code == http.StatusAccepted), "200 or 202 with an object is expected")
				p.Require(answer, deleted.Details.UID == created.GetUID() || deleted.Metadata.UID == created.GetUID(), "the UID %s is expected", created.GetUID())
				p.gone(created.GetName())
			}),
		basic("verbs/deletecollection", conventions+"#verbs-on-resources", "create get list deletecollection",
			"A collection is deleted by a selector. Other objects stay.", func(p *Probe) {
				p.OwnNamespace()
				kept, name := p.Create("kept", labeled("kept", "true")), p.Create("a").GetName()
				p.Decode(p.Do(http.MethodDelete, p.Collection(), nil, p.Selector("!kept")), http.StatusOK, nil)
				p.gone(name)
				p.Object(p.Get(kept.GetName()), http.StatusOK)
			}),
		basic("verbs/update", conventions+"#verbs-on-resources", "create get update",
			"An update replaces the object: what its body does not have is removed.", func(p *Probe) {
				name := p.Create("a", annotated("first", "second")).GetName()
				var before string
				updated := p.Update(name, func(object *unstructured.Unstructured) {
					before = object.GetResourceVersion()
					object.SetAnnotations(nil)
					annotate(object, "second", "changed")
				})
				answer := p.Get(name)
				p.Annotated(answer, map[string]string{"second": "changed"})
				p.Require(answer, updated.GetResourceVersion() != before, "another resource version than before is expected")
			}),
	}, patchChecks())
}

// patchChecks returns checks of all types of patches but apply, which has its own area.
func patchChecks() []Check {
	var checks []Check
	for _, patch := range []struct {
		name, rule string
		kind       types.PatchType
		body       string
		want       map[string]string
	}{{
		"json", "A JSON patch does what its operations say, in order.", types.JSONPatchType,
		`[{"op":"test","path":"/metadata/annotations/PREFIXfirst","value":"first"}, {"op":"remove","path":"/metadata/annotations/PREFIXfirst"},
			{"op":"replace","path":"/metadata/annotations/PREFIXsecond","value":"2"}, {"op":"add","path":"/metadata/annotations/PREFIXthird","value":"3"}]`,
		map[string]string{"second": "2", "third": "3"},
	}, {
		"merge", "A merge patch sets what it has, and removes what is null.", types.MergePatchType,
		`{"metadata":{"annotations":{"PREFIXfirst":null,"PREFIXsecond":"2"}}}`, map[string]string{"second": "2"},
	}, {
		"strategic", "A strategic merge patch knows directives: $patch: replace. Custom resources have none: 415.", types.StrategicMergePatchType,
		`{"metadata":{"annotations":{"$patch":"replace","PREFIXthird":"3"}}}`, map[string]string{"third": "3"},
	}} {
		checks = append(checks, basic("verbs/patch-"+patch.name, "https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/", "create get patch",
			patch.rule, func(p *Probe) {
				name, prefix := p.Create("a", annotated("first", "second")).GetName(), annotationPrefix
				if patch.kind == types.JSONPatchType {
					prefix = strings.ReplaceAll(prefix, "/", "~1")
				}
				answer := p.Patch(name, patch.kind, strings.ReplaceAll(patch.body, "PREFIX", prefix))
				p.OnlyIf(patch.kind != types.StrategicMergePatchType || answer.Code != http.StatusUnsupportedMediaType, "strategic merge patches are not supported: %s", statusOf(answer))
				p.Annotated(answer, patch.want)
				p.Annotated(p.Get(name), patch.want)
			}))
	}
	return append(checks, basic("verbs/patch-refused", conventions+"#patch-operations", "create get patch",
		"A patch is refused that is malformed (400), of an unknown type (415), late (409) or whose test fails (422). It changes nothing.", func(p *Probe) {
			created := p.Create("a", annotated("first"))
			p.Object(p.Patch(created.GetName(), types.MergePatchType, `{"metadata":{"annotations":{"`+annotationPrefix+`second":"2"}}}`), http.StatusOK)
			for _, patch := range []struct {
				kind types.PatchType
				body string
				code int
			}{
				{types.MergePatchType, "{", http.StatusBadRequest},
				{types.JSONPatchType, `{"op":"remove"}`, http.StatusBadRequest},
				{types.JSONPatchType, `[{"op":"test","path":"/metadata/name","value":"other"}]`, http.StatusUnprocessableEntity},
				{types.MergePatchType, `{"metadata":{"resourceVersion":"` + created.GetResourceVersion() + `","annotations":null}}`, http.StatusConflict},
				{"application/json", "{}", http.StatusUnsupportedMediaType},
			} {
				p.Refused(p.Patch(created.GetName(), patch.kind, patch.body), patch.code, "")
			}
			p.Annotated(p.Get(created.GetName()), map[string]string{"first": "first", "second": "2"})
		}))
}
