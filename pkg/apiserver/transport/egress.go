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
	"fmt"
	"net"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/egressselector"
)

// NewEgressSelector returns the dialers of the file, or nil if there are none and
// everything is reached directly.
func NewEgressSelector(file string) (*egressselector.EgressSelector, error) {
	config, err := egressselector.ReadEgressSelectorConfiguration(file)
	if err != nil || config == nil || len(config.EgressSelections) == 0 {
		return nil, err
	}
	if errs := egressselector.ValidateEgressSelectorConfiguration(config); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	for _, selection := range config.EgressSelections {
		// The library takes it for valid, and panics.
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
