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

// Command bench measures this repository's server, as "make bench". It measures the memory
// of an idle server, how long it takes to start, and how long admission makes a client wait.
// It also measures how many pizzas it creates of what its etcd could store, and how long the
// pricing controller takes. It prints the figures beside the goals, with all that is needed
// to measure them again, and judges nothing. Arguments after "--" are flags for the server,
// to see what difference they make.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"restaurant.programming-kubernetes.info/apiserver/test/bench/machine"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	cancel()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// figure is one line of the result.
type figure struct {
	what, value, goal string
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	runs := flags.Int("runs", 5, "how often the server is started for each figure about starting")
	idle := flags.Duration("idle", 30*time.Second, "how long the server has nothing to do before its memory is measured")
	requests := flags.Int("requests", 2000, "how many requests of each sort are measured for the figures about admission")
	pizzas := flags.Int("pizzas", 10000, "how many pizzas have the topping whose price changes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for name, number := range map[string]int{"runs": *runs, "requests": *requests, "pizzas": *pizzas} {
		if number < 1 {
			return fmt.Errorf("--%s=%d measures nothing: it must be at least 1", name, number)
		}
	}

	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server := controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Flags: flags.Args()}}
	cp, err := controlplane.Start(ctx, controlplane.Config{Dir: dir, APIServer: server, Progress: progress})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cp.Stop()) }()

	memory, err := measureMemory(ctx, cp.APIServer, *idle)
	if err != nil {
		return err
	}
	starts, err := measureStarts(ctx, cp, server, *runs)
	if err != nil {
		return err
	}
	admission, err := measureAdmission(ctx, cp, server, *requests)
	if err != nil {
		return err
	}
	throughput, err := measureThroughput(ctx, cp, server, *requests)
	if err != nil {
		return err
	}
	prices, err := measurePrices(ctx, cp, server, *pizzas)
	if err != nil {
		return err
	}
	command := fmt.Sprintf("go run ./test/bench -runs=%d -idle=%s -requests=%d -pizzas=%d", *runs, *idle, *requests, *pizzas)
	if flags.NArg() > 0 {
		command += " -- " + strings.Join(flags.Args(), " ")
	}
	machine.Describe(ctx, command).Print(out)
	return table(out, slices.Concat(memory, starts, admission, throughput, prices))
}

func progress(message string) {
	fmt.Fprintln(os.Stderr, message)
}

// measureMemory returns how much memory a server takes that has just been
// started, after a time in which nobody but kube-apiserver talks to it.
func measureMemory(ctx context.Context, server *controlplane.Component, idle time.Duration) ([]figure, error) {
	progress(fmt.Sprintf("Leaving the server alone for %s", idle))
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(idle):
	}
	resident, peak, err := machine.Resident(server.PID())
	if err != nil {
		return nil, err
	}
	return []figure{
		{"resident memory, idle, with embedded etcd", megabytes(resident), "< 150 MB"},
		{"its peak since the start", megabytes(peak), ""},
	}, nil
}

// measureStarts returns how long the server takes from its start until it is
// ready, when kube-apiserver is up.
func measureStarts(ctx context.Context, cp *controlplane.ControlPlane, config controlplane.ServerConfig, runs int) ([]figure, error) {
	if err := cp.APIServer.Stop(); err != nil {
		return nil, err
	}
	var empty, existing []time.Duration
	for run := range runs {
		progress(fmt.Sprintf("Starting the server, %d of %d", run+1, runs))
		server, err := cp.NewAPIServer(fmt.Sprintf("bench-%d", run), config)
		if err != nil {
			return nil, err
		}
		for _, durations := range []*[]time.Duration{&empty, &existing} {
			duration, err := measureStart(ctx, server)
			if err != nil {
				return nil, err
			}
			*durations = append(*durations, duration)
		}
	}
	return []figure{
		{"ready after the start, new data directory", spread(empty), "< 3 s"},
		{"ready after the start, existing data directory", spread(existing), "< 3 s"},
	}, nil
}

func measureStart(ctx context.Context, server *controlplane.Component) (time.Duration, error) {
	began := time.Now()
	if err := server.Start(ctx); err != nil {
		return 0, err
	}
	duration := time.Since(began)
	return duration, server.Stop()
}

func table(out io.Writer, figures []figure) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprint(w, "\nFIGURE\tVALUE\tGOAL\n")
	for _, f := range figures {
		fmt.Fprintln(w, strings.Join([]string{f.what, f.value, f.goal}, "\t"))
	}
	return w.Flush()
}

// spread formats the median and the extremes of some durations.
func spread(durations []time.Duration) string {
	sorted := slices.Sorted(slices.Values(durations))
	return fmt.Sprintf("%.2f s (%.2f to %.2f, %d runs)", sorted[len(sorted)/2].Seconds(),
		sorted[0].Seconds(), sorted[len(sorted)-1].Seconds(), len(sorted))
}

func megabytes(bytes int64) string {
	return fmt.Sprintf("%.0f MB", float64(bytes)/1e6)
}
