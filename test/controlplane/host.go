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

package controlplane

import (
	"context"
	"net"
	"os/exec"
	"strconv"
)

// Host is a place for components and clients, such as this machine. Package
// network has further hosts for tests.
type Host interface {
	// Address is the IP address that components listen on.
	Address() string
	// Command returns a command that runs on the host.
	Command(ctx context.Context, name string, args ...string) *exec.Cmd
	// Listen is net.Listen on the host.
	Listen(network, address string) (net.Listener, error)
	// DialContext is net.Dialer.DialContext on the host.
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Local returns the default Host: this machine.
func Local() Host { return thisMachine{} }

// thisMachine is the default Host. Only the machine itself reaches its
// address.
type thisMachine struct{}

func (thisMachine) Address() string { return "127.0.0.1" }

func (thisMachine) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, name, args...)
}

func (thisMachine) Listen(network, address string) (net.Listener, error) {
	return net.Listen(network, address)
}

func (thisMachine) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, address)
}

// hostOr returns the host, or the other one if it is not set.
func hostOr(host, other Host) Host {
	if host == nil {
		return other
	}
	return host
}

func address(host Host, port int) string {
	return net.JoinHostPort(host.Address(), strconv.Itoa(port))
}
