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

// attack is a request that no honest client sends. In its strings, what stands in braces is filled in.
type attack struct {
	method, path, kind, accept, body string
	// code is what Kubernetes answers, or refusal for any of 400 and more. Without it only the form is known: a
	// refusal that is no failure, or success where the request is not as bad as it looks.
	code int
	// upstream is where to see that a library that most servers are made with answers 500, or text.
	upstream string
}

func (a attack) gets(code int) attack { a.code = code; return a }

func (a attack) as(kind string) attack { a.kind = kind; return a }

func (a attack) accepting(kind string) attack { a.accept = kind; return a }

func (a attack) known(upstream string) attack { a.upstream = upstream; return a }

const (
	refusal = 4

	jsonType     = "application/json"
	yamlType     = "application/yaml"
	protobufType = "application/vnd.kubernetes.protobuf"
	cborType     = "application/cbor"

	applyQuery = "{object}?fieldManager=conformance&force=true&dryRun=All"
	// issues are where these differences are known.
	unreadVersion = "https://github.com/kubernetes/kubernetes/issues/139485"
	unfitApply    = "https://github.com/kubernetes/kubernetes/issues/139253"
	unfitPatch    = "https://github.com/kubernetes/kubernetes/issues/54423"
	customObjects = "https://github.com/kubernetes/kubernetes/blob/v1.37.1/staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go"
	noResource    = "https://github.com/kubernetes/kubernetes/blob/v1.37.1/staging/src/k8s.io/apiserver/pkg/endpoints/filters/requestinfo.go"
)

func creating(body string) attack {
	return attack{method: http.MethodPost, path: "{collection}?dryRun=All", kind: jsonType, body: body}
}

func replacing(body string) attack {
	return attack{method: http.MethodPut, path: "{object}?dryRun=All", kind: jsonType, body: body}
}

func patching(kind types.PatchType, body string) attack {
	path := "{object}?dryRun=All"
	if kind == types.ApplyPatchType {
		path = applyQuery
	}
	return attack{method: http.MethodPatch, path: path, kind: string(kind), body: body}
}

func removing(body string) attack {
	return attack{method: http.MethodDelete, path: "{object}?dryRun=All", kind: jsonType, body: body}
}

// removingNothing is for options that may be valid. They take the place of those of the query.
func removingNothing(body string) attack {
	return attack{method: http.MethodDelete, path: "{object}-missing", kind: jsonType, body: body}
}

func getting(path string) attack { return attack{method: http.MethodGet, path: path} }

// objectWith is an object with more metadata, and more beside it.
func objectWith(metadata, beside string) string {
	return `{"apiVersion":"{version}","kind":"{kind}","metadata":{"name":"{name}"` + metadata + `}` + beside + `}`
}

// everywhere sends a body in every place that takes one.
func everywhere(body string) []attack {
	attacks := []attack{creating(body), replacing(body), removing(body)}
	for _, kind := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType, types.JSONPatchType, types.ApplyPatchType} {
		attacks = append(attacks, patching(kind, body))
	}
	return attacks
}

// send sends attacks and looks at the answers, and then whether the API is as before.
func (p *Probe) send(attacks ...attack) {
	attacks = slices.DeleteFunc(attacks, func(a attack) bool { return !p.offers(a) })
	if len(attacks) == 0 {
		p.NotOffered("the check has requests of other verbs only; those of the resource are %s", strings.Join(p.Discovered.Verbs, ", "))
	}
	object := p.subject("target")
	filler := p.filler(object.GetName())
	for _, a := range attacks {
		p.withstand(a, filler)
	}
	p.alive()
	p.unchanged(object)
}

// offers tells whether the resource has the verb of an attack. A method that no resource has is always sent.
func (p *Probe) offers(a attack) bool {
	if p.run.ReadOnly && a.method != http.MethodGet {
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
	return strings.NewReplacer("{collection}", p.Collection(), "{object}", p.Collection(name), "{root}", root(p.GroupVersion()), "{version}", p.GroupVersion().String(),
		"{kind}", p.Kind, "{name}", name, "{resource}", p.GroupVersionResource.Resource, "{namespace}", p.Namespace, "{group}", p.Group)
}

// withstand sends an attack, and ends the check unless it is answered as by Kubernetes.
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
	case a.kind == string(types.StrategicMergePatchType) && answer.Code == http.StatusUnsupportedMediaType: // Custom resources have none.
	case answer.Code >= 500:
		p.Fail(answer, "a refusal is expected, and no failure of the server")
	case answer.Code >= 300 && answer.Code < 400:
		p.Fail(answer, "no redirect is expected")
	case a.code == refusal && answer.Code < 400:
		p.Fail(answer, "a refusal is expected")
	case a.code > refusal && answer.Code != a.code && a.upstream == "":
		p.Fail(answer, "%d is expected", a.code)
	case answer.Code >= 400:
		p.Refused(answer, answer.Code, "")
	}
}

// below are the updates and creations among the attacks, for subresources.
func (p *Probe) below(attacks []attack) []attack {
	var below []attack
	for _, subresource := range slices.Sorted(maps.Keys(p.Subresources)) {
		for _, a := range attacks {
			verb := map[string]string{http.MethodPut: "update", http.MethodPost: "create"}[a.method]
			// What else is invalid in an object need not be so in another kind.
			if verb == "" || a.method == http.MethodPost && a.code == http.StatusUnprocessableEntity || p.lacks(subresource, verb) != "" {
				continue
			}
			_, query, _ := strings.Cut(a.path, "?")
			a.path = "{object}/" + subresource + "?" + query
			below = append(below, a)
		}
	}
	return below
}

// needsProtobuf ends the check if the API gives no protobuf.
func (p *Probe) needsProtobuf() {
	answer := p.Do(http.MethodGet, p.Collection(), nil, Query("limit", "1"), Header("Accept", protobufType))
	if answer.Code == http.StatusNotAcceptable {
		p.NotOffered("the API has no protobuf; sent nevertheless, it makes k8s.io/apiextensions-apiserver v0.37 panic, since its protobuf serializer is not strict: %s", customObjects)
	}
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

// hostileChecks are tables of requests. A table is made when its check runs: some are large.
func hostileChecks() []Check {
	var checks []Check
	for _, table := range []struct {
		id, rule, source string
		attacks          func() []attack
	}{
		{"broken-json", "A body that is no object is refused: 400.", conventions + "#http-status-codes", brokenJSON},
		{"deep", "A body that is nested deeply is refused, and costs the server little.", "https://github.com/kubernetes/kubernetes/issues/83253", deep},
		{"wide", "A body that is large is refused: 413 above 3 MiB.", conventions + "#http-status-codes", wide},
		{"yaml", "YAML that is no object, or stands for much more than it is, is refused.", "https://github.com/kubernetes/kubernetes/issues/83253", hostileYAML},
		{"protobuf", "Protobuf that can't be decoded is refused.", concepts + "#protobuf-encoding", hostileProtobuf},
		{"cbor", "CBOR that can't be decoded is refused.", concepts + "#cbor-encoding", hostileCBOR},
		{"types", "A body of another kind or version than that of the path is refused.", conventions + "#types-kinds", hostileTypes},
		{"metadata", "Invalid metadata is refused.", conventions + "#metadata", hostileMetadata},
		{"numbers", "Numbers that no type holds are refused or rounded.", conventions + "#primitive-types", hostileNumbers},
		{"paths", "A path that leads to nothing is 404, and none a redirect.", conventions + "#http-status-codes", hostilePaths},
		{"methods", "A method that a path does not have is refused.", conventions + "#http-status-codes", hostileMethods},
		{"selectors", "A selector that can't be parsed is refused: 400.", "https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#api", hostileSelectors},
		{"continue", "A continue token that the server has not given is refused: 400, or 410.", concepts + "#retrieving-large-results-sets-in-chunks", hostileContinue},
		{"options", "Options that have no meaning are refused.", conventions + "#http-status-codes", hostileOptions},
		{"media-types", "A body of an unknown media type is 415; an answer of an unknown one 406.", conventions + "#http-status-codes", hostileMediaTypes},
		{"json-patch", "A JSON patch that can't be applied is refused.", "https://www.rfc-editor.org/rfc/rfc6902#section-5", hostileJSONPatches},
		{"merge-patch", "A merge patch that makes no valid object is refused.", "https://www.rfc-editor.org/rfc/rfc7386", hostileMergePatches},
		{"apply", "An apply patch that is no object of the kind is refused.", "https://kubernetes.io/docs/reference/using-api/server-side-apply/", hostileApplies},
	} {
		checks = append(checks, Check{
			ID: "hostile/" + table.id, Rule: table.rule, Source: table.source, Level: Hostile,
			Run: func(p *Probe) {
				if table.id == "protobuf" {
					p.needsProtobuf()
				}
				attacks := table.attacks()
				if slices.Contains([]string{"broken-json", "deep", "wide", "options", "media-types"}, table.id) {
					attacks = append(attacks, p.below(attacks)...)
				}
				p.send(attacks...)
			},
		})
	}
	return append(checks, Check{
		ID: "hostile/mutated", Level: Hostile, Needs: []string{"create", "get"}, Run: mutations,
		Rule:   "No request, however it is malformed, is answered with a failure of the server, a redirect or text.",
		Source: conventions + "#http-status-codes",
	})
}

func brokenJSON() []attack {
	var attacks []attack
	for _, body := range []string{`{"apiVersion":"{version}","kind":"{kind}","metadata":`, `"text"`, `{}{}`, `{"a":NaN}`, `word`, "\xf0\x9f", "\x00", `{"a":1,}`, `{'a':1}`, strings.Repeat(" ", 1<<20) + "{"} {
		attacks = append(attacks, creating(body).gets(400), replacing(body).gets(400), removing(body).gets(400),
			patching(types.MergePatchType, body).gets(400), patching(types.JSONPatchType, body).gets(400))
	}
	return append(attacks, creating(`[]`).gets(400), replacing(`[]`).gets(400), creating("").gets(400), replacing("").gets(400), patching(types.MergePatchType, "").gets(400), patching(types.MergePatchType, `[]`).gets(400))
}

func deep() []attack {
	var attacks []attack
	for _, levels := range []int{10_001, 100_000} {
		lists := strings.Repeat("[", levels) + strings.Repeat("]", levels)
		objects := strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels)
		for _, body := range []string{lists, objects, objectWith("", `,"a":`+lists), objectWith(`,"managedFields":[{"fieldsType":"FieldsV1","fieldsV1":`+objects+`}]`, "")} {
			attacks = append(attacks, everywhere(body)...)
		}
		attacks = append(attacks, creating(strings.Repeat("[", levels)).gets(400), patching(types.JSONPatchType, `[{"op":"add","path":"/a","value":`+lists+`}]`),
			creating("a: "+lists).as(yamlType), creating(strings.Repeat("- ", levels)).as(yamlType), patching(types.ApplyPatchType, strings.Repeat("- ", levels)))
	}
	return attacks
}

func wide() []attack {
	huge := strings.Repeat("x", 4<<20)
	numbered := func(n int, format string) string {
		var list strings.Builder
		for i := range n {
			fmt.Fprintf(&list, ","+format, i)
		}
		return list.String()[1:]
	}
	attacks := everywhere(`{"a":"` + huge + `"}`)
	for i := range attacks {
		attacks[i].code = 413
	}
	return append(attacks,
		creating(huge).as(yamlType).gets(413),
		creating(objectWith(`,"labels":{`+numbered(30_000, `"l%d":"a"`)+`}`, "")), creating(objectWith(`,"finalizers":[`+numbered(30_000, `"example.com/%d"`)+`]`, "")),
		creating(objectWith(`,"annotations":{"a":"`+huge[:300<<10]+`"}`, "")).gets(422), creating(objectWith("", ","+numbered(30_000, `"f%d":1`))),
		patching(types.MergePatchType, `{"metadata":{"annotations":{"a":"`+huge[:300<<10]+`"}}}`).gets(422), patching(types.JSONPatchType, `[`+numbered(10_001, `{"op":"test%d"}`)+`]`).gets(413),
		patching(types.JSONPatchType, `[{"op":"add","path":"`+strings.Repeat("/a", 100_000)+`","value":1}]`), patching(types.ApplyPatchType, objectWith(`,"labels":{`+numbered(30_000, `"l%d":"a"`)+`}`, "")),
		getting("{collection}?labelSelector="+numbered(5_000, "a%d")), getting("{collection}?"+strings.Repeat("a=b&", 10_000)),
	)
}

func hostileYAML() []attack {
	laughs := "a0: &a0 [lol,lol,lol,lol,lol,lol,lol,lol,lol]\n"
	for i := 1; i < 9; i++ {
		laughs += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 8), i-1)
	}
	var attacks []attack
	for _, body := range []string{"a: b: c", "a:\n\t- b", "a: *b", "a: &a [*a]", "a: !!binary '*'", "a: \x00", "a: \xf0\x9f", laughs, "--- a\n--- b", "? [a]\n: b\n", "%YAML 9.9\n---\na: b"} {
		attacks = append(attacks, creating(body).as(yamlType).gets(400), replacing(body).as(yamlType).gets(400), patching(types.ApplyPatchType, body).gets(400), removingNothing(body).as(yamlType))
	}
	return attacks
}

func hostileProtobuf() []attack {
	var attacks []attack
	for _, body := range []string{
		"{}", "k8t\x00\x0a\x04", "k8s\x00", "k8s\x00\xff", "k8s\x00\x0a\xff\xff\xff", "k8s\x00\x0a\xff\xff\xff\xff\x0f", "k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "k8s\x00" + strings.Repeat("\x0b", 100_000), "k8s\x00\x0a\x10ab", "k8s\x00\x0f", "k8s\x00\x08\x01", "k8s\x00\x12\xff\xff\xff\x7f",
		"k8s\x00\x93\x1e\xb0\x77\x04\x5a\xd1\xff",
	} {
		attacks = append(attacks, creating(body).as(protobufType), replacing(body).as(protobufType), removingNothing(body).as(protobufType))
	}
	return attacks
}

func hostileCBOR() []attack {
	const self = "\xd9\xd9\xf7"
	var attacks []attack
	for _, body := range []string{
		self, self + "\xa1", self + "\x81", self + "\xbb\xff\xff\xff\xff\xff\xff\xff\xff", self + "\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", self + "\x5b\x7f\xff\xff\xff\xff\xff\xff\xff",
		self + strings.Repeat("\x81", 100_000) + "\x00", self + strings.Repeat("\x9f", 100_000), self + strings.Repeat("\xa1\x41a", 50_000) + "\x00", self + "\xa2\x41a\x01\x41a\x02", self + "\xff",
		self + "\xa1\x01\x02", self + "\xf9\x7e\x00", self + "\xa1\x41a\x62\xf0\x9f", strings.Repeat(self, 1000) + "\xa0", "{}",
	} {
		attacks = append(attacks, creating(body).as(cborType), replacing(body).as(cborType), removingNothing(body).as(cborType), patching("application/apply-patch+cbor", body))
	}
	return attacks
}

func hostileTypes() []attack {
	var attacks []attack
	for _, typed := range [][2]string{
		{`"{version}"`, `"Unknown"`}, {`"{version}"`, `1`}, {`"other.example.com/v1"`, `"{kind}"`}, {`"{group}/v987"`, `"{kind}"`}, {`"a/b/c"`, `"{kind}"`}, {`1`, `"{kind}"`}, {`"v1"`, `"Status"`}, {`"{version}"`, `"{kind}List"`},
	} {
		body := `{"apiVersion":` + typed[0] + `,"kind":` + typed[1] + `,"metadata":{"name":"{name}"}}`
		attacks = append(attacks, creating(body).gets(refusal), replacing(body).gets(refusal), patching(types.ApplyPatchType, body).gets(refusal))
	}
	for _, metadata := range []string{`[]`, `"a"`, `{"name":1}`, `{"name":"a","labels":{"a":1}}`, `{"name":"a","creationTimestamp":"yesterday"}`, `{"name":"a","ownerReferences":["a"]}`, `{"name":"a","finalizers":{}}`, `{"name":"a","generation":"x"}`} {
		attacks = append(attacks, creating(`{"apiVersion":"{version}","kind":"{kind}","metadata":`+metadata+`}`).gets(400), patching(types.MergePatchType, `{"metadata":`+metadata+`}`))
	}
	return attacks
}

func hostileMetadata() []attack {
	var attacks []attack
	for _, name := range []string{"a/b", "..", "a%", `a\u0000`, "a b", "-a", "ä", strings.Repeat("a", 254), ""} {
		attacks = append(attacks, creating(strings.Replace(objectWith("", ""), "{name}", name, 1)).gets(422))
	}
	for _, metadata := range []string{
		`"labels":{"a b":"c"}`, `"labels":{"a":"b c"}`, `"annotations":{"a b":"c"}`, `"finalizers":["a b"]`, `"ownerReferences":[{}]`, `"ownerReferences":[{"apiVersion":"a/b/c","kind":"A","name":"a","uid":"a"}]`,
		`"ownerReferences":[{"apiVersion":"v1","kind":"A","name":"a","uid":"a","controller":true},{"apiVersion":"v1","kind":"A","name":"b","uid":"b","controller":true}]`,
	} {
		attacks = append(attacks, creating(objectWith(","+metadata, "")).gets(422), patching(types.MergePatchType, `{"metadata":{`+metadata+`}}`).gets(422))
	}
	for _, version := range []string{"x", "-1", "18446744073709551616", " ", `\u0000`} {
		attacks = append(attacks, patching(types.MergePatchType, `{"metadata":{"resourceVersion":"`+version+`"}}`).known("https://github.com/kubernetes/kubernetes/pull/68208"))
	}
	return append(attacks, replacing(objectWith(`,"uid":"other","resourceVersion":"1"`, "")), patching(types.MergePatchType, `{"metadata":{"name":"other"}}`), patching(types.MergePatchType, `{"metadata":{"namespace":"other"}}`),
		patching(types.MergePatchType, `{"metadata":{"managedFields":[{"fieldsType":"x","operation":"y","fieldsV1":{"f:\u0000":{}}}]}}`), patching(types.MergePatchType, `{"metadata":null}`), patching(types.MergePatchType, `{"metadata":{"deletionTimestamp":"2000-01-01T00:00:00Z","deletionGracePeriodSeconds":-1}}`))
}

func hostileNumbers() []attack {
	var attacks []attack
	for _, number := range []string{strings.Repeat("9", 100_000), "1e999999999", "1e-999999999", "-0", "1E400", "0x10", "01", "1." + strings.Repeat("0", 100_000) + "1", "18446744073709551616", "9223372036854775808", "-9223372036854775809"} {
		attacks = append(attacks, creating(objectWith(`,"generation":`+number, "")), creating(objectWith("", `,"unknown":`+number)), patching(types.MergePatchType, `{"metadata":{"deletionGracePeriodSeconds":`+number+`}}`), removingNothing(`{"gracePeriodSeconds":`+number+`}`), patching(types.ApplyPatchType, objectWith("", `,"unknown":`+number)).known(unfitApply))
	}
	return attacks
}

func hostilePaths() []attack {
	attacks := []attack{getting("{root}/unknown").gets(404).known(customObjects), getting("{object}/unknown").gets(404), getting("{object}" + strings.Repeat("/a", 1000)).gets(404)}
	for _, path := range []string{
		"{object}/", "{collection}/", "{collection}//", "{object}/..", "{object}/.", "{collection}/%00", "{collection}/%2e%2e", "{collection}/%2F", "{collection}/a%2Fb", "{collection}/%25", "{collection}/%ff%fe",
		"{collection}/" + strings.Repeat("a", 10_000), "{collection}/Upper", "{collection}/a%20b", "{root}/namespaces/%25/{resource}", "{root}/namespaces/a%20b/{resource}", "{root}/namespaces/" + strings.Repeat("a", 300) + "/{resource}/a",
	} {
		attacks = append(attacks, getting(path), attack{method: http.MethodDelete, path: strings.Replace(path, "{object}", "{object}-missing", 1) + "?dryRun=All"})
	}
	return append(attacks, getting("{root}/namespaces/../{resource}").known(noResource), getting("{root}/watch").known(noResource), getting("{root}/watch/unknown").known(customObjects), getting("{root}/proxy/{resource}").known(customObjects), getting("{root}//{resource}").known(customObjects))
}

func hostileMethods() []attack {
	var attacks []attack
	for path, methods := range map[string][]string{"{collection}": {http.MethodPut, http.MethodPatch}, "{object}": {http.MethodPost}} {
		for _, method := range append(methods, http.MethodTrace, "PROPFIND", "UNKNOWN", "get") {
			attacks = append(attacks, attack{method: method, path: path, kind: jsonType, body: "{}"}.gets(refusal))
		}
	}
	return attacks
}

func hostileSelectors() []attack {
	var attacks []attack
	for _, selector := range []string{"!!", "a b", "a in (b", "a in b", "-a=b", "a=b c", "a=" + strings.Repeat("b", 64), strings.Repeat("a", 64) + "=b", "a>b", "a,,b", "=b", strings.Repeat("a", 10_000), "a~b", strings.Repeat("(", 5_000)} {
		for _, path := range []string{"{collection}?labelSelector=", "{collection}?watch=true&timeoutSeconds=1&labelSelector="} {
			attacks = append(attacks, getting(path+url.QueryEscape(selector)).gets(400))
		}
		attacks = append(attacks, attack{method: http.MethodDelete, path: "{collection}?dryRun=All&labelSelector=" + url.QueryEscape(selector)})
	}
	for _, selector := range []string{"no.such.field=1", "a", `metadata.name=\`, "metadata.name in (a)", "=a", strings.Repeat("no.such=1,", 1000) + "a=b"} {
		attacks = append(attacks, getting("{collection}?fieldSelector="+url.QueryEscape(selector)).gets(400))
	}
	return attacks
}

func hostileContinue() []attack {
	token := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	var attacks []attack
	for _, text := range []string{
		"garbage", strings.Repeat("A", 10_000), "%00", token("text"), token(`{"v":"meta.k8s.io/v9","rv":1,"start":"a"}`), token(`{"v":"meta.k8s.io/v1","rv":0,"start":"a"}`), token(`{"v":"meta.k8s.io/v1","rv":1,"start":"../../a"}`),
		token(`{"v":"meta.k8s.io/v1","rv":1,"start":"a/../../../secrets/a"}`), token(`{"v":"meta.k8s.io/v1","rv":1,"start":1}`), token(`{"v":"meta.k8s.io/v1","rv":9223372036854775808,"start":"a"}`), token(strings.Repeat("[", 5_000)),
	} {
		attacks = append(attacks, getting("{collection}?limit=1&continue="+text).gets(400))
	}
	return append(attacks, getting("{collection}?limit=1&resourceVersion=1&continue="+token(`{"v":"meta.k8s.io/v1","rv":1,"start":"a"}`)).gets(400), getting("{collection}?limit=1&resourceVersion=1&resourceVersionMatch=Exact&continue=x").gets(422))
}

func hostileOptions() []attack {
	valid := objectWith("", "")
	var attacks []attack
	for _, a := range []attack{creating(valid), replacing(valid), patching(types.MergePatchType, "{}"), removing("")} {
		for _, query := range []string{"dryRun=yes", "dryRun=All&dryRun=yes"} {
			a.path, _, _ = strings.Cut(a.path, "?")
			a.path += "?" + query
			attacks = append(attacks, a.gets(422))
		}
	}
	for _, query := range []string{"fieldValidation=strict", "fieldManager=" + strings.Repeat("a", 129), "fieldManager=%07"} {
		a := patching(types.MergePatchType, "{}")
		a.path += "&" + query
		attacks = append(attacks, a.gets(422))
	}
	for query, code := range map[string]int{
		"limit=all": 400, "limit=9223372036854775808": 400, "timeoutSeconds=soon": 400, "resourceVersion=x": 400, "resourceVersion=-1": 400, "resourceVersion=18446744073709551616": 400, "watch=true&timeoutSeconds=soon": 400, "limit=-1": 0, "timeoutSeconds=-1": 0,
		"resourceVersion=0&resourceVersionMatch=Exact": 422, "resourceVersionMatch=Exact": 422, "resourceVersion=1&resourceVersionMatch=About": 422, "sendInitialEvents=true": 422, "watch=true&sendInitialEvents=true&timeoutSeconds=1": 422, "watch=maybe&timeoutSeconds=1": 0, "%00=%00": 0, "a=%ff": 0,
	} {
		attacks = append(attacks, getting("{collection}?"+query).gets(code))
	}
	for query, code := range map[string]int{"propagationPolicy=never": 422, "propagationPolicy=Orphan&orphanDependents=true": 422, "gracePeriodSeconds=soon": 400} {
		attacks = append(attacks, attack{method: http.MethodDelete, path: "{object}?dryRun=All&" + query}.gets(code))
	}
	return append(attacks, getting("{object}?resourceVersion=x").known(unreadVersion), getting("{collection}?watch=true&timeoutSeconds=1&resourceVersion=x").known(unreadVersion),
		removing(`{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"never"}`).gets(422), removing(`{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":"soon"}`).gets(400), removing(`{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"other"}}`).gets(409), removing(`{"apiVersion":"v1","kind":"DeleteOptions","preconditions":[]}`).gets(400))
}

func hostileMediaTypes() []attack {
	var attacks []attack
	for _, kind := range []string{"text/plain", "application/xml", "application/x-www-form-urlencoded", "application/merge-patch+json", ";;", strings.Repeat("a", 5_000), "application/json/json"} {
		attacks = append(attacks, creating(objectWith("", "")).as(kind).gets(415), replacing(objectWith("", "")).as(kind).gets(415), removing("{}").as(kind).gets(415))
	}
	for _, kind := range []string{"text/plain", "application/json", "application/unknown+json", ";;"} {
		attacks = append(attacks, patching(types.PatchType(kind), "{}").gets(415))
	}
	for _, kind := range []string{"text/html", "image/png", "{[;;", "application/json;as=Chair;g=meta.k8s.io;v=v1", "application/json;as=Table;g=meta.k8s.io;v=v9", "application/json;as=Table;g=apps;v=v1"} {
		attacks = append(attacks, getting("{object}").accepting(kind).gets(406), getting("{collection}").accepting(kind).gets(406), creating(objectWith("", "")).accepting(kind).gets(406), getting("{collection}?watch=true&timeoutSeconds=1").accepting(kind).gets(406))
	}
	return append(attacks, getting("{collection}?includeObject=Everything").accepting("application/json;as=Table;g=meta.k8s.io;v=v1").gets(400))
}

func hostileJSONPatches() []attack {
	var attacks []attack
	for body, code := range map[string]int{
		`{}`: 400, `[{"op":1,"path":2}]`: 400, `[null]`: 422, `[{}]`: 422, `[{"op":"explode","path":"/metadata"}]`: 422, `[{"op":"add","value":1}]`: 422, `[{"op":"add","path":"metadata","value":1}]`: 422, `[{"op":"add","path":"/a/b","value":1}]`: 422,
		`[{"op":"remove","path":"/metadata/nothing"}]`: 422, `[{"op":"replace","path":"/no/thing","value":1}]`: 422, `[{"op":"test","path":"/kind","value":"Other"}]`: 422, `[{"op":"test","path":"/nothing","value":1}]`: 422, `[{"op":"test","path":"","value":{}}]`: 422,
		`[{"op":"move","from":"/nothing","path":"/metadata/labels"}]`: 422, `[{"op":"copy","path":"/metadata/labels"}]`: 422, `[{"op":"remove","path":""}]`: 422, `[{"op":"replace","path":"","value":1}]`: 422, `[{"op":"add","path":"/metadata/finalizers","value":["a b"]}]`: 422,
		`[{"op":"move","from":"/metadata","path":"/metadata/labels"}]`: 0, `[{"op":"replace","path":"","value":null}]`: 0, `[{"op":"replace","path":"","value":[]}]`: 0, `[{"op":"replace","path":"","value":{}}]`: 0, `[{"op":"remove","path":"/metadata"}]`: 0, `[{"op":"replace","path":"/kind","value":"Other"}]`: 0,
		`[{"op":"add","path":"/metadata/finalizers","value":[]},{"op":"add","path":"/metadata/finalizers/99999999999","value":"a"}]`: 422, `[{"op":"add","path":"/metadata/finalizers","value":[]},{"op":"add","path":"/metadata/finalizers/-99","value":"a"}]`: 422,
		`[{"op":"add","path":"/metadata/annotations","value":{"a":{}}}` + strings.Repeat(`,{"op":"copy","from":"/metadata/annotations","path":"/metadata/annotations/a/a"},{"op":"copy","from":"/metadata/annotations/a","path":"/metadata/annotations/a"},{"op":"copy","from":"/metadata","path":"/metadata/annotations/a"}`, 40) + `]`: 422,
	} {
		attacks = append(attacks, patching(types.JSONPatchType, body).gets(code))
	}
	return attacks
}

func hostileMergePatches() []attack {
	var attacks []attack
	for _, body := range []string{`1`, `"a"`, `true`, `[1]`, `{"metadata":[]}`, `{"metadata":"a"}`, `{"kind":"Other"}`, `{"kind":1}`, `{"apiVersion":"a/b/c"}`, `{"metadata":{"labels":[1]}}`, `{"metadata":{"finalizers":{"a":"b"}}}`, `{"":{"":{"":null}}}`, `{"\u0000":1}`, `{"metadata":{"ownerReferences":[{"uid":[]}]}}`} {
		attacks = append(attacks, patching(types.MergePatchType, body), patching(types.StrategicMergePatchType, body))
	}
	return append(attacks, patching(types.MergePatchType, `{"apiVersion":null}`).known(customObjects), patching(types.StrategicMergePatchType, `{"$patch":"explode"}`).known(unfitPatch), patching(types.StrategicMergePatchType, `{"metadata":{"finalizers":[{"$patch":"delete"}]}}`), patching(types.StrategicMergePatchType, `{"metadata":{"$setElementOrder/finalizers":"a"}}`).known(unfitPatch),
		patching(types.StrategicMergePatchType, `{"metadata":{"$retainKeys":1}}`), patching(types.StrategicMergePatchType, `{"metadata":{"$deleteFromPrimitiveList/finalizers":{}}}`))
}

func hostileApplies() []attack {
	var attacks []attack
	for _, body := range []string{"", "null", "[]", "word", "{}", `{"apiVersion":"{version}"}`, `{"kind":"{kind}"}`, objectWith(`,"managedFields":[{"manager":"a"}]`, ""), `{"apiVersion":"{version}","kind":"{kind}","metadata":{"name":"other"}}`} {
		attacks = append(attacks, patching(types.ApplyPatchType, body).gets(400))
	}
	for _, body := range []string{objectWith(`,"labels":[1]`, ""), `{"apiVersion":"{version}","kind":"{kind}","metadata":[]}`, `{"apiVersion":"{version}","kind":"{kind}","metadata":{"name":1}}`} {
		attacks = append(attacks, patching(types.ApplyPatchType, body).known(unfitApply))
	}
	valid := patching(types.ApplyPatchType, objectWith("", ""))
	for _, query := range []string{"?dryRun=All", "?dryRun=All&fieldManager=" + strings.Repeat("a", 129)} {
		without := valid
		without.path = "{object}" + query
		attacks = append(attacks, without.gets(422))
	}
	return attacks
}

// mutations sends good requests with random changes. None is a watch, which would take its time.
func mutations(p *Probe) {
	const most, longest = 300, 15 * time.Second
	random := rand.New(rand.NewPCG(p.run.Seed, 1)) //nolint:gosec // It has to be repeatable.
	target := p.subject("target")
	filler := p.filler(target.GetName())
	example := inJSON(p.New("mutated").Object)
	current := target.DeepCopy()
	current.SetResourceVersion("") // A malformed one is known to be answered with 500.
	seeds := []attack{
		creating(example), creating(example).as(yamlType), replacing(inJSON(current.Object)), patching(types.ApplyPatchType, objectWith(`,"labels":{"a":"b"}`, "")),
		patching(types.JSONPatchType, `[{"op":"add","path":"/metadata/labels/a","value":"b"},{"op":"copy","from":"/metadata/labels","path":"/metadata/annotations"}]`), patching(types.MergePatchType, `{"metadata":{"labels":{"a":"b"},"finalizers":["example.com/a"]}}`),
		removingNothing(`{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"1"}}`), getting("{collection}?limit=1&labelSelector=a%3Db,c+in+(d,e)&fieldSelector=metadata.name%3Da"),
	}
	kinds := slices.Sorted(maps.Values(map[int]string{0: jsonType, 1: yamlType, 2: cborType, 3: string(types.MergePatchType), 4: string(types.JSONPatchType), 5: string(types.ApplyPatchType)}))
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
			a = a.known(unfitApply)
		}
		if _, err := url.Parse(filler.Replace(a.path)); err == nil {
			p.withstand(a, filler)
		}
	}
	p.alive()
	p.unchanged(target)
}

// mutation changes a text at one place.
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
