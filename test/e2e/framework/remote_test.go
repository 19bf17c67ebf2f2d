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

package framework

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnmarked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		source string
		want   []string
		err    string
	}{
		"marked and not": {
			source: "func TestMain(m *testing.M) {}\nfunc TestA(t *testing.T) { framework.AlsoRemote(t) }\nfunc TestB(t *testing.T) { t.Parallel() }\nfunc helper() {}",
			want:   []string{"TestB"},
		},
		"marked after another statement": {source: "func TestA(t *testing.T) { t.Parallel(); framework.AlsoRemote(t) }"},
		"marked in a part only": {
			source: `func TestA(t *testing.T) { framework.AlsoRemote(t) }; func TestB(t *testing.T) { t.Run("", func(t *testing.T) { framework.AlsoRemote(t) }) }`,
			want:   []string{"TestB"},
		},
		"none": {source: "func TestA(t *testing.T) {}", err: "E2E_BASTION=true selects no test: none is marked by framework.AlsoRemote"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "a_test.go"), []byte("package a\n"+test.source), 0o600))
			got, err := unmarked(dir)
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}
