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

package conformance

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/version"

	_ "embed" // For the page.
)

// Outcome says how a check has ended.
type Outcome string

const (
	// Passed means that the API behaves as Kubernetes does.
	Passed Outcome = "passed"
	// Failed means that it does not. The result has a Finding.
	Failed Outcome = "failed"
	// NotOffered means that the check makes no sense for the API. The result has a reason.
	NotOffered Outcome = "not offered"
)

// Report has the results of a run.
type Report struct {
	// Server is the version of kube-apiserver.
	Server  version.Info `json:"server"`
	Level   Level        `json:"level"`
	Seed    uint64       `json:"seed"`
	Results []Result     `json:"results"`
}

// Result is the result of a check for a resource.
type Result struct {
	Check    string        `json:"check"`
	Rule     string        `json:"rule"`
	Source   string        `json:"source"`
	Resource string        `json:"resource"`
	Outcome  Outcome       `json:"outcome"`
	Reason   string        `json:"reason,omitempty"`
	Finding  *Finding      `json:"finding,omitempty"`
	Took     time.Duration `json:"took"`
}

// Finding is a difference of the API from Kubernetes.
type Finding struct {
	// Sent and Came are the request and the answer.
	Sent string `json:"sent,omitempty"`
	Came string `json:"came,omitempty"`
	// Problem says what is expected instead.
	Problem string `json:"problem"`
	// Command sends the request again, while "kubectl proxy" runs.
	Command string `json:"command,omitempty"`
}

// String returns the finding as text.
func (f *Finding) String() string {
	var text strings.Builder
	for _, part := range []struct{ title, text string }{{"problem", f.Problem}, {"sent", f.Sent}, {"came", f.Came}, {"again, while \"kubectl proxy\" runs", f.Command}} {
		if part.text != "" {
			fmt.Fprintf(&text, "%s:\n  %s\n", part.title, strings.ReplaceAll(part.text, "\n", "\n  "))
		}
	}
	return text.String()
}

// Formats returns the names of the formats that Write knows.
func Formats() []string { return []string{"text", "json", "junit", "html"} }

// Write writes the report in one of the Formats.
func (r *Report) Write(out io.Writer, format string) error {
	switch format {
	case "text":
		return r.writeText(out)
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	case "junit":
		return r.writeJUnit(out)
	case "html":
		return template.Must(template.New("report").Parse(page)).Execute(out, r)
	}
	return fmt.Errorf("the format %q is unknown: there are %s", format, strings.Join(Formats(), ", "))
}

// symbol returns the character that reports show for an outcome.
func (o Outcome) symbol() string {
	return map[Outcome]string{Passed: "✓", Failed: "✗", NotOffered: "–"}[o]
}

// Line returns the result in one line.
func (r Result) Line() string {
	line := fmt.Sprintf("%s %s %s", r.Outcome.symbol(), r.Resource, r.Check)
	if r.Finding != nil {
		return line + ": " + r.Finding.Problem
	}
	if r.Reason != "" {
		return line + ": " + r.Reason
	}
	return line
}

// Area returns the area of the check.
func (r Result) Area() string { return Check{ID: r.Check}.Area() }

// Resources returns the resources of the report, in its order.
func (r *Report) Resources() []string {
	return distinct(r.Results, func(result Result) string { return result.Resource })
}

// Areas returns the areas of the report's checks, in its order.
func (r *Report) Areas() []string { return distinct(r.Results, Result.Area) }

func distinct(results []Result, of func(Result) string) []string {
	var values []string
	for _, result := range results {
		if value := of(result); !slices.Contains(values, value) {
			values = append(values, value)
		}
	}
	return values
}

// Count says how the checks of an area have ended for a resource, for example "✓ 12 ✗ 1".
func (r *Report) Count(area, resource string) string {
	var counts []string
	for _, outcome := range []Outcome{Passed, Failed, NotOffered} {
		count := 0
		for _, result := range r.Results {
			if result.Area() == area && result.Resource == resource && result.Outcome == outcome {
				count++
			}
		}
		if count > 0 {
			counts = append(counts, fmt.Sprintf("%s %d", outcome.symbol(), count))
		}
	}
	return strings.Join(counts, " ")
}

// Having returns the results with an outcome.
func (r *Report) Having(outcome Outcome) []Result {
	return slices.DeleteFunc(slices.Clone(r.Results), func(result Result) bool { return result.Outcome != outcome })
}

func (r *Report) writeText(out io.Writer) error {
	for _, failure := range r.Having(Failed) {
		fmt.Fprintf(out, "✗ %s %s\n  Kubernetes: %s\n  written in: %s\n  %s\n",
			failure.Resource, failure.Check, failure.Rule, failure.Source, strings.ReplaceAll(strings.TrimSpace(failure.Finding.String()), "\n", "\n  "))
	}
	for _, lacking := range r.Having(NotOffered) {
		fmt.Fprintln(out, lacking.Line())
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\t%s\n", strings.Join(r.Resources(), "\t"))
	for _, area := range r.Areas() {
		row := []string{area}
		for _, resource := range r.Resources() {
			row = append(row, r.Count(area, resource))
		}
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	return table.Flush()
}

// suite and its cases are the elements of JUnit that tools read.
type suite struct {
	XMLName  xml.Name `xml:"testsuite"`
	Name     string   `xml:"name,attr"`
	Tests    int      `xml:"tests,attr"`
	Failures int      `xml:"failures,attr"`
	Skipped  int      `xml:"skipped,attr"`
	Cases    []suiteCase
}

type suiteCase struct {
	XMLName xml.Name   `xml:"testcase"`
	Class   string     `xml:"classname,attr"`
	Name    string     `xml:"name,attr"`
	Seconds string     `xml:"time,attr"`
	Failure *suiteText `xml:"failure"`
	Skipped *suiteText `xml:"skipped"`
}

type suiteText struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func (r *Report) writeJUnit(out io.Writer) error {
	all := suite{Name: "conformance", Tests: len(r.Results), Failures: len(r.Having(Failed)), Skipped: len(r.Having(NotOffered))}
	for _, result := range r.Results {
		one := suiteCase{Class: result.Resource, Name: result.Check, Seconds: fmt.Sprintf("%.3f", result.Took.Seconds())}
		if result.Finding != nil {
			one.Failure = &suiteText{result.Finding.Problem, result.Rule + "\n" + result.Source + "\n" + result.Finding.String()}
		}
		if result.Outcome == NotOffered {
			one.Skipped = &suiteText{Message: result.Reason}
		}
		all.Cases = append(all.Cases, one)
	}
	if _, err := io.WriteString(out, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(out)
	encoder.Indent("", "  ")
	return encoder.Encode(all)
}

//go:embed report.html.tmpl
var page string
