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

package faults

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// TestOutages takes etcd away from servers for OUTAGE=240s, in several ways. It says
// how soon a write succeeds once etcd answers again.
func TestOutages(t *testing.T) {
	framework.Long(t, "timeouts are waited for")
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("OUTAGE"), "5s"))
	require.NoError(t, err)
	c := newCampaign(t, "storage", 2)
	etcd := c.cp.Component("storage")
	var out strings.Builder
	out.WriteString("| etcd | writes back |\n|---|---|\n")
	var longest time.Duration
	for _, outage := range []struct {
		name string
		away func()
		back func()
	}{
		{"stopped", func() { require.NoError(t, etcd.Stop()) }, func() { require.NoError(t, etcd.Start(t.Context())) }},
		{"its network closes connections", func() { c.setLinks(cut) }, func() { c.setLinks(healthy) }},
		{"its network says nothing", func() { c.setLinks(silent) }, func() { c.setLinks(healthy) }},
		{"away before servers start", func() {
			c.setLinks(cut)
			for _, server := range c.servers {
				require.NoError(t, server.Stop())
				require.NoError(t, server.Launch())
			}
		}, func() { c.setLinks(healthy) }},
	} {
		outage.away()
		time.Sleep(duration)
		outage.back()
		began := time.Now()
		for i := range c.servers {
			controlplane.Eventually(t, func() error {
				// Of a short time, so that it is not the one that waits.
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				return c.write(ctx, c.toppings[i])
			})
		}
		took := time.Since(began)
		fmt.Fprintf(&out, "| %s | %.1f s |\n", outage.name, took.Seconds())
		longest = max(longest, took)
	}
	t.Logf("after %s\n%s", duration, out.String())
	if os.Getenv("OUTAGE") != "" {
		require.LessOrEqual(t, longest, 2*time.Second)
	}
}
