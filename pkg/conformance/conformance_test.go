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
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// TestChecks shows that every check has its own ID, a rule and a source.
func TestChecks(t *testing.T) {
	seen := map[string]bool{}
	for _, check := range Checks() {
		require.Regexp(t, `^[a-z]+[A-Za-z]*/[a-z0-9-]+$`, check.ID)
		require.False(t, seen[check.ID], check.ID)
		seen[check.ID] = true
		require.Regexp(t, `^[A-Z].*\.$`, check.Rule, check.ID)
		require.Regexp(t, `^https://`, check.Source, check.ID)
		require.NotNil(t, check.Run, check.ID)
	}
}

func TestNotOffered(t *testing.T) {
	resource := &Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "loaves"},
		Discovered:           metav1.APIResource{Verbs: metav1.Verbs{"get", "create"}},
		Subresources:         map[string]metav1.APIResource{"status": {Verbs: metav1.Verbs{"get"}}},
	}
	for name, test := range map[string]struct {
		needs    string
		readOnly bool
		want     string
	}{
		"verb":                  {needs: "get create"},
		"missing verb":          {needs: "list", want: `the verbs of loaves in discovery are get, create, without "list"`},
		"subresource":           {needs: "status/get"},
		"missing subresource":   {needs: "scale/get", want: "discovery has no loaves/scale"},
		"verb of a subresource": {needs: "status/update", want: `the verbs of loaves/status in discovery are get, without "update"`},
		"written when reading":  {needs: "get create", readOnly: true, want: "the run only reads"},
		"read when reading":     {needs: "get", readOnly: true},
		"conditions":            {needs: "group admission"},
		"namespaces":            {needs: "get namespaces", want: "the resource has no namespaces"},
		"versions":              {needs: "versions", want: "discovery has one version of the resource only"},
		"kind":                  {needs: "kind", want: "discovery has subresources of it only"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, basic("a/b", "", test.needs, "", nil).notOffered(Options{ReadOnly: test.readOnly}, resource))
		})
	}
}

func TestLevels(t *testing.T) {
	for _, test := range []struct {
		level, other Level
		want         bool
	}{{Basic, Basic, true}, {Basic, Full, false}, {Full, Basic, true}, {Full, Hostile, false}, {Hostile, Full, true}} {
		require.Equal(t, test.want, test.level.Includes(test.other), "%s %s", test.level, test.other)
	}
}

// TestWithin tells missing values from others. A definition may have no schema for its status.
func TestWithin(t *testing.T) {
	for name, test := range map[string]struct {
		whole any
		want  bool
	}{
		"missing":   {nil, false},
		"empty":     {map[string]any{}, false},
		"different": {map[string]any{"phase": "Ready"}, false},
		"more":      {map[string]any{"phase": "Tried", "replicas": 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, within(map[string]any{"phase": "Tried"}, test.whole))
		})
	}
}

func TestRequestIsShown(t *testing.T) {
	request := newRequest(http.MethodPost, "/apis/example.com/v1/loaves", map[string]any{"name": "it's"}, Query("dryRun", "All"), As("jane", "bakers"))
	require.Equal(t, "POST /apis/example.com/v1/loaves?dryRun=All\nContent-Type: application/json\nImpersonate-Group: bakers\nImpersonate-User: jane\n\n"+`{"name":"it's"}`,
		request.String())
	require.Equal(t, `curl -i -X POST -H 'Content-Type: application/json' -H 'Impersonate-Group: bakers' -H 'Impersonate-User: jane' --data-binary '{"name":"it'\''s"}' 'http://127.0.0.1:8001/apis/example.com/v1/loaves?dryRun=All'`,
		request.Command())
	require.Equal(t, `3 bytes, which begin with "\xff\xfe\xfd"`, excerpt([]byte{0xff, 0xfe, 0xfd}, shown))
	require.Equal(t, "404 Not Found\nContent-Type: text/plain\n\nno", Answer{Code: 404, Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte("no\n")}.String())
}

func TestReportIsWritten(t *testing.T) {
	report := &Report{Host: "https://kube", Server: version.Info{GitVersion: "v1.37.1"}, Level: Full, Began: time.Unix(0, 0), Took: time.Minute, Results: []Result{
		{Check: "verbs/get", Resource: "loaves.v1.example.com", Outcome: Passed, Rule: "Loaves are read.", Source: "https://example.com/a", Took: time.Second},
		{Check: "verbs/put", Resource: "loaves.v1.example.com", Outcome: NotOffered, Reason: "no update", Rule: "Loaves are updated.", Source: "https://example.com/b"},
		{Check: "watch/order", Resource: "loaves.v1.example.com", Outcome: Failed, Rule: "Events have an order.", Source: "https://example.com/c",
			Finding: &Finding{Sent: "GET /a", Came: "500 <none>", Problem: "200 is expected", Command: "curl /a"}},
		{Check: "watch/resume", Resource: "loaves.v1.example.com", Outcome: Failed, Finding: &Finding{Problem: "200 is expected"}},
		{Check: "watch/start", Resource: "loaves.v1.example.com", Outcome: NotChecked, Reason: "no \x1b[2Jexample"},
	}, Omitted: []string{"nodes.v1"}, Left: []string{"/a is left"}}
	for format, want := range map[string]string{
		"text": `INCOMPLETE: 1 of 5 checks could not be made: no \x1b[2Jexample
✗ loaves.v1.example.com watch/order
  probably of the same cause: watch/resume of loaves.v1.example.com
  Kubernetes: Events have an order.
  written in: https://example.com/c
  problem:
    200 is expected
  sent:
    GET /a
  came:
    500 <none>
  again, while "kubectl proxy" runs:
    curl /a
– verbs/put of loaves.v1.example.com: no update
? watch/start of loaves.v1.example.com: no \x1b[2Jexample
– nodes.v1: not examined, since its objects act on the whole cluster and --resource does not name it
LEFT BEHIND: /a is left
       loaves.v1.example.com
verbs  ✓ 1 – 1
watch  ✗ 2 ? 1
(✓ passed, ✗ failed, – not offered, ? not checked)
2 of 5 checks failed (causes: 1), 1 passed, 1 are not offered, 1 could not be made (level full, v1.37.1 at https://kube, 1970-01-01T00:00:00Z, 1m0s)
`,
		"junit": `<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="conformance" tests="5" failures="2" skipped="2">
  <testcase classname="loaves.v1.example.com" name="verbs/get" time="1.000"></testcase>
  <testcase classname="loaves.v1.example.com" name="verbs/put" time="0.000">
    <skipped message="no update"></skipped>
  </testcase>
  <testcase classname="loaves.v1.example.com" name="watch/order" time="0.000">
    <failure message="200 is expected">Events have an order.&#xA;https://example.com/c&#xA;problem:&#xA;  200 is expected&#xA;sent:&#xA;  GET /a&#xA;came:&#xA;  500 &lt;none&gt;&#xA;again, while &#34;kubectl proxy&#34; runs:&#xA;  curl /a&#xA;</failure>
  </testcase>
  <testcase classname="loaves.v1.example.com" name="watch/resume" time="0.000">
    <failure message="200 is expected">&#xA;&#xA;problem:&#xA;  200 is expected&#xA;</failure>
  </testcase>
  <testcase classname="loaves.v1.example.com" name="watch/start" time="0.000">
    <skipped message="no �[2Jexample"></skipped>
  </testcase>
</testsuite>`,
	} {
		var out bytes.Buffer
		require.NoError(t, report.Write(&out, format))
		require.Equal(t, want, out.String())
	}
	var out bytes.Buffer
	require.NoError(t, report.Write(&out, "html"))
	require.Contains(t, out.String(), "<td>✓ 1 – 1</td>")
	require.Contains(t, out.String(), "<pre>500 &lt;none&gt;</pre>")
	require.EqualError(t, report.Write(&out, "pdf"), `the format "pdf" is unknown: there are text, json, junit, html`)
}

// schemas returns an exampleMaker with schemas of several shapes.
func schemas() exampleMaker {
	number := func(value float64) *float64 { return &value }
	object := func(required []string, properties map[string]spec.Schema) spec.Schema {
		return spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}, Required: required, Properties: properties}}
	}
	typed := func(name string) spec.Schema {
		return spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{name}}}
	}
	crumb := object([]string{"size"}, map[string]spec.Schema{"size": {SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"integer"}, Minimum: number(3)}}})
	kind := object([]string{"spec"}, map[string]spec.Schema{
		"spec": object([]string{"flour", "crumbs"}, map[string]spec.Schema{
			"flour":   {SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"string"}, Enum: []any{"rye", "wheat"}}},
			"crumbs":  {SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"array"}, Items: &spec.SchemaOrArray{Schema: spec.RefSchema("#/components/schemas/crumb")}}},
			"baked":   typed("boolean"),
			"host":    {SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"string"}, Pattern: `^[a-z]+\.[a-z]+$`}},
			"unknown": {},
		}),
	})
	kind.Extensions = spec.Extensions{"x-kubernetes-group-version-kind": []any{map[string]any{"group": "example.com", "version": "v1", "kind": "Loaf"}}}
	return exampleMaker{
		resource: &Resource{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "loaves"}, Kind: "Loaf"},
		schemas:  map[string]*spec.Schema{"loaf": &kind, "crumb": &crumb},
	}
}

func TestExampleHasWhatIsRequired(t *testing.T) {
	m := schemas()
	require.Equal(t, map[string]any{"spec": map[string]any{"flour": "rye", "crumbs": []any{map[string]any{"size": int64(3)}}}}, m.value(m.root(), 0))
	require.Equal(t, "example.com", m.value(m.at("spec", "host"), 0))
	require.Nil(t, m.value(m.at("spec", "unknown"), 0))
	require.Nil(t, m.value(m.at("spec", "missing"), 0))
}

func TestExampleIsCorrected(t *testing.T) {
	m := schemas()
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	refused := func(causes string) Answer {
		return Answer{Body: []byte(`{"kind":"Status","details":{"causes":[` + causes + `]}}`)}
	}
	require.True(t, m.correct(object, refused(`{"field":"spec.crumbs[0].size","message":"Required value"},{"field":"spec.flour","message":"Unsupported value: \"a\": supported values: \"oats\", \"rye\""}`), 2))
	require.Equal(t, map[string]any{"flour": "oats", "crumbs": []any{map[string]any{"size": int64(5)}}}, object.Object["spec"])
	require.False(t, m.correct(object, refused(`{"field":"spec.unknown","message":"Required value"}`), 0))
	require.False(t, m.correct(object, Answer{Body: []byte("no JSON")}, 0))
}

func TestCandidatesBeginWithFieldsOfTheObject(t *testing.T) {
	m := schemas()
	object := map[string]any{"spec": map[string]any{"flour": "rye"}}
	candidates := m.candidates(object, m.root(), nil)
	require.Equal(t, Change{[]string{"spec", "flour"}, "wheat"}, candidates[0])
	require.Contains(t, candidates, Change{[]string{"spec", "baked"}, true})
	require.Equal(t, []Change{{[]string{"spec", "flour"}, "wheat"}},
		differences(object, map[string]any{"spec": map[string]any{"flour": "wheat"}}, nil))
}

func TestFieldsOfOthersAreLeftOut(t *testing.T) {
	for name, test := range map[string]struct{ object, fields, want string }{
		"field":       {`{"a":1,"b":2}`, `{"f:a":{}}`, `{"b":2}`},
		"below":       {`{"a":{"b":1,"c":2}}`, `{"f:a":{"f:b":{}}}`, `{"a":{"c":2}}`},
		"last below":  {`{"a":{"b":1}}`, `{"f:a":{".":{},"f:b":{}}}`, `{}`},
		"whole":       {`{"a":{"b":1}}`, `{"f:a":{}}`, `{}`},
		"item":        {`{"a":[{"k":"x","b":1}]}`, `{"f:a":{"k:{\"k\":\"x\"}":{"f:b":{}}}}`, `{}`},
		"not there":   {`{"a":1}`, `{"f:b":{"f:c":{}}}`, `{"a":1}`},
		"not owned":   {`{"a":1}`, `{}`, `{"a":1}`},
		"not as such": {`{"a":1}`, `{"f:a":null}`, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			var object, fields map[string]any
			require.NoError(t, json.Unmarshal([]byte(test.object), &object))
			require.NoError(t, json.Unmarshal([]byte(test.fields), &fields))
			without(object, fields)
			require.Equal(t, test.want, inJSON(object))
		})
	}
}

// TestCauses shows that findings of one cause are one group, and that the cause of most comes first.
func TestCauses(t *testing.T) {
	report := &Report{}
	for _, failure := range [][2]string{{"a/1", "one"}, {"b/1", "two"}, {"b/2", "three"}, {"c/1", "two"}} {
		report.Results = append(report.Results, Result{Check: failure[0], Resource: "loaves", Outcome: Failed, Finding: &Finding{Cause: failure[1]}})
	}
	var checks []string
	for _, group := range report.Causes() {
		checks = append(checks, group.Checks())
	}
	require.Equal(t, []string{"b/1, c/1 of loaves", "a/1 of loaves", "b/2 of loaves"}, checks)
}

func TestIncomplete(t *testing.T) {
	result := func(outcome Outcome, reason string) Result { return Result{Outcome: outcome, Reason: reason} }
	for name, test := range map[string]struct {
		results []Result
		want    []string
	}{
		"passed":      {results: []Result{result(Passed, ""), result(NotOffered, "no update")}},
		"nothing":     {want: []string{"no check was made: none is offered"}},
		"not offered": {results: []Result{result(NotOffered, "no update")}, want: []string{"no check was made: none is offered"}},
		"no example":  {results: []Result{result(Passed, ""), result(NotChecked, "refused"), result(NotChecked, "refused")}, want: []string{"2 of 3 checks could not be made: refused"}},
		"two reasons": {results: []Result{result(NotChecked, "a"), result(NotChecked, "b")}, want: []string{"1 of 2 checks could not be made: a", "1 of 2 checks could not be made: b"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, (&Report{Results: test.results}).Incomplete())
		})
	}
}

func TestOptionsAreValidated(t *testing.T) {
	for name, test := range map[string]struct{ only, want string }{
		"known":         {"watch/order", ""},
		"mistyped":      {"watch/ordr", `there is no check "watch/ordr": see the IDs in a report of all checks`},
		"another level": {"watch/many", "the check watch/many is of the level full, and the run of the level basic"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Options{Level: Basic, Only: []string{test.only}}.validate()
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, test.want)
		})
	}
}

func TestLineIsPrintable(t *testing.T) {
	result := Result{Check: "verbs/get", Resource: "loaves", Outcome: NotOffered, Reason: "a\nb\x1b[2J\x1b]52;c;Y3Vy\a \u202e\u009b ÖZ …"}
	require.Equal(t, `– loaves verbs/get: a b\x1b[2J\x1b]52;c;Y3Vy\a \u202e\u009b ÖZ …`, result.Line())
}

func TestDifferenceIsShown(t *testing.T) {
	for name, test := range map[string]struct{ want, got, text, cause string }{
		"scalar":         {`1`, `2`, "it: 1 is expected, 2 came", "it"},
		"field":          {`{"a":{"b":1,"c":2}}`, `{"a":{"b":1,"c":3}}`, "it differs:\na.c: 2 is expected, 3 came", "a.c"},
		"missing":        {`{"a":1,"b":[{"c":1}]}`, `{"b":[{"c":1,"d":2}]}`, "it differs:\na: 1 is expected, nothing came\nb.0.d: nothing is expected, 2 came", "a, b.0.d"},
		"other lengths":  {`{"a":[1,2]}`, `{"a":[1]}`, "it differs:\na: [1,2] is expected, [1] came", "a"},
		"another type":   {`{"a":[1]}`, `{"a":{}}`, "it differs:\na: [1] is expected, {} came", "a"},
		"other elements": {`["a","b"]`, `["a","c"]`, "it differs:\n1: \"b\" is expected, \"c\" came", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			var want, got any
			require.NoError(t, json.Unmarshal([]byte(test.want), &want))
			require.NoError(t, json.Unmarshal([]byte(test.got), &got))
			p := &Probe{result: &Result{}}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				p.Equal(Answer{}, "it", want, got)
			}()
			<-ended
			require.Equal(t, test.text, p.result.Finding.Problem)
			require.Equal(t, test.cause, p.result.Finding.Cause)
		})
	}
}

// TestGuard shows that no request can delete objects of others, whatever a server makes of it.
func TestGuard(t *testing.T) {
	r := &run{id: "conformance-abcde"}
	for target, sent := range map[string]bool{
		"/api/v1/namespaces/conformance-abcde":               true,
		"/api/v1/namespaces/conformance-abcde-1-own/secrets": true,
		"/api/v1/nodes/conformance-abcde-1-a/proxy":          true,
		"/api/v1/nodes":                                           false,
		"/api/v1/nodes/":                                          false,
		"/api/v1/nodes/conformance-abcde-1-a/..":                  false,
		"/api/v1/nodes/conformance-abcde-1-a/%2e%2e":              false,
		"/api/v1/nodes/conformance-other-1-a":                     false,
		"/api/v1/namespaces/default/secrets":                      false,
		"/api/v1/namespaces/conformance-abcde/../default/secrets": false,
		"/api/v1/nodes?a=/conformance-abcde":                      false,
		"/api/v1/nodes/%zz":                                       false,
		"/apis/example.com/v1/namespaces/a%20b/loaves/conformance-abcde-1-a-missing": true,
	} {
		err := r.guard(http.MethodDelete, target)
		require.Equal(t, sent, err == nil, "%s: %v", target, err)
		require.NoError(t, r.guard(http.MethodGet, target))
	}
}

func TestOwner(t *testing.T) {
	for name, test := range map[string]struct{ name, label, uid, want string }{
		"object of a check": {"conformance-abcde-1-a", "conformance-abcde-1", "1", "conformance-abcde-1"},
		"namespace":         {"conformance-abcde", "conformance-abcde", "1", "conformance-abcde"},
		"without a label":   {"conformance-abcde-1-a", "", "1", ""},
		"another label":     {"conformance-abcde-1-a", "conformance-abcde-2", "1", ""},
		"longer ID":         {"conformance-abcde-11-a", "conformance-abcde-1", "1", ""},
		"name of others":    {"production", "conformance-abcde-1", "1", ""},
		"label of others":   {"production-a", "production", "1", ""},
		"without a UID":     {"conformance-abcde-1-a", "conformance-abcde-1", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: map[string]any{}}
			object.SetName(test.name)
			object.SetUID(types.UID(test.uid))
			labeled(Label, test.label)(object)
			require.Equal(t, test.want, owner(object))
		})
	}
}

// TestLedger shows which objects a request may create.
func TestLedger(t *testing.T) {
	object := func(name string) map[string]any { return map[string]any{"metadata": map[string]any{"name": name}} }
	for name, test := range map[string]struct {
		request Request
		want    []string
	}{
		"create":        {newRequest(http.MethodPost, "/api/v1/nodes", object("c-1-a")), []string{"/api/v1/nodes/c-1-a"}},
		"dry run":       {newRequest(http.MethodPost, "/api/v1/nodes", object("c-1-a"), Query("dryRun", "All")), []string{"/api/v1/nodes/c-1-a"}},
		"apply":         {newRequest(http.MethodPatch, "/api/v1/nodes/c-1-a", "{}"), []string{"/api/v1/nodes/c-1-a"}},
		"update":        {newRequest(http.MethodPut, "/api/v1/nodes/c-1-a", "{}"), []string{"/api/v1/nodes/c-1-a"}},
		"in a query":    {newRequest(http.MethodPost, "/api/v1/nodes?dryRun=All", object("c-1-a")), []string{"/api/v1/nodes/c-1-a"}},
		"subresource":   {newRequest(http.MethodPost, "/api/v1/pods/c-1-a/eviction", object("c-1-a")), nil},
		"status":        {newRequest(http.MethodPatch, "/api/v1/nodes/c-1-a/status", "{}"), nil},
		"name of other": {newRequest(http.MethodPost, "/api/v1/nodes", object("a")), nil},
		"no object":     {newRequest(http.MethodPost, "/api/v1/nodes", "{"), nil},
		"read":          {newRequest(http.MethodGet, "/api/v1/nodes/c-1-a", nil), nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := &ledger{}
			l.note("c-1", test.request)
			l.note("c-1", test.request)
			require.Equal(t, test.want, l.paths)
		})
	}
}

// TestActsOnCluster shows which resources have to be named.
func TestActsOnCluster(t *testing.T) {
	for name, test := range map[string]struct {
		group      string
		namespaced bool
		verbs      metav1.Verbs
		want       bool
	}{
		"nodes":         {"", false, metav1.Verbs{"create", "get"}, true},
		"CSIDrivers":    {"storage.k8s.io", false, metav1.Verbs{"create", "get"}, true},
		"reviews":       {"authorization.k8s.io", false, metav1.Verbs{"create"}, false},
		"secrets":       {"", true, metav1.Verbs{"create", "get"}, false},
		"toppings":      {"restaurant.example.com", false, metav1.Verbs{"create", "get"}, false},
		"node metrics":  {"metrics.k8s.io", false, metav1.Verbs{"get", "list"}, false},
		"GatewayClass":  {"gateway.networking.k8s.io", false, metav1.Verbs{"create", "get"}, true},
		"no dot at all": {"apps", false, metav1.Verbs{"create", "get"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			resource := &Resource{GroupVersionResource: schema.GroupVersionResource{Group: test.group}, Namespaced: test.namespaced, Discovered: metav1.APIResource{Verbs: test.verbs}}
			require.Equal(t, test.want, resource.actsOnCluster())
		})
	}
}

// TestWithstand shows which answers to malformed requests are findings.
func TestWithstand(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"BadRequest","code":%d}`
	for name, test := range map[string]struct {
		code          int
		media, answer string
		refused       bool
		want          string
	}{
		"refused":               {400, asJSON, fmt.Sprintf(status, 400), true, ""},
		"accepted":              {200, asJSON, `{}`, false, ""},
		"accepted, but no good": {200, asJSON, `{}`, true, "a refusal is expected"},
		"failed":                {500, asJSON, fmt.Sprintf(status, 500), false, "a refusal is expected, and no failure of the server"},
		"redirected":            {301, asJSON, ``, false, "no redirect is expected"},
		"text":                  {400, "text/plain", "no", false, "application/json is expected"},
		"another code":          {400, asJSON, fmt.Sprintf(status, 404), false, "a Status of version v1 with that code is expected"},
	} {
		t.Run(name, func(t *testing.T) {
			sent := ""
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				sent = fmt.Sprintf("%s %s %s %s", r.Method, r.URL, r.Header.Get("Content-Type"), body)
				w.Header().Set("Content-Type", test.media)
				w.WriteHeader(test.code)
				_, _ = io.WriteString(w, test.answer)
			}))
			defer server.Close()
			r, err := newRun(&rest.Config{Host: server.URL}, Options{})
			require.NoError(t, err)
			p := r.probe(t.Context(), &Resource{}, "")
			p.result = &Result{}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				p.withstandOne(place{method: http.MethodPut, path: "/{name}/{text}", kind: asYAML, body: "a: {text}"}, strings.NewReplacer("{name}", "loaf"), "{name}s", test.refused)
			}()
			<-ended
			got := ""
			if p.result.Finding != nil {
				got = p.result.Finding.Problem
			}
			require.Equal(t, test.want, got)
			require.Equal(t, "PUT /loaf/loafs application/yaml a: loafs", sent)
		})
	}
}

func TestRetryAfter(t *testing.T) {
	for name, test := range map[string]struct {
		code   int
		header string
		want   time.Duration
		again  bool
	}{
		"told to":        {http.StatusTooManyRequests, "2", 2 * time.Second, true},
		"not told when":  {http.StatusTooManyRequests, "", 0, false},
		"another reason": {http.StatusServiceUnavailable, "1", time.Second, false},
	} {
		wait, again := retryAfter(&http.Response{StatusCode: test.code, Header: http.Header{"Retry-After": {test.header}}})
		require.Equal(t, test.want, wait, name)
		require.Equal(t, test.again, again, name)
	}
}

// TestNulled shows what stands for null: only what the server has added.
func TestNulled(t *testing.T) {
	for name, test := range map[string]struct{ sent, came, want string }{
		"default":         {`{"a":1}`, `{"a":1,"b":2}`, `{"a":1,"b":null}`},
		"below":           {`{"a":{"b":1}}`, `{"a":{"b":1,"c":2}}`, `{"a":{"b":1,"c":null}}`},
		"in a list":       {`{"a":[{"b":1}]}`, `{"a":[{"b":1,"c":2}]}`, `{"a":[{"b":1,"c":null}]}`},
		"nothing":         {`{"a":1}`, `{"a":1}`, `{"a":1}`},
		"a changed value": {`{"a":1}`, `{"a":2}`, `{"a":1}`},
	} {
		var sent, came any
		require.NoError(t, json.Unmarshal([]byte(test.sent), &sent))
		require.NoError(t, json.Unmarshal([]byte(test.came), &came))
		require.JSONEq(t, test.want, inJSON(nulled(sent, came)), name)
	}
}
