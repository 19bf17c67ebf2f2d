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

package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSpread(t *testing.T) {
	require.Equal(t, "1.50 s (1.00 to 4.00, 3 runs)", spread([]time.Duration{4 * time.Second, time.Second, 1500 * time.Millisecond}))
}

func TestQuantiles(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1)*time.Millisecond)
	}
	require.Equal(t, 50*time.Millisecond, quantile(hundred, 50))
	require.Equal(t, 99*time.Millisecond, quantile(hundred, 99))
	require.Equal(t, time.Second, quantile([]time.Duration{time.Second}, 50))
	require.Equal(t, "p50 -0.50 ms, p99 +1.25 ms", added(
		[]time.Duration{time.Millisecond, 3250 * time.Microsecond}, []time.Duration{1500 * time.Microsecond, 2 * time.Millisecond}))
}

func TestRates(t *testing.T) {
	require.Equal(t, "200/s (100 to 400, 3 rounds)", rates([]float64{400, 100, 200}))
}

func TestTogether(t *testing.T) {
	var done [100]atomic.Int64
	require.NoError(t, together(t.Context(), len(done), func(_ context.Context, n int) error { done[n].Add(1); return nil }))
	for n := range done {
		require.EqualValues(t, 1, done[n].Load(), n)
	}
	require.EqualError(t, together(t.Context(), 1, func(context.Context, int) error { return errors.New("no oven") }), "no oven")
}

// Requests are sent in turn, each after its preparation, and those that warm up are not
// measured.
func TestCompare(t *testing.T) {
	var sent []string
	step := func(name string) func(context.Context, int) error {
		return func(_ context.Context, n int) error {
			if n < 2 {
				sent = append(sent, fmt.Sprintf("%s-%d", name, n))
			}
			return nil
		}
	}
	figures, durations, err := compare(t.Context(), []sort{{what: "a", send: step("a")}, {what: "b", prepare: step("prepare-b"), send: step("b")}}, 3)
	require.NoError(t, err)
	require.Equal(t, []string{"a-0", "prepare-b-0", "b-0", "prepare-b-1", "b-1", "a-1"}, sent)
	require.Len(t, figures, 2)
	require.Equal(t, "a", figures[0].what)
	require.Regexp(t, `^p50 \d\.\d\d ms, p99 \d\.\d\d ms \(3 requests\)$`, figures[0].value)
	require.Len(t, durations[0], 3)
	require.Len(t, durations[1], 3)

	broken := func(context.Context, int) error { return errors.New("no oven") }
	_, _, err = compare(t.Context(), []sort{{what: "bake", send: broken}}, 1)
	require.EqualError(t, err, "bake: no oven")
}
