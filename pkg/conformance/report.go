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
	"strconv"
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
	// NotOffered means that the check makes no sense for the API, or that an option leaves it out. The result has a reason.
	NotOffered Outcome = "not offered"
	// NotChecked means that the check makes sense, but could not be made. The result has a reason.
	NotChecked Outcome = "not checked"
)

// Report has the results of a run.
type Report struct {
	// Host is the address of kube-apiserver, and Server its version.
	Host    string        `json:"host"`
	Server  version.Info  `json:"server"`
	Level   Level         `json:"level"`
	Began   time.Time     `json:"began"`
	Took    time.Duration `json:"took"`
	Results []Result      `json:"results"`
	// Omitted are resources that were not examined, since their objects act on the whole cluster and no option named them.
	Omitted []string `json:"omitted,omitempty"`
	// Left says what the run could not delete.
	Left []string `json:"left,omitempty"`
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
	// Cause is the same text in all findings that probably have one cause.
	Cause string `json:"cause"`
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
	return map[Outcome]string{Passed: "✓", Failed: "✗", NotOffered: "–", NotChecked: "?"}[o]
}

// Line returns the result in one line, for a terminal.
func (r Result) Line() string {
	line := fmt.Sprintf("%s %s %s", r.Outcome.symbol(), r.Resource, r.Check)
	if r.Finding != nil {
		line += ": " + r.Finding.Problem
	}
	if r.Reason != "" {
		line += ": " + r.Reason
	}
	return printable(strings.Join(strings.Fields(line), " "))
}

// printable replaces what would control a terminal. Texts of a report come from servers.
func printable(text string) string {
	var safe strings.Builder
	for _, r := range text {
		if r == '\n' || strconv.IsPrint(r) {
			safe.WriteRune(r)
		} else {
			safe.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return safe.String()
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
	for _, outcome := range []Outcome{Passed, Failed, NotOffered, NotChecked} {
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

// Group has results that are alike, for example findings of one cause.
type Group []Result

// First returns the first result.
func (g Group) First() Result { return g[0] }

// Checks names the checks of all results, for example "verbs/get, verbs/list of loaves.v1.example.com".
func (g Group) Checks() string {
	var texts []string
	for _, resource := range distinct(g, func(result Result) string { return result.Resource }) {
		var ids []string
		for _, result := range g {
			if result.Resource == resource {
				ids = append(ids, result.Check)
			}
		}
		texts = append(texts, strings.Join(ids, ", ")+" of "+resource)
	}
	return strings.Join(texts, "; ")
}

// Causes returns the findings, grouped by their causes. A cause of many findings comes before others.
func (r *Report) Causes() []Group {
	groups := r.groups(Failed, func(result Result) string { return result.Finding.Cause })
	slices.SortStableFunc(groups, func(a, b Group) int { return len(b) - len(a) })
	return groups
}

// Reasons returns the results with an outcome, grouped by their reasons.
func (r *Report) Reasons(outcome Outcome) []Group {
	return r.groups(outcome, func(result Result) string { return result.Reason })
}

func (r *Report) groups(outcome Outcome, key func(Result) string) []Group {
	var groups []Group
	at := map[string]int{}
	for _, result := range r.Having(outcome) {
		i, found := at[key(result)]
		if !found {
			i = len(groups)
			at[key(result)], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], result)
	}
	return groups
}

// Incomplete says what the run has not examined although it should, or returns nothing.
func (r *Report) Incomplete() []string {
	var texts []string
	for _, group := range r.Reasons(NotChecked) {
		texts = append(texts, fmt.Sprintf("%d of %d checks could not be made: %s", len(group), len(r.Results), group.First().Reason))
	}
	if len(r.Having(Passed))+len(r.Having(Failed))+len(texts) == 0 {
		texts = append(texts, "no check was made: none is offered")
	}
	return texts
}

// Total sums the report up in a line.
func (r *Report) Total() string {
	return fmt.Sprintf("%d of %d checks failed (causes: %d), %d passed, %d are not offered, %d could not be made (level %s, %s at %s, %s, %v)",
		len(r.Having(Failed)), len(r.Results), len(r.Causes()), len(r.Having(Passed)), len(r.Having(NotOffered)), len(r.Having(NotChecked)),
		r.Level, r.Server.GitVersion, r.Host, r.Began.UTC().Format(time.RFC3339), r.Took.Round(time.Second))
}

// named is up to how many checks without a result a text names. The other formats name all.
const named = 30

func (r *Report) writeText(out io.Writer) error {
	var text strings.Builder
	for _, incomplete := range r.Incomplete() {
		fmt.Fprintf(&text, "INCOMPLETE: %s\n", incomplete)
	}
	for _, group := range r.Causes() {
		failure := group.First()
		fmt.Fprintf(&text, "✗ %s %s\n", failure.Resource, failure.Check)
		if others := group[1:]; len(others) > 0 {
			fmt.Fprintf(&text, "  probably of the same cause: %s\n", others.Checks())
		}
		fmt.Fprintf(&text, "  Kubernetes: %s\n  written in: %s\n  %s\n", failure.Rule, failure.Source, strings.ReplaceAll(strings.TrimSpace(failure.Finding.String()), "\n", "\n  "))
	}
	for _, outcome := range []Outcome{NotOffered, NotChecked} {
		for _, group := range r.Reasons(outcome) {
			checks := group.Checks()
			if len(group) > named {
				checks = fmt.Sprintf("%d checks", len(group))
			}
			fmt.Fprintf(&text, "%s %s: %s\n", outcome.symbol(), checks, group.First().Reason)
		}
	}
	for _, omitted := range r.Omitted {
		fmt.Fprintf(&text, "– %s: not examined, since its objects act on the whole cluster and --resource does not name it\n", omitted)
	}
	for _, left := range r.Left {
		fmt.Fprintf(&text, "LEFT BEHIND: %s\n", left)
	}
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\t%s\n", strings.Join(r.Resources(), "\t"))
	for _, area := range r.Areas() {
		row := []string{area}
		for _, resource := range r.Resources() {
			row = append(row, r.Count(area, resource))
		}
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(&text, "(✓ passed, ✗ failed, – not offered, ? not checked)")
	fmt.Fprintln(&text, r.Total())
	_, err := io.WriteString(out, printable(text.String()))
	return err
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
	all := suite{Name: "conformance", Tests: len(r.Results), Failures: len(r.Having(Failed)), Skipped: len(r.Having(NotOffered)) + len(r.Having(NotChecked))}
	for _, result := range r.Results {
		one := suiteCase{Class: result.Resource, Name: result.Check, Seconds: fmt.Sprintf("%.3f", result.Took.Seconds())}
		if result.Finding != nil {
			one.Failure = &suiteText{result.Finding.Problem, result.Rule + "\n" + result.Source + "\n" + result.Finding.String()}
		}
		if result.Reason != "" {
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
