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

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClientAddress(t *testing.T) {
	for remote, want := range map[string]string{
		"10.0.0.1:1":            "10.0.0.1",
		"[::ffff:10.0.0.1]:1":   "10.0.0.1",
		"[2001:db8::1]:1":       "2001:db8::/64",
		"[2001:db8::ffff:2]:80": "2001:db8::/64",
		"[2001:db8:0:1::1]:1":   "2001:db8:0:1::/64",
		"[fe80::1%eth0]:1":      "fe80::/64",
		"pipe":                  "pipe",
	} {
		require.Equal(t, want, ClientAddress(remote), remote)
	}
}
