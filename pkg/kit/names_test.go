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

package kit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Packages of a group can't have a name that means something else in a file that imports them.
func TestNamesOfPackages(t *testing.T) {
	t.Parallel()
	const inCode, asDirectory = "means something else in the code", "means something else as a directory"
	for description, test := range map[string]struct{ name, refused string }{
		"the start of a domain":    {"certmanager", ""},
		"a package of the kit":     {"crd", ""},
		"digits":                   {"k8s", ""},
		"a digit at the beginning": {"2fa", "can't be the name of a Go package"},
		"a dash":                   {"cert-manager", "can't be the name of a Go package"},
		"a package of Go":          {"embed", ""},
		"a package in the code":    {"webhook", inCode},
		"an alias":                 {"metav1", inCode},
		"a function":               {"group", inCode},
		"a variable":               {"errs", inCode},
		"a predeclared type":       {"string", inCode},
		"a keyword":                {"import", inCode},
		"a program":                {"main", inCode},
		"a generated parameter":    {"out", inCode},
		"a function of packages":   {"init", inCode},
		"a version":                {"v1", asDirectory},
		"a private directory":      {"internal", asDirectory},
		"an ignored directory":     {"testdata", asDirectory},
		"dependencies":             {"vendor", asDirectory},
	} {
		t.Run(description, func(t *testing.T) {
			t.Parallel()
			err := checkName(test.name)
			if test.refused == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.refused)
		})
	}
}

func TestNamesOfVariables(t *testing.T) {
	t.Parallel()
	for kind, want := range map[Name]string{
		"HTTPRoute": "httpRoute", "Bakery": "bakeryObject", "Field": "fieldObject", "Import": "importObject", "Ok": "okObject", "Validation": "validationObject",
	} {
		require.Equal(t, want, kind.Var("bakery"))
	}
}
