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
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// stopAfter is an output that cancels a run after a certain text.
type stopAfter struct {
	bytes.Buffer
	text   string
	cancel context.CancelFunc
}

func (s *stopAfter) Write(data []byte) (int, error) {
	n, err := s.Buffer.Write(data)
	if strings.Contains(s.String(), s.text) {
		s.cancel()
	}
	return n, err
}

func TestRunUntilInterrupted(t *testing.T) {
	t.Chdir("../../..")
	dir := filepath.Join(t.TempDir(), "local")
	built := filepath.Join(t.TempDir(), "built")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &stopAfter{text: "kube-controller-manager is ready", cancel: cancel}
	require.NoError(t, run(ctx, []string{"-dir=" + dir, "-build-rest=touch " + built, "-next=kubectl get pizzas", "-next=kubectl get toppings"}, out))
	require.FileExists(t, built)
	require.Contains(t, out.String(), "export KUBECONFIG="+filepath.Join(dir, "kubeconfig"))
	require.Contains(t, out.String(), "Stopping; the data stays for the next time.")

	require.Contains(t, out.String(), "\n  kubectl get pizzas\n  kubectl get toppings\n\nCtrl-C")

	require.NoError(t, run(t.Context(), []string{"-dir=" + dir, "-clean"}, io.Discard))
	require.NoDirExists(t, dir)
}

func TestBuild(t *testing.T) {
	t.Chdir("../../..")
	dir := t.TempDir()
	require.NoError(t, run(t.Context(), []string{"-dir=" + dir, "-build"}, io.Discard))
	require.FileExists(t, filepath.Join(dir, "bin", "apiserver"))
}

func TestWelcome(t *testing.T) {
	for name, test := range map[string]struct {
		next     []string
		examples bool
		want     string
	}{
		"nothing":          {nil, false, "bin:$PATH\n\n\nCtrl-C"},
		"lines":            {[]string{"kubectl get breads"}, false, "\n\n  kubectl get breads\n\nCtrl-C"},
		"examples":         {nil, true, "\n\n  kubectl apply -f artifacts/examples\n  kubectl get -f artifacts/examples\n\nCtrl-C"},
		"lines, not those": {[]string{"kubectl get breads"}, true, "\n\n  kubectl get breads\n\nCtrl-C"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if test.examples {
				require.NoError(t, os.MkdirAll(examples, 0o700))
			}
			var out bytes.Buffer
			require.NoError(t, welcome(t.Context(), &out, "kubeconfig", controlplane.Config{BinDir: "bin"}, test.next))
			require.Contains(t, out.String(), test.want)
			require.Contains(t, out.String(), "export KUBECONFIG=kubeconfig PATH=")
		})
	}
}

// TestMakeRun requires that all files in the recommendations of "make
// run" exist.
func TestMakeRun(t *testing.T) {
	t.Chdir("../../..")
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	files := regexp.MustCompile(`-next=.*?(artifacts/[^' ]+)`).FindAllSubmatch(makefile, -1)
	require.NotEmpty(t, files)
	for _, match := range files {
		require.FileExists(t, string(match[1]))
	}
}

func TestWhatCannotRunSaysWhy(t *testing.T) {
	t.Chdir("../../..")
	t.Run("port taken", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer listener.Close()
		port := listener.Addr().(*net.TCPAddr).Port
		err = run(t.Context(), []string{"-dir=" + t.TempDir(), fmt.Sprintf("-kube-controller-manager-port=%d", port)}, io.Discard)
		require.ErrorContains(t, err, fmt.Sprintf("port %d, which kube-controller-manager is to listen on, is taken", port))
		require.ErrorContains(t, err, fmt.Sprintf("make run KUBE_CONTROLLER_MANAGER_PORT=%d", port+100))
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := run(ctx, []string{"-dir=" + t.TempDir()}, io.Discard)
		require.EqualError(t, err, "interrupted before everything was ready")
	})
	t.Run("not its directory", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "thesis.tex"), nil, 0o600))
		require.ErrorContains(t, run(t.Context(), []string{"-dir=" + dir, "-clean"}, io.Discard), "not those of a control plane")
		require.FileExists(t, filepath.Join(dir, "thesis.tex"))
	})
	t.Run("unknown flag", func(t *testing.T) {
		require.ErrorContains(t, run(t.Context(), []string{"-no-such-flag"}, io.Discard), "flag provided but not defined")
	})
}
