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

// Package bastion makes a network in which clients reach a control plane through SSH
// only, with Debian's ssh and sshd:
//
//	client ─── bastion ─── cluster
//
// The bastion passes on no packets, so that only "ssh -D" gets through. It needs
// root, as package network does.
package bastion

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/network"
)

const (
	// ProxyURL is where the client finds the tunnel once that is open.
	ProxyURL = "socks5://" + proxyAddress

	proxyAddress = "127.0.0.1:1080"

	// Name is one of kube-apiserver's that the bastion knows, and the client does not.
	Name = "kubernetes.default.svc"
)

// Network is the three hosts, and what runs on them besides the control plane.
type Network struct {
	Client, Bastion, Cluster *network.Host

	// SSHD runs on the bastion, and Tunnel, which is "ssh -D", on the client. They
	// are parts of the control plane once they have been started.
	SSHD, Tunnel *controlplane.Component

	// sshConfig is ssh's configuration file for the bastion.
	sshConfig string
}

// New makes the hosts.
func New() (*Network, error) {
	n := &Network{}
	var err error
	for _, host := range []struct {
		host    **network.Host
		address string
	}{{&n.Client, "10.0.0.1"}, {&n.Bastion, "10.0.0.2"}, {&n.Cluster, "10.0.0.3"}} {
		if *host.host, err = network.New(host.address); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	if err := errors.Join(network.Connect(n.Client, n.Bastion), network.Connect(n.Bastion, n.Cluster)); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	for command, debianPackage := range map[string]string{"sshd": "openssh-server", "ssh": "openssh-client", "ssh-keygen": "openssh-client", "unshare": "util-linux"} {
		if _, err := exec.LookPath(command); err != nil {
			return nil, errors.Join(fmt.Errorf("%w: install Debian's package %s", err, debianPackage), n.Close())
		}
	}
	return n, nil
}

// ForTest makes the hosts for one test. It is skipped where that can't be done.
func ForTest(t testing.TB) *Network {
	t.Helper()
	n, err := New()
	if Unable(err) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// Unable reports whether New failed since the user may not make hosts, or has not
// installed what runs on them.
func Unable(err error) bool {
	return errors.Is(err, os.ErrPermission) || errors.Is(err, exec.ErrNotFound)
}

// Close forgets the hosts.
func (n *Network) Close() error {
	var errs []error
	for _, host := range []*network.Host{n.Client, n.Bastion, n.Cluster} {
		if host != nil {
			errs = append(errs, host.Close())
		}
	}
	return errors.Join(errs...)
}

// Configure puts a control plane that is going to be started into the network.
func (n *Network) Configure(config *controlplane.Config) {
	config.Host = n.Cluster
	config.Client = controlplane.ClientConfig{Host: n.Client, ProxyURL: ProxyURL}
}

// Open starts SSHD and Tunnel. It is a controlplane.Preparation.
func (n *Network) Open(ctx context.Context, cp *controlplane.ControlPlane) error {
	if err := n.Listen(ctx, cp); err != nil {
		return err
	}
	// Commands are looked up in New.
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		return err
	}
	n.Tunnel, err = cp.NewProgram("ssh", controlplane.Program{
		Binary: ssh, Args: n.SSHArgs(), Host: n.Client, Check: answers(n.Client, proxyAddress),
	})
	if err != nil {
		return err
	}
	return n.Tunnel.Start(ctx)
}

// SSHArgs are the arguments for ssh to open the tunnel, from anywhere on the client.
func (n *Network) SSHArgs() []string {
	_, port, _ := net.SplitHostPort(proxyAddress)
	return []string{"-F", n.sshConfig, "-N", "-D", port, "bastion"}
}

// Listen starts SSHD.
func (n *Network) Listen(ctx context.Context, cp *controlplane.ControlPlane) error {
	dir := filepath.Join(filepath.Dir(cp.Kubeconfig()), "bastion")
	if err := n.writeFiles(ctx, dir); err != nil {
		return err
	}
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		return err
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return err
	}
	// sshd insists on a directory in /run, and its connections outlive it. So it gets
	// a /run and process ids of its own, and the bastion names that nobody else knows.
	const script = `mount -t tmpfs tmpfs /run && mkdir /run/sshd && mount --bind "$1" /etc/hosts && exec "$0" -D -e -f "$2"`
	n.SSHD, err = cp.NewProgram("sshd", controlplane.Program{
		Binary: unshare,
		Args: []string{"--mount", "--pid", "--fork", "--kill-child", "--",
			"sh", "-c", script, sshd, filepath.Join(dir, "hosts"), filepath.Join(dir, "sshd_config")},
		Host: n.Bastion, Check: answers(n.Client, n.sshAddress()),
	})
	if err != nil {
		return err
	}
	return n.SSHD.Start(ctx)
}

func (n *Network) sshAddress() string { return net.JoinHostPort(n.Bastion.Address(), "22") }

// writeFiles makes the keys and the configurations of ssh and sshd.
func (n *Network) writeFiles(ctx context.Context, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	hostKey, userKey := filepath.Join(dir, "host-key"), filepath.Join(dir, "user-key")
	for _, key := range []string{hostKey, userKey} {
		if output, err := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key).CombinedOutput(); err != nil {
			return fmt.Errorf("ssh-keygen: %w: %s", err, output)
		}
	}
	hostPublic, err := os.ReadFile(hostKey + ".pub")
	if err != nil {
		return err
	}
	userPublic, err := os.ReadFile(userKey + ".pub")
	if err != nil {
		return err
	}
	n.sshConfig = filepath.Join(dir, "ssh_config")
	knownHosts, authorizedKeys := filepath.Join(dir, "known_hosts"), filepath.Join(dir, "authorized_keys")
	for path, lines := range map[string][]string{
		knownHosts:                  {"bastion " + strings.TrimSpace(string(hostPublic))},
		filepath.Join(dir, "hosts"): {"127.0.0.1 localhost", n.Cluster.Address() + " " + Name},
		authorizedKeys: {fmt.Sprintf(`restrict,port-forwarding,permitopen="%s:*",permitopen="%s:*" %s`,
			n.Cluster.Address(), Name, strings.TrimSpace(string(userPublic)))},
		n.sshConfig: {
			"Host bastion",
			"HostName " + n.Bastion.Address(),
			"HostKeyAlias bastion",
			"User root",
			"IdentityFile " + quoted(userKey),
			"IdentitiesOnly yes",
			"UserKnownHostsFile " + quoted(knownHosts),
			"StrictHostKeyChecking yes",
			"BatchMode yes",
			"ExitOnForwardFailure yes",
			"ServerAliveInterval 15",
		},
		filepath.Join(dir, "sshd_config"): {
			"ListenAddress " + n.sshAddress(),
			"HostKey " + quoted(hostKey),
			"PidFile none",
			"AuthorizedKeysFile " + quoted(authorizedKeys),
			// The directory may be below /tmp, where everybody may write.
			"StrictModes no",
			"AuthenticationMethods publickey",
			"PermitRootLogin prohibit-password",
		},
	} {
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// quoted is a path in a configuration of ssh, which may hold spaces.
func quoted(path string) string { return `"` + path + `"` }

// answers returns a check that somebody listens at an address, as seen from a host.
func answers(host *network.Host, address string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := host.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}
