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

package apiserver

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// TestPatientDialer has a server away for many attempts to connect: gRPC must have taken
// them for one or two, since it waits longer after each.
func TestPatientDialer(t *testing.T) {
	for name, test := range map[string]struct {
		connectTimeout time.Duration
		attempts       int32
	}{
		"within the time of an attempt": {time.Hour, 1},
		"after it":                      {time.Millisecond, 2},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "localhost:0")
			if err != nil {
				t.Fatal(err)
			}
			server := grpc.NewServer()
			go func() { _ = server.Serve(listener) }()
			t.Cleanup(server.Stop)

			var dials, attempts atomic.Int32
			dial := patient(func(ctx context.Context, network, address string) (net.Conn, error) {
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
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			client.Connect()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for state := client.GetState(); state != connectivity.Ready && attempts.Load() <= test.attempts; state = client.GetState() {
				if !client.WaitForStateChange(ctx, state) {
					t.Fatal("there is no connection")
				}
				client.Connect()
			}
			if got := attempts.Load(); got != test.attempts {
				t.Errorf("it took %d attempts, want %d", got, test.attempts)
			}
		})
	}
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
			if got := dialable(test.servers); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
