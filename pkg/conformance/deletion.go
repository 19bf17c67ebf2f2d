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
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// released is a merge patch that removes all finalizers.
const released = `{"metadata":{"finalizers":null}}`

func deletionChecks() []Check {
	checks := []Check{
		basic("writes/finalizers", objects+"finalizers/", "create get patch delete",
			"An object with finalizers stays after a delete, with the time, until the last is removed. No more can be added.", func(p *Probe) {
				name := p.held("a").GetName()
				if answer := p.Delete(name, nil); answer.Code != http.StatusAccepted {
					p.Decode(answer, http.StatusOK, nil)
				}
				p.beingDeleted(name)
				p.Object(p.Patch(name, types.MergePatchType, `{"metadata":{"labels":{"still":"writable"}}}`), http.StatusOK)
				p.refusedFor(p.Patch(name, types.MergePatchType, `{"metadata":{"finalizers":["`+finalizer+`","conformance.example.com/more"]}}`), "metadata.finalizers")
				p.Object(p.Patch(name, types.MergePatchType, released, Query("dryRun", "All")), http.StatusOK)
				p.Object(p.Get(name), http.StatusOK)
				p.Object(p.Patch(name, types.MergePatchType, released), http.StatusOK)
				p.gone(name)
			}),
		full("writes/garbage-absent", garbage, "create get list watch patch delete",
			"An object whose owner does not exist is deleted.", func(p *Probe) {
				owned := p.Create("owned", func(object *unstructured.Unstructured) {
					object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: object.GetAPIVersion(), Kind: p.Kind, Name: "absent", UID: "00000000-0000-0000-0000-000000000000"}})
				})
				p.Within(controllerPatience, func() Answer { return p.Get(owned.GetName()) }, while("an end of an object without an owner is expected", http.StatusOK))
			}),
	}
	for _, policy := range []struct {
		name, rule string
		look       func(p *Probe, owner, owned string)
	}{{"Background", "An owner goes at once, and what it owns later.", func(p *Probe, owner, owned string) {
		p.gone(owner)
		p.gone(owned)
	}}, {"Foreground", "An owner goes when all that it owns has gone.", func(p *Probe, owner, owned string) {
		p.beingDeleted(owned)
		answer := p.Get(owner)
		p.Require(answer, slices.Contains(p.Object(answer, http.StatusOK).GetFinalizers(), metav1.FinalizerDeleteDependents), "the finalizer %s is expected", metav1.FinalizerDeleteDependents)
		p.Object(p.Patch(owned, types.MergePatchType, released), http.StatusOK)
		p.gone(owned)
		p.gone(owner)
	}}, {"Orphan", "An owner goes, and what it owned stays without an owner.", func(p *Probe, owner, owned string) {
		p.gone(owner)
		answer := p.Get(owned)
		object := p.Object(answer, http.StatusOK)
		p.Require(answer, len(object.GetOwnerReferences()) == 0 && object.GetDeletionTimestamp() == nil, "an object without owners that is not being deleted is expected")
	}}} {
		checks = append(checks, full("writes/garbage-"+strings.ToLower(policy.name), garbage, "create get list watch patch update delete",
			policy.rule, func(p *Probe) {
				owner := p.Create("owner")
				reference := metav1.OwnerReference{
					APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(), BlockOwnerDeletion: new(true),
				}
				missing := reference
				missing.Name, missing.UID = "missing", types.UID("00000000-0000-0000-0000-000000000000")
				create := p.held
				if policy.name != "Foreground" {
					create = p.Create
				}
				owned := create("owned", func(object *unstructured.Unstructured) {
					object.SetOwnerReferences([]metav1.OwnerReference{reference, missing})
				}).GetName()
				p.Within(controllerPatience, func() Answer { return p.Get(owned) }, until("that the garbage collector removes the reference to an owner that does not exist is expected",
					func(answer Answer) bool { return len(p.Object(answer, http.StatusOK).GetOwnerReferences()) == 1 }))
				p.Decode(p.Delete(owner.GetName(), nil, Query("propagationPolicy", policy.name)), http.StatusOK, nil)
				policy.look(p, owner.GetName(), owned)
			}))
	}
	return checks
}

// held creates an object with a finalizer. The run removes that after the check.
func (p *Probe) held(suffix string, changes ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	return p.Create(suffix, append(changes, func(object *unstructured.Unstructured) { object.SetFinalizers([]string{finalizer}) })...)
}

func namespaceChecks() []Check {
	return []Check{
		basic("writes/namespace-missing", conventions+"#http-status-codes", "create list patch namespaces",
			"An object in a namespace that does not exist is not created: 404 with the namespace's name.", func(p *Probe) {
				p.Namespace = p.Name("missing")
				for _, option := range []Option{Query("pretty", "false"), Query("dryRun", "All")} {
					for _, answer := range []Answer{p.Post(p.New("a"), option), p.Apply("conformance", p.New("a"), option)} {
						status := p.Refused(answer, http.StatusNotFound, metav1.StatusReasonNotFound)
						p.Require(answer, status.Details.Kind == "namespaces" && status.Details.Name == p.Namespace, "details with the namespace are expected")
					}
				}
				p.Listed(p.List(), "")
			}),
		full("writes/namespace-deletion", objects+"namespaces/", "create get list patch delete deletecollection namespaces",
			"A namespace that is being deleted takes no more objects (403, with the cause NamespaceTerminating), and goes with all that is in it.", func(p *Probe) {
				p.OwnNamespace()
				namespace := At("/api/v1/namespaces/" + p.Namespace)
				held, other := p.held("held").GetName(), p.Create("a").GetName()
				p.Decode(p.Do(http.MethodDelete, "", nil, namespace), http.StatusOK, nil)
				answer := p.Eventually(func() Answer { return p.Post(p.unnamed("late-")) }, while("a refusal in a namespace that is being deleted is expected", http.StatusCreated))
				status := p.Refused(answer, http.StatusForbidden, metav1.StatusReasonForbidden)
				p.Require(answer, slices.ContainsFunc(status.Details.Causes, func(cause metav1.StatusCause) bool { return cause.Type == "NamespaceTerminating" }), "a cause NamespaceTerminating is expected")
				p.Within(controllerPatience, func() Answer { return p.Get(other) }, while("an end of all that can go is expected", http.StatusOK))
				p.beingDeleted(held)
				p.Object(p.Patch(held, types.MergePatchType, released), http.StatusOK)
				p.Within(controllerPatience, func() Answer { return p.Do(http.MethodGet, "", nil, namespace) }, while("an end of the namespace is expected", http.StatusOK))
			}),
		full("writes/quota", "https://kubernetes.io/docs/concepts/policy/resource-quotas/#quota-on-object-count", "create list watch delete namespaces",
			"A quota counts the objects of a namespace, and refuses more than it allows: 403.", func(p *Probe) {
				p.OwnNamespace()
				count := strings.TrimSuffix("count/"+p.GroupVersionResource.Resource+"."+p.Group, ".")
				quota := func(name, hard string) {
					p.Make(`{apiVersion: v1, kind: ResourceQuota, metadata: {namespace: %s, name: %s}, spec: {hard: {%s: %q}}}`, p.Namespace, name, count, hard)
				}
				quota("counted", "100")
				hard := 100
				counted := func() {
					p.Within(controllerPatience, func() Answer {
						// A change of the quota makes the controller count again. It may have counted
						// before it knew the kind.
						hard++
						return p.Patch("", types.MergePatchType, map[string]any{"spec": map[string]any{"hard": map[string]any{count: hard}}}, At("/api/v1/namespaces/"+p.Namespace+"/resourcequotas/counted"))
					}, func(answer Answer) string {
						// Controllers may create objects as well.
						want := strconv.Itoa(len(p.Items(p.Do(http.MethodGet, p.Collection(), nil)).Items))
						if used, _, _ := unstructured.NestedString(p.Object(answer, http.StatusOK).Object, "status", "used", count); used != want {
							return fmt.Sprintf("a count of %s is expected", want)
						}
						return ""
					})
				}
				p.Create("a")
				counted()
				p.Delete(p.Name("a"), nil)
				counted()
				quota("none", "0")
				answer := p.Eventually(func() Answer { return p.Post(p.unnamed("late-")) }, while("a refusal by the quota is expected", http.StatusCreated))
				status := p.Refused(answer, http.StatusForbidden, metav1.StatusReasonForbidden)
				p.Require(answer, strings.Contains(status.Message, "exceeded quota"), "a message that names the quota is expected")
			}),
	}
}
