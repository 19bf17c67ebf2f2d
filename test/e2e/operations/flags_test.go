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

package operations

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// quotaConfig is a configuration that the admission plugin does not know.
const quotaConfig = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins: [{name: ResourceQuota, configuration: {apiVersion: v1, kind: Config}}]
`

// All errors in the flags are reported together, with the flags' names.
func TestInvalidFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { taken.Close() })
	takenPort := taken.Addr().(*net.TCPAddr).Port
	for name, test := range map[string]struct {
		args []string
		// want is what the last line that is printed contains; the unit tests of the options
		// compare the whole.
		want []string
	}{
		"one that is unknown":  {[]string{"--no-such-flag"}, []string{"Error: unknown flag: --no-such-flag"}},
		"a port that is taken": {[]string{fmt.Sprintf("--secure-port=%d", takenPort)}, []string{fmt.Sprintf("port %d can't be listened on; choose another with --secure-port: ", takenPort), "address already in use"}},
		"a certificate that does not exist": {[]string{"--tls-cert-file=missing.crt", "--tls-private-key-file=missing.key"},
			[]string{"TLS can't be served; check --tls-cert-file, --tls-private-key-file and the other --tls flags: ", "missing.crt"}},
		"keys of etcd that do not exist": {[]string{"--etcd-servers=https://127.0.0.1:1", "--etcd-cafile=missing.crt"},
			[]string{"--etcd-cafile, --etcd-certfile or --etcd-keyfile can't be used: ", "missing.crt"}},
		"a plugin that can't be configured": {[]string{"--admission-control-config-file=" + framework.File(t, quotaConfig)},
			[]string{"--admission-control-config-file, or another flag of admission: "}},
		"many": {
			[]string{
				"--logging-format=xml", "--data-dir=", "--etcd-quota-backend-bytes=0", "--etcd-cafile=" + file, "--startup-timeout=0s", "--authentication-skip-lookup",
				"--max-requests-inflight=-1", "--storage-media-type=text/plain", "--secure-port=70000", "--audit-log-path=-", "--audit-log-maxage=-1",
			},
			[]string{
				"--logging-format", "--data-dir must name a directory", "--etcd-quota-backend-bytes must be above 0", "--etcd-cafile is for an external etcd",
				"--startup-timeout must be above 0", "--authentication-skip-lookup needs", "--max-requests-inflight can not be negative", "--storage-media-type",
				"--secure-port 70000 must be between", "--audit-log-maxage -1 can't be", "--audit-log-path and --audit-webhook-config-file record nothing",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// There is nothing to complain about in these.
			valid := []string{"--kubeconfig=" + cp.Kubeconfig(), "--bind-address=127.0.0.1", "--data-dir=" + t.TempDir()}
			code, output := framework.Execute(t, cp, "apiserver", append(valid, test.args...)...)
			require.Equal(t, 1, code)
			lines := strings.Split(strings.TrimSuffix(output, "\n"), "\n")
			for _, want := range test.want {
				require.Contains(t, lines[len(lines)-1], want)
			}
			require.NotContains(t, output, "panic")
		})
	}
}
