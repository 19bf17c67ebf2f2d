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

package crd

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The document names tests that exist.
func TestDocument(t *testing.T) {
	t.Parallel()
	const docs = "../../../docs"
	document, err := os.ReadFile(filepath.Join(docs, "crd-or-apiserver.md"))
	require.NoError(t, err)
	named := regexp.MustCompile(`\[(Test\w+)\]\(([^)]+)\)`).FindAllStringSubmatch(string(document), -1)
	require.NotEmpty(t, named)
	for _, name := range named {
		source, err := os.ReadFile(filepath.Join(docs, name[2]))
		require.NoError(t, err)
		require.Contains(t, string(source), "\nfunc "+name[1]+"(", name[2])
	}
}
