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

package controlplane

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMergeFlags(t *testing.T) {
	base := []string{"--a=1", "--authorization-mode=Node,RBAC", "--b"}
	for name, test := range map[string]struct {
		extra, want []string
	}{
		"none":          {nil, base},
		"another":       {[]string{"--c=3"}, []string{"--a=1", "--authorization-mode=Node,RBAC", "--b", "--c=3"}},
		"same":          {[]string{"--authorization-mode=RBAC"}, []string{"--a=1", "--b", "--authorization-mode=RBAC"}},
		"without value": {[]string{"--b=false"}, []string{"--a=1", "--authorization-mode=Node,RBAC", "--b=false"}},
		"given twice":   {[]string{"--a=2", "--a=3"}, []string{"--authorization-mode=Node,RBAC", "--b", "--a=2", "--a=3"}},
		"same prefix":   {[]string{"--authorization=x"}, append(append([]string{}, base...), "--authorization=x")},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, mergeFlags(base, test.extra))
		})
	}
}

// TestEnvironment requires that the user's environment does not change a control
// plane.
func TestEnvironment(t *testing.T) {
	for _, name := range []string{"ETCD_NAME", "KUBECONFIG", "HTTPS_PROXY", "https_proxy", "no_proxy"} {
		t.Setenv(name, "x")
		require.NotContains(t, environment(), name+"=x")
	}
	t.Setenv("LANGUAGE", "x")
	require.Contains(t, environment(), "LANGUAGE=x")
}
