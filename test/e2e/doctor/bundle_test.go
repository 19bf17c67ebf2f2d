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

package doctor

import (
	"encoding/base64"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// TestBundle looks for a planted secret in a bundle of a real cluster.
func TestBundle(t *testing.T) {
	const planted = "correct-horse-battery"
	encoded := base64.StdEncoding.EncodeToString([]byte(planted))
	apply(t, `
apiVersion: v1
kind: Secret
metadata: {namespace: `+serverNamespace+`, name: database}
data: {dsn: `+encoded+`}
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: `+serverNamespace+`, name: config, annotations: {note: `+encoded+`}}
data: {dsn: it is `+planted+`, password: not-in-a-secret}
`)
	apply(t, `
apiVersion: v1
kind: ServiceAccount
metadata: {namespace: `+serverNamespace+`, name: doctor}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: doctor}
rules: [{nonResourceURLs: [/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: doctor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: doctor}
subjects: [{kind: ServiceAccount, namespace: `+serverNamespace+`, name: doctor}]
`)
	file := filepath.Join(t.TempDir(), "support.tar.gz")
	doctor(t, cp, "--bundle="+file)

	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	files := untar(t, file)
	for name, content := range files {
		for _, confidential := range []string{planted, encoded, "not-in-a-secret", "PRIVATE KEY"} {
			require.NotContains(t, content, confidential, name)
		}
	}
	require.Contains(t, files["findings.txt"], "kube-apiserver at ")
	require.Contains(t, files["objects/secrets.yaml"], "name: database\n")
	require.Contains(t, files["objects/configmaps.yaml"], "dsn: it is REDACTED\n")
	require.Contains(t, files["objects/apiservices.yaml"], "name: v1."+groupName+"\n")
	require.Contains(t, files["versions/kube-apiserver.json"], `"gitVersion"`)
	metrics := 0
	for name, content := range files {
		if dir, _ := filepath.Split(name); dir == "metrics/" {
			require.Contains(t, content, "apiserver_request_total{")
			metrics++
		}
	}
	require.Equal(t, 1, metrics, files["missing.txt"])
	require.NotContains(t, files["missing.txt"], "objects/")

	_, _, stderr := framework.Tool(t, cp, nil, "doctor", "--kubeconfig="+cp.Kubeconfig(), "--bundle="+file)
	require.Contains(t, stderr, "--bundle must name a new file")
}

func untar(t *testing.T, file string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	output, err := exec.CommandContext(t.Context(), "tar", "-xzf", file, "-C", dir).CombinedOutput()
	require.NoError(t, err, "%s", output)
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir+"/")] = string(content)
		return err
	}))
	return files
}
