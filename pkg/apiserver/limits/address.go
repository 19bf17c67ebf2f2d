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

package limits

import "net/netip"

// prefixIPv6 is the length of the prefix of an IPv6 address that a single client is given.
const prefixIPv6 = 64

// ClientAddress returns the part of a remote address that one client has alone: an IPv4 address, or
// a prefix of an IPv6 address.
func ClientAddress(remote string) string {
	port, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	address := port.Addr().Unmap()
	if address.Is4() {
		return address.String()
	}
	prefix, _ := address.WithZone("").Prefix(prefixIPv6) // No IPv6 address is shorter.
	return prefix.String()
}
