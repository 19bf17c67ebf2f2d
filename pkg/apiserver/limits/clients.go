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

// Package limits bounds what a request may cost, and what all requests may take together: memory, the time of slow
// clients, and watches.
package limits

import (
	"net/netip"

	"k8s.io/client-go/util/flowcontrol"
)

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

// Clients may have logsPerSecond lines logged, and logBurst at once. A flood would displace all others from the log.
const logsPerSecond, logBurst = 10, 100

// NewLogPace returns a limiter of lines that any client can have logged.
func NewLogPace() flowcontrol.RateLimiter {
	return flowcontrol.NewTokenBucketRateLimiter(logsPerSecond, logBurst)
}
