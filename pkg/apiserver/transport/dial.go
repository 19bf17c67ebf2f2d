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

package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/klog/v2"
)

const (
	// RedialInterval is how soon an etcd that answers again is noticed.
	RedialInterval = 250 * time.Millisecond
	// RedialPatience is how long an attempt to connect is the only one. It may hang because its
	// host was down when it began.
	RedialPatience = 2 * time.Second
	// redialTimeout bounds one attempt.
	redialTimeout = 20 * time.Second
	// redialLimit bounds how long connections are attempted for a client that may be gone.
	redialLimit = time.Hour
)

// EtcdDialer returns a dialer for these servers that tries again, or nil if only gRPC's own reaches
// them. Dial is nil for servers that are reached directly. The library has no option for how long
// gRPC waits between its attempts.
func EtcdDialer(dial utilnet.DialFunc, servers []string) utilnet.DialFunc {
	if dial == nil {
		if !dialable(servers) {
			return nil
		}
		dial = new(net.Dialer).DialContext
	}
	if !slices.ContainsFunc(servers, func(server string) bool {
		return !strings.HasPrefix(server, "https://")
	}) {
		dial = probeTLS(dial)
	}
	return retryDial(dial)
}

// dialable tells whether servers are reached by TCP, and directly: only gRPC's own dialer
// knows unix sockets and the proxies of the environment.
func dialable(servers []string) bool {
	for _, server := range servers {
		address, err := url.Parse(server)
		if err != nil || (address.Scheme != "http" && address.Scheme != "https") {
			return false
		}
		address.Scheme = "https" // As gRPC looks it up.
		if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: address}); proxy != nil || err != nil {
			return false
		}
	}
	return true
}

// probeTLS returns a dialer that completes a TLS handshake before it connects. A load balancer, or
// a node that forwards the port, accepts connections even while etcd is unavailable.
func probeTLS(dial utilnet.DialFunc) utilnet.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		// gRPC verifies the connection that it gets.
		probe := tls.Client(connection, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) //nolint:gosec // G402: see above.
		err = probe.HandshakeContext(ctx)
		_ = connection.Close()
		if err != nil {
			return nil, err
		}
		return dial(ctx, network, address)
	}
}

// retryDial returns a dialer that does not return before there is a connection. After each failed
// attempt, gRPC would wait longer for the next one, up to two minutes. So gRPC is left in its first
// attempt, however long etcd is unavailable.
func retryDial(dial utilnet.DialFunc) utilnet.DialFunc {
	type result struct {
		connection net.Conn
		err        error
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		// The caller's attempt ends after 20 seconds, which is no reason to stop.
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), redialLimit)
		defer cancel()
		defer context.AfterFunc(ctx, func() {
			if errors.Is(ctx.Err(), context.Canceled) {
				cancel()
			}
		})()

		results := make(chan result)
		attempt := func() {
			attempted, cancel := context.WithTimeout(limit, redialTimeout)
			defer cancel()
			connection, err := dial(attempted, network, address)
			select {
			case results <- result{connection, err}:
			case <-limit.Done():
				if err == nil {
					_ = connection.Close()
				}
			}
		}
		told, running := false, 0
		for next := time.NewTimer(0); ; {
			select {
			case <-limit.Done():
				return nil, limit.Err()
			case <-next.C:
				running++
				go attempt()
				next.Reset(RedialPatience)
			case got := <-results:
				switch {
				case got.err == nil && ctx.Err() == nil:
					return got.connection, nil
				case got.err == nil:
					// Too late for this attempt; the next one, in a second, is going to succeed.
					return nil, errors.Join(context.Cause(ctx), got.connection.Close())
				case !told:
					told = true
					klog.InfoS("Etcd is unavailable; connecting as soon as it answers", "address", address, "reason", got.err.Error())
				}
				if running--; running == 0 {
					next.Reset(RedialInterval)
				}
			}
		}
	}
}
