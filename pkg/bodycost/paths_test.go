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

package bodycost

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

func TestJSONPaths(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want int
	}{
		"nothing":               {``, 0},
		"a scalar":              {`"abc"`, 0},
		"a field":               {`{"abc":"long text"}`, len(".abc")},
		"two fields":            {`{"abc":1,"d":{}}`, len(".abc.d")},
		"a field within":        {`{"abc":{"d":1}}`, len(".abc" + ".abc.d")},
		"a field after that":    {`{"abc":{"d":1},"e":1}`, len(".abc" + ".abc.d" + ".e")},
		"a list":                {`{"abc":[1,2]}`, len(".abc" + ".abc[0]" + ".abc[1]")},
		"a list of objects":     {`{"a":[{"b":1},{"b":1}]}`, len(".a") + 2*len(".a[0]") + 2*len(".a[0].b")},
		"brackets in a string":  {`{"a":"[{,:"}`, len(".a")},
		"quotes in a key":       {`{"a\"b":1}`, len(`.a\"b`)},
		"more ends than starts": {`}]{"a":1}`, len(".a")},
	} {
		t.Run(name, func(t *testing.T) {
			if got := JSONPaths([]byte(test.text)); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestPaths(t *testing.T) {
	const limit = 4 << 20
	key, list := strings.Repeat("k", 1<<10), strings.Repeat("0,", 4<<10)+"0"
	long := `{"` + key + `":[` + list + `]}`
	inCBOR, err := direct.Marshal(map[string]any{key: make([]any, 4<<10)})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		mediaType, body string
		exceeds         bool
	}{
		"a long key of a long list":   {"application/json", long, true},
		"a merge patch":               {"application/merge-patch+json", long, true},
		"a short key":                 {"application/json", `{"k":[` + list + `]}`, false},
		"a long text":                 {"application/json", `{"k":["` + strings.Repeat("k", 1<<20) + `",` + list + `]}`, false},
		"JSON as YAML":                {"application/yaml", long, true},
		"YAML":                        {"application/yaml", "? " + key + "\n:\n" + strings.Repeat("- 0\n", 4<<10), true},
		"an apply patch":              {"application/apply-patch+yaml", "? " + key + "\n: [" + list + "]", true},
		"keys of YAML by an alias":    {"application/yaml", "a: &k " + key + "\n*k :\n" + strings.Repeat("- 0\n", 4<<10), true},
		"a list of YAML by its alias": {"application/yaml", "a: &l [" + list + "]\n? " + key + "\n: *l\n", true},
		"a small text with aliases":   {"application/yaml", "a: &a [0,0,0,0,0,0,0,0,0,0]\nb: &b [" + strings.Repeat("*a, ", 9) + "0]\n? " + key + "\n: [" + strings.Repeat("*b, ", 50) + "0]\n", true},
		"CBOR":                        {"application/cbor", string(inCBOR), true},
		"what is no CBOR":             {"application/cbor", "\xff", false},
		"what is no YAML":             {"application/yaml", "a: b: c", false},
	} {
		t.Run(name, func(t *testing.T) {
			if paths := Paths(test.mediaType, []byte(test.body), limit); paths > limit != test.exceeds {
				t.Errorf("got %d, want more than %d: %t", paths, limit, test.exceeds)
			}
		})
	}
}

func TestElements(t *testing.T) {
	const many = 4 << 10
	list := "[" + strings.Repeat("0,", many-1) + "0]"
	inCBOR, err := direct.Marshal(make([]any, many))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		mediaType, body string
		want            int
	}{
		"JSON":                      {"application/json", list, many},
		"a merge patch":             {"application/merge-patch+json", list, many},
		"a small body":              {"application/json", "[0,0]", 0},
		"JSON as YAML":              {"application/yaml", list, many},
		"YAML":                      {"application/yaml", strings.Repeat("- 0\n", many), many},
		"a small text with aliases": {"application/yaml", "a: &a [0,0,0,0]\nb: [*a, *a, *a]", 16},
		"CBOR":                      {"application/cbor", string(inCBOR), many},
		"protobuf":                  {"application/vnd.kubernetes.protobuf", list, 0},
		"what is no YAML":           {"application/yaml", strings.Repeat("a: b: c\n", many), 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Elements(test.mediaType, []byte(test.body)); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestLongestPointer(t *testing.T) {
	const patch = `[{"op":"copy","from":"/a/b","path":"/\u0061/b/c"},{"op":"add","path":"/a","value":"no/pointer/of/these"}]`
	if got, want := LongestPointer([]byte(patch)), len("/a/b/c"); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
}
