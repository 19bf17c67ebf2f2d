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

package egress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// TestRetryDial has a server away for many attempts to connect: gRPC must have taken
// them for one or two, since it waits longer after each.
func TestRetryDial(t *testing.T) {
	for name, test := range map[string]struct {
		connectTimeout time.Duration
		attempts       int32
	}{
		"within the time of an attempt": {time.Hour, 1},
		"after it":                      {time.Millisecond, 2},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "localhost:0")
			require.NoError(t, err)
			server := grpc.NewServer()
			go func() { _ = server.Serve(listener) }()
			t.Cleanup(server.Stop)

			var dials, attempts atomic.Int32
			dial := retryDial(func(ctx context.Context, network, address string) (net.Conn, error) {
				if dials.Add(1) < 8 {
					return nil, errors.New("refused")
				}
				return new(net.Dialer).DialContext(ctx, network, address)
			})
			client, err := grpc.NewClient("passthrough:///"+listener.Addr().String(),
				grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithConnectParams(grpc.ConnectParams{
					Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1000, MaxDelay: time.Hour},
					MinConnectTimeout: test.connectTimeout,
				}),
				grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
					attempts.Add(1)
					return dial(ctx, "tcp", address)
				}))
			require.NoError(t, err)
			t.Cleanup(func() { _ = client.Close() })
			client.Connect()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for state := client.GetState(); state != connectivity.Ready && attempts.Load() <= test.attempts; state = client.GetState() {
				require.True(t, client.WaitForStateChange(ctx, state), "there is no connection")
				client.Connect()
			}
			require.Equal(t, test.attempts, attempts.Load())
		})
	}
}

// TestConnectionsWithoutEtcd has something else accept connections: it closes them, or says
// nothing. A dialer that took one of them would leave gRPC to wait.
func TestConnectionsWithoutEtcd(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"that are closed": func(conn net.Conn) { _ = conn.Close() },
		"in silence":      func(net.Conn) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			etcd := httptest.NewUnstartedServer(http.NotFoundHandler())
			etcd.EnableHTTP2 = true
			etcd.StartTLS()
			t.Cleanup(etcd.Close)
			something, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "localhost:0")
			require.NoError(t, err)
			t.Cleanup(func() { _ = something.Close() })
			go func() {
				for {
					conn, err := something.Accept()
					if err != nil {
						return
					}
					serve(conn)
				}
			}()

			var dials atomic.Int32
			dial := retryDial(probeTLS(func(ctx context.Context, network, _ string) (net.Conn, error) {
				address := etcd.Listener.Addr()
				if dials.Add(1) < 3 {
					address = something.Addr()
				}
				return new(net.Dialer).DialContext(ctx, network, address.String())
			}))
			conn, err := dial(t.Context(), "tcp", "")
			require.NoError(t, err)
			defer conn.Close()
			require.Equal(t, etcd.Listener.Addr().String(), conn.RemoteAddr().String())
			require.Equal(t, int32(4), dials.Load(), "twice in vain, for the handshake, and for gRPC")
		})
	}
}

// TestRetryDialEnds when its context is cancelled.
func TestRetryDialEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dial := retryDial(func(ctx context.Context, _, _ string) (net.Conn, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	})
	_, err := dial(ctx, "tcp", "")
	require.ErrorIs(t, err, context.Canceled)
}

func TestDialable(t *testing.T) {
	for name, test := range map[string]struct {
		servers []string
		want    bool
	}{
		"with and without TLS": {[]string{"https://127.0.0.1:2379", "http://127.0.0.1:2379"}, true},
		"a unix socket":        {[]string{"http://127.0.0.1:2379", "unix:///run/etcd.sock"}, false},
		"no URL":               {[]string{"127.0.0.1:2379"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, dialable(test.servers))
		})
	}
}
