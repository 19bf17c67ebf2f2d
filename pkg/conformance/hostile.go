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
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// attack is a request that no honest client sends. Its strings have placeholders in braces.
type attack struct {
	method, path, kind, accept, body string
	// code is the code that Kubernetes answers with, or refusal for any of 400 and more. Without
	// it, the server may refuse or accept the request, but not fail.
	code int
	// upstream shows that a library that most servers use answers with 500, or with text.
	upstream string
}

// each returns attacks with each text in each place. All have the fields of the first attack.
func each(common attack, texts []string, places ...func(string) attack) (all []attack) {
	for _, text := range texts {
		for _, in := range places {
			a := in(text)
			a.code, a.upstream, a.accept, a.kind = common.code, common.upstream, common.accept, cmp.Or(common.kind, a.kind)
			all = append(all, a)
		}
	}
	return all
}

// around returns texts with a prefix and a suffix.
func around(before string, texts []string, behind string) []string {
	texts = slices.Clone(texts)
	for i := range texts {
		texts[i] = before + texts[i] + behind
	}
	return texts
}

const (
	refusal = 4

	applyQuery = "{object}?fieldManager=conformance&force=true&dryRun=All"
	// Upstream knows these differences.
	unreadVersion = "https://github.com/kubernetes/kubernetes/issues/139485"
	unfitApply    = "https://github.com/kubernetes/kubernetes/issues/139253"
	unfitPatch    = "https://github.com/kubernetes/kubernetes/issues/54423"
	customObjects = "https://github.com/kubernetes/kubernetes/blob/v1.37.1/staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go"
	noResource    = "https://github.com/kubernetes/kubernetes/blob/v1.37.1/staging/src/k8s.io/apiserver/pkg/endpoints/filters/requestinfo.go"
)

// These functions return places to send a text, most of them as the body.

func creating(body string) attack {
	return attack{method: http.MethodPost, path: "{collection}?dryRun=All", kind: asJSON, body: body}
}

func replacing(body string) attack {
	return attack{method: http.MethodPut, path: "{object}?dryRun=All", kind: asJSON, body: body}
}

func patching(kind types.PatchType) func(string) attack {
	path := "{object}?dryRun=All"
	if kind == types.ApplyPatchType {
		path = applyQuery
	}
	return func(body string) attack {
		return attack{method: http.MethodPatch, path: path, kind: string(kind), body: body}
	}
}

func merging(body string) attack      { return patching(types.MergePatchType)(body) }
func strategic(body string) attack    { return patching(types.StrategicMergePatchType)(body) }
func jsonPatching(body string) attack { return patching(types.JSONPatchType)(body) }
func applying(body string) attack     { return patching(types.ApplyPatchType)(body) }

func removing(body string) attack {
	return attack{method: http.MethodDelete, path: "{object}?dryRun=All", kind: asJSON, body: body}
}

// removingNothing is for options that may be valid. They would replace the dryRun of the query.
func removingNothing(body string) attack {
	return attack{method: http.MethodDelete, path: "{object}-missing", kind: asJSON, body: body}
}

func deleting(path string) attack {
	return attack{method: http.MethodDelete, path: strings.Replace(path, "{object}", "{object}-missing", 1) + "?dryRun=All"}
}

func getting(path string) attack  { return attack{method: http.MethodGet, path: path} }
func listing(query string) attack { return getting("{collection}?" + query) }

// everywhere returns all places that take a body.
func everywhere() []func(string) attack {
	return []func(string) attack{creating, replacing, removing, merging, strategic, jsonPatching, applying}
}

// upToMetadata is the beginning of an object, before its metadata.
const upToMetadata = `{"apiVersion":"{version}","kind":"{kind}","metadata":`

// objectWith returns an object with more metadata, and more fields beside it.
func objectWith(metadata, beside string) string {
	return upToMetadata + `{"name":"{name}"` + metadata + `}` + beside + `}`
}

// attack sends attacks and checks the answers, and that the API is then as before.
func (p *Probe) attack(all []attack) {
	p.harmless()
	all = slices.DeleteFunc(all, func(a attack) bool { return !p.offers(a) })
	p.OnlyIf(len(all) > 0, "the check has requests of other verbs only; those of the resource are %s", strings.Join(p.Discovered.Verbs, ", "))
	object := p.subject("target")
	filler := p.filler(object.GetName())
	for _, a := range all {
		p.withstand(a, filler)
	}
	p.alive()
	p.unchanged(object)
}

// harmless ends the check if objects would stay whose names and labels are as malformed as the requests.
func (p *Probe) harmless() {
	p.OnlyIf(p.Namespaced || p.Example == nil || !p.Example.persists, "the server ignores dry runs, and the resource has no namespaces that could be deleted")
}

// offers reports whether the resource has the verb of an attack, and the attack can delete nothing of others. A method that
// no resource has is always sent.
func (p *Probe) offers(a attack) bool {
	if p.run.ReadOnly && a.method != http.MethodGet || p.run.guard(a.method, p.filler(p.ID).Replace(a.path)) != nil {
		return false
	}
	of := map[string][2]string{
		http.MethodGet: {"list", "get"}, http.MethodPost: {"create"}, http.MethodPut: {"", "update"}, http.MethodPatch: {"", "patch"}, http.MethodDelete: {"deletecollection", "delete"},
	}
	verb := of[a.method][0]
	if strings.HasPrefix(a.path, "{object}") {
		verb = of[a.method][1]
	}
	if strings.Contains(a.path, "watch=") {
		verb = "watch"
	}
	return verb == "" || strings.HasPrefix(a.path, "{root}") || p.lacks("", verb) == ""
}

func (p *Probe) filler(name string) *strings.Replacer {
	return strings.NewReplacer("{collection}", p.Collection(), "{object}", p.Collection(name), "{root}", root(p.GroupVersion()), "{version}", p.GroupVersionKind().GroupVersion().String(),
		"{kind}", p.Kind, "{name}", name, "{resource}", p.GroupVersionResource.Resource, "{namespace}", p.Namespace, "{group}", p.Group)
}

// withstand sends an attack, and ends the check unless the answer is like that of Kubernetes.
func (p *Probe) withstand(a attack, filler *strings.Replacer) {
	options := []Option{func(r *Request) { r.Header.Del("Content-Type") }}
	for name, value := range map[string]string{"Content-Type": a.kind, "Accept": a.accept} {
		if value != "" {
			options = append(options, Header(name, value))
		}
	}
	var body any
	if a.body != "" {
		body = filler.Replace(a.body)
	}
	answer := p.Do(a.method, filler.Replace(a.path), body, options...)
	switch {
	case a.upstream != "" && (answer.Code == http.StatusInternalServerError || strings.HasPrefix(answer.Header.Get("Content-Type"), "text/plain")):
		return
	case a.kind == string(types.StrategicMergePatchType) && answer.Code == http.StatusUnsupportedMediaType: // Custom resources have none.
		return
	}
	p.Require(answer, answer.Code < 500, "a refusal is expected, and no failure of the server")
	p.Require(answer, answer.Code < 300 || answer.Code >= 400, "no redirect is expected")
	p.Require(answer, answer.Code >= 400 || a.code != refusal, "a refusal is expected")
	p.Require(answer, answer.Code == a.code || a.code <= refusal || a.upstream != "", "%d is expected", a.code)
	if answer.Code >= 400 {
		p.Refused(answer, answer.Code, "")
	}
}

// below returns the updates and creations among the attacks, for subresources.
func (p *Probe) below(all []attack) (below []attack) {
	for _, subresource := range slices.Sorted(maps.Keys(p.Subresources)) {
		connection := p.lacks(subresource, "update") == "" && connects(p.try(action{"update", subresource}, p.Namespace, p.Name("target"), "{}"))
		for _, a := range all {
			verb := map[string]string{http.MethodPut: "update", http.MethodPost: "create"}[a.method]
			// Other invalid fields of the object may be valid in another kind.
			if verb == "" || a.method == http.MethodPost && a.code == http.StatusUnprocessableEntity || p.lacks(subresource, verb) != "" {
				continue
			}
			if a.method == http.MethodPost || connection {
				a.code = min(a.code, refusal)
			}
			_, query, _ := strings.Cut(a.path, "?")
			a.path = "{object}/" + subresource + "?" + query
			below = append(below, a)
		}
	}
	return below
}

// pages reports whether lists come in pages, which is optional.
func (p *Probe) pages() bool {
	p.subject("page-1")
	p.subject("page-2")
	return p.lacks("", "list") == "" && p.Items(p.Do(http.MethodGet, p.Collection(), nil, Query("limit", "1"))).GetContinue() != ""
}

// fair removes the codes of attacks that only stored objects are answered with. kube-apiserver does
// not validate the metadata of its own reviews, nor the versions of computed lists. Without an
// example, no object is stored.
func (p *Probe) fair(attacks []attack) []attack {
	unstored, computed := p.lacks("", "get") != "", p.lacks("", "watch") != ""
	pages := slices.ContainsFunc(attacks, func(a attack) bool { return strings.Contains(a.path, "continue=") }) && p.pages()
	for i := range attacks {
		a := &attacks[i]
		if p.Example == nil && a.method != http.MethodGet && strings.HasPrefix(a.path, "{object}") ||
			unstored && a.code == http.StatusUnprocessableEntity && strings.HasSuffix(a.path, "?dryRun=All") ||
			computed && strings.Contains(a.path, "resourceVersion=") || !pages && strings.Contains(a.path, "continue=") {
			a.code = 0
		}
	}
	return attacks
}

// needsProtobuf ends the check if the API has no protobuf.
func (p *Probe) needsProtobuf() {
	answer := p.Do(http.MethodGet, p.Collection(), nil, Query("limit", "1"), Header("Accept", asProtobuf))
	p.OnlyIf(answer.Code != http.StatusNotAcceptable, "the API has no protobuf; sent nevertheless, it makes k8s.io/apiextensions-apiserver v0.37 panic, since its protobuf serializer is not strict: %s", customObjects)
}

// alive ends the check unless the API still answers.
func (p *Probe) alive() {
	if p.lacks("", "list") == "" {
		p.Items(p.List(Query("limit", "1")))
	}
	if p.Example != nil && !p.run.ReadOnly && p.lacks("", "create") == "" {
		p.Object(p.Post(p.New("alive"), Query("dryRun", "All")), http.StatusCreated)
	}
}

// hostileChecks returns checks with tables of requests. A table is made when its check runs, since
// some are large.
func hostileChecks() []Check {
	var checks []Check
	for _, table := range []struct {
		id, rule, source string
		attacks          func() []attack
	}{{
		"broken-json", "A body that is no object is refused: 400.", conventions + "#http-status-codes", func() []attack {
			return slices.Concat(
				each(attack{code: 400}, []string{upToMetadata, `"text"`, `{}{}`, `{"a":NaN}`, `word`, "\xf0\x9f", "\x00", `{"a":1,}`, `{'a':1}`, strings.Repeat(" ", 1<<20) + "{"},
					creating, replacing, removing, merging, jsonPatching),
				each(attack{code: 400}, []string{`[]`, ""}, creating, replacing, merging),
			)
		},
	}, {
		"deep", "A body that is nested deeply is refused, and costs the server little.", "https://github.com/kubernetes/kubernetes/issues/83253", func() (all []attack) {
			for _, levels := range []int{10_001, 100_000} {
				lists := strings.Repeat("[", levels) + strings.Repeat("]", levels)
				objects := strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels)
				all = slices.Concat(all,
					each(attack{}, []string{lists, objects, objectWith("", `,"a":`+lists), objectWith(`,"managedFields":[{"fieldsType":"FieldsV1","fieldsV1":`+objects+`}]`, "")}, everywhere()...),
					each(attack{code: 400}, []string{strings.Repeat("[", levels)}, creating),
					each(attack{kind: asYAML}, []string{"a: " + lists, strings.Repeat("- ", levels)}, creating),
					[]attack{applying(strings.Repeat("- ", levels)), jsonPatching(`[{"op":"add","path":"/a","value":` + lists + `}]`)})
			}
			return all
		},
	}, {
		"wide", "A body that is large is refused: 413 above 3 MiB.", conventions + "#http-status-codes", func() []attack {
			huge := strings.Repeat("x", 4<<20)
			numbered := func(n int, format string) string {
				var list strings.Builder
				for i := range n {
					fmt.Fprintf(&list, ","+format, i)
				}
				return list.String()[1:]
			}
			labels, annotations := objectWith(`,"labels":{`+numbered(5_000, `"l%d":"a"`)+`}`, ""), `"annotations":{"a":"`+huge[:300<<10]+`"}`
			return slices.Concat(
				each(attack{code: 413}, []string{`{"a":"` + huge + `"}`}, everywhere()...),
				each(attack{code: 413, kind: asYAML}, []string{huge}, creating),
				each(attack{code: 422}, []string{objectWith(","+annotations, "")}, creating), each(attack{code: 422}, []string{`{"metadata":{` + annotations + `}}`}, merging),
				each(attack{code: 413}, []string{`[` + numbered(10_001, `{"op":"test%d"}`) + `]`}, jsonPatching),
				[]attack{
					creating(labels), applying(labels), creating(objectWith(`,"finalizers":[`+numbered(5_000, `"example.com/%d"`)+`]`, "")), creating(objectWith("", ","+numbered(5_000, `"f%d":1`))),
					jsonPatching(`[{"op":"add","path":"` + strings.Repeat("/a", 100_000) + `","value":1}]`), listing("labelSelector=" + numbered(5_000, "a%d")), listing(strings.Repeat("a=b&", 10_000)),
				},
			)
		},
	}, {
		"yaml", "YAML that is no object, or stands for much more than it is, is refused.", "https://github.com/kubernetes/kubernetes/issues/83253", func() []attack {
			laughs := "a0: &a0 [lol,lol,lol,lol,lol,lol,lol,lol,lol]\n"
			for i := 1; i < 9; i++ {
				laughs += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 8), i-1)
			}
			bodies := []string{"a: b: c", "a:\n\t- b", "a: *b", "a: &a [*a]", "a: !!binary '*'", "a: \x00", "a: \xf0\x9f", laughs, "--- a\n--- b", "? [a]\n: b\n", "%YAML 9.9\n---\na: b"}
			return slices.Concat(each(attack{kind: asYAML, code: 400}, bodies, creating, replacing), each(attack{code: 400}, bodies, applying), each(attack{kind: asYAML}, bodies, removingNothing))
		},
	}, {
		"protobuf", "Protobuf that can't be decoded is refused.", concepts + "#protobuf-encoding", func() []attack {
			return each(attack{kind: asProtobuf}, []string{
				"{}", "k8t\x00\x0a\x04", "k8s\x00", "k8s\x00\xff", "k8s\x00\x0a\xff\xff\xff", "k8s\x00\x0a\xff\xff\xff\xff\x0f", "k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
				"k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "k8s\x00" + strings.Repeat("\x0b", 100_000), "k8s\x00\x0a\x10ab", "k8s\x00\x0f", "k8s\x00\x08\x01", "k8s\x00\x12\xff\xff\xff\x7f",
				"k8s\x00\x93\x1e\xb0\x77\x04\x5a\xd1\xff",
			}, creating, replacing, removingNothing)
		},
	}, {
		"cbor", "CBOR that can't be decoded is refused.", concepts + "#cbor-encoding", func() []attack {
			const self = "\xd9\xd9\xf7"
			bodies := []string{
				self, self + "\xa1", self + "\x81", self + "\xbb\xff\xff\xff\xff\xff\xff\xff\xff", self + "\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", self + "\x5b\x7f\xff\xff\xff\xff\xff\xff\xff",
				self + strings.Repeat("\x81", 100_000) + "\x00", self + strings.Repeat("\x9f", 100_000), self + strings.Repeat("\xa1\x41a", 50_000) + "\x00", self + "\xa2\x41a\x01\x41a\x02", self + "\xff",
				self + "\xa1\x01\x02", self + "\xf9\x7e\x00", self + "\xa1\x41a\x62\xf0\x9f", strings.Repeat(self, 1000) + "\xa0", "{}",
			}
			return append(each(attack{kind: asCBOR}, bodies, creating, replacing, removingNothing), each(attack{}, bodies, patching("application/apply-patch+cbor"))...)
		},
	}, {
		"types", "A body of another kind or version than that of the path is refused.", conventions + "#types-kinds", func() []attack {
			kinds := []string{
				`"{version}","kind":"Unknown"`, `"{version}","kind":1`, `"other.example.com/v1","kind":"{kind}"`, `"{group}/v987","kind":"{kind}"`, `"a/b/c","kind":"{kind}"`, `1,"kind":"{kind}"`, `"v1","kind":"Status"`, `"{version}","kind":"{kind}List"`,
			}
			metadata := []string{`[]`, `"a"`, `{"name":1}`, `{"name":"a","labels":{"a":1}}`, `{"name":"a","creationTimestamp":"yesterday"}`, `{"name":"a","ownerReferences":["a"]}`, `{"name":"a","finalizers":{}}`, `{"name":"a","generation":"x"}`}
			return slices.Concat(
				each(attack{code: refusal}, around(`{"apiVersion":`, kinds, `,"metadata":{"name":"{name}"}}`), creating, replacing, applying),
				each(attack{code: 400}, around(upToMetadata, metadata, `}`), creating),
				each(attack{}, around(`{"metadata":`, metadata, `}`), merging),
			)
		},
	}, {
		"metadata", "Invalid metadata is refused.", conventions + "#metadata", func() []attack {
			// Kinds with path segments for names, such as ClusterRole, accept seldomNames.
			noNames, seldomNames := []string{"a/b", "..", "a%", ""}, []string{`a\u0000`, "a b", "-a", "ä", strings.Repeat("a", 254)}
			metadata := []string{
				`"labels":{"a b":"c"}`, `"labels":{"a":"b c"}`, `"annotations":{"a b":"c"}`, `"finalizers":["a b"]`, `"ownerReferences":[{}]`, `"ownerReferences":[{"apiVersion":"a/b/c","kind":"A","name":"a","uid":"a"}]`,
				`"ownerReferences":[{"apiVersion":"v1","kind":"A","name":"a","uid":"a","controller":true},{"apiVersion":"v1","kind":"A","name":"b","uid":"b","controller":true}]`,
			}
			return slices.Concat(
				each(attack{code: 422}, around(upToMetadata+`{"name":"`, noNames, `"}}`), creating),
				each(attack{}, around(upToMetadata+`{"name":"`, seldomNames, `"}}`), creating),
				each(attack{code: 422}, around(upToMetadata+`{"name":"{name}",`, metadata, `}}`), creating),
				each(attack{code: 422}, around(`{"metadata":{`, metadata, `}}`), merging),
				each(attack{upstream: "https://github.com/kubernetes/kubernetes/pull/68208"}, around(`{"metadata":{"resourceVersion":"`, []string{"x", "-1", "18446744073709551616", " ", `\u0000`}, `"}}`), merging),
				each(attack{}, []string{
					`{"metadata":{"name":"other"}}`, `{"metadata":{"namespace":"other"}}`, `{"metadata":{"managedFields":[{"fieldsType":"x","operation":"y","fieldsV1":{"f:\u0000":{}}}]}}`,
					`{"metadata":null}`, `{"metadata":{"deletionTimestamp":"2000-01-01T00:00:00Z","deletionGracePeriodSeconds":-1}}`,
				}, merging),
				[]attack{replacing(objectWith(`,"uid":"other","resourceVersion":"1"`, ""))},
			)
		},
	}, {
		"numbers", "Numbers that no type holds are refused or rounded.", conventions + "#primitive-types", func() []attack {
			numbers := []string{strings.Repeat("9", 100_000), "1e999999999", "1e-999999999", "-0", "1E400", "0x10", "01", "1." + strings.Repeat("0", 100_000) + "1", "18446744073709551616", "9223372036854775808", "-9223372036854775809"}
			unknown := around(upToMetadata+`{"name":"{name}"},"unknown":`, numbers, `}`)
			return slices.Concat(
				each(attack{}, unknown, creating), each(attack{upstream: unfitApply}, unknown, applying),
				each(attack{}, around(upToMetadata+`{"name":"{name}","generation":`, numbers, `}}`), creating),
				each(attack{}, around(`{"metadata":{"deletionGracePeriodSeconds":`, numbers, `}}`), merging),
				each(attack{}, around(`{"gracePeriodSeconds":`, numbers, `}`), removingNothing),
			)
		},
	}, {
		"paths", "A path that leads to nothing is 404, and none a redirect.", conventions + "#http-status-codes", func() []attack {
			return slices.Concat(
				each(attack{code: 404}, []string{"{object}/unknown", "{object}" + strings.Repeat("/a", 1000)}, getting),
				each(attack{code: 404, upstream: customObjects}, []string{"{root}/unknown"}, getting),
				each(attack{}, []string{
					"{object}/", "{collection}/", "{collection}//", "{object}/..", "{object}/.", "{collection}/%00", "{collection}/%2e%2e", "{collection}/%2F", "{collection}/a%2Fb", "{collection}/%25", "{collection}/%ff%fe",
					"{collection}/" + strings.Repeat("a", 10_000), "{collection}/Upper", "{collection}/a%20b",
				}, getting, deleting),
				// Kinds without namespaces have no such paths.
				each(attack{upstream: customObjects}, []string{
					"{root}/namespaces/%25/{resource}", "{root}/namespaces/a%20b/{resource}", "{root}/namespaces/" + strings.Repeat("a", 300) + "/{resource}/a",
				}, getting),
				each(attack{upstream: noResource}, []string{"{root}/namespaces/../{resource}", "{root}/watch"}, getting),
				each(attack{upstream: customObjects}, []string{"{root}/watch/unknown", "{root}/proxy/{resource}", "{root}//{resource}"}, getting),
			)
		},
	}, {
		"methods", "A method that a path does not have is refused.", conventions + "#http-status-codes", func() (all []attack) {
			for path, methods := range map[string][]string{"{collection}": {http.MethodPut, http.MethodPatch}, "{object}": {http.MethodPost}} {
				for _, method := range append(methods, http.MethodTrace, "PROPFIND", "UNKNOWN", "get") {
					all = append(all, attack{method: method, path: path, kind: asJSON, body: "{}", code: refusal})
				}
			}
			return all
		},
	}, {
		"selectors", "A selector that can't be parsed is refused: 400.", "https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#api", func() []attack {
			labels := []string{"!!", "a b", "a in (b", "a in b", "-a=b", "a=b c", "a=" + strings.Repeat("b", 64), strings.Repeat("a", 64) + "=b", "a>b", "a,,b", "=b", strings.Repeat("a", 10_000), "a~b", strings.Repeat("(", 5_000)}
			fields := []string{"no.such.field=1", "a", `metadata.name=\`, "metadata.name in (a)", "=a", strings.Repeat("no.such=1,", 1000) + "a=b"}
			by := func(parameters string) func(string) attack {
				return func(selector string) attack { return listing(parameters + url.QueryEscape(selector)) }
			}
			return slices.Concat(
				each(attack{code: 400}, labels, by("labelSelector="), by("watch=true&timeoutSeconds=1&labelSelector=")),
				each(attack{}, labels, func(selector string) attack {
					return attack{method: http.MethodDelete, path: "{collection}?dryRun=All&labelSelector=" + url.QueryEscape(selector)}
				}),
				each(attack{code: 400}, fields, by("fieldSelector=")),
			)
		},
	}, {
		"continue", "A continue token that the server has not given is refused: 400, or 410.", concepts + "#retrieving-large-results-sets-in-chunks", func() []attack {
			token := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
			return slices.Concat(
				each(attack{code: 400}, around("limit=1&continue=", []string{
					"garbage", strings.Repeat("A", 10_000), "%00", token("text"), token(`{"v":"meta.k8s.io/v9","rv":1,"start":"a"}`), token(`{"v":"meta.k8s.io/v1","rv":0,"start":"a"}`), token(`{"v":"meta.k8s.io/v1","rv":1,"start":"../../a"}`),
					token(`{"v":"meta.k8s.io/v1","rv":1,"start":"a/../../../secrets/a"}`), token(`{"v":"meta.k8s.io/v1","rv":1,"start":1}`), token(`{"v":"meta.k8s.io/v1","rv":9223372036854775808,"start":"a"}`), token(strings.Repeat("[", 5_000)),
				}, ""), listing),
				each(attack{code: 400}, []string{"limit=1&resourceVersion=1&continue=" + token(`{"v":"meta.k8s.io/v1","rv":1,"start":"a"}`)}, listing),
				each(attack{code: 422}, []string{"limit=1&resourceVersion=1&resourceVersionMatch=Exact&continue=x"}, listing),
			)
		},
	}, {
		"options", "Options that have no meaning are refused.", conventions + "#http-status-codes", func() []attack {
			valid := objectWith("", "")
			asked := func(query string, in func(string) attack, body string) attack {
				a := in(body)
				path, _, _ := strings.Cut(a.path, "?")
				a.path = path + "?" + query
				return a
			}
			patched := func(query string) attack { return asked("dryRun=All&"+query, merging, "{}") }
			deleted := func(query string) attack {
				return attack{method: http.MethodDelete, path: "{object}?dryRun=All&" + query}
			}
			deleteOptions := func(option string) attack {
				return removing(`{"apiVersion":"v1","kind":"DeleteOptions",` + option + `}`)
			}
			return slices.Concat(
				each(attack{code: 422}, []string{"dryRun=yes", "dryRun=All&dryRun=yes"},
					func(query string) attack { return asked(query, creating, valid) }, func(query string) attack { return asked(query, replacing, valid) },
					func(query string) attack { return asked(query, merging, "{}") }, func(query string) attack { return asked(query, removing, "") }),
				each(attack{code: 422}, []string{"fieldValidation=strict", "fieldManager=" + strings.Repeat("a", 129), "fieldManager=%07"}, patched),
				each(attack{code: 400}, []string{
					"limit=all", "limit=9223372036854775808", "timeoutSeconds=soon", "watch=true&timeoutSeconds=soon", "resourceVersion=x", "resourceVersion=-1", "resourceVersion=18446744073709551616",
				}, listing),
				each(attack{code: 422}, []string{
					"resourceVersion=0&resourceVersionMatch=Exact", "resourceVersionMatch=Exact", "resourceVersion=1&resourceVersionMatch=About", "sendInitialEvents=true", "watch=true&sendInitialEvents=true&timeoutSeconds=1",
				}, listing),
				each(attack{}, []string{"limit=-1", "timeoutSeconds=-1", "watch=maybe&timeoutSeconds=1", "%00=%00", "a=%ff"}, listing),
				each(attack{code: 422}, []string{"propagationPolicy=never", "propagationPolicy=Orphan&orphanDependents=true"}, deleted),
				each(attack{code: 400}, []string{"gracePeriodSeconds=soon"}, deleted),
				each(attack{upstream: unreadVersion}, []string{"{object}?resourceVersion=x", "{collection}?watch=true&timeoutSeconds=1&resourceVersion=x"}, getting),
				each(attack{code: 422}, []string{`"propagationPolicy":"never"`}, deleteOptions),
				each(attack{code: 400}, []string{`"gracePeriodSeconds":"soon"`, `"preconditions":[]`}, deleteOptions),
				each(attack{code: 409}, []string{`"preconditions":{"uid":"other"}`}, deleteOptions),
			)
		},
	}, {
		"media-types", "A body of an unknown media type is 415; an answer of an unknown one 406.", conventions + "#http-status-codes", func() (all []attack) {
			for _, kind := range []string{"text/plain", "application/xml", "application/x-www-form-urlencoded", "application/merge-patch+json", ";;", strings.Repeat("a", 5_000), "application/json/json"} {
				all = append(all, each(attack{code: 415, kind: kind}, []string{objectWith("", "")}, creating, replacing)...)
				all = append(all, each(attack{code: 415, kind: kind}, []string{"{}"}, removing)...)
			}
			for _, kind := range []string{"text/plain", "application/json", "application/unknown+json", ";;"} {
				all = append(all, each(attack{code: 415, kind: kind}, []string{"{}"}, merging)...)
			}
			for _, accept := range []string{"text/html", "image/png", "{[;;", "application/json;as=Chair;g=meta.k8s.io;v=v1", "application/json;as=Table;g=meta.k8s.io;v=v9", "application/json;as=Table;g=apps;v=v1"} {
				all = append(all, each(attack{code: 406, accept: accept}, []string{"{object}", "{collection}", "{collection}?watch=true&timeoutSeconds=1"}, getting)...)
				all = append(all, each(attack{code: 406, accept: accept}, []string{objectWith("", "")}, creating)...)
			}
			return append(all, each(attack{code: 400, accept: "application/json;as=Table;g=meta.k8s.io;v=v1"}, []string{"includeObject=Everything"}, listing)...)
		},
	}, {
		"json-patch", "A JSON patch that can't be applied is refused.", "https://www.rfc-editor.org/rfc/rfc6902#section-5", func() []attack {
			return slices.Concat(
				each(attack{code: 400}, []string{`{}`, `[{"op":1,"path":2}]`}, jsonPatching),
				each(attack{code: 422}, around("[", []string{
					`null`, `{}`, `{"op":"explode","path":"/metadata"}`, `{"op":"add","value":1}`, `{"op":"add","path":"metadata","value":1}`, `{"op":"add","path":"/a/b","value":1}`,
					`{"op":"remove","path":"/metadata/nothing"}`, `{"op":"replace","path":"/no/thing","value":1}`, `{"op":"test","path":"/kind","value":"Other"}`, `{"op":"test","path":"/nothing","value":1}`, `{"op":"test","path":"","value":{}}`,
					`{"op":"move","from":"/nothing","path":"/metadata/labels"}`, `{"op":"copy","path":"/metadata/labels"}`, `{"op":"remove","path":""}`, `{"op":"replace","path":"","value":1}`, `{"op":"add","path":"/metadata/finalizers","value":["a b"]}`,
					`{"op":"add","path":"/metadata/finalizers","value":[]},{"op":"add","path":"/metadata/finalizers/99999999999","value":"a"}`, `{"op":"add","path":"/metadata/finalizers","value":[]},{"op":"add","path":"/metadata/finalizers/-99","value":"a"}`,
					`{"op":"add","path":"/metadata/annotations","value":{"a":{}}}` + strings.Repeat(`,{"op":"copy","from":"/metadata/annotations","path":"/metadata/annotations/a/a"},{"op":"copy","from":"/metadata/annotations/a","path":"/metadata/annotations/a"},{"op":"copy","from":"/metadata","path":"/metadata/annotations/a"}`, 40),
				}, "]"), jsonPatching),
				each(attack{}, around("[", []string{
					`{"op":"move","from":"/metadata","path":"/metadata/labels"}`, `{"op":"replace","path":"","value":null}`, `{"op":"replace","path":"","value":[]}`, `{"op":"replace","path":"","value":{}}`, `{"op":"remove","path":"/metadata"}`, `{"op":"replace","path":"/kind","value":"Other"}`,
				}, "]"), jsonPatching),
			)
		},
	}, {
		"merge-patch", "A merge patch that makes no valid object is refused.", "https://www.rfc-editor.org/rfc/rfc7386", func() []attack {
			return slices.Concat(
				each(attack{}, []string{
					`1`, `"a"`, `true`, `[1]`, `{"metadata":[]}`, `{"metadata":"a"}`, `{"kind":"Other"}`, `{"kind":1}`, `{"apiVersion":"a/b/c"}`, `{"metadata":{"labels":[1]}}`, `{"metadata":{"finalizers":{"a":"b"}}}`, `{"":{"":{"":null}}}`, `{"\u0000":1}`, `{"metadata":{"ownerReferences":[{"uid":[]}]}}`,
				}, merging, strategic),
				each(attack{upstream: customObjects}, []string{`{"apiVersion":null}`}, merging),
				each(attack{upstream: unfitPatch}, []string{`{"$patch":"explode"}`, `{"metadata":{"$setElementOrder/finalizers":"a"}}`, `{"metadata":{"finalizers":[{"$patch":"delete"}]}}`}, strategic),
				each(attack{}, []string{`{"metadata":{"$retainKeys":1}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":{}}}`}, strategic),
			)
		},
	}, {
		"apply", "An apply patch that is no object of the kind is refused.", "https://kubernetes.io/docs/reference/using-api/server-side-apply/", func() []attack {
			return slices.Concat(
				each(attack{code: 400}, []string{"", "null", "[]", "word", "{}", `{"apiVersion":"{version}"}`, `{"kind":"{kind}"}`, objectWith(`,"managedFields":[{"manager":"a"}]`, ""), upToMetadata + `{"name":"other"}}`}, applying),
				each(attack{upstream: unfitApply}, []string{objectWith(`,"labels":[1]`, ""), upToMetadata + `[]}`, upToMetadata + `{"name":1}}`}, applying),
				each(attack{code: 422}, []string{"{object}?dryRun=All", "{object}?dryRun=All&fieldManager=" + strings.Repeat("a", 129)}, func(path string) attack {
					a := applying(objectWith("", ""))
					a.path = path
					return a
				}),
			)
		},
	}} {
		checks = append(checks, Check{
			ID: "hostile/" + table.id, Rule: table.rule, Source: table.source, Level: Hostile,
			Run: func(p *Probe) {
				if table.id == "protobuf" {
					p.needsProtobuf()
				}
				if p.Namespaced && !p.run.ReadOnly && slices.Contains([]string{"paths", "selectors"}, table.id) {
					p.OwnNamespace() // The server may delete all there.
				}
				all := table.attacks()
				if slices.Contains([]string{"broken-json", "deep", "wide", "options", "media-types"}, table.id) {
					all = append(all, p.below(all)...)
				}
				p.attack(p.fair(all))
			},
		})
	}
	return append(checks, Check{
		ID: "hostile/mutated", Level: Hostile, Needs: []string{"create", "get"}, Run: mutations,
		Rule:   "No request, however it is malformed, is answered with a failure of the server, a redirect or text.",
		Source: conventions + "#http-status-codes",
	})
}

// mutations sends valid requests with random changes. None is a watch, which would take too long.
func mutations(p *Probe) {
	const most, longest = 300, 15 * time.Second
	p.harmless()
	random := rand.New(rand.NewPCG(p.run.Seed, 1)) //nolint:gosec // It has to be repeatable.
	target := p.subject("target")
	filler := p.filler(target.GetName())
	example := inJSON(p.New("mutated").Object)
	current := target.DeepCopy()
	current.SetResourceVersion("") // A malformed resourceVersion is known to be answered with 500.
	seeds := append([]attack{
		creating(example), replacing(inJSON(current.Object)), applying(objectWith(`,"labels":{"a":"b"}`, "")),
		jsonPatching(`[{"op":"add","path":"/metadata/labels/a","value":"b"},{"op":"copy","from":"/metadata/labels","path":"/metadata/annotations"}]`), merging(`{"metadata":{"labels":{"a":"b"},"finalizers":["example.com/a"]}}`),
		removingNothing(`{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"1"}}`), listing("limit=1&labelSelector=a%3Db,c+in+(d,e)&fieldSelector=metadata.name%3Da"),
	}, each(attack{kind: asYAML}, []string{example}, creating)...)
	kinds := []string{asJSON, asYAML, asCBOR, string(types.MergePatchType), string(types.JSONPatchType), string(types.ApplyPatchType)}
	for deadline, sent := time.Now().Add(longest), 0; sent < most && time.Now().Before(deadline); sent++ {
		a := seeds[random.IntN(len(seeds))]
		a.body = filler.Replace(a.body)
		for range 1 + random.IntN(3) {
			switch path, query, _ := strings.Cut(a.path, "?"); {
			case random.IntN(8) == 0:
				a.kind = kinds[random.IntN(len(kinds))]
			case a.body == "" || random.IntN(8) == 0:
				a.path = path + "?timeoutSeconds=1&dryRun=All&" + url.PathEscape(mutation(random, query))
			default:
				a.body = mutation(random, a.body)
			}
		}
		if a.kind == string(types.ApplyPatchType) {
			a.upstream = unfitApply
		}
		if _, err := url.Parse(filler.Replace(a.path)); err == nil {
			p.withstand(a, filler)
		}
	}
	p.alive()
	p.unchanged(target)
}

// mutation returns a text with one change.
func mutation(random *rand.Rand, text string) string {
	pieces := []string{"", "null", "{}", "[]", `""`, "{", "}", "[", "]", `"`, ",", ":", "-1", "1e9", "9223372036854775808", "1.5", "true", `\u0000`, "\x00", "\xff", " ", "\n- ", "metadata", "spec", "/", "..", "*", "&a ", "*a", "!!binary ", strings.Repeat("a", 300)}
	from := random.IntN(len(text) + 1)
	to := min(len(text), from+random.IntN(12))
	switch random.IntN(4) {
	case 0: // Repeat a part.
		return text[:to] + text[from:]
	case 1: // Leave a part out.
		return text[:from] + text[to:]
	case 2: // Cut off.
		return text[:from]
	default: // Put something else there.
		return text[:from] + pieces[random.IntN(len(pieces))] + text[to:]
	}
}
