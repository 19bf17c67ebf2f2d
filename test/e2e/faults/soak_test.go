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
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const (
	// soakSamples are taken in a soak.
	soakSamples = 180
	// tolerance is the part of itself that a measure may grow by in a soak.
	tolerance = 0.05
)

// measures are what must not grow, by their names in /metrics.
func measures() []string {
	return []string{"process_resident_memory_bytes", "go_goroutines", "process_open_fds"}
}

func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

// TestSoak lets clients use two replicas for SOAK=30m, and looks whether these grow.
func TestSoak(t *testing.T) {
	framework.Long(t, "it takes as long as one likes")
	value := cmp.Or(os.Getenv("SOAK"), "10s")
	duration, err := time.ParseDuration(value)
	require.NoError(t, err)
	c := newCampaign(t, "storage", 2)
	load, err := newWorkload(c.configs)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer working.Wait()
	defer cancel()
	for i := range watchers {
		copied := &watcher{servers: c.toppings, random: rand.New(rand.NewPCG(c.seed, uint64(100+i)))}
		working.Go(func() { copied.run(ctx) })
	}
	for i := range clients {
		working.Go(func() { load.run(ctx, i, rand.New(rand.NewPCG(c.seed, uint64(1+i)))) })
	}

	measured := map[string][]float64{}
	for range soakSamples {
		time.Sleep(duration / soakSamples)
		for _, server := range c.servers {
			code, metrics := framework.Get(t, c.cp, server, "/metrics")
			require.Equal(t, 200, code)
			for _, name := range measures() {
				key := server.Name() + " " + name
				measured[key] = append(measured[key], metric(t, metrics, name))
			}
		}
	}
	cancel()
	working.Wait()

	var out strings.Builder
	out.WriteString("| median | second quarter | last quarter |\n|---|---|---|\n")
	var grown []string
	for _, key := range slices.Sorted(maps.Keys(measured)) {
		// In the first quarter, everything is used for the first time.
		before, after := median(measured[key][soakSamples/4:soakSamples/2]), median(measured[key][soakSamples*3/4:])
		fmt.Fprintf(&out, "| %s | %.0f | %.0f |\n", key, before, after)
		if after > before*(1+tolerance) {
			grown = append(grown, key)
		}
	}
	t.Logf("%s, %d requests\n%s", duration, len(load.history.operations), out.String())
	require.Greater(t, len(load.history.operations), soakSamples)
	if os.Getenv("SOAK") != "" { // In a short one, everything is new.
		require.Empty(t, grown)
	}
}

// metric returns the value of a metric without labels.
func metric(t *testing.T, metrics, name string) float64 {
	t.Helper()
	_, after, found := strings.Cut(metrics, "\n"+name+" ")
	require.True(t, found, name)
	var value float64
	_, err := fmt.Sscan(after, &value)
	require.NoError(t, err)
	return value
}
