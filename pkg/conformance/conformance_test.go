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
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
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
		check    Check
		readOnly bool
		want     string
	}{
		"verb":                    {check: Check{Needs: []string{"get", "create"}}},
		"missing verb":            {check: Check{Needs: []string{"list"}}, want: `the verbs of loaves in discovery are get, create, without "list"`},
		"subresource":             {check: Check{Needs: []string{"status/get"}}},
		"missing subresource":     {check: Check{Needs: []string{"scale/get"}}, want: "discovery has no loaves/scale"},
		"verb of a subresource":   {check: Check{Needs: []string{"status/update"}}, want: `the verbs of loaves/status in discovery are get, without "update"`},
		"written when reading":    {check: Check{Needs: []string{"get", "create"}}, readOnly: true, want: "the run only reads"},
		"read when reading":       {check: Check{Needs: []string{"get"}}, readOnly: true},
		"a reason of the check's": {check: Check{Unless: func(*Resource) string { return "no loaves" }}, want: "no loaves"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, test.check.notOffered(Options{ReadOnly: test.readOnly}, resource))
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
	require.Equal(t, `3 bytes, which begin with "\xff\xfe\xfd"`, excerpt([]byte{0xff, 0xfe, 0xfd}))
	require.Equal(t, "404 Not Found\nContent-Type: text/plain\n\nno", Answer{Code: 404, Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte("no\n")}.String())
}

func TestReportIsWritten(t *testing.T) {
	report := &Report{Server: version.Info{GitVersion: "v1.37.1"}, Level: Full, Results: []Result{
		{Check: "verbs/get", Resource: "loaves.v1.example.com", Outcome: Passed, Rule: "Loaves are read.", Source: "https://example.com/a", Took: time.Second},
		{Check: "verbs/put", Resource: "loaves.v1.example.com", Outcome: NotOffered, Reason: "no update", Rule: "Loaves are updated.", Source: "https://example.com/b"},
		{Check: "watch/order", Resource: "loaves.v1.example.com", Outcome: Failed, Rule: "Events have an order.", Source: "https://example.com/c",
			Finding: &Finding{Sent: "GET /a", Came: "500 <none>", Problem: "200 is expected", Command: "curl /a"}},
	}}
	for format, want := range map[string]string{
		"text": `✗ loaves.v1.example.com watch/order
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
– loaves.v1.example.com verbs/put: no update
       loaves.v1.example.com
verbs  ✓ 1 – 1
watch  ✗ 1
`,
		"junit": `<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="conformance" tests="3" failures="1" skipped="1">
  <testcase classname="loaves.v1.example.com" name="verbs/get" time="1.000"></testcase>
  <testcase classname="loaves.v1.example.com" name="verbs/put" time="0.000">
    <skipped message="no update"></skipped>
  </testcase>
  <testcase classname="loaves.v1.example.com" name="watch/order" time="0.000">
    <failure message="200 is expected">Events have an order.&#xA;https://example.com/c&#xA;problem:&#xA;  200 is expected&#xA;sent:&#xA;  GET /a&#xA;came:&#xA;  500 &lt;none&gt;&#xA;again, while &#34;kubectl proxy&#34; runs:&#xA;  curl /a&#xA;</failure>
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

func TestLogIsReadPastItsRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	require.NoError(t, os.WriteFile(path, []byte("before\nafter\n"), 0o600))
	log, err := os.Open(path)
	require.NoError(t, err)
	defer log.Close()
	require.Equal(t, "after\n", string(since(log, int64(len("before\n")))))
	require.NoError(t, os.Rename(path, path+".old"))
	require.NoError(t, os.WriteFile(path, []byte("later\n"), 0o600))
	require.Equal(t, "after\nlater\n", string(since(log, int64(len("before\n")))))
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
