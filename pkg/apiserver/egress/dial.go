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

// Package egress makes the connections of a server to etcd, and to networks behind proxies.
package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/klog/v2"
)

const (
	// RedialInterval is how soon an etcd that answers again is noticed.
	RedialInterval = 250 * time.Millisecond
	// RedialPatience bounds one attempt to connect, which may hang because its host was down when it
	// began.
	RedialPatience = 5 * time.Second
	// redialLimit bounds how long connections are attempted for a client that may be gone.
	redialLimit = time.Hour
)

// EtcdDialer returns a dialer for these servers that tries again, or nil if only gRPC's own reaches
// them. Dial is nil for servers that are reached directly. k8s.io/apiserver has no option for how long
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

// dialable reports whether servers are reached by TCP, and directly: only gRPC's own dialer
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
	return func(ctx context.Context, network, address string) (connection net.Conn, err error) {
		// The caller's attempt ends after 20 seconds, which is no reason to stop.
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), redialLimit)
		defer cancel()
		defer context.AfterFunc(ctx, func() {
			if errors.Is(ctx.Err(), context.Canceled) {
				cancel()
			}
		})()
		logged := false
		poll := func(limit context.Context) (bool, error) {
			attempt, cancel := context.WithTimeout(limit, RedialPatience)
			defer cancel()
			if connection, err = dial(attempt, network, address); err != nil && !logged {
				logged = true
				klog.InfoS("Etcd is unavailable; connecting as soon as it answers", "address", address, "reason", err.Error())
			}
			return err == nil, nil
		}
		if err := wait.PollUntilContextCancel(limit, RedialInterval, true, poll); err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			// Too late for this attempt; the next one, in a second, is going to succeed.
			return nil, errors.Join(context.Cause(ctx), connection.Close())
		}
		return connection, nil
	}
}

// NewSelector returns the dialers of the file, or nil if there are none and
// everything is reached directly.
func NewSelector(file string) (*egressselector.EgressSelector, error) {
	config, err := egressselector.ReadEgressSelectorConfiguration(file)
	if err != nil || config == nil || len(config.EgressSelections) == 0 {
		return nil, err
	}
	if errs := egressselector.ValidateEgressSelectorConfiguration(config); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	for _, selection := range config.EgressSelections {
		// k8s.io/apiserver takes it for valid, and panics.
		// Upstream fault 46.
		if transport := selection.Connection.Transport; transport != nil && transport.TCP != nil && transport.TCP.TLSConfig == nil {
			return nil, fmt.Errorf("egress selection %q: a proxy that is reached by TCP needs a tlsConfig and a url that begins with https://", selection.Name)
		}
	}
	selector, err := egressselector.NewEgressSelector(config)
	if err != nil {
		return nil, err
	}
	dialers := map[egressselector.EgressType]utilnet.DialFunc{}
	for _, to := range []egressselector.EgressType{egressselector.ControlPlane, egressselector.Etcd, egressselector.Cluster} {
		dial, err := selector.Lookup(to.AsNetworkContext())
		if err != nil {
			return nil, err
		}
		if dial != nil {
			dialers[to] = func(ctx context.Context, network, address string) (net.Conn, error) {
				connection, err := dial(ctx, network, address)
				if err != nil {
					return nil, fmt.Errorf("by the egress selection %q of --egress-selector-config-file: %w", to, err)
				}
				return connection, nil
			}
		}
	}
	return egressselector.NewEgressSelectorWithMap(dialers), nil
}
