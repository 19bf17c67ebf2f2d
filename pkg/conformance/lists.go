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
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const versions = concepts + "#resource-versions"

// at returns an option for a read at a resource version. An empty match is left out.
func at(version, match string) Option {
	return func(r *Request) {
		r.Query.Set("resourceVersion", version)
		if match != "" {
			r.Query.Set("resourceVersionMatch", match)
		}
	}
}

func listChecks() []Check {
	return []Check{
		basic("resourceVersion/comparable", "https://kep.k8s.io/5504", "create get list patch",
			"Resource versions are decimal numbers that grow with each write, over all objects of a kind.", func(p *Probe) {
				var last uint64
				for i, suffix := range []string{"a", "b", "a", "b"} {
					if i < 2 {
						p.Create(suffix)
					} else {
						p.Object(p.Patch(p.Name(suffix), types.MergePatchType, `{"metadata":{"labels":{"again":"true"}}}`), http.StatusOK)
					}
					answer := p.List(Query("fieldSelector", "metadata.name="+p.Name(suffix)))
					list := p.Listed(answer, suffix)
					version := p.revision(answer, &list.Items[0])
					p.Require(answer, version > last && version <= p.revision(answer, list), "a resource version is expected that is greater than %d and not greater than the list's", last)
					last = version
				}
			}),
		basic("resourceVersion/consistent", "https://kep.k8s.io/2340", "create list delete",
			"A list without a resource version, also in pages, has what any client has written before.", func(p *Probe) {
				for range 10 {
					name := p.Create("a").GetName()
					p.Listed(p.List(Query("limit", "500")), "a")
					answer := p.Delete(name, nil, Query("gracePeriodSeconds", "0"))
					if answer.Code == http.StatusAccepted || bytes.Contains(answer.Body, []byte("deletionTimestamp")) {
						p.gone(name)
						p.Listed(p.List(Query("limit", "500")), "")
						return // A controller is not waited for ten times.
					}
					p.Listed(p.List(Query("limit", "500")), "")
				}
			}),
		basic("resourceVersion/any", versions, "create get list",
			"A read at 0 or at a version that was given may be old, but not older than that version.", func(p *Probe) {
				created := p.Create("a")
				version := created.GetResourceVersion()
				for _, option := range []Option{at(version, ""), at(version, "NotOlderThan"), at("0", ""), at("0", "NotOlderThan")} {
					answer := p.List(option)
					// The cache that answers has seen the object since the first of these lists.
					p.Require(answer, p.revision(answer, p.Listed(answer, "a")) >= p.revision(answer, created), "a list not older than %s is expected", version)
				}
				for _, version := range []string{version, "0"} {
					answer := p.Get(created.GetName(), at(version, ""))
					p.Equal(answer, "the UID", created.GetUID(), p.Object(answer, http.StatusOK).GetUID())
				}
			}),
		basic("resourceVersion/exact", versions, "create list delete",
			"A list at exactly a version has what there was then, and that version.", func(p *Probe) {
				first, second := p.Create("a").GetResourceVersion(), p.Create("b").GetResourceVersion()
				p.Delete(p.Name("a"), nil)
				for _, test := range []struct {
					version, want string
					options       []Option
				}{
					{first, "a", []Option{at(first, "Exact")}},
					{second, "a b", []Option{at(second, "Exact")}},
					{second, "a b", []Option{at(second, "Exact"), Query("limit", "10")}},
					{second, "a b", []Option{at(second, ""), Query("limit", "10")}},
				} {
					answer := p.List(test.options...)
					p.Equal(answer, "the resource version", test.version, p.Listed(answer, test.want).GetResourceVersion())
				}
			}),
		full("resourceVersion/future", concepts+"#unavailable-resource-versions", "create get list",
			"A read at a version that is not there yet is refused within seconds: 504, Timeout, with the cause ResourceVersionTooLarge.", func(p *Probe) {
				created := p.Create("a")
				future := strconv.FormatUint(p.revision(p.Get(created.GetName()), created)+1e9, 10)
				for _, read := range []func() Answer{
					func() Answer { return p.List(at(future, "NotOlderThan")) },
					func() Answer { return p.List(at(future, "Exact")) },
					func() Answer { return p.Get(created.GetName(), at(future, "")) },
				} {
					began := time.Now()
					answer := read()
					status := p.Refused(answer, http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
					p.Require(answer, len(status.Details.Causes) == 1 && status.Details.Causes[0].Type == metav1.CauseTypeResourceVersionTooLarge, "one cause %s is expected", metav1.CauseTypeResourceVersionTooLarge)
					took := time.Since(began)
					p.Require(answer, took <= 10*time.Second, "an answer is expected within 10s, it took %v", took)
				}
			}),
		basic("resourceVersion/refused", versions, "list",
			"A list is refused whose parameters contradict each other (422 with the field), or are no resource version (400).", func(p *Probe) {
				for _, option := range []Option{
					at("", "Exact"), at("0", "Exact"), at("1", "Nearly"), func(r *Request) { at("1", "Exact")(r); r.Query.Set("continue", "x") },
				} {
					p.refusedFor(p.List(option), "resourceVersionMatch")
				}
				p.refusedFor(p.List(Query("sendInitialEvents", "true")), "sendInitialEvents")
				p.Refused(p.List(Query("limit", "x")), http.StatusBadRequest, "")
			}),
		basic("resourceVersion/pages", concepts+"#retrieving-large-results-sets-in-chunks", "create list delete",
			"Pages together are the list as it was at the first, whatever happens meanwhile, and in whichever version the next is asked for. A continue token that the server has not given is refused: 400.", func(p *Probe) {
				for _, suffix := range []string{"a", "b", "c", "d", "e"} {
					p.Create(suffix)
				}
				answer := p.List(Query("limit", "2"))
				first := p.Items(answer)
				p.OnlyIf(first.GetContinue() != "", "the server ignores limit, which it may")
				p.Refused(p.List(Query("continue", "x")), http.StatusBadRequest, "")
				p.Delete(p.Name("d"), nil)
				p.Create("f")
				got, page := names(first), first
				for i := 0; page.GetContinue() != ""; i++ {
					p.Require(answer, len(got) <= 5, "an end of the list is expected")
					version := p.Versions[i%len(p.Versions)]
					answer = p.List(At(p.CollectionIn(p.Namespace, version)), Query("limit", "2"), Query("continue", page.GetContinue()))
					page = p.Items(answer)
					p.Equal(answer, "the resource version of all pages", first.GetResourceVersion(), page.GetResourceVersion())
					got = append(got, names(page)...)
				}
				p.Equal(answer, "names in all pages", p.names("a b c d e"), got)
			}),
		basic("resourceVersion/remaining", concepts+"#retrieving-large-results-sets-in-chunks", "create list",
			"If a page without selectors says how many objects remain, the number is right.", func(p *Probe) {
				if p.Namespaced {
					p.OwnNamespace()
				}
				p.Create("a")
				p.Create("b")
				p.Eventually(func() Answer { return p.Do(http.MethodGet, p.Collection(), nil, Query("limit", "1")) }, func(answer Answer) string {
					page := p.Items(answer)
					p.OnlyIf(page.GetRemainingItemCount() != nil, "the server does not count what remains, which is optional")
					// Other clients may write here as well.
					rest := p.Do(http.MethodGet, p.Collection(), nil, Query("continue", page.GetContinue()))
					if rest.Code != http.StatusOK {
						return "a next page is expected"
					}
					want := int64(len(p.Items(rest).Items))
					if *page.GetRemainingItemCount() != want {
						return fmt.Sprintf("a remainingItemCount of %d is expected", want)
					}
					return ""
				})
			}),
		basic("resourceVersion/expired", concepts+"#410-gone-responses", "list",
			"A list at a version that is no longer there is refused: 410, Expired.", func(p *Probe) {
				answer := p.List(at("1", "Exact"))
				p.OnlyIf(answer.Code != http.StatusOK, "the history still begins at version 1: a cluster forgets after some minutes")
				p.Refused(answer, http.StatusGone, metav1.StatusReasonExpired)
			}),
	}
}
