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

package nodes

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/network"
)

const (
	controlAddress = "10.200.0.1"
	// dnsAddress is the cluster IP of the Service of CoreDNS.
	dnsAddress = "10.96.0.10"
)

func nodeAddress(i int) string { return fmt.Sprintf("10.200.0.%d", 10+i) }

func podSubnet(i int) string { return fmt.Sprintf("10.201.%d.0/24", i) }

// connect returns the hosts of the control plane and of the nodes. Each reaches all others, and
// their pods.
func connect(t testing.TB, nodes int) (control *network.Host, hosts []*network.Host) {
	t.Helper()
	control = network.ForTest(t, controlAddress)
	all := []*network.Host{control}
	for i := range nodes {
		host := network.ForTest(t, nodeAddress(i))
		require.NoError(t, host.Forward())
		for _, other := range all {
			require.NoError(t, network.Connect(host, other))
			require.NoError(t, other.Route(podSubnet(i), host))
		}
		for j, other := range hosts {
			require.NoError(t, host.Route(podSubnet(j), other))
		}
		hosts, all = append(hosts, host), append(all, host)
	}
	return control, hosts
}
