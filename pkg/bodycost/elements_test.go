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
)

func TestNestingExceeds(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want bool
	}{
		"nothing":                      {``, false},
		"a scalar":                     {`1`, false},
		"at the limit":                 {`{"a":[{"b":1}]}`, false},
		"above the limit":              {`{"a":[{"b":[]}]}`, true},
		"above the limit, cut off":     {`[[[[`, true},
		"side by side":                 {`[[],[],[],[],[]]`, false},
		"brackets in a string":         {`{"a":"[[[[[["}`, false},
		"an escaped quote in a string": {`{"a":"\"[[[[[["}`, false},
		"an escaped backslash":         {`{"a":"\\","b":[[[]]]}`, true},
		"more ends than beginnings":    {`]]]][[[`, false},
		"flow style of YAML":           {`a: {b: {c: {d: {}}}}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NestingExceeds([]byte(test.text), 3); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestListExceeds(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want bool
	}{
		"nothing":              {``, false},
		"at the limit":         {`[1,2,3]`, false},
		"above the limit":      {`[1,2,3,4]`, true},
		"further in":           {`{"a":[[1],{"b":[1,2,3,4]}]}`, true},
		"around other lists":   {`[[1,2],[1,2],[1,2],[1,2]]`, true},
		"many lists":           {`[[1,2,3],[1,2,3],[1,2,3]]`, false},
		"an object":            {`{"a":1,"b":2,"c":3,"d":4}`, false},
		"a list of objects":    {`[{"a":1,"b":2},{"a":1,"b":2}]`, false},
		"commas in a string":   {`[",,,,,\",,,,,"]`, false},
		"more ends than lists": {`]]}},,,,,[1,2]`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ListExceeds([]byte(test.text), 3); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	const (
		limit             = 100
		json, yaml, apply = "application/json", "application/yaml", "application/apply-patch+yaml"

		tooMany  = "all lists and objects together must not have more than 100 elements"
		tooLong  = "YAML must not have more than 100 lines, commas, brackets and dashes: send JSON"
		tooOther = "YAML must be in UTF-8"
	)
	// Each has two elements too many.
	list := "[" + strings.Repeat("0,", limit+1) + "0]"
	object := "{" + strings.Repeat(`"a":1,`, limit+1) + `"a":1}`
	half := strings.Repeat("0,", limit/2) + "0"
	for name, test := range map[string]struct{ mediaType, body, want string }{
		"at the limit":              {json, "[" + strings.Repeat("0,", limit-1) + "0]", ""},
		"a list":                    {json, list, tooMany},
		"an object":                 {json, object, tooMany},
		"two lists":                 {json, `{"a":[` + half + `],"b":[` + half + `]}`, tooMany},
		"a list that is cut off":    {json, strings.TrimSuffix(list, "]"), tooMany},
		"commas in a string":        {json, `{"a":"` + strings.Repeat(`\",`, limit+1) + `"}`, ""},
		"another patch":             {"application/merge-patch+json", object, tooMany},
		"no media type":             {"", object, tooMany},
		"YAML":                      {yaml, strings.Repeat("- a\n", limit), ""},
		"YAML with a line more":     {yaml, strings.Repeat("- a\n", limit+1), tooLong},
		"YAML with old line breaks": {yaml, strings.Repeat("- a\r", limit+1), tooLong},
		"YAML with other breaks":    {yaml, strings.Repeat("- a\u0085- a\u2028- a\u2029", limit/3+1), tooLong},
		"YAML in flow style":        {yaml, strings.ReplaceAll(object, `"`, ""), tooLong},
		"YAML of many brackets":     {yaml, "a: " + strings.Repeat("[", limit), tooLong},
		"YAML of many dashes":       {yaml, strings.Repeat("- ", limit+1), tooLong},
		"YAML with an odd quote":    {yaml, `{'"': ` + list + `}`, tooLong},
		"YAML in UTF-16":            {yaml, "\xff\xfea\x00", tooOther},
		"YAML in the other UTF-16":  {apply, "\xfe\xff\x00a", tooOther},
		"an apply patch":            {apply, strings.Repeat("- a\n", limit+1), tooLong},
		"an apply patch in JSON":    {apply, object, tooMany},
		"commas in an apply patch":  {apply, `{"a":"` + strings.Repeat(",", limit+1) + `"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			requireError(t, CheckElements(test.mediaType, []byte(test.body), limit, 1<<20), test.want)
		})
	}
}

// requireError fails unless the error has this message, or is none if that is empty.
func requireError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Fatalf("unexpected error: %.300v", err)
	case want != "" && (err == nil || err.Error() != want):
		t.Fatalf("got error %.300v, want %q", err, want)
	}
}
