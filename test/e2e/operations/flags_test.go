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

// Whatever is wrong with the flags is said in one go, with the flags' names.
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
		// want is the end of what is printed.
		want string
	}{
		"one that is unknown":                   {[]string{"--no-such-flag"}, "Error: unknown flag: --no-such-flag\n"},
		"one that is not a number":              {[]string{"--secure-port=https"}, "Error: invalid argument \"https\" for \"--secure-port\" flag: strconv.ParseInt: parsing \"https\": invalid syntax\n"},
		"an argument":                           {[]string{"serve"}, "Error: unknown command \"serve\" for \"apiserver\"\n"},
		"a feature gate":                        {[]string{"--feature-gates=NoSuch=true"}, "--feature-gates, --emulated-version or --min-compatibility-version: unrecognized feature gate: NoSuch\"\n"},
		"a version without policies":            {[]string{"--emulated-version=1.35"}, "the admission plugin MutatingAdmissionPolicy would not enforce anything, since --feature-gates or --emulated-version turns the feature MutatingAdmissionPolicy off: add --feature-gates=MutatingAdmissionPolicy=true, or do without it by --disable-admission-plugins=MutatingAdmissionPolicy\"\n"},
		"a version":                             {[]string{"--emulated-version=1.20"}, "--feature-gates, --emulated-version or --min-compatibility-version: [emulation version 1.20 is not between [1.34, 1.37.0], minCompatibilityVersion version 1.34 is not between [1.34, 1.20]]\"\n"},
		"a kubeconfig":                          {[]string{"--kubeconfig=" + missing}, "reading the file of --kubeconfig: stat " + missing + ": no such file or directory\"\n"},
		"a kubeconfig of its own":               {[]string{"--authorization-kubeconfig=" + missing}, "reading the file of --authorization-kubeconfig: stat " + missing + ": no such file or directory\"\n"},
		"certificate authorities of clients":    {[]string{"--client-ca-file=" + missing}, "the server refuses to start: --client-ca-file can't be used: open " + missing + ": no such file or directory\"\n"},
		"certificate authorities that are none": {[]string{"--requestheader-client-ca-file=" + file}, "the server refuses to start: --requestheader-client-ca-file can't be used: error reading " + file + ": data does not contain any valid RSA or ECDSA certificates\"\n"},
		"no port":                               {[]string{"--secure-port=0"}, "--secure-port 0 must be between 1 and 65535, inclusive. It cannot be turned off with 0\"\n"},
		"no kubeconfig":                         {[]string{"--kubeconfig="}, "--kubeconfig is not set and this is not a pod with a service account: unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined\"\n"},
		"a directory inside a file":             {[]string{"--data-dir=" + file + "/data"}, "creating the data directory of the embedded etcd (choose another with --data-dir): mkdir " + file + ": not a directory\"\n"},
		"a directory with a long path":          {[]string{"--data-dir=" + long}, fmt.Sprintf("--data-dir \\\"%s\\\" is too long by %d characters for the unix socket in it: choose a shorter path\"\n", long, len(long)+len("/etcd.sock")-103)},
		"certificates for no etcd":              {[]string{"--etcd-certfile=" + file, "--etcd-keyfile=" + file}, "[--etcd-certfile is for an external etcd: set --etcd-servers too, --etcd-keyfile is for an external etcd: set --etcd-servers too]\"\n"},
		"certificates that are none":            {[]string{"--etcd-servers=https://127.0.0.1:1", "--etcd-cafile=" + missing}, "--etcd-cafile, --etcd-certfile or --etcd-keyfile can't be used: open " + missing + ": no such file or directory\"\n"},
		"a serving certificate":                 {[]string{"--tls-cert-file=" + missing, "--tls-private-key-file=" + missing}, "TLS can't be served; check --tls-cert-file, --tls-private-key-file and the other --tls flags: open " + missing + ": no such file or directory\"\n"},
		"a port that is taken":                  {[]string{fmt.Sprintf("--secure-port=%d", takenPort)}, fmt.Sprintf("port %[1]d can't be listened on; choose another with --secure-port: failed to create listener: failed to listen on 127.0.0.1:%[1]d: listen tcp 127.0.0.1:%[1]d: bind: address already in use\"\n", takenPort)},
		"a plugin that is unknown":              {[]string{"--enable-admission-plugins=Pineapple"}, "enable-admission-plugins plugin \\\"Pineapple\\\" is unknown\"\n"},
		"no configuration":                      {[]string{"--admission-control-config-file=" + missing}, "--admission-control-config-file can't be used: open " + missing + ": no such file or directory\"\n"},
		"a configuration's kind":                {[]string{"--admission-control-config-file=" + cp.Kubeconfig()}, "--admission-control-config-file can't be used: " + cp.Kubeconfig() + ": no kind \\\"Config\\\" is registered for version \\\"v1\\\" in scheme \\\"pkg/runtime/scheme.go:111\\\"\"\n"},
		"a plugin's configuration":              {[]string{"--admission-control-config-file=" + wrong, fmt.Sprintf("--secure-port=%d", framework.FreePort(t))}, "--admission-control-config-file, or another flag of admission: couldn't init admission plugin \\\"ResourceQuota\\\": limitedResources[0].resource: Required value\"\n"},
		"no front proxy to authorize":           {[]string{"--authentication-skip-lookup"}, "--authentication-skip-lookup needs --requestheader-client-ca-file: without it no front proxy can assert an identity\"\n"},
		"many": {
			[]string{
				"--logging-format=xml", "--data-dir=", "--etcd-quota-backend-bytes=0", "--etcd-cafile=" + file, "--startup-timeout=0s", "--authentication-skip-lookup",
				"--max-requests-inflight=-1", "--storage-media-type=text/plain", "--secure-port=70000", "--audit-log-path=-", "--audit-log-maxage=-1",
			},
			"[--logging-format, or another flag of the logs: format: Invalid value: \\\"xml\\\": Unsupported log format, " +
				"--data-dir must name a directory for the embedded etcd, or --etcd-servers an external etcd, " +
				"--etcd-quota-backend-bytes must be above 0, not 0, " +
				"--etcd-cafile is for an external etcd: set --etcd-servers too, " +
				"--startup-timeout must be above 0, not 0s, " +
				"--authentication-skip-lookup needs --requestheader-client-ca-file: without it no front proxy can assert an identity, " +
				"--max-requests-inflight can not be negative value, " +
				"--storage-media-type \\\"text/plain\\\" invalid, allowed values: application/json, application/vnd.kubernetes.protobuf, application/yaml, " +
				"--secure-port 70000 must be between 1 and 65535, inclusive. It cannot be turned off with 0, " +
				"--audit-log-maxage -1 can't be a negative number, " +
				"--audit-log-path and --audit-webhook-config-file record nothing without --audit-policy-file: set that, too]\"\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// There is nothing to complain about in these.
			valid := []string{"--kubeconfig=" + cp.Kubeconfig(), "--bind-address=127.0.0.1", "--data-dir=" + t.TempDir()}
			code, output := framework.Execute(t, cp, "apiserver", append(valid, test.args...)...)
			require.Equal(t, 1, code)
			require.True(t, strings.HasSuffix(output, test.want), "got %s\nwant the end to be %s", output, test.want)
			require.NotContains(t, output, "panic")
		})
	}
}
