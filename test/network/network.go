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
// root, or at least CAP_SYS_ADMIN and CAP_NET_ADMIN.
package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Host is a machine in a network, with one of its addresses.
type Host struct {
	*namespace

	address string
}

type namespace struct {
	handle netns.NsHandle
	links  *netlink.Handle
}

// New returns a host with an IPv4 address.
func New(address string) (*Host, error) {
	handle, err := newNamespace()
	if err != nil {
		return nil, fmt.Errorf("cannot make a network namespace, which needs root: %w", err)
	}
	links, err := netlink.NewHandleAt(handle)
	if err != nil {
		return nil, errors.Join(err, handle.Close())
	}
	host := &Host{namespace: &namespace{handle: handle, links: links}, address: address}
	if err := host.prepare(); err != nil {
		return nil, errors.Join(err, host.Close())
	}
	return host, nil
}

// ForTest returns a host for one test. It skips the test if the user may not make hosts.
func ForTest(t testing.TB, address string) *Host {
	t.Helper()
	host, err := New(address)
	if errors.Is(err, os.ErrPermission) {
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
func (n *namespace) Close() error {
	n.links.Close()
	return n.handle.Close()
}

// newNamespace makes a network namespace that nothing runs in yet.
func newNamespace() (handle netns.NsHandle, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Never unlocked, so that the thread ends with this goroutine.
		runtime.LockOSThread()
		handle, err = netns.New()
	}()
	<-done
	return handle, err
}

func (h *Host) prepare() error {
	loopback, err := h.links.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := h.links.LinkSetUp(loopback); err != nil {
		return err
	}
	return h.addAddress(h.address)
}

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
	loopback, err := n.links.LinkByName("lo")
	if err != nil {
		return err
	}
	parsed, err := single(address)
	if err != nil {
		return err
	}
	return n.links.AddrAdd(loopback, &netlink.Addr{IPNet: parsed})
}

// single returns the network that has that one address.
func single(address string) (*net.IPNet, error) {
	return netlink.ParseIPNet(address + "/32")
}

// Connect lays a cable between two hosts. They reach each other by the addresses of one and other.
// Neither forwards packets for a third host.
func Connect(one, other *Host) error {
	index, err := one.cables()
	if err != nil {
		return err
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = fmt.Sprintf("cable%d", index)
	farIndex, err := other.cables()
	if err != nil {
		return err
	}
	far := fmt.Sprintf("cable%d", farIndex)
	if err := one.links.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: far, PeerNamespace: netlink.NsFd(other.handle)}); err != nil {
		return fmt.Errorf("cannot connect %s with %s: %w", one.address, other.address, err)
	}
	return errors.Join(one.plug(attributes.Name, other), other.plug(far, one))
}

// cables returns how many devices the host has.
func (n *namespace) cables() (int, error) {
	links, err := n.links.LinkList()
	return len(links), err
}

// plug makes the cable the way to the other host.
func (h *Host) plug(cable string, other *Host) error {
	link, err := h.links.LinkByName(cable)
	if err != nil {
		return err
	}
	if err := h.links.LinkSetUp(link); err != nil {
		return err
	}
	destination, err := single(other.address)
	if err != nil {
		return err
	}
	// There is no router between the hosts. The library has the constant on Linux only.
	const direct netlink.Scope = 253
	return h.links.RouteAdd(&netlink.Route{
		LinkIndex: link.Attrs().Index, Scope: direct, Dst: destination, Src: net.ParseIP(h.address),
	})
}

// Route sends packets for a subnet, such as "10.1.0.0/24", through a connected host. That host has
// to forward them, see Forward.
func (h *Host) Route(subnet string, through *Host) error {
	destination, err := netlink.ParseIPNet(subnet)
	if err != nil {
		return err
	}
	return h.links.RouteAdd(&netlink.Route{Dst: destination, Gw: net.ParseIP(through.address), Src: net.ParseIP(h.address)})
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
	enter := fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), n.handle)
	return exec.CommandContext(ctx, "nsenter", append([]string{enter, "--", name}, args...)...)
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
		err := netns.Set(n.handle)
		if err == nil {
			f()
		}
		done <- err
	}()
	return <-done
}
