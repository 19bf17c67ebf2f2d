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
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
)

// Free ports are taken from this range. It lies below the system's ports for outgoing connections, which
// could otherwise take a component's port during a restart.
const (
	firstFreePort = 20000
	lastFreePort  = 29999
)

// PortTakenError is the error about a component's port that another program uses.
type PortTakenError struct {
	Component string
	Port      int
	Err       error
}

func (e *PortTakenError) Error() string {
	return fmt.Sprintf("port %d, which %s is to listen on, is taken by another program: end that program or choose another port (%v)",
		e.Port, e.Component, e.Err)
}

func (e *PortTakenError) Unwrap() error { return e.Err }

// checkPort returns an error if a component could not listen on the port now.
func checkPort(component string, host Host, port int) error {
	// Otherwise, a process that another goroutine forks meanwhile would hold the listener until it executes
	// its program.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	listener, err := host.Listen("tcp", address(host, port))
	if err != nil {
		return &PortTakenError{Component: component, Port: port, Err: err}
	}
	return listener.Close()
}

// freePort chooses a port and keeps it reserved until the reservation is closed. The reservation is a UDP
// socket with the same number on this machine. It does not disturb components, but other control planes
// respect it when they look for ports.
func freePort(component string, host Host) (port int, reservation net.PacketConn, err error) {
	const attempts = 100
	for range attempts {
		port = firstFreePort + rand.IntN(lastFreePort-firstFreePort+1)
		reservation, err = net.ListenPacket("udp", address(thisMachine{}, port))
		if err != nil {
			continue
		}
		err = checkPort(component, host, port)
		if err == nil {
			return port, reservation, nil
		}
		_ = reservation.Close()
	}
	return 0, nil, fmt.Errorf("no free port for %s between %d and %d in %d attempts: name one (%w)",
		component, firstFreePort, lastFreePort, attempts, err)
}
