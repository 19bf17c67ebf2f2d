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
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// All errors in the flags are reported together, with the flags' names.
func TestInvalidFlags(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { taken.Close() })
	takenPort := taken.Addr().(*net.TCPAddr).Port
	for name, test := range map[string]struct {
		args []string
		// want is what the last line that is printed contains.
		want []string
	}{
		"one that is unknown":  {[]string{"--no-such-flag"}, []string{"Error: unknown flag: --no-such-flag"}},
		"an argument":          {[]string{"serve"}, []string{`Error: unknown command "serve" for "webhook"`}},
		"a kubeconfig":         {[]string{"--kubeconfig=" + missing}, []string{"--kubeconfig: stat " + missing + ": no such file or directory"}},
		"no kubeconfig":        {[]string{"--kubeconfig="}, []string{"--kubeconfig is not set and this is not a pod with a service account"}},
		"a port that is taken": {[]string{fmt.Sprintf("--secure-port=%d", takenPort)}, []string{"--secure-port", fmt.Sprintf("127.0.0.1:%d: bind: address already in use", takenPort)}},
		"a certificate":        {nil, []string{"--tls-cert-file", "open " + missing + ": no such file or directory"}},
		"no certificate":       {[]string{"--tls-cert-file="}, []string{"--tls-cert-file and --tls-private-key-file must both be set: kube-apiserver calls only webhooks whose certificate it can verify"}},
		"many": {
			[]string{"--logging-format=xml", "--secure-port=0", "--tls-private-key-file=", "--shutdown-delay-duration=-1s"},
			[]string{"--logging-format", "--secure-port 0 must be between", "--tls-private-key-file must both be set", "--shutdown-delay-duration must not be below 0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			free, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			port := free.Addr().(*net.TCPAddr).Port
			require.NoError(t, free.Close())
			// There is nothing to complain about in these, but for the files that are missing.
			valid := []string{"--kubeconfig=" + cp.Kubeconfig(), "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--tls-cert-file=" + missing, "--tls-private-key-file=" + missing}
			code, output := framework.Execute(t, cp, "webhook", append(valid, test.args...)...)
			require.Equal(t, 1, code)
			lines := strings.Split(strings.TrimSuffix(output, "\n"), "\n")
			for _, want := range test.want {
				require.Contains(t, lines[len(lines)-1], want)
			}
			require.NotContains(t, output, "panic")
		})
	}
}
