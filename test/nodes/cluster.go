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
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/network"
)

// Cluster is a control plane with nodes.
type Cluster struct {
	*controlplane.ControlPlane

	Nodes []*Node

	control *network.Host
}

// ForTest starts a cluster for one test. images are archives of images for all nodes, by the names
// that pods use.
func ForTest(t testing.TB, nodes int, images map[string]string) *Cluster {
	t.Helper()
	requireTools(t)
	require.NoError(t, removeCgroups())
	// This runs after the end of the control plane, and so of the nodes' processes.
	t.Cleanup(func() { controlplane.Eventually(t, removeCgroups) })
	control, hosts := connect(t, nodes)
	began := time.Now()
	c := &Cluster{control: control, ControlPlane: controlplane.ForTest(t, controlplane.Config{
		Host: control,
		// The NetworkPolicies for an existing etcd allow this port.
		Etcd: controlplane.ComponentConfig{Port: 2379},
		// NetworkPolicies allow this port.
		KubeAPIServer: controlplane.ComponentConfig{Port: 6443, Flags: []string{
			"--advertise-address=" + controlAddress, "--endpoint-reconciler-type=lease",
			"--enable-aggregator-routing=true", "--kubelet-preferred-address-types=InternalIP",
		}},
		APIServer: controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Off: true}},
	})}
	c.startScheduler(t)
	c.startDNS(t)
	for i, host := range hosts {
		c.Nodes = append(c.Nodes, c.newNode(t, i, host))
	}
	var starting sync.WaitGroup
	for _, node := range c.Nodes {
		starting.Go(func() { node.start(t, images) })
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	c.addVolumes(t)
	for _, node := range c.Nodes {
		// The Lease is the last object that a node adds to the cluster.
		c.NewOperator(t).Run(t, With(t, `kubectl wait --timeout=3m --for=create node/NAME
kubectl wait --timeout=3m --for=condition=Ready node/NAME
kubectl wait --timeout=3m --for=create --namespace=kube-node-lease lease/NAME`, "NAME", node.Name))
	}
	t.Logf("the cluster is ready after %.0f s", time.Since(began).Seconds())
	return c
}

// requireTools fails the test on a machine that can't run nodes.
func requireTools(t testing.TB) {
	t.Helper()
	require.Zero(t, os.Geteuid(), "nodes need root: run the test as root")
	for command, debianPackage := range map[string]string{
		"containerd": "containerd", "ctr": "containerd", "runc": "runc", "iptables": "iptables", "nft": "nftables",
		"conntrack": "conntrack", "ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux", filepath.Join(cniPlugins, "ptp"): "containernetworking-plugins",
	} {
		_, err := exec.LookPath(command)
		require.NoError(t, err, "install Debian's package %s", debianPackage)
	}
}

func (c *Cluster) startScheduler(t testing.TB) {
	t.Helper()
	kubeconfig := c.kubeconfigFor(t, "system:kube-scheduler")
	c.startProgram(t, "kube-scheduler", controlplane.Program{
		Args: []string{
			"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
			"--leader-elect=false",
		},
		Host: c.control,
	})
}

// startDNS runs CoreDNS beside the control plane, so that names do not depend on a node.
func (c *Cluster) startDNS(t testing.TB) {
	t.Helper()
	c.apply(t, dnsService)
	config := filepath.Join(t.TempDir(), "Corefile")
	write(t, config, fmt.Sprintf(`. {
	bind %[1]s
	ready %[1]s:8181
	errors
	cache 5
	kubernetes cluster.local {
		kubeconfig %[2]s local
	}
}
`, controlAddress, c.kubeconfigFor(t, "dns", "system:masters")))
	c.startProgram(t, "coredns", controlplane.Program{
		Args: []string{"-conf=" + config}, Host: c.control, Check: answers(c.control, "http://"+controlAddress+":8181/ready"),
	})
}

// dnsService leads the pods to CoreDNS.
const dnsService = `apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec:
  clusterIP: ` + dnsAddress + `
  ports: [{name: udp, port: 53, protocol: UDP}, {name: tcp, port: 53, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kube-dns, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}
addressType: IPv4
endpoints: [{addresses: [` + controlAddress + `], conditions: {ready: true}}]
ports: [{name: udp, port: 53, protocol: UDP}, {name: tcp, port: 53, protocol: TCP}]
`

// startProgram starts a program. Without a path, it is in binDir.
func (c *Cluster) startProgram(t testing.TB, name string, program controlplane.Program) *controlplane.Component {
	t.Helper()
	if program.Binary == "" {
		program.Binary = filepath.Join(binDir(), filepath.Base(name))
	}
	if program.Check == nil {
		program.Check = func(context.Context) error { return nil }
	}
	component, err := c.NewProgram(strings.ReplaceAll(name, "/", "-"), program)
	require.NoError(t, err)
	require.NoError(t, component.Start(t.Context()))
	return component
}

// binDir returns the directory of the repository's programs.
func binDir() string { return os.Getenv(controlplane.BinDirVariable) }

func (c *Cluster) kubeconfigFor(t testing.TB, user string, groups ...string) string {
	t.Helper()
	path, err := c.KubeconfigFor(user, groups...)
	require.NoError(t, err)
	return path
}

func (c *Cluster) apply(t testing.TB, manifest string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifest.yaml")
	write(t, path, manifest)
	require.NoError(t, c.Apply(t.Context(), path))
}

func write(t testing.TB, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// answers returns a check that a URL answers requests from a host with 200.
func answers(host controlplane.Host, url string) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{DialContext: host.DialContext, DisableKeepAlives: true}, Timeout: 10 * time.Second}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("GET %s answers %s: %s", url, response.Status, body)
		}
		return err
	}
}
