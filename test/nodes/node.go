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

package nodes

import (
	"context"
	"embed" // For the first process and the configurations of a node.
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/network"
)

const (
	// cniPlugins is the directory of Debian's CNI plugins.
	cniPlugins = "/usr/lib/cni"
	// readyFile is the last file that boot.sh writes.
	readyFile = "ready"
)

//go:embed config
var config embed.FS

// Node is a machine that runs pods.
type Node struct {
	*network.Host

	Name string

	cluster *Cluster
	number  int
	// dir holds the node's files, and first is the PID of its process 1.
	dir   string
	first int
}

// Command returns a command that runs on the node, in all of its namespaces.
func (n *Node) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	enter := []string{"--target=" + strconv.Itoa(n.first), "--net", "--mount", "--pid", "--", name}
	return exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
}

func (c *Cluster) newNode(t testing.TB, number int, host *network.Host) *Node {
	t.Helper()
	return &Node{Host: host, Name: fmt.Sprintf("node-%d", number), cluster: c, number: number}
}

// start starts the node's processes. It does not wait for the node to be ready.
func (n *Node) start(t testing.TB, images map[string]string) {
	t.Helper()
	n.boot(t)
	n.configure(t)
	n.run(t, "/usr/bin/containerd", func(ctx context.Context) error { _, err := n.try(ctx, "ctr", "version"); return err },
		"--config="+n.file("containerd.toml"))
	n.importImages(t, images)
	n.run(t, filepath.Join(binDir(), "kubelet"), answers(n, "http://127.0.0.1:10248/healthz"),
		"--config="+n.file("kubelet.yaml"), "--hostname-override="+n.Name, "--node-ip="+n.Address(),
		"--kubeconfig="+n.cluster.kubeconfigFor(t, "system:node:"+n.Name, "system:nodes"))
	// kube-proxy exits when the addresses of its node change, and so starts after the kubelet,
	// which registers the node.
	n.run(t, filepath.Join(binDir(), "kube-proxy"), answers(n, "http://"+n.Address()+":10256/livez"), "--config="+n.file("kube-proxy.yaml"))
}

// boot starts the first process of the node, which makes its namespaces.
func (n *Node) boot(t testing.TB) {
	t.Helper()
	script, err := config.ReadFile("config/boot.sh")
	require.NoError(t, err)
	unshare, err := exec.LookPath("unshare")
	require.NoError(t, err)
	var component *controlplane.Component
	component, err = n.cluster.NewProgram(n.Name, controlplane.Program{
		Binary: unshare, Host: n.Host,
		Args: []string{"--mount", "--pid", "--fork", "--kill-child", "bash", "-c", string(script)},
		Check: func(context.Context) error {
			_, err := os.Stat(filepath.Join(component.Dir(), readyFile))
			return err
		},
	})
	require.NoError(t, err)
	require.NoError(t, component.Start(t.Context()))
	n.dir = component.Dir()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", component.PID()))
	require.NoError(t, err)
	n.first, err = strconv.Atoi(strings.TrimSpace(string(children)))
	require.NoError(t, err)
}

// file returns the path of one of the node's configurations.
func (n *Node) file(name string) string { return filepath.Join(n.dir, "config", name) }

// configure writes the configurations, which are templates.
func (n *Node) configure(t testing.TB) {
	t.Helper()
	cgroup, err := makeCgroup(n.Name)
	require.NoError(t, err)
	files, err := template.ParseFS(config, "config/*")
	require.NoError(t, err)
	for _, file := range files.Templates() {
		var text strings.Builder
		require.NoError(t, file.Execute(&text, map[string]any{
			"Name": n.Name, "Address": n.Address(), "Pods": podSubnet(n.number), "Cgroup": cgroup, "DNS": dnsAddress,
			"Plugins": cniPlugins, "Pause": pauseImage, "Config": n.file(""),
			"Proxy": n.cluster.kubeconfigFor(t, "system:kube-proxy"),
		}))
		name := file.Name()
		if filepath.Ext(name) == ".conflist" {
			name = filepath.Join("cni", name)
		}
		write(t, n.file(name), text.String())
	}
}

// run starts a program on the node.
func (n *Node) run(t testing.TB, binary string, check func(context.Context) error, args ...string) {
	t.Helper()
	n.cluster.startProgram(t, n.Name+"/"+filepath.Base(binary), controlplane.Program{Binary: binary, Host: n, Args: args, Check: check})
}

// Do runs a command on the node.
func (n *Node) Do(t testing.TB, name string, args ...string) string {
	t.Helper()
	output, err := n.try(t.Context(), name, args...)
	require.NoError(t, err)
	return output
}

func (n *Node) try(ctx context.Context, name string, args ...string) (string, error) {
	output, err := n.Command(ctx, name, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %s %s: %w: %s", n.Name, name, strings.Join(args, " "), err, output)
	}
	return string(output), err
}

// Vanish drops all packets of the node, as when a machine loses power. Its peers do not learn that
// connections have ended.
func (n *Node) Vanish(t testing.TB) {
	t.Helper()
	n.drop(t, "-I")
}

// Return ends the effect of Vanish.
func (n *Node) Return(t testing.TB) {
	t.Helper()
	n.drop(t, "-D")
}

func (n *Node) drop(t testing.TB, action string) {
	t.Helper()
	for _, rule := range []string{"PREROUTING -i cable+", "POSTROUTING -o cable+"} {
		n.Do(t, "iptables", strings.Fields("-w -t mangle "+action+" "+rule+" -j DROP")...)
	}
}
