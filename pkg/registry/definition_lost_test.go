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

package registry

import (
	"slices"
	"testing"
)

func TestLost(t *testing.T) {
	fields := func(pairs ...any) map[string]any {
		of := map[string]any{}
		for i := 0; i < len(pairs); i += 2 {
			of[pairs[i].(string)] = pairs[i+1]
		}
		return of
	}
	for name, test := range map[string]struct {
		sent, kept any
		want       []string
	}{
		"nothing":                         {fields("a", int64(1)), fields("a", int64(1), "b", ""), nil},
		"a whole number in a float64":     {fields("a", int64(1)), fields("a", float64(1)), nil},
		"one that a float64 can't hold":   {fields("a", int64(1<<53+1)), fields("a", float64(1<<53)), []string{"o.a"}},
		"a number with a point as an int": {fields("a", float64(1)), fields("a", int64(1)), []string{"o.a"}},
		"empty and null":                  {fields("a", "", "b", nil, "c", fields()), fields(), []string{"o.a", "o.b", "o.c"}},
		"null that was not sent":          {fields("a", fields()), fields("a", fields("b", nil)), []string{"o.a.b"}},
		"in lists":                        {fields("a", []any{fields("b", ""), fields("b", "c")}), fields("a", []any{fields(), fields("b", "c")}), []string{"o.a.0.b"}},
		"a shorter list":                  {fields("a", []any{int64(1)}), fields("a", []any{}), []string{"o.a"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := slices.Sorted(slices.Values(lostIn(test.sent, test.kept, "o"))); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// A rule of an object may be about what is lost in it.
func TestConcerns(t *testing.T) {
	const lost = "spec.parts.0.name"
	for field, want := range map[string]bool{
		"spec.parts[0].name": true, "spec.parts[0].name.x": true, "spec.parts[0]": true, "spec": true, ".spec.parts": true, "<nil>": true, "": true,
		"spec.parts[0].names": false, "spec.parts[1].name": false, "spec.phase": false, "sp": false, "status": false,
	} {
		if got := concerns(field, lost); got != want {
			t.Errorf("%q: got %t, want %t", field, got, want)
		}
	}
}
