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

package konnectivity

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiserverv1beta1 "k8s.io/apiserver/pkg/apis/apiserver/v1beta1"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/network"
)

const (
	// samples are the configurations that the documentation refers to, and
	// samplesDir is where they look for certificates and sockets.
	samples    = "../../../artifacts/remote/konnectivity"
	samplesDir = "/etc/kubernetes/konnectivity"
)

// Ports of every proxy server and agent. Each host has one of either.
const (
	agentPort = 8132 + iota
	adminPort
	healthPort
)

// tunnel leads from a host to all that its agent reaches. The agent connects to the
// proxy server, never the other way round.
type tunnel struct {
	dir           string
	server, agent *controlplane.Component
}

// newTunnel adds a proxy server and its agent, which are not started.
func newTunnel(t *testing.T, cp *controlplane.ControlPlane, name string, from, to *network.Host) *tunnel {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("install Debian's package openssl: ", err)
	}
	// The path of the socket in it has to be short.
	dir, err := os.MkdirTemp("", "tunnel-") //nolint:usetesting // That of the test has its name in it.
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	output, err := exec.CommandContext(t.Context(), "../../../hack/konnectivity-certificates.sh", dir, "127.0.0.1", from.Address()).CombinedOutput()
	require.NoError(t, err, "%s", output)
	file := func(name string) string { return filepath.Join(dir, name) }

	serverArgs := []string{
		"--mode=grpc", "--uds-name=" + file("proxy.sock"), "--server-port=0",
		"--cluster-ca-cert=" + file("ca.crt"), "--cluster-cert=" + file("server.crt"), "--cluster-key=" + file("server.key"),
		"--agent-bind-address=" + from.Address(), fmt.Sprintf("--agent-port=%d", agentPort),
		fmt.Sprintf("--admin-port=%d", adminPort),
		"--health-bind-address=127.0.0.1", fmt.Sprintf("--health-port=%d", healthPort),
	}
	tunnel := &tunnel{dir: dir}
	tunnel.server, err = cp.NewProgram(name+"-server", controlplane.Program{
		Binary: "proxy-server", Args: serverArgs, Host: from, Check: answers(from, "/healthz"),
	})
	require.NoError(t, err)
	tunnel.agent, err = cp.NewProgram(name+"-agent", controlplane.Program{
		Binary: "proxy-agent",
		Args: []string{
			"--ca-cert=" + file("ca.crt"), "--agent-cert=" + file("agent.crt"), "--agent-key=" + file("agent.key"),
			"--proxy-server-host=" + from.Address(), fmt.Sprintf("--proxy-server-port=%d", agentPort),
			"--admin-bind-address=127.0.0.1", fmt.Sprintf("--admin-server-port=%d", adminPort),
			"--health-server-host=127.0.0.1", fmt.Sprintf("--health-server-port=%d", healthPort),
		},
		Host: to,
		// The proxy server knows better than the agent when there is a connection.
		Check: answers(from, "/readyz"),
	})
	require.NoError(t, err)
	// One that is told to end waits until its connections have.
	t.Cleanup(tunnel.agent.Kill)
	return tunnel
}

// start starts both and waits until the agent has connected.
func (t *tunnel) start(ctx context.Context) error {
	if err := t.server.Start(ctx); err != nil {
		return err
	}
	return t.agent.Start(ctx)
}

// answers returns a check of a proxy server's health.
func answers(host *network.Host, path string) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{DialContext: host.DialContext, DisableKeepAlives: true}}
	url := "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(healthPort)) + path
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s answers %s", url, response.Status)
		}
		return nil
	}
}

// egressFlag is the flag that leads a server through the tunnel as the sample says,
// without some of its selections.
func (t *tunnel) egressFlag(test *testing.T, sample string, without ...string) string {
	test.Helper()
	config := t.readSample(test, sample)
	config.EgressSelections = slices.DeleteFunc(config.EgressSelections, func(selection apiserverv1beta1.EgressSelection) bool {
		return slices.Contains(without, selection.Name)
	})
	content, err := yaml.Marshal(config)
	require.NoError(test, err)
	path := filepath.Join(t.dir, strings.Join(append(without, sample), "-"))
	writeFile(test, path, content)
	return "--egress-selector-config-file=" + path
}

// readSample returns a sample for the tunnel's certificates and socket.
func (t *tunnel) readSample(test *testing.T, name string) (config apiserverv1beta1.EgressSelectorConfiguration) {
	test.Helper()
	content, err := os.ReadFile(filepath.Join(samples, name))
	require.NoError(test, err)
	require.NoError(test, yaml.UnmarshalStrict([]byte(strings.ReplaceAll(string(content), samplesDir, t.dir)), &config))
	return config
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, content, 0o600))
}
