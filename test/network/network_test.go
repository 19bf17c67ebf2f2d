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

package network

import (
	"bufio"
	"context"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHosts shows that only connected hosts reach each other.
func TestHosts(t *testing.T) {
	client, middle, server := ForTest(t, "10.0.0.1"), ForTest(t, "10.0.0.2"), ForTest(t, "10.0.0.3")
	require.NoError(t, Connect(client, middle))
	require.NoError(t, Connect(middle, server))
	alias, err := server.At("10.0.0.4")
	require.NoError(t, err)

	for _, address := range []string{server.Address(), alias.Address(), "127.0.0.1"} {
		listener, err := server.Listen("tcp", net.JoinHostPort(address, "80"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte(conn.RemoteAddr().String() + "\n"))
				_ = conn.Close()
			}
		}()
	}

	tests := map[string]struct {
		from    *Host
		to      string
		want    string
		wantErr error
	}{
		"over the cable":        {from: middle, to: "10.0.0.3", want: "10.0.0.2"},
		"to itself":             {from: server, to: "10.0.0.3", want: "10.0.0.3"},
		"to another of its own": {from: alias, to: "10.0.0.4", want: "10.0.0.4"},
		"to its loopback":       {from: server, to: "127.0.0.1", want: "127.0.0.1"},
		"two cables away":       {from: client, to: "10.0.0.3", wantErr: syscall.ENETUNREACH},
		"to the wrong loopback": {from: middle, to: "127.0.0.1", wantErr: syscall.ECONNREFUSED},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			conn, err := test.from.DialContext(t.Context(), "tcp", net.JoinHostPort(test.to, "80"))
			if test.wantErr != nil {
				require.ErrorIs(t, err, test.wantErr)
				return
			}
			require.NoError(t, err)
			defer conn.Close()
			line, err := bufio.NewReader(conn).ReadString('\n')
			require.NoError(t, err)
			from, _, err := net.SplitHostPort(strings.TrimSpace(line))
			require.NoError(t, err)
			require.Equal(t, test.want, from)
		})
	}
}

// TestRoute shows that a host reaches a third one through a second that forwards.
func TestRoute(t *testing.T) {
	client, router, server := ForTest(t, "10.0.0.1"), ForTest(t, "10.0.0.2"), ForTest(t, "10.1.0.3")
	require.NoError(t, Connect(client, router))
	require.NoError(t, Connect(router, server))
	require.NoError(t, client.Route("10.1.0.0/24", router))
	require.NoError(t, server.Route("10.0.0.1/32", router))
	require.NoError(t, router.Forward())
	listener, err := server.Listen("tcp", "10.1.0.3:80")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := client.DialContext(ctx, "tcp", "10.1.0.3:80")
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

func TestCommand(t *testing.T) {
	host := ForTest(t, "10.0.0.1")
	output, err := host.Command(t.Context(), "cat", "/proc/net/fib_trie").CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Contains(t, string(output), "10.0.0.1")
	output, err = exec.CommandContext(t.Context(), "cat", "/proc/net/fib_trie").Output()
	require.NoError(t, err)
	require.NotContains(t, string(output), "10.0.0.1")
}
