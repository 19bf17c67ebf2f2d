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
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// place says where a malformed text is sent. Its strings have placeholders in braces: {text} stands for the text.
type place struct {
	// verb is the one that the resource needs.
	verb, method, path, kind, body string
}

// volley is texts that no honest client sends, each to each of the places.
type volley struct {
	places []place
	texts  []string
	// refused says that Kubernetes refuses all of them. It may accept others, but not fail.
	refused bool
}

func hostileChecks() []Check {
	const (
		upToMetadata = `{"apiVersion":"{version}","kind":"{kind}","metadata":`
		self         = "\xd9\xd9\xf7" // Begins CBOR.
	)
	patching := func(kind types.PatchType, query string) place {
		return place{verb: "patch", method: http.MethodPatch, path: "{object}?dryRun=All" + query, kind: string(kind), body: "{text}"}
	}
	posting := func(kind string) place {
		return place{verb: "create", method: http.MethodPost, path: "{collection}?dryRun=All", kind: kind, body: "{text}"}
	}
	creating, applying := posting(asJSON), patching(types.ApplyPatchType, "&fieldManager=conformance&force=true")
	replacing := place{verb: "update", method: http.MethodPut, path: "{object}?dryRun=All", kind: asJSON, body: "{text}"}
	merging, jsonPatching := patching(types.MergePatchType, ""), patching(types.JSONPatchType, "")
	// Options in a body replace the query's, so that nothing may exist there.
	removing := place{verb: "delete", method: http.MethodDelete, path: "{object}-missing", kind: asJSON, body: "{text}"}
	metadata := []string{`"labels":{"a b":"c"}`, `"labels":[1]`, `"annotations":{"a b":"c"}`, `"finalizers":["a b"]`, `"ownerReferences":[{}]`, `"creationTimestamp":"yesterday"`, `"generation":"x"`, `"name":"a/b"`, `"name":1`}
	numbers := []string{"{nines}", "1e999999999", "1e-999999999", "-0", "0x10", "01", "18446744073709551616", "-9223372036854775809"}

	var checks []Check
	for _, row := range []struct {
		name, source, rule string
		volleys            []volley
	}{
		{"broken-json", conventions + "#http-status-codes", "A body that is no object is refused.", []volley{
			{[]place{creating, replacing, removing, merging, jsonPatching}, []string{upToMetadata, `"text"`, `{}{}`, `{"a":NaN}`, "\xf0\x9f", "\x00", `{"a":1,}`, `{'a':1}`}, true},
			{[]place{creating, replacing, merging}, []string{"", "[]"}, true},
		}},
		{"deep", "https://github.com/kubernetes/kubernetes/issues/83253", "A body that is nested deeply is no failure of the server.", []volley{
			{[]place{creating, replacing, removing, merging, jsonPatching, applying}, []string{"{deep}", `{"a":{deep}}`, `[{"op":"add","path":"/a","value":{deep}}]`}, false},
			{[]place{posting(asYAML)}, []string{"a: {deep}", "{dashes}"}, false},
		}},
		{"wide", conventions + "#http-status-codes", "A body that is large is refused.", []volley{
			{[]place{creating, replacing, removing, merging, jsonPatching, applying, posting(asYAML)}, []string{`{"a":"{huge}"}`}, true},
		}},
		{"yaml", "https://github.com/kubernetes/kubernetes/issues/83253", "YAML that is no object, or stands for much more than it is, is refused.", []volley{{[]place{posting(asYAML), applying}, []string{
			"a: b: c", "a:\n\t- b", "a: *b", "a: &a [*a]", "a: \x00", "{laughs}", "--- a\n--- b", "? [a]\n: b\n", "%YAML 9.9\n---\na: b",
		}, true}}},
		{"protobuf", concepts + "#protobuf-encoding", "Protobuf that can't be decoded is no failure of the server.", []volley{{[]place{posting(asProtobuf)}, []string{
			"{}", "k8t\x00\x0a\x04", "k8s\x00", "k8s\x00\xff", "k8s\x00\x0a\xff\xff\xff\xff\x0f", "k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "k8s\x00\x0a\x10ab", "k8s\x00\x12\xff\xff\xff\x7f",
		}, false}}},
		{"cbor", concepts + "#cbor-encoding", "CBOR that can't be decoded is no failure of the server.", []volley{{[]place{posting(asCBOR), patching("application/apply-patch+cbor", "&fieldManager=conformance")}, []string{
			self, self + "\xa1", self + "\xbb\xff\xff\xff\xff\xff\xff\xff\xff", self + "\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", self + "\x5b\x7f\xff\xff\xff\xff\xff\xff\xff", self + "\xa2\x41a\x01\x41a\x02", self + "\xff", "{}",
		}, false}}},
		{"metadata", conventions + "#metadata", "Invalid metadata is no failure of the server.", []volley{
			{[]place{creating}, around(upToMetadata+`{`, `}}`, metadata...), false},
			{[]place{merging}, around(`{"metadata":{`, `}}`, metadata...), false},
		}},
		{"numbers", conventions + "#primitive-types", "A number that no type holds is no failure of the server.", []volley{
			{[]place{creating}, around(upToMetadata+`{"name":"{name}"},"unknown":`, `}`, numbers...), false},
			{[]place{merging}, around(`{"metadata":{"deletionGracePeriodSeconds":`, `}}`, numbers...), false},
			{[]place{removing}, around(`{"gracePeriodSeconds":`, `}`, numbers...), false},
		}},
		{"paths", conventions + "#http-status-codes", "A path that leads to nothing is no redirect.", []volley{{[]place{{verb: "get", method: http.MethodGet, path: "{text}"}}, []string{
			"{object}/unknown", "{object}/", "{object}/..", "{collection}//", "{collection}/%00", "{collection}/%2e%2e", "{collection}/%2F", "{collection}/a%2Fb", "{collection}/%25", "{collection}/%ff%fe", "{collection}/Upper", "{collection}/a%20b", "{collection}/{nines}",
		}, false}}},
		{"json-patch", "https://www.rfc-editor.org/rfc/rfc6902#section-5", "A JSON patch that can't be applied is refused.", []volley{{[]place{jsonPatching}, []string{
			`{}`, `[{"op":1,"path":2}]`, `[null]`, `[{}]`, `[{"op":"explode","path":"/metadata"}]`, `[{"op":"add","path":"metadata","value":1}]`, `[{"op":"replace","path":"/no/thing","value":1}]`, `[{"op":"test","path":"","value":{}}]`,
			`[{"op":"move","from":"/nothing","path":"/metadata/labels"}]`, `[{"op":"add","path":"/metadata/finalizers","value":[]},{"op":"add","path":"/metadata/finalizers/99999999999","value":"a"}]`,
		}, true}}},
		{"merge-patch", "https://www.rfc-editor.org/rfc/rfc7386", "A merge patch that makes no valid object is no failure of the server.", []volley{{[]place{merging}, []string{
			`1`, `"a"`, `[1]`, `{"metadata":[]}`, `{"kind":"Other"}`, `{"kind":1}`, `{"apiVersion":"a/b/c"}`, `{"metadata":{"finalizers":{"a":"b"}}}`, `{"":{"":{"":null}}}`, `{"\u0000":1}`, `{"metadata":null}`,
		}, false}}},
		{"apply", serverSideApply, "An apply patch that is no object of the kind is refused.", []volley{{[]place{applying}, []string{
			"null", "[]", "word", "{}", `{"apiVersion":"{version}"}`, `{"kind":"{kind}"}`, upToMetadata + `{"name":"{name}","managedFields":[{"manager":"a"}]}}`, upToMetadata + `{"name":"other"}}`,
		}, true}}},
	} {
		checks = append(checks, Check{ID: "hostile/" + row.name, Source: row.source, Rule: row.rule, Level: Hostile, Run: func(p *Probe) { p.withstand(row.volleys) }})
	}
	return checks
}

// around returns texts with a prefix and a suffix.
func around(before, behind string, texts ...string) []string {
	texts = slices.Clone(texts)
	for i := range texts {
		texts[i] = before + texts[i] + behind
	}
	return texts
}

// withstand sends requests, and requires that each is answered as Kubernetes does, and that nothing has changed.
func (p *Probe) withstand(volleys []volley) {
	p.OnlyIf(p.Namespaced || p.Example == nil || !p.Example.persists, "the server ignores dry runs, and the resource has no namespaces that could be deleted")
	if volleys[0].places[0].kind == asProtobuf {
		answer := p.Do(http.MethodGet, p.Collection(), nil, Query("limit", "1"), Header("Accept", asProtobuf))
		p.OnlyIf(answer.Code != http.StatusNotAcceptable, "the API has no protobuf; sent nevertheless, it makes k8s.io/apiextensions-apiserver v0.37 panic, since its protobuf serializer is not strict")
	}
	object, sent := p.subject("target"), 0
	filler := strings.NewReplacer(
		"{collection}", p.Collection(), "{object}", p.Collection(object.GetName()), "{version}", p.GroupVersionKind().GroupVersion().String(), "{kind}", p.Kind, "{name}", object.GetName(),
		"{deep}", strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000), "{dashes}", strings.Repeat("- ", 100_000), "{huge}", strings.Repeat("x", 4<<20), "{nines}", strings.Repeat("9", 10_000), "{laughs}", laughs())
	for _, volley := range volleys {
		for _, to := range volley.places {
			if p.run.ReadOnly && to.method != http.MethodGet || p.lacks("", to.verb) != "" {
				continue
			}
			for _, text := range volley.texts {
				sent++
				p.withstandOne(to, filler, text, volley.refused)
			}
		}
	}
	p.OnlyIf(sent > 0, "the check has requests of other verbs only; those of the resource are %s", strings.Join(p.Discovered.Verbs, ", "))
	p.unchanged(object)
}

func (p *Probe) withstandOne(to place, filler *strings.Replacer, text string, refused bool) {
	text = filler.Replace(text)
	fill := func(template string) string {
		return strings.ReplaceAll(filler.Replace(template), "{text}", text)
	}
	var body any
	if to.body != "" {
		body = fill(to.body)
	}
	answer := p.Do(to.method, fill(to.path), body, func(r *Request) {
		if to.kind != "" {
			r.Header.Set("Content-Type", to.kind)
		}
	})
	p.Require(answer, answer.Code < 500, "a refusal is expected, and no failure of the server")
	p.Require(answer, answer.Code < 300 || answer.Code >= 400, "no redirect is expected")
	p.Require(answer, answer.Code >= 400 || !refused, "a refusal is expected")
	if answer.Code >= 400 {
		p.Refused(answer, answer.Code, "")
	}
}

// laughs returns YAML whose aliases stand for a billion words.
func laughs() string {
	text, last := "a: &a [lol,lol,lol,lol,lol,lol,lol,lol,lol]\n", "a"
	for _, next := range []string{"b", "c", "d", "e", "f", "g", "h", "i"} {
		text += next + ": &" + next + " [" + strings.Repeat("*"+last+",", 8) + "*" + last + "]\n"
		last = next
	}
	return text
}
