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

// Command comparison measures the server beside what else could serve the same objects, all
// behind one kube-apiserver and on one etcd: custom resources, and the same moved to
// crd-apiserver. The contenders take turns in several rounds, so that other work of the machine
// meets all of them. Processor time is measured for the processes themselves.
//
// It prints medians, and writes every sample as JSON. It judges nothing. With --base, it
// compares two builds of the server instead.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"restaurant.programming-kubernetes.info/apiserver/test/bench/machine"
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

func progress(message string) { fmt.Fprintln(os.Stderr, message) }

// size says how much is measured.
type size struct {
	rounds, requests, objects, watches, templates int
	growth, stored                                []int
	// base is another build of crd-apiserver, to be measured, too.
	base string
}

// many is how many clients work at the same time.
const many = 16

// Result is what a run has measured.
type Result struct {
	machine.Run
	Samples []Sample `json:"samples"`
	Watches []Watch  `json:"watches,omitempty"`
	Growth  []Growth `json:"growth,omitempty"`
	Stored  []Stored `json:"stored,omitempty"`
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("comparison", flag.ContinueOnError)
	var s size
	flags.IntVar(&s.rounds, "rounds", 5, "how often the contenders take turns")
	flags.IntVar(&s.requests, "requests", 1000, "how many requests of each verb 16 clients send in a round; 0 for none")
	flags.IntVar(&s.objects, "objects", 5000, "how many objects lists have; 0 for no lists")
	flags.IntVar(&s.watches, "watches", 1000, "how many watches see each write; 0 for none")
	stored := flags.String("stored", "1,50000", "with how many custom resources kube-apiserver and crd-apiserver are started; empty for none")
	flags.IntVar(&s.templates, "templates", 1, "how many templates these have, each of 150 bytes")
	flags.StringVar(&s.base, "crd-base", "", "the path of another build of crd-apiserver, which is started with them, too")
	growth := flags.String("growth", "0,10000,100000", "with how many stored pizzas the server is started; empty for none")
	file := flags.String("out", "", "the file for the samples, as JSON")
	base := flags.String("base", "", "the path of another build of the server, to compare the two builds and nothing else")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if s.rounds < 1 {
		return fmt.Errorf("--rounds=%d measures nothing: it must be at least 1", s.rounds)
	}
	if s.growth, err = numbers(*growth); err != nil {
		return fmt.Errorf("--growth: %w", err)
	}
	if s.stored, err = numbers(*stored); err != nil {
		return fmt.Errorf("--stored: %w", err)
	}
	dir, err := os.MkdirTemp("", "comparison-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	var b *bench
	if *base != "" {
		b, err = setUpBuilds(ctx, dir, *base)
		s.watches, s.stored, s.growth = 0, nil, nil
	} else {
		b, err = setUp(ctx, dir)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.cp.Stop()) }()
	result := Result{Run: machine.Describe(ctx, strings.Join(append([]string{"go run ./test/bench/comparison"}, args...), " "))}
	// Measurements before an error are worth having.
	err = b.fill(ctx, &result, s)
	if *file != "" {
		encoded, failure := json.MarshalIndent(result, "", " ")
		if failure == nil {
			failure = os.WriteFile(*file, append(encoded, '\n'), 0o644)
		}
		err = errors.Join(err, failure)
	}
	result.Print(out)
	if *base != "" {
		return errors.Join(err, reportBuilds(out, result.Samples))
	}
	return errors.Join(err, report(out, result))
}

// fill measures everything.
func (b *bench) fill(ctx context.Context, result *Result, s size) error {
	for _, part := range []func(context.Context, *Result, size) error{b.measureVerbs, b.measureLists, b.measureWatches, b.measureGrowth, b.measureStored} {
		if err := part(ctx, result, s); err != nil {
			return err
		}
	}
	return nil
}

// turns returns the contenders in the order of a round: each is the first in turn.
func (b *bench) turns(round int) []*contender {
	first := round % len(b.contenders)
	return slices.Concat(b.contenders[first:], b.contenders[:first])
}

func (b *bench) measureVerbs(ctx context.Context, result *Result, s size) error {
	if s.requests == 0 {
		return nil
	}
	clients, err := newClients(b.user, many)
	if err != nil {
		return err
	}
	// The first round is slower, and is not measured: that is round -1.
	for round := -1; round < s.rounds; round++ {
		progress(fmt.Sprintf("Round %d of %d", round+1, s.rounds))
		samples, err := b.takeTurns(ctx, round, clients, s.requests)
		if err != nil {
			return err
		}
		if round >= 0 {
			result.Samples = append(result.Samples, samples...)
		}
	}
	return nil
}

func (b *bench) takeTurns(ctx context.Context, round int, clients []client, requests int) ([]Sample, error) {
	var samples []Sample
	for _, verb := range verbs {
		for _, c := range b.turns(round + 1) {
			sample, err := b.measure(ctx, c, b.at(c, clients), requests, verb.do(c, "object"))
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", c.name, verb.name, err)
			}
			sample.Round, sample.Verb = round, verb.name
			samples = append(samples, sample)
		}
	}
	return samples, nil
}

// at returns clients of a contender: of kube-apiserver, unless builds are compared.
func (b *bench) at(c *contender, clients []client) []client {
	if c.host == "" {
		return clients
	}
	moved := slices.Clone(clients)
	for i := range moved {
		moved[i].host = c.host
	}
	return moved
}

const (
	// readers is how many clients list at the same time.
	readers = 4
	// lists of a contender in a round.
	listed = 8
)

func (b *bench) measureLists(ctx context.Context, result *Result, s size) error {
	if s.objects == 0 {
		return nil
	}
	writers, err := newClients(b.user, many)
	if err != nil {
		return err
	}
	clients, err := newClients(b.user, readers)
	if err != nil {
		return err
	}
	create := verbs[0]
	for _, c := range b.contenders {
		progress(fmt.Sprintf("Creating %d objects of %s", s.objects, c.name))
		if _, _, err := drive(ctx, b.at(c, writers), s.objects, create.do(c, "listed")); err != nil {
			return err
		}
	}
	for round := -1; round < s.rounds; round++ {
		progress(fmt.Sprintf("Lists, round %d of %d", round+1, s.rounds))
		for _, list := range lists {
			for _, c := range b.turns(round + 1) {
				read := list.of(c)
				if read == nil {
					continue
				}
				sample, err := b.measure(ctx, c, b.at(c, clients), listed, func(ctx context.Context, client client, _ int) error { return read(ctx, client) })
				if err != nil {
					return fmt.Errorf("%s: %s: %w", c.name, list.name, err)
				}
				sample.Round, sample.Verb = round, list.name
				if round >= 0 {
					result.Samples = append(result.Samples, sample)
				}
			}
		}
	}
	return nil
}

func numbers(list string) (all []int, err error) {
	for _, name := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
		var n int
		if _, err := fmt.Sscanf(name, "%d", &n); err != nil || n < 0 {
			return nil, fmt.Errorf("%q is not a number of objects", name)
		}
		all = append(all, n)
	}
	return all, nil
}

// retry repeats what fails until it succeeds or nobody has patience any more.
func retry(ctx context.Context, patience time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
