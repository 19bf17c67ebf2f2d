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

package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/bastion"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// TestRunBehindABastion types what it is told to.
func TestRunBehindABastion(t *testing.T) {
	bastion.ForTest(t)
	t.Chdir("../../..")
	t.Setenv("KUBECACHEDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dir := filepath.Join(t.TempDir(), "a directory")
	output, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"-dir=" + dir}, out)
		_ = out.CloseWithError(err)
		ended <- err
	}()
	var commands []string
	lines := bufio.NewScanner(output)
	for lines.Scan() && lines.Text() != "Ctrl-C stops everything." {
		if command, ok := strings.CutPrefix(lines.Text(), "  "); ok {
			commands = append(commands, command)
		}
	}
	require.NoError(t, lines.Err())
	go func() { _, _ = io.Copy(io.Discard, output) }()
	require.Len(t, commands, 2)
	use := func() (string, error) {
		output, err := exec.CommandContext(ctx, "sh", "-c", commands[1]).CombinedOutput()
		return string(output), err
	}

	answer, err := use()
	require.Error(t, err)
	require.Contains(t, answer, "proxyconnect tcp: dial tcp 127.0.0.1:1080: connect: connection refused")
	var complaint bytes.Buffer
	outlasting, kill := context.WithTimeout(t.Context(), 2*controlplane.Patience)
	defer kill()
	tunnel := exec.CommandContext(outlasting, "sh", "-c", "exec "+commands[0])
	tunnel.Stderr = &complaint
	require.NoError(t, tunnel.Start())
	require.Eventually(t, func() bool {
		answer, err = use()
		return err == nil
	}, controlplane.Patience, 100*time.Millisecond)
	require.Equal(t, "No resources found in default namespace.\n", answer)

	cancel()
	require.NoError(t, <-ended)
	// The process of sshd for the connection is gone, too.
	require.ErrorContains(t, tunnel.Wait(), "exit status 255", complaint.String())
}
