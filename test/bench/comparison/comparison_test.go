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
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// Ratios compare samples of the same round, so that a slow round is slow for both.
func TestRatios(t *testing.T) {
	rate := func(s Sample) float64 { return s.PerSecond }
	mine := []Sample{{Round: 0, PerSecond: 10}, {Round: 1, PerSecond: 300}, {Round: 2, PerSecond: 90}}
	theirs := []Sample{{Round: 2, PerSecond: 30}, {Round: 0, PerSecond: 5}, {Round: 1, PerSecond: 100}}
	require.Equal(t, []float64{2, 3, 3}, ratios(mine, theirs, rate))
	require.Equal(t, "3.00", ratio(mine, theirs, rate))
	require.Equal(t, "-", ratio(mine, nil, rate))
}

func TestMedian(t *testing.T) {
	require.InDelta(t, 2, median([]float64{9, 1, 2}), 0)
	require.InDelta(t, 1.5, median([]float64{2, 1}), 0)
}

func TestContendersIn(t *testing.T) {
	require.Equal(t, []string{"crd", "configmap", "pizzas"}, contendersIn([]Sample{{Contender: "pizzas"}, {Contender: "configmap"}, {Contender: "crd"}, {Contender: "pizzas"}}))
}

// One of two builds needs more only if it has in every round.
func TestReportBuilds(t *testing.T) {
	sample := func(verb, build string, round int, cpu float64) Sample {
		return Sample{Verb: verb, Contender: build, Round: round, Clients: 16, Server: cpu}
	}
	var out bytes.Buffer
	require.NoError(t, reportBuilds(&out, []Sample{
		sample("get", baseBuild, 0, 1), sample("get", headBuild, 0, 2), sample("get", baseBuild, 1, 2), sample("get", headBuild, 1, 2.2),
		sample("create", baseBuild, 0, 1), sample("create", headBuild, 0, 2), sample("create", baseBuild, 1, 2), sample("create", headBuild, 1, 1.8),
		sample("delete", baseBuild, 0, 1), sample("delete", headBuild, 0, 0.5),
	}))
	var got [][]string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Fields(line))
	}
	require.Equal(t, [][]string{
		{},
		strings.Fields("clients base ms head ms head ÷ base min to max"),
		strings.Fields("get 16 1.500 2.100 1.55 1.10 to 2.00 head needs more"),
		strings.Fields("create 16 1.500 1.900 1.45 0.90 to 2.00 no difference beyond the spread"),
		strings.Fields("delete 16 1.000 0.500 0.50 0.50 to 0.50 head needs less"),
	}, got)
}

// Every task is done once, and the first error ends all.
func TestDrive(t *testing.T) {
	clients, err := newClients(&rest.Config{Host: "http://127.0.0.1:1"}, 3)
	require.NoError(t, err)
	var done [50]atomic.Int32
	durations, _, err := drive(t.Context(), clients, len(done), func(_ context.Context, _ client, n int) error {
		done[n].Add(1)
		return nil
	})
	require.NoError(t, err)
	require.Len(t, durations, len(done))
	for n := range done {
		require.EqualValues(t, 1, done[n].Load(), n)
	}

	_, _, err = drive(t.Context(), clients, 50, func(_ context.Context, _ client, n int) error {
		if n == 7 {
			return errors.New("no oven")
		}
		return nil
	})
	require.EqualError(t, err, "no oven")
}

// An update names the resource version that was read last, and reads it again after a conflict.
func TestVerbs(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var body bytes.Buffer
		_, _ = body.ReadFrom(req.Body)
		got = append(got, req.Method+" "+req.URL.Path+" "+body.String())
		if len(got) == 3 {
			w.WriteHeader(http.StatusConflict)
		}
		_, _ = w.Write([]byte(`{"metadata":{"resourceVersion":"` + strings.Repeat("4", len(got)) + `"}}`))
	}))
	defer server.Close()
	clients, err := newClients(&rest.Config{Host: server.URL}, 1)
	require.NoError(t, err)
	c := &contender{group: "example.com", version: "v1", resource: "pizzas", kind: "Pizza", content: `"spec":{}`, revision: map[string]string{}}
	for _, verb := range verbs {
		require.NoError(t, verb.do(c, "object")(t.Context(), clients[0], 3))
	}
	object := func(version, generation string) string {
		return `{"apiVersion":"example.com/v1","kind":"Pizza","metadata":{"name":"object-000003","namespace":"bench","resourceVersion":"` + version + `","labels":{"generation":"` + generation + `"}},"spec":{}}`
	}
	const path = "/apis/example.com/v1/namespaces/bench/pizzas"
	require.Equal(t, []string{
		"POST " + path + " " + object("", "1"),
		"GET " + path + "/object-000003 ",
		"PUT " + path + "/object-000003 " + object("44", "2"),
		"GET " + path + "/object-000003 ",
		"PUT " + path + "/object-000003 " + object("4444", "2"),
		"DELETE " + path + "/object-000003 ",
	}, got)
	require.Empty(t, c.revision)
}
