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
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// Execute runs one of the repository's binaries, and returns its exit code and output. The binary
// must end by itself.
func Execute(t *testing.T, cp *controlplane.ControlPlane, binary string, args ...string) (code int, output string) {
	t.Helper()
	var buffer bytes.Buffer
	code = execute(t, cp, binary, nil, &buffer, &buffer, args)
	return code, buffer.String()
}

// Tool runs a command of the server's binary on an input.
func Tool(t *testing.T, cp *controlplane.ControlPlane, stdin []byte, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = execute(t, cp, "apiserver", bytes.NewReader(stdin), &out, &errOut, args)
	return code, out.String(), errOut.String()
}

// ToolOf runs a command of another of the repository's binaries.
func ToolOf(t *testing.T, cp *controlplane.ControlPlane, binary string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = execute(t, cp, binary, nil, &out, &errOut, args)
	return code, out.String(), errOut.String()
}

// Program returns the path of one of the repository's binaries. kubectl of another release of
// Kubernetes may be in another directory.
func Program(t *testing.T, cp *controlplane.ControlPlane, name string) string {
	t.Helper()
	path, err := cp.ProgramPath(t.Context(), name)
	require.NoError(t, err)
	return path
}

func execute(t *testing.T, cp *controlplane.ControlPlane, binary string, stdin io.Reader, stdout, stderr *bytes.Buffer, args []string) (code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, Program(t, cp, binary), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	require.NoError(t, ctx.Err(), "%s has not ended by itself: %s", binary, stderr)
	return cmd.ProcessState.ExitCode()
}

// Kubectl runs an administrator's kubectl, which must succeed.
func Kubectl(t *testing.T, cp *controlplane.ControlPlane, args ...string) {
	t.Helper()
	output, err := cp.Kubectl(t.Context(), args...).CombinedOutput()
	require.NoError(t, err, "kubectl %s: %s", strings.Join(args, " "), output)
}

// File writes a file in a directory of the test.
func File(t *testing.T, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file.yaml")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// ReplaceFile replaces a file atomically.
func ReplaceFile(t *testing.T, path string, content []byte) {
	t.Helper()
	next := path + ".next"
	require.NoError(t, os.WriteFile(next, content, 0o600))
	require.NoError(t, os.Rename(next, path))
}

// EtcdFlags returns flags of a server for a component's etcd, or for another one at a URL. They
// have a new client certificate.
func EtcdFlags(t *testing.T, cp *controlplane.ControlPlane, component, url string) []string {
	t.Helper()
	issued, err := cp.PKI.EtcdCA.Issue(controlplane.Certificate{User: "doctor"})
	require.NoError(t, err)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "etcd.crt"), filepath.Join(dir, "etcd.key")
	require.NoError(t, os.WriteFile(cert, issued.Cert, 0o600))
	require.NoError(t, os.WriteFile(key, issued.Key, 0o600))
	if url == "" {
		url = cp.Component(component).URL()
	}
	return []string{"--etcd-servers=" + url, "--etcd-cafile=" + cp.PKI.ServingCA.File, "--etcd-certfile=" + cert, "--etcd-keyfile=" + key}
}
