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
	"net/http"
	"net/url"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/klog/v2"
)

const (
	// redialInterval is how soon an etcd that answers again is noticed.
	redialInterval = 250 * time.Millisecond
	// redialTimeout bounds one attempt to connect to a host that does not even refuse.
	redialTimeout = 2 * time.Second
	// redialLimit bounds how long connections are attempted for a client that may be gone.
	redialLimit = time.Hour
)

// etcdEgress is Egress to etcd, but for patience: the library lets nobody set how long gRPC
// waits between its attempts.
func (o CompletedOptions) etcdEgress(network egressselector.NetworkContext) (utilnet.DialFunc, error) {
	dial, err := o.Egress(network)
	if err != nil {
		return nil, err
	}
	if dial == nil {
		if !dialable(o.Etcd.StorageConfig.Transport.ServerList) {
			return nil, nil
		}
		dial = new(net.Dialer).DialContext
	}
	return patient(dial), nil
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

// patient returns a dialer that does not return before there is a connection. After each
// attempt that has failed gRPC waits longer for the next one, up to two minutes; so it is
// left in its first attempt, however long etcd is unavailable.
func patient(dial utilnet.DialFunc) utilnet.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		// The attempt's own time ends after 20 seconds.
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), redialLimit)
		defer cancel()
		for first := true; ; first = false {
			attempt, cancel := context.WithTimeout(limit, redialTimeout)
			connection, err := dial(attempt, network, address)
			cancel()
			switch {
			case err == nil && ctx.Err() == nil:
				return connection, nil
			case err == nil:
				// Too late for this attempt; the next one, in a second, is going to succeed.
				return nil, errors.Join(context.Cause(ctx), connection.Close())
			case errors.Is(ctx.Err(), context.Canceled), limit.Err() != nil:
				return nil, err
			case first:
				klog.InfoS("Etcd is unavailable; connecting as soon as it answers", "address", address, "reason", err.Error())
			}
			time.Sleep(redialInterval)
		}
	}
}
