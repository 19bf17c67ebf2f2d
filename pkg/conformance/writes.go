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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// controllerPatience is how long the controllers of a cluster may take: they look for new kinds every half minute.
	controllerPatience = 45 * time.Second
	concurrency        = conventions + "#concurrency-control-and-consistency"
	garbage            = "https://kubernetes.io/docs/concepts/architecture/garbage-collection/"
	finalizer          = "conformance.example.com/held"
)

func writeChecks() []Check {
	return slices.Concat(concurrencyChecks(), metadataChecks(), dryRunChecks(), fieldChecks(), deletionChecks(), namespaceChecks())
}

func concurrencyChecks() []Check {
	return []Check{{
		ID: "writes/optimistic-lock", Source: concurrency, Needs: []string{"create", "get", "update"},
		Rule: "An update of an older version, or of an object with another UID, is refused: 409, Conflict. Without a version it is refused (422), or unconditional.",
		Run: func(p *Probe) {
			stale := p.Create("a")
			fresh := p.Update(stale.GetName(), func(object *unstructured.Unstructured) { annotate(object, "fresh", "true") })
			reborn := fresh.DeepCopy()
			reborn.SetUID("00000000-0000-0000-0000-000000000000")
			for _, object := range []*unstructured.Unstructured{stale, reborn} {
				answer := p.Put(object)
				status := p.Refused(answer, http.StatusConflict, metav1.StatusReasonConflict)
				if status.Details == nil || status.Details.Name != object.GetName() {
					p.Fail(answer, "details with the object's name are expected")
				}
			}
			fresh.SetResourceVersion("")
			if answer := p.Put(fresh); answer.Code != http.StatusOK {
				p.refusedFor(answer, "metadata.resourceVersion")
			}
			answer := p.Get(stale.GetName())
			p.Equal(answer, "annotations", map[string]string{"fresh": "true"}, annotations(p.Object(answer, http.StatusOK)))
		},
	}, {
		ID: "writes/one-winner", Source: concurrency, Needs: []string{"create", "get", "update"},
		Rule: "Of clients that update the same version at the same time, one succeeds and the others get 409.",
		Run: func(p *Probe) {
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
				if winners > 1 {
					p.Fail(read, "one update of this object is expected to succeed; %d of %d have succeeded", winners, clients)
				}
				// A controller may have been faster than all of them.
				return map[int]string{0: "one update that succeeds is expected"}[winners]
			})
		},
	}, {
		ID: "writes/concurrent-patches", Source: conventions + "#patch-operations", Needs: []string{"create", "get", "patch"},
		Rule: "Patches without a version at the same time all succeed, and none is lost.",
		Run: func(p *Probe) {
			name, want := p.Create("a").GetName(), map[string]string{}
			for _, answer := range p.AtOnce(8, func(i int) Request {
				return newRequest(http.MethodPatch, p.Collection(name), fmt.Sprintf(`{"metadata":{"annotations":{"%sp%d":"1"}}}`, annotationPrefix, i),
					Header("Content-Type", string(types.MergePatchType)))
			}) {
				p.Object(answer, http.StatusOK)
				want["p"+strconv.Itoa(len(want))] = "1"
			}
			answer := p.Get(name)
			p.Equal(answer, "annotations", want, annotations(p.Object(answer, http.StatusOK)))
		},
	}, {
		ID: "writes/no-op", Source: concurrency, Needs: []string{"create", "get", "update"},
		Rule: "An update that changes nothing writes nothing: the resource version stays.",
		Run: func(p *Probe) {
			name, version := p.Create("a").GetName(), ""
			updated := p.Update(name, func(object *unstructured.Unstructured) { version = object.GetResourceVersion() })
			p.Equal(p.Get(name), "the resource version of the update's answer", version, updated.GetResourceVersion())
		},
	}, {
		ID: "writes/delete-preconditions", Source: concepts + "#resource-deletion", Needs: []string{"create", "get", "delete"},
		Rule: "A delete with a UID or a version that the object does not have is refused: 409, Conflict.",
		Run: func(p *Probe) {
			created := p.Create("a")
			remove := func(preconditions map[string]any) Answer {
				return p.Delete(created.GetName(), map[string]any{"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions})
			}
			p.Refused(remove(map[string]any{"uid": "other"}), http.StatusConflict, metav1.StatusReasonConflict)
			p.Refused(remove(map[string]any{"uid": created.GetUID(), "resourceVersion": "1"}), http.StatusConflict, metav1.StatusReasonConflict)
			p.Object(p.Get(created.GetName()), http.StatusOK)
			p.Decode(remove(map[string]any{"uid": created.GetUID()}), http.StatusOK, nil)
		},
	}}
}

func metadataChecks() []Check {
	return []Check{{
		ID: "writes/generation", Source: conventions + "#metadata", Needs: []string{"create", "get", "update"},
		Rule: "The generation moves by one with the spec, and does not with labels, whatever the client says.",
		Run: func(p *Probe) {
			created := p.Create("a")
			if created.GetGeneration() == 0 {
				p.NotOffered("objects of the kind have no generation")
			}
			for _, step := range []struct {
				what   string
				change func(*unstructured.Unstructured)
				want   int64
			}{
				{"nothing", func(*unstructured.Unstructured) {}, 0},
				{"a change of itself", func(object *unstructured.Unstructured) { object.SetGeneration(7) }, 0},
				{"a change of labels", func(object *unstructured.Unstructured) { object.SetLabels(map[string]string{Label: p.ID, "a": "b"}) }, 0},
				{"a change of the spec", p.Change, 1},
			} {
				var before int64
				updated := p.Update(created.GetName(), func(object *unstructured.Unstructured) {
					before = object.GetGeneration()
					step.change(object)
				})
				p.Equal(p.Get(created.GetName()), "the generation after "+step.what, before+step.want, updated.GetGeneration())
			}
		},
	}, {
		ID: "writes/metadata", Source: conventions + "#metadata", Needs: []string{"create", "get", "patch"},
		Rule: "The UID can't be changed (422); changes of the times that the server sets are ignored.",
		Run: func(p *Probe) {
			created := p.Create("a")
			p.refusedFor(p.Patch(created.GetName(), types.MergePatchType, `{"metadata":{"uid":"other"}}`), "metadata.uid")
			answer := p.Patch(created.GetName(), types.MergePatchType, `{"metadata":{"creationTimestamp":"2001-01-01T00:00:00Z"}}`)
			p.Equal(answer, "the time of creation", created.GetCreationTimestamp(), p.Object(answer, http.StatusOK).GetCreationTimestamp())
			for field, patch := range map[string]string{
				"metadata.labels": `{"labels":{"a b":""}}`, "metadata.annotations": `{"annotations":{"a b":""}}`, "metadata.finalizers": `{"finalizers":["a b"]}`,
			} {
				p.refusedFor(p.Patch(created.GetName(), types.MergePatchType, `{"metadata":`+patch+`}`), field)
			}
		},
	}, {
		ID: "writes/owner-references", Source: objects + "owners-dependents/", Needs: []string{"create"},
		Rule: "A reference to an owner needs apiVersion, kind, name and UID, and one owner at most is the controller: 422.",
		Run: func(p *Probe) {
			owner := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "a", "controller": true}
			other := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": "b", "controller": true}
			refused := map[string][]any{"": {owner, other}}
			for _, field := range []string{"apiVersion", "kind", "name", "uid"} {
				reference := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "a"}
				reference[field] = ""
				refused["[0]."+field] = []any{reference}
			}
			for field, references := range refused {
				object := p.New("a")
				object.Object["metadata"].(map[string]any)["ownerReferences"] = references
				p.refusedFor(p.Post(object), "metadata.ownerReferences"+field)
			}
		},
	}, {
		ID: "writes/status", Source: conventions + "#spec-and-status", Needs: []string{"create", "get", "update", "status/update", "status/patch"},
		Rule: "An update of the status changes nothing else, and one of the rest does not change the status.",
		Run: func(p *Probe) {
			created := p.Create("a")
			name := created.GetName()
			status := p.status(name)
			answer := p.Eventually(func() Answer {
				object := p.Object(p.Get(name), http.StatusOK)
				object.Object["status"] = status
				object.SetLabels(map[string]string{Label: p.ID, "changed": "true"})
				p.Change(object)
				return p.Put(object, At(p.Collection(name, "status")))
			}, conflict)
			updated := p.Object(answer, http.StatusOK)
			if !within(status, updated.Object["status"]) {
				p.Fail(answer, "the status that was sent is expected")
			}
			p.Equal(answer, "the spec", created.Object["spec"], updated.Object["spec"])
			p.Equal(answer, "the generation", created.GetGeneration(), updated.GetGeneration())
			got := p.Update(name, func(object *unstructured.Unstructured) {
				p.Change(object)
				object.Object["status"] = map[string]any{}
			})
			if !within(status, got.Object["status"]) {
				p.Fail(p.Get(name), "the status is expected to stay as it was before an update without it")
			}
		},
	}}
}

// status finds a status that the API takes for an object: one with fields that are named as API conventions say.
func (p *Probe) status(name string) map[string]any {
	for _, status := range []map[string]any{
		{"conditions": []any{map[string]any{
			"type": "Conformance", "status": "True", "reason": trial, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
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

// trial is text in all that checks only try to write.
const trial = "ConformanceTried"

// dryRunChecks are one for each verb: it answers what it would do, and does not do it.
func dryRunChecks() []Check {
	var checks []Check
	dry := Query("dryRun", "All")
	for _, verb := range []struct {
		name  string
		needs []string
		try   func(p *Probe, existing *unstructured.Unstructured) []Answer
	}{{"create", nil, func(p *Probe, _ *unstructured.Unstructured) []Answer {
		object := p.New("b")
		annotate(object, "tried", trial)
		answer := p.Post(object, dry)
		if created := p.Object(answer, http.StatusCreated); created.GetUID() == "" || created.GetResourceVersion() != "" {
			p.Fail(answer, "a UID and no resource version are expected")
		}
		p.Refused(p.Post(p.New("a"), dry), http.StatusConflict, metav1.StatusReasonAlreadyExists)
		p.refusedFor(p.Post(object, Query("dryRun", "Some")), "dryRun")
		return []Answer{answer}
	}}, {"update", []string{"update"}, func(p *Probe, existing *unstructured.Unstructured) []Answer {
		return []Answer{p.Eventually(func() Answer {
			object := p.Object(p.Get(existing.GetName()), http.StatusOK)
			annotate(object, "tried", trial)
			return p.Put(object, dry)
		}, conflict)}
	}}, {"patch", []string{"patch"}, func(p *Probe, existing *unstructured.Unstructured) []Answer {
		patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotationPrefix + "tried": trial}}}
		operations := []any{map[string]any{"op": "add", "path": "/metadata/annotations", "value": map[string]any{annotationPrefix + "tried": trial}}}
		answers := []Answer{p.Patch(existing.GetName(), types.MergePatchType, patch, dry), p.Patch(existing.GetName(), types.JSONPatchType, operations, dry)}
		if answer := p.Patch(existing.GetName(), types.StrategicMergePatchType, patch, dry); answer.Code != http.StatusUnsupportedMediaType {
			answers = append(answers, answer)
		}
		return answers
	}}, {"apply", []string{"patch"}, func(p *Probe, existing *unstructured.Unstructured) []Answer {
		var answers []Answer
		for _, suffix := range []string{"a", "b"} {
			object := &unstructured.Unstructured{Object: map[string]any{}}
			if suffix == "b" {
				object = p.New(suffix)
			}
			object.SetGroupVersionKind(existing.GroupVersionKind())
			object.SetName(p.Name(suffix))
			annotate(object, "tried", trial)
			answers = append(answers, p.Apply("conformance", object, dry))
		}
		return answers
	}}, {"delete", []string{"delete"}, func(p *Probe, existing *unstructured.Unstructured) []Answer {
		for _, policy := range []string{"Background", "Foreground", "Orphan"} {
			p.Decode(p.Delete(existing.GetName(), nil, dry, Query("propagationPolicy", policy)), http.StatusOK, nil)
			p.Decode(p.Delete(existing.GetName(), map[string]any{"dryRun": []any{"All"}, "propagationPolicy": policy}), http.StatusOK, nil)
		}
		p.missing(p.Delete(p.Name("missing"), nil, dry))
		return nil
	}}, {"deletecollection", []string{"deletecollection"}, func(p *Probe, _ *unstructured.Unstructured) []Answer {
		for _, policy := range []string{"Background", "Foreground", "Orphan"} {
			p.Decode(p.Do(http.MethodDelete, p.Collection(), nil, dry, p.Selector(), Query("propagationPolicy", policy)), http.StatusOK, nil)
		}
		return nil
	}}, {"status", []string{"status/update", "status/patch"}, func(p *Probe, existing *unstructured.Unstructured) []Answer {
		status := p.status(existing.GetName())
		if status["conditions"] == nil && status["phase"] == nil {
			p.NotOffered("no text is known that the status takes")
		}
		at := At(p.Collection(existing.GetName(), "status"))
		applied := &unstructured.Unstructured{Object: map[string]any{"status": status}}
		applied.SetGroupVersionKind(existing.GroupVersionKind())
		applied.SetName(existing.GetName())
		return []Answer{
			p.Patch(existing.GetName(), types.MergePatchType, map[string]any{"status": status}, at, dry),
			p.Patch(existing.GetName(), types.JSONPatchType, []any{map[string]any{"op": "add", "path": "/status", "value": status}}, at, dry),
			p.Apply("conformance", applied, at, dry),
			p.Eventually(func() Answer {
				object := p.Object(p.Get(existing.GetName()), http.StatusOK)
				object.Object["status"] = status
				return p.Put(object, at, dry)
			}, conflict),
		}
	}}} {
		checks = append(checks, Check{
			ID: "writes/dry-run-" + verb.name, Source: concepts + "#dry-run", Needs: append([]string{"create", "get", "list"}, verb.needs...),
			Rule: "A dry run of " + verb.name + " answers as if it were done, and changes nothing.",
			Run: func(p *Probe) {
				existing := p.Create("a")
				for _, answer := range verb.try(p, existing) {
					if answer.Code != http.StatusOK && answer.Code != http.StatusCreated || !bytes.Contains(answer.Body, []byte(trial)) {
						p.Fail(answer, "200 or 201 with the object as it would be is expected")
					}
				}
				answer := p.List()
				p.Equal(answer, "names after the dry run", p.names("a"), names(p.Items(answer)))
				if bytes.Contains(answer.Body, []byte(trial)) || bytes.Contains(answer.Body, []byte("deletionTimestamp")) {
					p.Fail(answer, "an object that no dry run has changed is expected")
				}
			},
		})
	}
	return append(checks, Check{
		ID: "writes/dry-run-scale", Source: concepts + "#dry-run", Needs: []string{"create", "get", "scale/get", "scale/update", "scale/patch"},
		Rule: "A dry run of an update or patch of scale answers as if it were done, and changes nothing.",
		Run: func(p *Probe) {
			at := At(p.Collection(p.Create("a").GetName(), "scale"))
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
		},
	})
}

func fieldChecks() []Check {
	return []Check{{
		ID: "writes/field-validation", Source: concepts + "#field-validation", Needs: []string{"create"},
		Rule: "Unknown and duplicate fields are refused (400), warned of or ignored, as the client says.",
		Run: func(p *Probe) {
			for field, begin := range map[string]string{`unknown field "nonexistent"`: `{"nonexistent":true,`, `duplicate field "kind"`: `{"kind":"` + p.Kind + `",`} {
				text, err := p.New("a").MarshalJSON()
				if err != nil {
					p.NotOffered("the example is no JSON: %v", err)
				}
				post := func(validation string) Answer {
					return p.Do(http.MethodPost, p.Collection(), begin+string(text[1:]), Query("fieldValidation", validation), Query("dryRun", "All"))
				}
				answer := post("Strict")
				if status := p.Refused(answer, http.StatusBadRequest, metav1.StatusReasonBadRequest); !strings.Contains(status.Message, field) {
					p.Fail(answer, "a message that says %s is expected", field)
				}
				for validation, warned := range map[string]bool{"Warn": true, "Ignore": false} {
					answer := post(validation)
					p.Object(answer, http.StatusCreated)
					if got := strings.Contains(strings.ReplaceAll(strings.Join(answer.Header.Values("Warning"), ""), `\"`, `"`), field); got != warned {
						p.Fail(answer, "for a warning that says %s, %t is expected, %t came: %s", field, warned, got, answer.Header.Values("Warning"))
					}
				}
				p.refusedFor(post("Some"), "fieldValidation")
			}
		},
	}, {
		ID: "writes/pruning", Source: concepts + "#field-validation", Needs: []string{"create", "get"},
		Rule: "Fields that the kind does not have are not stored.",
		Run: func(p *Probe) {
			object := p.New("a")
			object.Object["nonexistent"] = true
			object.Object["metadata"].(map[string]any)["nonexistent"] = true
			p.Object(p.Post(object, Query("fieldValidation", "Ignore")), http.StatusCreated)
			answer := p.Get(object.GetName())
			if bytes.Contains(answer.Body, []byte(`"nonexistent"`)) {
				p.Fail(answer, "an object without unknown fields is expected")
			}
		},
	}, {
		ID: "writes/defaulting", Source: conventions + "#defaulting", Needs: []string{"create"},
		Rule: "What has a default is never without a value: null stands for the default as well.",
		Run: func(p *Probe) {
			sent := p.New("a")
			answer := p.Post(sent)
			created, null := p.Object(answer, http.StatusCreated), p.New("b")
			paths := added(sent.Object, created.Object, nil)
			if len(paths) == 0 {
				p.NotOffered("the API gives the example no defaults")
			}
			for _, path := range paths {
				setNull(null.Object, path)
			}
			answer = p.Post(null)
			p.Equal(answer, "fields that have got a default", paths, added(sent.Object, p.Object(answer, http.StatusCreated).Object, nil))
		},
	}}
}

// added are the paths of fields outside of metadata and status that only the second value has.
func added(before, after any, path []string) [][]string {
	var paths [][]string
	switch after := after.(type) {
	case map[string]any:
		before, _ := before.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(after)) {
			if len(path) == 0 && (name == "metadata" || name == "status") {
				continue
			}
			at := append(slices.Clone(path), name)
			if _, found := before[name]; !found {
				paths = append(paths, at)
				continue
			}
			paths = append(paths, added(before[name], after[name], at)...)
		}
	case []any:
		before, _ := before.([]any)
		for i := range min(len(before), len(after)) {
			paths = append(paths, added(before[i], after[i], append(slices.Clone(path), strconv.Itoa(i)))...)
		}
	}
	return paths
}

// setNull sets a field to null.
func setNull(value any, path []string) {
	switch value := value.(type) {
	case map[string]any:
		if len(path) == 1 {
			value[path[0]] = nil
			return
		}
		setNull(value[path[0]], path[1:])
	case []any:
		if i, err := strconv.Atoi(path[0]); err == nil && i < len(value) {
			setNull(value[i], path[1:])
		}
	}
}

// within tells whether a value has all that another has.
func within(part, whole any) bool {
	switch part := part.(type) {
	case map[string]any:
		whole, _ := whole.(map[string]any)
		for name := range part {
			if !within(part[name], whole[name]) {
				return false
			}
		}
		return true
	case []any:
		whole, _ := whole.([]any)
		return !slices.ContainsFunc(part, func(element any) bool {
			return !slices.ContainsFunc(whole, func(other any) bool { return within(element, other) })
		})
	}
	return reflect.DeepEqual(part, whole) || part == ""
}
