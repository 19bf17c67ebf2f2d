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
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

func TestHelp(t *testing.T) {
	t.Parallel()
	code, output := framework.Execute(t, cp, "apiserver", "--help")
	require.Equal(t, 0, code)
	var sections []string
	for _, match := range regexp.MustCompile(`(?m)^(.+) flags:$`).FindAllStringSubmatch(output, -1) {
		sections = append(sections, match[1])
	}
	require.Equal(t, []string{
		"Generic", "Etcd", "Secure serving", "Bounds", "Authentication", "Authorization", "Auditing", "Features", "Admission",
		"Egress selector", "Traces", "Own certificate authority", "Controllers", "Cluster", "Embedded etcd", "Logs", "Global",
	}, sections)
	for _, flag := range []string{
		"--etcd-servers", "--secure-port", "--requestheader-allowed-names", "--authorization-always-allow-paths", "--audit-policy-file",
		"--enable-admission-plugins", "--logging-format", "--kubeconfig", "--startup-timeout", "--data-dir", "--etcd-quota-backend-bytes",
		"--max-requests-inflight", "--feature-gates", "--emulated-version", "--version",
	} {
		require.Regexp(t, `(?m)^ +(-., )?`+flag+` `, output)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	code, output := framework.Execute(t, cp, "apiserver", "--version")
	require.Equal(t, 0, code)
	require.Regexp(t, `^apiserver version v\d+\.\d+\.\d+\S*\n$`, output)
}

// All errors in the flags are reported together, with the flags' names.
func TestInvalidFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	missing := filepath.Join(dir, "missing")
	wrong := filepath.Join(dir, "wrong")
	require.NoError(t, os.WriteFile(wrong, []byte(strings.Replace(limitedResources, "resource: pizzas", "resource:", 1)), 0o600))
	long := filepath.Join(dir, strings.Repeat("x", 100))
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
		"one that is unknown":                   {[]string{"--no-such-flag"}, []string{"Error: unknown flag: --no-such-flag"}},
		"one that is not a number":              {[]string{"--secure-port=https"}, []string{`Error: invalid argument "https" for "--secure-port" flag`}},
		"an argument":                           {[]string{"serve"}, []string{`Error: unknown command "serve" for "apiserver"`}},
		"a feature gate":                        {[]string{"--feature-gates=NoSuch=true"}, []string{"--feature-gates", "unrecognized feature gate: NoSuch"}},
		"a version without policies":            {[]string{"--emulated-version=1.35"}, []string{"the admission plugin MutatingAdmissionPolicy would not enforce anything", "--feature-gates=MutatingAdmissionPolicy=true"}},
		"a version":                             {[]string{"--emulated-version=1.20"}, []string{"--emulated-version", "emulation version 1.20 is not between [1.34, 1.37.0]"}},
		"a kubeconfig":                          {[]string{"--kubeconfig=" + missing}, []string{"--kubeconfig: stat " + missing + ": no such file or directory"}},
		"a kubeconfig of its own":               {[]string{"--authorization-kubeconfig=" + missing}, []string{"--authorization-kubeconfig: stat " + missing + ": no such file or directory"}},
		"certificate authorities of clients":    {[]string{"--client-ca-file=" + missing}, []string{"--client-ca-file can't be used: open " + missing}},
		"certificate authorities that are none": {[]string{"--requestheader-client-ca-file=" + file}, []string{"--requestheader-client-ca-file can't be used: error reading " + file}},
		"no port":                               {[]string{"--secure-port=0"}, []string{"--secure-port 0 must be between 1 and 65535"}},
		"no kubeconfig":                         {[]string{"--kubeconfig="}, []string{"--kubeconfig is not set and this is not a pod with a service account"}},
		"a directory inside a file":             {[]string{"--data-dir=" + file + "/data"}, []string{"--data-dir", "mkdir " + file + ": not a directory"}},
		"a directory with a long path":          {[]string{"--data-dir=" + long}, []string{"--data-dir", fmt.Sprintf("is too long by %d characters", len(long)+len("/etcd.sock")-103)}},
		"certificates for no etcd":              {[]string{"--etcd-certfile=" + file, "--etcd-keyfile=" + file}, []string{"--etcd-certfile is for an external etcd", "--etcd-keyfile is for an external etcd"}},
		"certificates that are none":            {[]string{"--etcd-servers=https://127.0.0.1:1", "--etcd-cafile=" + missing}, []string{"--etcd-cafile", "open " + missing}},
		"a serving certificate":                 {[]string{"--tls-cert-file=" + missing, "--tls-private-key-file=" + missing}, []string{"--tls-cert-file", "open " + missing}},
		"a port that is taken":                  {[]string{fmt.Sprintf("--secure-port=%d", takenPort)}, []string{fmt.Sprintf("port %d can't be listened on; choose another with --secure-port: ", takenPort), "address already in use"}},
		"a plugin that is unknown":              {[]string{"--enable-admission-plugins=Pineapple"}, []string{`enable-admission-plugins plugin \"Pineapple\" is unknown`}},
		"no configuration":                      {[]string{"--admission-control-config-file=" + missing}, []string{"--admission-control-config-file can't be used: open " + missing}},
		"a configuration's kind":                {[]string{"--admission-control-config-file=" + cp.Kubeconfig()}, []string{"--admission-control-config-file can't be used: " + cp.Kubeconfig(), `no kind \"Config\" is registered`}},
		"a plugin's configuration":              {[]string{"--admission-control-config-file=" + wrong, fmt.Sprintf("--secure-port=%d", framework.FreePort(t))}, []string{"--admission-control-config-file", "limitedResources[0].resource: Required value"}},
		"no front proxy to authorize":           {[]string{"--authentication-skip-lookup"}, []string{"--authentication-skip-lookup needs --requestheader-client-ca-file"}},
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
