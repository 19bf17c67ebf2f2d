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
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// controllerPatience is how long a cluster's controllers may take. They look for new kinds
	// every half minute.
	controllerPatience = 45 * time.Second
	concurrency        = conventions + "#concurrency-control-and-consistency"
	garbage            = "https://kubernetes.io/docs/concepts/architecture/garbage-collection/"
	finalizer          = "conformance.example.com/held"
)

func writeChecks() []Check {
	return slices.Concat(concurrencyChecks(), metadataChecks(), dryRunChecks(), fieldChecks(), deletionChecks(), namespaceChecks())
}

func concurrencyChecks() []Check {
	return []Check{
		basic("writes/optimistic-lock", concurrency, "create get update",
			"An update of an older version, or of an object with another UID, is refused: 409, Conflict. Without a version it is refused (422), or unconditional.", func(p *Probe) {
				stale := p.Create("a")
				fresh := p.Update(stale.GetName(), func(object *unstructured.Unstructured) { annotate(object, "fresh", "true") })
				reborn := fresh.DeepCopy()
				reborn.SetUID("00000000-0000-0000-0000-000000000000")
				for _, object := range []*unstructured.Unstructured{stale, reborn} {
					answer := p.Put(object)
					status := p.Refused(answer, http.StatusConflict, metav1.StatusReasonConflict)
					p.Require(answer, status.Details.Name == object.GetName(), "details with the object's name are expected")
				}
				fresh.SetResourceVersion("")
				if answer := p.Put(fresh); answer.Code != http.StatusOK {
					p.refusedFor(answer, "metadata.resourceVersion")
				}
				p.Annotated(p.Get(stale.GetName()), map[string]string{"fresh": "true"})
			}),
		basic("writes/one-winner", concurrency, "create get update",
			"Of clients that update the same version at the same time, one succeeds and the others get 409.", func(p *Probe) {
				const clients = 8
				name := p.Create("a").GetName()
				p.Eventually(func() Answer { return p.Get(name) }, func(read Answer) string {
					winners := 0
					for _, answer := range p.AtOnce(clients, func(i int) Request {
						object := p.Object(read, http.StatusOK)
						annotate(object, "racer", strconv.Itoa(i))
						return newRequest(http.MethodPut, p.Collection(name), object.Object)
					}) {
						if answer.Code == http.StatusOK {
							winners++
						} else {
							p.Refused(answer, http.StatusConflict, metav1.StatusReasonConflict)
						}
					}
					p.Require(read, winners <= 1, "one update of this object is expected to succeed; %d of %d have succeeded", winners, clients)
					// A controller may have been faster than all of them.
					return map[int]string{0: "one update that succeeds is expected"}[winners]
				})
			}),
		basic("writes/concurrent-patches", conventions+"#patch-operations", "create get patch",
			"Patches without a version at the same time all succeed, and none is lost.", func(p *Probe) {
				name, want := p.Create("a").GetName(), map[string]string{}
				for _, answer := range p.AtOnce(8, func(i int) Request {
					return newRequest(http.MethodPatch, p.Collection(name), fmt.Sprintf(`{"metadata":{"annotations":{"%sp%d":"1"}}}`, annotationPrefix, i),
						Header("Content-Type", string(types.MergePatchType)))
				}) {
					p.Object(answer, http.StatusOK)
					want["p"+strconv.Itoa(len(want))] = "1"
				}
				p.Annotated(p.Get(name), want)
			}),
		basic("writes/no-op", concurrency, "create get update",
			"An update that changes nothing writes nothing: the resource version stays.", func(p *Probe) {
				name, version := p.Create("no-op").GetName(), ""
				updated := p.Update(name, func(object *unstructured.Unstructured) { version = object.GetResourceVersion() })
				p.Equal(p.Get(name), "the resource version of the update's answer", version, updated.GetResourceVersion())
			}),
		basic("writes/delete-preconditions", concepts+"#resource-deletion", "create get delete",
			"A delete with a UID or a version that the object does not have is refused: 409, Conflict.", func(p *Probe) {
				created := p.Create("a")
				remove := func(preconditions map[string]any) Answer {
					return p.Delete(created.GetName(), map[string]any{"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions})
				}
				for _, other := range []map[string]any{{"uid": "other"}, {"uid": created.GetUID(), "resourceVersion": "1"}} {
					p.Refused(remove(other), http.StatusConflict, metav1.StatusReasonConflict)
				}
				p.Object(p.Get(created.GetName()), http.StatusOK)
				p.Decode(remove(map[string]any{"uid": created.GetUID()}), http.StatusOK, nil)
			}),
	}
}

func metadataChecks() []Check {
	return []Check{
		basic("writes/generation", conventions+"#metadata", "create get update",
			"The generation moves by one with the spec, and does not with labels, whatever the client says.", func(p *Probe) {
				created := p.Create("a")
				p.OnlyIf(created.GetGeneration() != 0, "objects of the kind have no generation")
				for _, step := range []struct {
					what   string
					change func(*unstructured.Unstructured)
					want   int64
				}{
					{"nothing", func(*unstructured.Unstructured) {}, 0},
					{"a change of itself", func(object *unstructured.Unstructured) { object.SetGeneration(7) }, 0},
					{"a change of labels", labeled("a", "b"), 0},
					{"a change of the spec", p.Change, 1},
				} {
					var before int64
					updated := p.Update(created.GetName(), func(object *unstructured.Unstructured) {
						before = object.GetGeneration()
						step.change(object)
					})
					p.Equal(p.Get(created.GetName()), "the generation after "+step.what, before+step.want, updated.GetGeneration())
				}
			}),
		basic("writes/metadata", conventions+"#metadata", "create get patch",
			"The UID can't be changed (422); changes of the times that the server sets are ignored.", func(p *Probe) {
				created := p.Create("a")
				p.refusedFor(p.Patch(created.GetName(), types.MergePatchType, `{"metadata":{"uid":"other"}}`), "metadata.uid")
				answer := p.Patch(created.GetName(), types.MergePatchType, `{"metadata":{"creationTimestamp":"2001-01-01T00:00:00Z"}}`)
				p.Equal(answer, "the time of creation", created.GetCreationTimestamp(), p.Object(answer, http.StatusOK).GetCreationTimestamp())
				for field, patch := range map[string]string{
					"metadata.labels": `{"labels":{"a b":""}}`, "metadata.annotations": `{"annotations":{"a b":""}}`, "metadata.finalizers": `{"finalizers":["a b"]}`,
				} {
					p.refusedFor(p.Patch(created.GetName(), types.MergePatchType, `{"metadata":`+patch+`}`), field)
				}
			}),
		basic("writes/owner-references", objects+"owners-dependents/", "create get",
			"A reference to an owner needs apiVersion, kind, name and UID, and one owner at most is the controller: 422.", func(p *Probe) {
				reference := func(name, field string, value any) map[string]any {
					whole := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name}
					whole[field] = value
					return whole
				}
				refused := [][]any{{reference("a", "controller", true), reference("b", "controller", true)}}
				for _, field := range []string{"apiVersion", "kind", "name", "uid"} {
					refused = append(refused, []any{reference("a", field, "")})
				}
				for _, references := range refused {
					object := p.New("a")
					object.Object["metadata"].(map[string]any)["ownerReferences"] = references
					p.refusedFor(p.Post(object), "metadata.ownerReferences")
				}
			}),
		basic("writes/status", conventions+"#spec-and-status", "create get update status/update status/patch",
			"An update of the status changes nothing else, and one of the rest does not change the status.", func(p *Probe) {
				name := p.Create("a").GetName()
				status := p.status(name)
				var before *unstructured.Unstructured
				answer := p.Rewrite(name, func(object *unstructured.Unstructured) {
					before = object.DeepCopy()
					object.Object["status"] = status
					labeled("changed", "true")(object)
					p.Change(object)
				}, At(p.Collection(name, "status")))
				updated := p.Object(answer, http.StatusOK)
				p.Require(answer, within(status, updated.Object["status"]), "the status that was sent is expected")
				p.Equal(answer, "the spec", before.Object["spec"], updated.Object["spec"])
				p.Equal(answer, "the generation", before.GetGeneration(), updated.GetGeneration())
				answer = p.Rewrite(name, func(object *unstructured.Unstructured) {
					before = object.DeepCopy()
					p.Change(object)
					object.Object["status"] = map[string]any{}
				})
				p.Equal(answer, "the status, after an update without it", before.Object["status"], p.Object(answer, http.StatusOK).Object["status"])
			}),
	}
}

// status returns a status that the API accepts for an object. It tries fields with names from the
// API conventions.
func (p *Probe) status(name string) map[string]any {
	for _, status := range []map[string]any{
		{"conditions": []any{map[string]any{
			"type": "Conformance", "status": "True", "reason": trial, "message": "tried", "lastTransitionTime": "2026-01-01T00:00:00Z",
		}}},
		{"observedGeneration": int64(1)},
		{"replicas": int64(1)},
		{"phase": trial},
	} {
		answer := p.Patch(name, types.MergePatchType, map[string]any{"status": status}, At(p.Collection(name, "status")), Query("dryRun", "All"))
		if answer.Code == http.StatusOK && within(status, p.Object(answer, http.StatusOK).Object["status"]) {
			return status
		}
	}
	p.NotOffered("no field of the status is known that can be written: none of conditions, observedGeneration, replicas and phase can")
	return nil
}

// trial is text in objects that checks only try to write.
const trial = "ConformanceTried"

// dryRunChecks returns a check for each verb. A dry run answers as the verb does, and changes
// nothing.
func dryRunChecks() []Check {
	var checks []Check
	dry := Query("dryRun", "All")
	tried := func(object *unstructured.Unstructured) { annotate(object, "tried", trial) }
	policies := []string{"Background", "Foreground", "Orphan"}
	for _, verb := range []struct {
		name  string
		needs string
		try   func(p *Probe, name string) []Answer
	}{{"create", "", func(p *Probe, _ string) []Answer {
		object := p.New("b", tried)
		answer := p.Post(object, dry)
		created := p.Object(answer, http.StatusCreated)
		p.Require(answer, created.GetUID() != "" && created.GetResourceVersion() == "", "a UID and no resource version are expected")
		p.Refused(p.Post(p.New("dry"), dry), http.StatusConflict, metav1.StatusReasonAlreadyExists)
		p.refusedFor(p.Post(object, Query("dryRun", "Some")), "dryRun")
		return []Answer{answer}
	}}, {"update", "update", func(p *Probe, name string) []Answer {
		return []Answer{p.Rewrite(name, tried, dry)}
	}}, {"patch", "patch", func(p *Probe, name string) []Answer {
		annotations := map[string]any{annotationPrefix + "tried": trial}
		patch := map[string]any{"metadata": map[string]any{"annotations": annotations}}
		answers := []Answer{
			p.Patch(name, types.MergePatchType, patch, dry),
			p.Patch(name, types.JSONPatchType, []any{map[string]any{"op": "add", "path": "/metadata/annotations", "value": annotations}}, dry),
		}
		if answer := p.Patch(name, types.StrategicMergePatchType, patch, dry); answer.Code != http.StatusUnsupportedMediaType {
			answers = append(answers, answer)
		}
		return answers
	}}, {"apply", "patch", func(p *Probe, _ string) []Answer {
		return []Answer{p.Apply("conformance", p.partial("dry", map[string]string{"tried": trial}), dry), p.Apply("conformance", p.New("b", tried), dry)}
	}}, {"delete", "delete", func(p *Probe, name string) []Answer {
		for _, policy := range policies {
			p.Decode(p.Delete(name, nil, dry, Query("propagationPolicy", policy)), http.StatusOK, nil)
			p.Decode(p.Delete(name, map[string]any{"dryRun": []any{"All"}, "propagationPolicy": policy}), http.StatusOK, nil)
		}
		p.missing(p.Delete(p.Name("missing"), nil, dry))
		return nil
	}}, {"deletecollection", "deletecollection", func(p *Probe, _ string) []Answer {
		for _, policy := range policies {
			p.Decode(p.Do(http.MethodDelete, p.Collection(), nil, dry, p.Selector(), Query("propagationPolicy", policy)), http.StatusOK, nil)
		}
		return nil
	}}, {"status", "status/update status/patch", func(p *Probe, name string) []Answer {
		at, status := At(p.Collection(name, "status")), p.status(name)
		p.OnlyIf(status["conditions"] != nil || status["phase"] != nil, "no text is known that the status takes")
		applied := p.partial("dry", nil)
		applied.Object["status"] = status
		return []Answer{
			p.Patch(name, types.MergePatchType, map[string]any{"status": status}, at, dry),
			p.Patch(name, types.JSONPatchType, []any{map[string]any{"op": "add", "path": "/status", "value": status}}, at, dry),
			p.Apply("conformance", applied, at, dry, Query("force", "true")),
			p.Rewrite(name, func(object *unstructured.Unstructured) { object.Object["status"] = status }, at, dry),
		}
	}}} {
		checks = append(checks, basic("writes/dry-run-"+verb.name, concepts+"#dry-run", "create get list "+verb.needs,
			"A dry run of "+verb.name+" answers as if it were done, and changes nothing.", func(p *Probe) {
				if verb.name == "deletecollection" {
					p.OwnNamespace() // The server may delete all there.
				}
				for _, answer := range verb.try(p, p.Create("dry").GetName()) {
					p.Require(answer, (answer.Code == http.StatusOK || answer.Code == http.StatusCreated) && bytes.Contains(answer.Body, []byte(trial)), "200 or 201 with the object as it would be is expected")
				}
				answer := p.List()
				p.Listed(answer, "dry")
				p.Require(answer, !bytes.Contains(answer.Body, []byte(trial)) && !bytes.Contains(answer.Body, []byte("deletionTimestamp")), "an object that no dry run has changed is expected")
			}))
	}
	return append(checks, basic("writes/dry-run-scale", concepts+"#dry-run", "create get scale/get scale/update scale/patch",
		"A dry run of an update or patch of scale answers as if it were done, and changes nothing.", func(p *Probe) {
			at := At(p.Collection(p.Create("dry").GetName(), "scale"))
			read := func() *unstructured.Unstructured { return p.Object(p.Get("", at), http.StatusOK) }
			before := read()
			spec := map[string]any{"replicas": int64(37)}
			for _, try := range []func() Answer{
				func() Answer { return p.Patch("", types.MergePatchType, map[string]any{"spec": spec}, at, dry) },
				func() Answer {
					object := read()
					object.Object["spec"] = spec
					return p.Put(object, at, dry)
				},
			} {
				answer := p.Eventually(try, conflict)
				p.Equal(answer, "the scale's spec", any(spec), p.Object(answer, http.StatusOK).Object["spec"])
				p.Equal(p.Get("", at), "the scale's spec", before.Object["spec"], read().Object["spec"])
			}
		}))
}

func fieldChecks() []Check {
	return []Check{
		basic("writes/field-validation", concepts+"#field-validation", "create",
			"Unknown and duplicate fields are refused (400), warned of or ignored, as the client says.", func(p *Probe) {
				for field, begin := range map[string]string{`unknown field "nonexistent"`: `{"nonexistent":true,`, `duplicate field "kind"`: `{"kind":"` + p.Kind + `",`} {
					text, err := p.New("a").MarshalJSON()
					p.OnlyIf(err == nil, "the example is no JSON: %v", err)
					post := func(validation string) Answer {
						return p.Do(http.MethodPost, p.Collection(), begin+string(text[1:]), Query("fieldValidation", validation), Query("dryRun", "All"))
					}
					answer := post("Strict")
					status := p.Refused(answer, http.StatusBadRequest, metav1.StatusReasonBadRequest)
					p.Require(answer, strings.Contains(status.Message, field), "a message that says %s is expected", field)
					for validation, warned := range map[string]bool{"Warn": true, "Ignore": false} {
						answer := post(validation)
						p.Object(answer, http.StatusCreated)
						warnings := strings.ReplaceAll(strings.Join(answer.Header.Values("Warning"), ""), `\"`, `"`)
						p.Equal(answer, "that there is a warning of "+field, warned, strings.Contains(warnings, field))
					}
					p.refusedFor(post("Some"), "fieldValidation")
				}
			}),
		basic("writes/pruning", concepts+"#field-validation", "create get",
			"Fields that the kind does not have are not stored.", func(p *Probe) {
				object := p.New("pruned")
				object.Object["nonexistent"] = true
				object.Object["metadata"].(map[string]any)["nonexistent"] = true
				p.Object(p.Post(object, Query("fieldValidation", "Ignore")), http.StatusCreated)
				answer := p.Get(object.GetName())
				p.Require(answer, !bytes.Contains(answer.Body, []byte(`"nonexistent"`)), "an object without unknown fields is expected")
			}),
		basic("writes/defaulting", conventions+"#defaulting", "create",
			"A field with a default is never without a value: null stands for the default as well.", func(p *Probe) {
				sent := content(p.New("a"))
				want := nulled(sent, content(p.Create("a"))).(map[string]any)
				p.OnlyIf(!reflect.DeepEqual(sent, want), "the API gives the example no defaults")
				null := p.New("b")
				maps.Copy(null.Object, want)
				answer := p.Post(null)
				p.Equal(answer, "the example, with null for what has got a default", any(want), nulled(sent, content(p.Object(answer, http.StatusCreated))))
			}),
	}
}

// nulled returns the sent value, with null for each field that only the answer has.
func nulled(sent, came any) any {
	switch came := came.(type) {
	case map[string]any:
		sent, _ := sent.(map[string]any)
		all := map[string]any{}
		for name := range came {
			if value, found := sent[name]; found {
				all[name] = nulled(value, came[name])
			} else {
				all[name] = nil
			}
		}
		return all
	case []any:
		sent, _ := sent.([]any)
		all := slices.Clone(sent)
		for i := range min(len(sent), len(came)) {
			all[i] = nulled(sent[i], came[i])
		}
		return all
	}
	return sent
}

// within reports whether whole, which may be nil, has all fields of part.
func within(part, whole any) bool {
	return whole != nil && equality.Semantic.DeepDerivative(part, whole)
}
