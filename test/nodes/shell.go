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
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Operator is an operator's shell with the programs and files that the documentation names: kubectl
// and apiserver, a kubeconfig, and the kustomization "restaurant".
type Operator struct {
	// Dir is the working directory, and the home.
	Dir string

	cluster *Cluster
}

// NewOperator returns the administrator's shell.
func (c *Cluster) NewOperator(t testing.TB) *Operator {
	t.Helper()
	o := &Operator{Dir: t.TempDir(), cluster: c}
	kubeconfig, err := os.ReadFile(c.Kubeconfig())
	require.NoError(t, err)
	write(t, filepath.Join(o.Dir, ".kube", "config"), string(kubeconfig))
	return o
}

// Run executes commands, and returns their output. Each command has to succeed.
func (o *Operator) Run(t testing.TB, script string) string {
	t.Helper()
	output, err := o.Try(t.Context(), script)
	require.NoError(t, err)
	return output
}

// Try executes commands that may fail.
func (o *Operator) Try(ctx context.Context, script string) (string, error) {
	// unshare kills processes that the commands leave running, such as "kubectl port-forward &".
	cmd := o.cluster.control.Command(ctx, "unshare", "--pid", "--fork", "--kill-child", "bash", "-o", "errexit", "-o", "pipefail", "-c", script)
	cmd.Dir = o.Dir
	cmd.Env = append(os.Environ(), "HOME="+o.Dir, "PATH="+binDir()+string(filepath.ListSeparator)+os.Getenv("PATH"))
	output, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w after the commands\n%s\nwhich printed\n%s", err, script, output)
	}
	return string(output), err
}
