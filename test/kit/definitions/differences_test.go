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

package definitions

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// difference is how a definition and its types differ.
type difference struct {
	// Definition is the name of a definition, with a version.
	Definition string
	// Path is that of a field in the schema.
	Path string
	// Change is what was different in the objects.
	Change string
	// Verdict is what kube-apiserver and the server of the types make of it.
	Verdict string
}

func (d difference) String() string {
	return fmt.Sprintf("%s %s: %s: %s", d.Definition, cmp.Or(d.Path, "."), d.Change, d.Verdict)
}

// differences counts them, each with an example.
type differences map[difference]*found

type found struct {
	count   int
	example string
}

func (all differences) add(d difference, example string) {
	if all[d] == nil {
		all[d] = &found{example: example}
	}
	all[d].count++
}

func (all differences) sorted() []difference {
	return slices.SortedFunc(maps.Keys(all), func(a, b difference) int { return strings.Compare(a.String(), b.String()) })
}

// explanation is why some differences have to be. Its parts are regular expressions for the whole
// of a part of a difference. A part that it leaves out may be anything.
type explanation struct {
	Definition, Path, Change, Verdict string
	Reason                            string

	// count is how many differences it explains.
	count int
}

func (e *explanation) explains(d difference) bool {
	for _, part := range [][2]string{{e.Definition, d.Definition}, {e.Path, d.Path}, {e.Change, d.Change}, {e.Verdict, d.Verdict}} {
		if part[0] != "" && !regexp.MustCompile(`^(?s:`+part[0]+`)$`).MatchString(part[1]) {
			return false
		}
	}
	return true
}

// isBroken reports whether the explanation says that a definition can't be served at all.
func (e *explanation) isBroken(definition string) bool {
	return slices.Contains([]string{"import", "generate", "build", "serve"}, e.Change) && regexp.MustCompile(`^(?:`+e.Definition+`)$`).MatchString(definition)
}

// readExplanations reads testdata/explained.yaml.
func readExplanations(t *testing.T) []*explanation {
	t.Helper()
	text, err := os.ReadFile("testdata/explained.yaml")
	require.NoError(t, err)
	var all []*explanation
	require.NoError(t, yaml.UnmarshalStrict(text, &all))
	for _, one := range all {
		require.NotEmpty(t, one.Reason, "%+v", one)
	}
	return all
}

// explain separates the differences that have a reason from the others.
func explain(all differences, explanations []*explanation) (explained int, unexplained []difference) {
	for _, d := range all.sorted() {
		// All of them are tried, so that one of several that explain the same is not called unused.
		is := false
		for _, explanation := range explanations {
			if explanation.explains(d) {
				is = true
				explanation.count += all[d].count
			}
		}
		if is {
			explained += all[d].count
		} else {
			unexplained = append(unexplained, d)
		}
	}
	return explained, unexplained
}
