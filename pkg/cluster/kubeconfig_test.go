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

package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// kubeconfig returns a file whose context has the text after its user.
func kubeconfig(t *testing.T, context string) string {
	t.Helper()
	return write(t, `apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: https://kube.example.com}}]
users: [{name: admin, user: {token: secret}}]
contexts: [{name: test, context: {cluster: test, user: admin`+context+`}}]
current-context: test
`)
}

func write(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	return name
}

func TestKubeconfig(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // As outside pods.
	missing := filepath.Join(t.TempDir(), "missing")
	for name, test := range map[string]struct {
		path string
		want *rest.Config
		err  string
	}{
		"a file": {
			path: kubeconfig(t, ""),
			want: &rest.Config{Host: "https://kube.example.com", BearerToken: "secret"},
		},
		"no file, and no pod": {
			err: "--kubeconfig is not set and this is not a pod with a service account: unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined",
		},
		"a file that does not exist": {
			path: missing,
			err:  "reading the file of --authentication-kubeconfig: stat " + missing + ": no such file or directory",
		},
		"a file without a cluster": {
			path: write(t, "apiVersion: v1\nkind: Config\n"),
			err:  "reading the file of --authentication-kubeconfig: invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable",
		},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := Kubeconfig("authentication-kubeconfig", test.path)
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, config)
		})
	}
}

// Without a file, the answer depends on whether this is a pod.
func TestNamespace(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		path, want string
	}{
		"a file with a namespace":    {kubeconfig(t, ", namespace: bakery"), "bakery"},
		"a file without a namespace": {kubeconfig(t, ""), "default"},
		"no file":                    {filepath.Join(t.TempDir(), "missing"), "default"},
		"a file of something else":   {write(t, "{"), "default"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, Namespace(test.path))
		})
	}
}
