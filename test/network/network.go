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

// Package network makes hosts for tests. A host is a network namespace of Linux: a machine with its
// own network, but with the files and processes of this one. It reaches itself, and the hosts that
// it is connected with.
//
//	client, server := network.ForTest(t, "10.0.0.1"), network.ForTest(t, "10.0.0.2")
//	network.Connect(client, server)
//	listener, err := server.Listen("tcp", "10.0.0.2:80")
//	conn, err := client.DialContext(ctx, "tcp", "10.0.0.2:80")
//	err = client.Command(ctx, "curl", "http://10.0.0.2").Run()
//
// The network is invisible from outside, and gone when the process has ended. The package needs
// root, or at least CAP_SYS_ADMIN and CAP_NET_ADMIN, and the commands ip and nsenter.
package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
)

// Host is a machine in a network, with one of its addresses.
type Host struct {
	*namespace

	address string
}

type namespace struct {
	// file is the namespace, which lives as long as it is open.
	file   *os.File
	cables atomic.Int32
}

// New returns a host with an IPv4 address.
func New(address string) (*Host, error) {
	if _, err := exec.LookPath("ip"); err != nil {
		return nil, fmt.Errorf("cannot make a network (Debian: iproute2): %w", err)
	}
	file, err := newNamespace()
	if err != nil {
		return nil, fmt.Errorf("cannot make a network namespace, which needs root: %w", err)
	}
	host := &Host{namespace: &namespace{file: file}, address: address}
	err = errors.Join(host.ip("link set lo up"), host.addAddress(address))
	if err != nil {
		return nil, errors.Join(err, host.Close())
	}
	return host, nil
}

// ForTest returns a host for one test. It skips the test if the user can't make hosts.
func ForTest(t testing.TB, address string) *Host {
	t.Helper()
	host, err := New(address)
	if errors.Is(err, os.ErrPermission) || errors.Is(err, exec.ErrNotFound) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	return host
}

// Close releases the host. It is gone when the last process in it has ended.
func (n *namespace) Close() error { return n.file.Close() }

// newNamespace makes a network namespace that nothing runs in yet.
func newNamespace() (file *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Never unlocked, so that the thread ends with this goroutine.
		runtime.LockOSThread()
		file, err = unshare()
	}()
	<-done
	return file, err
}

// ip runs the command of that name on the host.
func (n *namespace) ip(format string, args ...any) error {
	command := n.Command(context.Background(), "ip", strings.Fields(fmt.Sprintf(format, args...))...)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, output)
	}
	return nil
}

// path names the namespace for other processes.
func (n *namespace) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

// At gives the host one more address, and returns the host with it.
func (h *Host) At(address string) (*Host, error) {
	if err := h.addAddress(address); err != nil {
		return nil, err
	}
	return &Host{namespace: h.namespace, address: address}, nil
}

// addAddress gives the loopback device the address. Linux answers for the address on every other
// device, too.
func (n *namespace) addAddress(address string) error {
	return n.ip("address add %s/32 dev lo", address)
}

// Connect lays a cable between two hosts. They reach each other by the addresses of one and other.
// Neither forwards packets for a third host.
func Connect(one, other *Host) error {
	near, far := fmt.Sprint("cable", one.cables.Add(1)), fmt.Sprint("cable", other.cables.Add(1))
	if err := one.ip("link add %s type veth peer name %s netns %s", near, far, other.path()); err != nil {
		return fmt.Errorf("cannot connect %s with %s: %w", one.address, other.address, err)
	}
	return errors.Join(one.plug(near, other), other.plug(far, one))
}

// plug makes the cable the way to the other host. There is no router between them.
func (h *Host) plug(cable string, other *Host) error {
	if err := h.ip("link set %s up", cable); err != nil {
		return err
	}
	return h.ip("route add %s/32 dev %s scope link src %s", other.address, cable, h.address)
}

// Route sends packets for a subnet, such as "10.1.0.0/24", through a connected host. That host has
// to forward them, see Forward.
func (h *Host) Route(subnet string, through *Host) error {
	return h.ip("route add %s via %s src %s", subnet, through.address, h.address)
}

// Forward makes the host forward packets for other hosts.
func (n *namespace) Forward() (err error) {
	failed := n.do(func() { err = os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600) })
	return errors.Join(failed, err)
}

// Address returns the host's IP address.
func (h *Host) Address() string { return h.address }

// Command returns a command that runs on the host.
func (n *namespace) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + n.path(), "--", name}, args...)...)
}

// Listen listens on the host, as net.Listen does.
func (n *namespace) Listen(network, address string) (listener net.Listener, err error) {
	failed := n.do(func() { listener, err = net.Listen(network, address) })
	return listener, errors.Join(failed, err)
}

// DialContext connects from the host to an IP address, as net.Dialer.DialContext does.
func (n *namespace) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	// For two addresses of a name, the dialer would use threads in other namespaces.
	dialer := net.Dialer{FallbackDelay: -1}
	failed := n.do(func() { conn, err = dialer.DialContext(ctx, network, address) })
	return conn, errors.Join(failed, err)
}

// do runs a function. Its sockets belong to the host.
func (n *namespace) do(f func()) error {
	done := make(chan error)
	go func() {
		// Never unlocked, so that the thread ends with this goroutine.
		runtime.LockOSThread()
		err := enter(n.file)
		if err == nil {
			f()
		}
		done <- err
	}()
	return <-done
}
