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

// Command plots draws the measurements of "make bench" as SVG:
//
//	go -C hack/plots run . ../../docs/benchmarks/2026-11-23.json ../../docs/figures
//
// It writes bench-throughput.svg, bench-latency.svg, bench-lists.svg and bench-growth.svg,
// if the file has samples for them.
package main

import (
	"encoding/json"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// sample has the plotted fields of one measurement, see package comparison.
type sample struct {
	Contender string  `json:"contender"`
	Verb      string  `json:"verb"`
	Identity  string  `json:"identity"`
	Clients   int     `json:"clients"`
	PerSecond float64 `json:"perSecond"`
	Median    float64 `json:"median"`
}

type growth struct {
	Objects  int     `json:"objects"`
	Ready    float64 `json:"ready"`
	Resident float64 `json:"resident"`
}

type result struct {
	Date    string   `json:"date"`
	Samples []sample `json:"samples"`
	Growth  []growth `json:"growth"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "Usage: plots FILE.json DIRECTORY")
		os.Exit(2)
	}
	if err := draw(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// contenders has the order of the bars, so that a color means the same in every plot.
var contenders = []struct {
	name  string
	color color.Color
}{
	{"crd", color.RGBA{R: 0x99, G: 0x99, B: 0x99, A: 0xff}},
	{"crd-webhook", color.RGBA{R: 0xcc, G: 0xcc, B: 0xcc, A: 0xff}},
	{"crd-apiserver", color.RGBA{R: 0xe6, G: 0x9f, A: 0xff}},
	{"pizzas", color.RGBA{R: 0xd5, G: 0x5e, A: 0xff}},
	{"sample-apiserver", color.RGBA{R: 0x56, G: 0xb4, B: 0xe9, A: 0xff}},
	{"configmap", color.RGBA{G: 0x72, B: 0xb2, A: 0xff}},
	{"nothing", color.RGBA{G: 0x9e, B: 0x73, A: 0xff}},
}

func draw(file, dir string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var measured result
	if err := json.Unmarshal(content, &measured); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, chart := range []struct {
		name, title, unit string
		verbs             []string
		clients           int
		value             func(sample) float64
	}{
		{"throughput", "Requests per second of an ordinary user, 16 clients", "per second", []string{"create", "get", "update", "delete"}, 16, func(s sample) float64 { return s.PerSecond }},
		{"latency", "Median latency of an ordinary user, 1 client", "milliseconds", []string{"create", "get", "update", "delete"}, 1, func(s sample) float64 { return s.Median }},
		{"lists", "Lists per second, 4 clients", "per second", []string{"list", "list in pages of 500", "list as a table", "list in protobuf", "list in another version"}, 4, func(s sample) float64 { return s.PerSecond }},
	} {
		samples := slices.DeleteFunc(slices.Clone(measured.Samples), func(s sample) bool {
			return s.Identity != "user" || s.Clients != chart.clients || !slices.Contains(chart.verbs, s.Verb)
		})
		if len(samples) == 0 {
			continue
		}
		p := plot.New()
		p.Title.Text, p.Y.Label.Text, p.Legend.Top, p.Y.Min = chart.title, chart.unit, true, 0
		if err := bars(p, samples, chart.verbs, chart.value); err != nil {
			return err
		}
		if err := p.Save(24*vg.Centimeter, 11*vg.Centimeter, filepath.Join(dir, "bench-"+chart.name+".svg")); err != nil {
			return err
		}
	}
	if len(measured.Growth) == 0 {
		return nil
	}
	return drawGrowth(measured.Growth, filepath.Join(dir, "bench-growth.svg"))
}

// bars draws a group of bars for each verb, one for each contender.
func bars(p *plot.Plot, samples []sample, verbs []string, value func(sample) float64) error {
	const width = 11
	for i, contender := range contenders {
		heights := make(plotter.Values, len(verbs))
		for v, verb := range verbs {
			var all []float64
			for _, s := range samples {
				if s.Contender == contender.name && s.Verb == verb {
					all = append(all, value(s))
				}
			}
			if len(all) > 0 {
				slices.Sort(all)
				heights[v] = all[len(all)/2]
			}
		}
		chart, err := plotter.NewBarChart(heights, vg.Points(width))
		if err != nil {
			return err
		}
		chart.Color, chart.LineStyle.Width = contender.color, 0
		chart.Offset = vg.Points(width * (float64(i) - float64(len(contenders)-1)/2))
		p.Add(chart)
		p.Legend.Add(contender.name, chart)
	}
	p.NominalX(verbs...)
	// The legend is to the right of the bars.
	p.X.Min, p.X.Max = -0.6, float64(len(verbs))+0.2
	return nil
}

// drawGrowth draws memory and the time of a start by the number of stored objects. Both have
// the same axis: hundreds of MB, and seconds.
func drawGrowth(all []growth, file string) error {
	var memory, ready plotter.XYs
	for _, g := range all {
		memory = append(memory, plotter.XY{X: float64(g.Objects), Y: g.Resident / 100e6})
		ready = append(ready, plotter.XY{X: float64(g.Objects), Y: g.Ready})
	}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Legend.Top, p.Legend.Left, p.Y.Min = "A start with stored pizzas", "stored pizzas", true, true, 0
	for _, line := range []struct {
		name   string
		points plotter.XYs
		color  color.Color
	}{{"resident memory, hundreds of MB", memory, contenders[3].color}, {"ready after, seconds", ready, contenders[5].color}} {
		drawn, points, err := plotter.NewLinePoints(line.points)
		if err != nil {
			return err
		}
		drawn.Color, points.Color = line.color, line.color
		p.Add(drawn, points)
		p.Legend.Add(line.name, drawn, points)
	}
	p.X.Max *= 1.05
	return p.Save(24*vg.Centimeter, 11*vg.Centimeter, file)
}
