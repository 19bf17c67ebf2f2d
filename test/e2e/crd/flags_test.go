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
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

func TestHelp(t *testing.T) {
	t.Parallel()
	code, output := framework.Execute(t, cp, "webhook", "--help")
	require.Equal(t, 0, code)
	var sections []string
	for _, match := range regexp.MustCompile(`(?m)^(.+) flags:$`).FindAllStringSubmatch(output, -1) {
		sections = append(sections, match[1])
	}
	require.Equal(t, []string{"Secure serving", "Authentication", "Cluster", "Logs", "Global"}, sections)
	for _, flag := range []string{"--secure-port", "--tls-cert-file", "--tls-private-key-file", "--shutdown-delay-duration", "--client-ca-file", "--kubeconfig", "--logging-format", "--version"} {
		require.Regexp(t, `(?m)^ +(-., )?`+flag+` `, output)
	}
	require.NotContains(t, output, "--cert-dir")

	code, output = framework.Execute(t, cp, "webhook", "--version")
	require.Equal(t, 0, code)
	require.Regexp(t, `^webhook version v\d+\.\d+\.\d+\S*\n$`, output)
}

// Whatever is wrong with the flags is said in one go, with the flags' names.
func TestInvalidFlags(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { taken.Close() })
	takenPort := taken.Addr().(*net.TCPAddr).Port
	const serving = "HTTPS can't be served; check --bind-address, --secure-port, --tls-cert-file, --tls-private-key-file and the other --tls flags: "
	for name, test := range map[string]struct {
		args []string
		// want is the end of what is printed.
		want string
	}{
		"one that is unknown":  {[]string{"--no-such-flag"}, "Error: unknown flag: --no-such-flag\n"},
		"an argument":          {[]string{"serve"}, "Error: unknown command \"serve\" for \"webhook\"\n"},
		"a kubeconfig":         {[]string{"--kubeconfig=" + missing}, "reading the file of --kubeconfig: stat " + missing + ": no such file or directory\"\n"},
		"no kubeconfig":        {[]string{"--kubeconfig="}, "--kubeconfig is not set and this is not a pod with a service account: unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined\"\n"},
		"a port that is taken": {[]string{fmt.Sprintf("--secure-port=%d", takenPort)}, fmt.Sprintf(serving+"failed to create listener: failed to listen on 127.0.0.1:%[1]d: listen tcp 127.0.0.1:%[1]d: bind: address already in use\"\n", takenPort)},
		"a certificate":        {nil, serving + "open " + missing + ": no such file or directory\"\n"},
		"no certificate":       {[]string{"--tls-cert-file="}, "--tls-cert-file and --tls-private-key-file must both be set: kube-apiserver calls only webhooks whose certificate it can verify\"\n"},
		"many": {
			[]string{"--logging-format=xml", "--secure-port=0", "--tls-private-key-file=", "--shutdown-delay-duration=-1s"},
			"[--logging-format, or another flag of the logs: format: Invalid value: \\\"xml\\\": Unsupported log format, " +
				"--secure-port 0 must be between 1 and 65535, inclusive. It cannot be turned off with 0, " +
				"--tls-cert-file and --tls-private-key-file must both be set: kube-apiserver calls only webhooks whose certificate it can verify, " +
				"--shutdown-delay-duration must not be below 0, but is -1s]\"\n",
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
			require.True(t, strings.HasSuffix(output, test.want), "got %s\nwant the end to be %s", output, test.want)
			require.NotContains(t, output, "panic")
		})
	}
}
