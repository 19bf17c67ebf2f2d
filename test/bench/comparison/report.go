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
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// reference is what the others are compared with.
const reference = "crd"

// report prints medians of all rounds, and each contender's throughput as a multiple of that
// of custom resources in the same round.
func report(out io.Writer, result Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	verbs, samples := group(result.Samples)
	for _, verb := range verbs {
		theirs := of(samples[verb], reference)
		if len(theirs) == 0 { // They do not have it.
			theirs = of(samples["list"], reference)
		}
		fmt.Fprintf(w, "\n%s, %d clients\t\t\t\t\t\t\t\n", verb, samples[verb][0].Clients)
		fmt.Fprint(w, "\tper second\tmin to max\t÷ "+reference+"\tp50 ms\tkube-apiserver ms\tserver ms\tetcd ms\t\n")
		for _, contender := range contendersIn(samples[verb]) {
			mine := of(samples[verb], contender)
			rates := values(mine, func(s Sample) float64 { return s.PerSecond })
			fmt.Fprintf(w, "%s\t%.0f\t%.0f to %.0f\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t\n", contender,
				median(rates), slices.Min(rates), slices.Max(rates),
				ratio(mine, theirs, func(s Sample) float64 { return s.PerSecond }),
				median(values(mine, func(s Sample) float64 { return s.Median })),
				median(values(mine, func(s Sample) float64 { return s.KubeAPIServer })),
				median(values(mine, func(s Sample) float64 { return s.Server })),
				median(values(mine, func(s Sample) float64 { return s.Etcd })))
		}
	}
	if len(result.Watches) > 0 {
		fmt.Fprint(w, "\nwatch\t\t\t\t\t\t\n\twatches\twrites\tbehind s\tkube-apiserver µs/event\tserver µs/event\tkB each\t\n")
		for _, watch := range result.Watches {
			fmt.Fprintf(w, "%s\t%d\t%d\t%.2f\t%.2f\t%.2f\t%d + %d\t\n", watch.Contender, watch.Watches, watch.Writes, watch.Behind,
				watch.KubeAPIServer, watch.Server, watch.KubeAPIServerMemory/1000, watch.ServerMemory/1000)
		}
	}
	if len(result.Growth) > 0 {
		fmt.Fprint(w, "\nstored pizzas\tready s\tCPU s\tcached after s\tresident MB\tpeak MB\tcreate ms CPU\tdelete topping ms CPU\tlist adds MB\tlist s\t\n")
		for _, g := range result.Growth {
			fmt.Fprintf(w, "%d\t%.2f\t%.2f\t%.2f\t%d\t%d\t%.2f\t%.2f\t%d\t%.2f\t\n", g.Objects, g.Ready, g.CPU, g.Cached, g.Resident/1e6, g.Peak/1e6, g.Create, g.DeleteTopping, g.List/1e6, g.ListSeconds)
		}
	}
	if len(result.Stored) > 0 {
		fmt.Fprint(w, "\nstored custom resources\tready s\tCPU s\tresident MB\tpeak MB\tafter lists MB\tvalue bytes\tdatabase MB\tin pages s\tinformer s\tcreate ms\tget ms\t\n")
		for _, r := range result.Stored {
			fmt.Fprintf(w, "%d, %s\t%.2f\t%.2f\t%d\t%d\t%d\t%d\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t\n", r.Objects, r.Contender, r.Ready, r.CPU,
				r.Resident/1e6, r.Peak/1e6, r.Read/1e6, r.Value, r.Database/1e6, r.Pages, r.Informer, r.Create, r.Get)
		}
	}
	return w.Flush()
}

// group sorts samples by verb, in the order of their first.
func group(samples []Sample) ([]string, map[string][]Sample) {
	var verbs []string
	grouped := map[string][]Sample{}
	for _, s := range samples {
		if grouped[s.Verb] == nil {
			verbs = append(verbs, s.Verb)
		}
		grouped[s.Verb] = append(grouped[s.Verb], s)
	}
	return verbs, grouped
}

// contendersIn returns the contenders with samples, in the alphabetical order, but custom
// resources first.
func contendersIn(samples []Sample) []string {
	var all []string
	for _, s := range samples {
		all = append(all, s.Contender)
	}
	slices.SortFunc(all, func(a, b string) int {
		switch {
		case a == b:
			return 0
		case a == reference:
			return -1
		case b == reference:
			return 1
		}
		return cmp.Compare(a, b)
	})
	return slices.Compact(all)
}

func of(samples []Sample, contender string) []Sample {
	return slices.DeleteFunc(slices.Clone(samples), func(s Sample) bool { return s.Contender != contender })
}

func values(samples []Sample, value func(Sample) float64) []float64 {
	all := make([]float64, len(samples))
	for i, s := range samples {
		all[i] = value(s)
	}
	return all
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}

// ratios divides the samples of the same round.
func ratios(mine, theirs []Sample, value func(Sample) float64) []float64 {
	rounds := map[int]float64{}
	for _, s := range theirs {
		rounds[s.Round] = value(s)
	}
	var all []float64
	for _, s := range mine {
		if other := rounds[s.Round]; other > 0 {
			all = append(all, value(s)/other)
		}
	}
	return all
}

func ratio(mine, theirs []Sample, value func(Sample) float64) string {
	all := ratios(mine, theirs, value)
	if len(all) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", median(all))
}

// reportBuilds prints how much processor time each build takes for a request, and whether they
// differ by more than the rounds do. They do if one of the two was better in every round.
func reportBuilds(out io.Writer, samples []Sample) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\n\tclients\tbase ms\thead ms\thead ÷ base\tmin to max\t\t\n")
	server := func(s Sample) float64 { return s.Server }
	verbs, grouped := group(samples)
	for _, verb := range verbs {
		base, head := of(grouped[verb], baseBuild), of(grouped[verb], headBuild)
		all := ratios(head, base, server)
		if len(all) == 0 {
			continue
		}
		verdict := "no difference beyond the spread"
		switch least, most := slices.Min(all), slices.Max(all); {
		case least > 1:
			verdict = "head needs more"
		case most < 1:
			verdict = "head needs less"
		}
		fmt.Fprintf(w, "%s\t%d\t%.3f\t%.3f\t%.2f\t%.2f to %.2f\t%s\t\n", verb, grouped[verb][0].Clients,
			median(values(base, server)), median(values(head, server)), median(all), slices.Min(all), slices.Max(all), verdict)
	}
	return w.Flush()
}
