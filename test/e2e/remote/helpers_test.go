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

// Package remote tests the ways to the API for clients far from the cluster, and the
// server's own way out of it.
package remote

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// start starts a control plane in which there are toppings. Nobody but the tests
// changes a pizza.
func start(t *testing.T, config controlplane.Config, preparations ...controlplane.Preparation) *controlplane.ControlPlane {
	t.Helper()
	config.ControllerManager.Off = true
	config.APIServer.Flags = append(config.APIServer.Flags, "--run-controllers=false")
	cp := controlplane.ForTest(t, config)
	for _, prepare := range preparations {
		require.NoError(t, prepare(t.Context(), cp))
	}
	if !config.APIServer.Off {
		require.NoError(t, fixture.CreateToppings(t.Context(), versioned.NewForConfigOrDie(cp.RESTConfig()), "tomato", "mozzarella"))
	}
	return cp
}

// A user has kubectl, perhaps with another kubeconfig than the administrator's and
// variables in the environment.
type user struct {
	*controlplane.ControlPlane

	kubeconfig string
	env        []string
}

// command returns a command that runs kubectl for a limited time.
func (u user) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
	t.Cleanup(cancel)
	cmd := u.Kubectl(ctx, args...)
	cmd.Env = append(cmd.Env, u.env...)
	if u.kubeconfig != "" {
		cmd.Env = append(cmd.Env, "KUBECONFIG="+u.kubeconfig)
	}
	return cmd
}

// kubectl runs kubectl, which must succeed and have nothing to complain about.
func (u user) kubectl(t *testing.T, input string, args ...string) (output string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := u.command(t, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	require.NoError(t, cmd.Run(), "%s", &stderr)
	require.Empty(t, stderr.String())
	return stdout.String()
}

// complaint is what kubectl says when it fails, in its last line.
func (u user) complaint(t *testing.T, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := u.command(t, args...)
	cmd.Stderr = &stderr
	require.ErrorAs(t, cmd.Run(), new(*exec.ExitError))
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	return lines[len(lines)-1]
}

// A stream is what a command prints line by line.
type stream struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  *bufio.Reader
	stderr *bytes.Buffer
}

// follow starts a command that goes on printing.
func follow(t *testing.T, cmd *exec.Cmd) stream {
	t.Helper()
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	s := stream{t, cmd, bufio.NewReader(stdout), &bytes.Buffer{}}
	cmd.Stderr = s.stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return s
}

// line is the next one. As it is read before the pizza is changed again, one that
// were held back on its way would never come.
func (s stream) line() string {
	s.t.Helper()
	line, err := s.lines.ReadString('\n')
	require.NoError(s.t, err, "The stream has ended after %q: %s", line, s.stderr)
	return strings.TrimSuffix(line, "\n")
}

// cells are those of the next line, which is a row of a table with an age at its end.
func (s stream) cells() []string {
	s.t.Helper()
	cells := strings.Fields(s.line())
	require.NotEmpty(s.t, cells)
	return cells[:len(cells)-1]
}

// ends requires that there is no more and that all went well.
func (s stream) ends() {
	s.t.Helper()
	rest, err := io.ReadAll(s.lines)
	require.NoError(s.t, err)
	require.Empty(s.t, string(rest))
	require.NoError(s.t, s.cmd.Wait(), "%s", s.stderr)
}

const (
	group  = "/apis/restaurant.programming-kubernetes.info/v1"
	pizzas = group + "/namespaces/default/pizzas"
	track  = "/track?follow=true"
)

// margherita is the manifest of a pizza.
func margherita(name string, replicas int) string {
	return fmt.Sprintf(`{"apiVersion":"restaurant.programming-kubernetes.info/v1","kind":"Pizza","metadata":{"name":%q},`+
		`"spec":{"replicas":%d,"toppings":[{"name":"tomato"},{"name":"mozzarella","quantity":2}]}}`, name, replicas)
}

// bake orders one pizza.
const bake = `{"apiVersion":"restaurant.programming-kubernetes.info/v1","kind":"Bake","spec":{"count":1}}`

// requireAllWorks does what users do with a pizza of that name.
func requireAllWorks(t *testing.T, u user, name string) {
	t.Helper()
	const toppings = "tomato,mozzarella×2"
	full := "pizza.restaurant.programming-kubernetes.info/" + name
	require.Equal(t, full+" created\n", u.kubectl(t, margherita(name, 3), "create", "--filename=-"))
	require.Equal(t, full+"\n", u.kubectl(t, "", "get", "pizza", name, "--output=name"))

	watch := follow(t, u.command(t, "get", "pizzas", "--field-selector=metadata.name="+name, "--watch", "--output-watch-events", "--no-headers"))
	require.Equal(t, []string{"ADDED", name, toppings, "0/3", "<unknown>"}, watch.cells())
	tracked := follow(t, u.command(t, "get", "--raw", pizzas+"/"+name+track))
	require.Equal(t, "0 of 3 baked", tracked.line())

	require.Equal(t, full+" serverside-applied\n", u.kubectl(t, margherita(name, 2), "apply", "--server-side", "--force-conflicts", "--filename=-"))
	require.Equal(t, []string{"MODIFIED", name, toppings, "0/2", "<unknown>"}, watch.cells())
	require.Equal(t, "0 of 2 baked", tracked.line())
	for _, want := range []struct{ progress, replicas string }{{"1 of 2 baked", "1/2"}, {"2 of 2 baked: ready", "2/2"}} {
		u.kubectl(t, bake, "create", "--raw", pizzas+"/"+name+"/bake", "--filename=-")
		require.Equal(t, []string{"MODIFIED", name, toppings, want.replicas, "<unknown>"}, watch.cells())
		require.Equal(t, want.progress, tracked.line())
	}
	tracked.ends()

	require.Equal(t, "pizza.restaurant.programming-kubernetes.info \""+name+"\" deleted from default namespace\n", u.kubectl(t, "", "delete", "pizza", name))
	require.Equal(t, []string{"DELETED", name, toppings, "2/2", "<unknown>"}, watch.cells())
}

// kubeconfigVia is the administrator's kubeconfig for a proxy, or none if that is
// empty, and for another address of kube-apiserver, unless that is empty.
func kubeconfigVia(t *testing.T, cp *controlplane.ControlPlane, proxyURL, server string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(cp.Kubeconfig())
	require.NoError(t, err)
	for _, cluster := range config.Clusters {
		cluster.ProxyURL = proxyURL
		if server != "" {
			cluster.Server = server
		}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}
