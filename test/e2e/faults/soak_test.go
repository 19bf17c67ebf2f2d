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
	// soakSamples are taken in a soak; the first of them, until everything has been used
	// once, do not count.
	soakSamples = 180
	warmUp      = soakSamples / 4
	// tolerance is the part of itself that a measure may grow by in a soak.
	tolerance = 0.03
)

// measures are what must not grow, by their names in /metrics.
func measures() []string {
	return []string{"process_resident_memory_bytes", "go_goroutines", "process_open_fds"}
}

// series is what was measured at regular times.
type series []float64

// growth returns how much a series has grown from its beginning to its end, and how far
// its samples are from that line. The line has the median slope between any two samples
// (Theil–Sen), which some that are far off do not change. noise is the distance between the
// quartiles of the rest.
func (s series) growth() (growth, noise float64) {
	var slopes []float64
	for i := range s {
		for j := range i {
			slopes = append(slopes, (s[i]-s[j])/float64(i-j))
		}
	}
	slope := quantile(slopes, 0.5)
	var residuals []float64
	for i, value := range s {
		residuals = append(residuals, value-slope*float64(i))
	}
	return slope * float64(len(s)-1), quantile(residuals, 0.75) - quantile(residuals, 0.25)
}

// flat reports whether a series grew by no more than what its noise explains.
func (s series) flat() bool {
	growth, noise := s.growth()
	return growth <= max(noise, tolerance*quantile(s, 0.5))
}

func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(q*float64(len(sorted)-1))]
}

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

	measured := map[string]series{}
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
	out.WriteString("| | after 1/4 | 1/2 | 3/4 | at the end | growth since 1/4 | noise |\n|---|---|---|---|---|---|---|\n")
	var grown []string
	for _, server := range c.servers {
		for _, name := range measures() {
			key := server.Name() + " " + name
			all, unit := measured[key], 1.0
			if strings.HasSuffix(name, "_bytes") {
				unit = 1 << 20
			}
			fmt.Fprintf(&out, "| %s |", key)
			for quarter := range 4 {
				fmt.Fprintf(&out, " %.0f |", all[(quarter+1)*soakSamples/4-1]/unit)
			}
			growth, noise := all[warmUp:].growth()
			fmt.Fprintf(&out, " %.1f | %.1f |\n", growth/unit, noise/unit)
			if !all[warmUp:].flat() {
				grown = append(grown, key)
			}
		}
	}
	t.Logf("%s, %d requests; memory in MiB\n%s", duration, len(load.history.operations), out.String())
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

// A soak that sees nothing proves nothing.
func TestSeries(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for name, test := range map[string]struct {
		value func(i int) float64
		flat  bool
	}{
		"constant":                           {func(int) float64 { return 200 }, true},
		"noisy":                              {func(int) float64 { return 200 + 20*random.NormFloat64() }, true},
		"garbage that is removed":            {func(i int) float64 { return 200 + float64(i%20) }, true},
		"a peak":                             {func(i int) float64 { return 200 + map[bool]float64{true: 500}[i == 50] }, true},
		"one more each time":                 {func(i int) float64 { return 200 + float64(i) }, false},
		"a leak below the noise of a sample": {func(i int) float64 { return 200 + float64(i)/2 + 10*random.NormFloat64() }, false},
		"falling":                            {func(i int) float64 { return 400 - float64(i) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			var measured series
			for i := range soakSamples {
				measured = append(measured, test.value(i))
			}
			growth, noise := measured.growth()
			require.Equal(t, test.flat, measured.flat(), "It grew by %f, with a noise of %f.", growth, noise)
		})
	}
}
