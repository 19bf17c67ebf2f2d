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

package nodes

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDocument(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	write(t, path, "# Page\n\n## Install\n\nDo\n\n    kubectl apply \\\n      -k restaurant\n    kubectl get pods\n\nand\n\n    kubectl delete\n\n"+
		"## Restore\n\n1. Set\n\n   ```yaml\n   patches:\n     - one\n   ```\n\n       exec restore \\\n         more\n")
	page := Read(t, path)
	require.Equal(t, "kubectl apply \\\n  -k restaurant\nkubectl get pods\n", page.Commands(t, "Install", "kubectl apply"))
	require.Equal(t, "kubectl delete\n\n", page.Commands(t, "Install", "kubectl delete"))
	require.Equal(t, "kubectl apply \\\n  -k restaurant\nkubectl get pods\nkubectl delete\n", page.Script(t, "Install"))
	require.Equal(t, "   exec restore \\\n     more\n", page.Script(t, "Restore"))
	require.Equal(t, "patches:\n  - one\n", page.YAML(t, "Restore", "patches:"))
	require.Equal(t, "   exec restore \\\n     more\n", page.Commands(t, "Restore", "exec"))
	require.Equal(t, "kubectl get -k bakery", With(t, "kubectl apply -k restaurant", "apply", "get", "restaurant", "bakery"))
}
