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

package codegen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Clients depend on everything but the fields of types that are no kinds. They are generated again if a person has
// changed or deleted them.
func TestClientFingerprint(t *testing.T) {
	const types, registration, client = "pkg/apis/bakery/v1/types.go", "pkg/apis/bakery/v1/register.go", "pkg/generated/clientset/versioned/clientset.go"
	files := map[string]string{
		types: `// +groupName=bakery.example.com
package v1

// Bread is a bread.
// +genclient
type Bread struct {
	metav1.TypeMeta
	Spec BreadSpec
}

type BreadSpec struct {
	Flour string
}
`,
		registration: "package v1\n",
		client:       "package versioned\n",
		"pkg/apis/bakery/v1/zz_generated.deepcopy.go":       "package v1\n",
		"pkg/apis/bakery/types.go":                          "package bakery\n",
		"pkg/generated/openapi/zz_generated.openapi.go":     "package openapi\n",
		"pkg/generated/applyconfiguration/bakery/v1/all.go": "package v1\n",
	}
	for name, test := range map[string]struct {
		file, old, changed string
		same               bool
	}{
		"a field":             {types, "Flour string", "// +optional\n\tFlour, Salt string\n", true},
		"a field of a kind":   {types, "Spec BreadSpec", "Spec BreadSpec\n\tStatus BreadStatus", false},
		"an embedded type":    {types, "Flour string", "metav1.TypeMeta", false},
		"another type":        {types, "type BreadSpec", "type Oven struct{}\n\ntype BreadSpec", false},
		"a tag":               {types, "// +genclient", "// +genclient:nonNamespaced", false},
		"another file":        {registration, "package v1", "package v1 // changed", false},
		"a client":            {client, "package versioned", "package versioned // changed", false},
		"a deep copy":         {"pkg/apis/bakery/v1/zz_generated.deepcopy.go", "package v1", "package v1 // changed", true},
		"an internal type":    {"pkg/apis/bakery/types.go", "package bakery", "package bakery // changed", true},
		"OpenAPI":             {"pkg/generated/openapi/zz_generated.openapi.go", "package openapi", "package openapi // changed", true},
		"apply configuration": {"pkg/generated/applyconfiguration/bakery/v1/all.go", "package v1", "package v1 // changed", true},
	} {
		t.Run(name, func(t *testing.T) {
			g := &generation{Config: Config{Module: t.TempDir()}}
			fingerprint := func() string {
				apis, err := Find(os.DirFS(g.Module))
				require.NoError(t, err)
				of, err := g.clientFingerprint(apis)
				require.NoError(t, err)
				return of
			}
			for name, text := range files {
				require.NoError(t, os.MkdirAll(filepath.Dir(g.file(name)), 0o700))
				require.NoError(t, os.WriteFile(g.file(name), []byte(text), 0o600))
			}
			before := fingerprint()
			require.Contains(t, files[test.file], test.old)
			require.NoError(t, os.WriteFile(g.file(test.file), []byte(strings.Replace(files[test.file], test.old, test.changed, 1)), 0o600))
			if test.same {
				require.Equal(t, before, fingerprint())
			} else {
				require.NotEqual(t, before, fingerprint())
			}
		})
	}
}
