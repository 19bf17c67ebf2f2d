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

package operations

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// Any other listener would be a way around authentication, to the data above all.
func TestNothingElseListens(t *testing.T) {
	t.Parallel()
	server := framework.NewServer(t, cp, framework.Flags())
	require.NoError(t, server.Start(t.Context()))
	pid := server.PID()
	own := sockets(t, pid)
	require.Equal(t, sets.New(server.Port()), ports(t, pid, own, "tcp", "0A").Union(ports(t, pid, own, "tcp6", "0A")), "Ports that are listened on.")
	for _, protocol := range []string{"udp", "udp6"} {
		require.Empty(t, ports(t, pid, own, protocol, "07"), protocol)
	}
}

// sockets returns the inodes of the sockets that a process has open.
func sockets(t *testing.T, pid int) sets.Set[string] {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	require.NoError(t, err)
	sockets := sets.New[string]()
	for _, file := range files {
		target, err := os.Readlink(file)
		if err != nil {
			continue // Closed since.
		}
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			sockets.Insert(strings.TrimSuffix(inode, "]"))
		}
	}
	require.NotEmpty(t, sockets)
	return sockets
}

// ports returns the local ports of those sockets that are in a state, see proc(5).
func ports(t *testing.T, pid int, sockets sets.Set[string], protocol, state string) sets.Set[int] {
	t.Helper()
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, protocol))
	if os.IsNotExist(err) {
		return nil // A kernel without IPv6.
	}
	require.NoError(t, err)
	ports := sets.New[int]()
	for line := range strings.Lines(string(table)) {
		const localAddress, connectionState, inode = 1, 3, 9
		fields := strings.Fields(line)
		if len(fields) <= inode || fields[connectionState] != state || !sockets.Has(fields[inode]) {
			continue
		}
		_, port, _ := strings.Cut(fields[localAddress], ":")
		number, err := strconv.ParseInt(port, 16, 32)
		require.NoError(t, err)
		ports.Insert(int(number))
	}
	return ports
}
