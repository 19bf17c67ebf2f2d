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
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTakenPort(t *testing.T) {
	listener, err := net.Listen("tcp", address(thisMachine{}, 0))
	require.NoError(t, err)
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port

	err = checkPort("etcd", thisMachine{}, port)
	var taken *PortTakenError
	require.ErrorAs(t, err, &taken)
	require.Equal(t, "etcd", taken.Component)
	require.Equal(t, port, taken.Port)
	require.ErrorContains(t, err, "which etcd is to listen on, is taken by another program")
}

func TestFreePortsAreReserved(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		port, reservation, err := freePort("etcd", thisMachine{})
		require.NoError(t, err)
		defer reservation.Close()
		require.False(t, seen[port], "port %d was given away twice", port)
		seen[port] = true

		// Another control plane, also in another process, cannot get it.
		_, err = net.ListenPacket("udp", address(thisMachine{}, port))
		require.Error(t, err)
		// The component it is for can.
		require.NoError(t, checkPort("etcd", thisMachine{}, port))
	}
}

// A free port must not seem taken because a program is being started.
func TestPortsAreFreeWhileProgramsStart(t *testing.T) {
	port, reservation, err := freePort("etcd", thisMachine{})
	require.NoError(t, err)
	defer reservation.Close()
	ctx, cancel := context.WithCancel(t.Context())
	// The first start of a process checks the kernel's features, with a fork that takes no
	// lock.
	require.NoError(t, exec.CommandContext(ctx, "true").Run())
	var starting sync.WaitGroup
	defer starting.Wait()
	defer cancel()
	for range 4 {
		starting.Go(func() {
			for ctx.Err() == nil {
				_ = exec.CommandContext(ctx, "true").Run()
			}
		})
	}
	for range 2000 {
		require.NoError(t, checkPort("etcd", thisMachine{}, port))
	}
}
