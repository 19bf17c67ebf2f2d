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

// Command testrun runs "go test" and prints its output without -v: one closing line per
// package, and the output of failed tests. At the end it names the packages that took longest,
// and the failed tests with the last thing that each logged.
//
// It adds two rules.
//
// A skipped test has tested nothing, so testrun lists every skipped test. With CI=true in the
// environment, it fails if there are any. Two kinds of reasons are excepted, by the beginning of
// the text for t.Skip. "hardware:" is for tests that the machine can't run, whatever is
// installed. "long:" is for tests that -short leaves out, which are counted and not listed. A
// package whose TestMain skips all of it prints a line that begins with "Skipped: ".
//
// With -rerun as the first argument, a failed test runs once more by itself, after the others. If
// it passes then, it is a flake. It is printed with the end of its first output, and appended to
// the file in TESTRUN_FLAKES, if set. Nothing runs again after more than three failed tests,
// including the flakes of earlier runs in that file. Neither does it after a data race, or after a
// package that failed without a failed test, since some tests may never have run. Packages come
// last, flags have the form -name=value.
//
// With TESTRUN_FAILED in the environment, a run with -rerun appends its failed tests to that file
// instead, and passes. Then -rerun without further arguments runs the tests in the file.
//
// The file in TESTRUN_EVENTS, if set, gets the output of "go test -json".
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	// An interrupt from the terminal reaches "go test" as well, and ends it. Its last output is
	// worth printing.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM)

	events := io.Discard
	if name := os.Getenv("TESTRUN_EVENTS"); name != "" {
		file, err := os.Create(name)
		if err != nil {
			fmt.Fprintf(os.Stderr, "Cannot keep the events, which TESTRUN_EVENTS asks for: %v.\n", err)
			return 1
		}
		defer file.Close()
		events = file
	}

	rerun := len(args) > 0 && args[0] == "-rerun"
	if rerun {
		args = args[1:]
	}
	later := os.Getenv("TESTRUN_FAILED")
	if rerun && len(args) == 0 {
		failures, err := readFailures(later)
		if err != nil {
			fmt.Fprintf(os.Stderr, "Cannot read the failed tests in the file that TESTRUN_FAILED names: %v.\n", err)
			return 1
		}
		return again(os.Stdout, failures, events)
	}
	report := report{out: os.Stdout}
	code := report.goTest(args, events)
	report.nameSlow()
	report.nameFailed()
	if rerun && code == 1 && report.explained() {
		if failures := report.failures(args); later == "" {
			code = again(os.Stdout, failures, events)
		} else if err := writeFailures(later, failures); err != nil {
			fmt.Fprintf(os.Stderr, "Cannot keep the failed tests, which TESTRUN_FAILED asks for: %v.\n", err)
		} else {
			code = 0
		}
	}
	if report.long > 0 {
		fmt.Printf("%d long tests were left out: \"make test-all\" runs them.\n", report.long)
	}
	if code == 0 && report.needless > 0 && os.Getenv("CI") == "true" {
		fmt.Fprintln(os.Stderr, `Tests were skipped, and CI=true does not allow it. Provide what they ask for, or, if no installation can, start the reason with "hardware:".`)
		return 1
	}
	return code
}

// event is a line of "go test -json", see "go doc test2json" and, for builds,
// "go help buildjson".
type event struct {
	Action, Package, Test, Output string
	// Elapsed is in seconds.
	Elapsed float64
	// all is the end of all output of a failed test and its failed subtests.
	all string
}

// failure is a failed test, with the flags to run it again.
type failure struct {
	Package, Test, Output string
	Flags                 []string
}

// report selects the output of a test run that is worth printing.
type report struct {
	out io.Writer
	// output holds, per package, the output events that may have to be printed.
	output map[string][]event
	failed []event
	// packages are the closing events of all packages.
	packages []event
	// passed are the names of the tests that passed.
	passed []string
	// needless counts the skipped tests without an excepted reason.
	needless int
	// long counts the tests and packages that -short left out.
	long int
	// fatal is set once a test binary has failed without a failed test, or has reported a data
	// race.
	fatal bool
}

// goTest runs "go test" and returns its exit code.
func (r *report) goTest(args []string, events io.Writer) int {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "Cannot run go test: %v. Is go on the PATH?\n", err)
		return 1
	}
	readErr := r.read(io.TeeReader(stdout, events))
	// go test waits until its output is read, including lines that can't be parsed.
	_, _ = io.Copy(io.Discard, stdout)
	if err := cmd.Wait(); err != nil {
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
			return exit.ExitCode()
		}
		fmt.Fprintf(os.Stderr, "go test ended early: %v.\n", err)
		return 1
	}
	if readErr != nil {
		fmt.Fprintf(os.Stderr, "Cannot read the output of go test -json: %v.\n", readErr)
		return 1
	}
	return 0
}

// mostFlakes is the maximum number of flakes in runs that pass and share a file of flakes.
const mostFlakes = 3

// mostOutput is how many bytes of the output of a flake are kept.
const mostOutput = 4096

// explained reports whether failed tests alone explain the failure, so that they may run again.
func (r *report) explained() bool {
	failed := map[string]bool{}
	for _, e := range r.failed {
		failed[e.Package] = true
	}
	for _, e := range r.packages {
		if e.Action == "fail" && !failed[e.Package] {
			return false
		}
	}
	return len(failed) > 0 && !r.fatal
}

// failures returns the tests that have failed, without their subtests.
func (r *report) failures(args []string) (failures []failure) {
	flags := slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return !strings.HasPrefix(arg, "-") || strings.HasPrefix(arg, "-run=")
	})
	for _, e := range r.failed {
		if !strings.Contains(e.Test, "/") {
			failures = append(failures, failure{e.Package, e.Test, e.all, flags})
		}
	}
	return failures
}

func writeFailures(name string, failures []failure) error {
	var text strings.Builder
	for _, test := range failures {
		fmt.Printf("LATER\t%s\t%s\n", test.Package, test.Test)
		if err := json.NewEncoder(&text).Encode(test); err != nil {
			return err
		}
	}
	return appendTo(name, text.String())
}

// readFailures returns none if no run has written any.
func readFailures(name string) (failures []failure, err error) {
	file, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) && name != "" {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer file.Close()
	for decoder := json.NewDecoder(file); ; {
		var test failure
		if err := decoder.Decode(&test); errors.Is(err, io.EOF) {
			return failures, nil
		} else if err != nil {
			return nil, err
		}
		failures = append(failures, test)
	}
}

// flaked begins the line of each flake.
const flaked = "FLAKED: "

// earlierFlakes counts the flakes in the file that TESTRUN_FLAKES names.
func earlierFlakes() (count int, err error) {
	name := os.Getenv("TESTRUN_FLAKES")
	if name == "" {
		return 0, nil
	}
	content, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, flaked) {
			count++
		}
	}
	return count, nil
}

// again runs each failed test by itself, and returns 0 if all of them pass.
func again(out io.Writer, failures []failure, events io.Writer) int {
	earlier, err := earlierFlakes()
	if err != nil {
		fmt.Fprintf(os.Stderr, "Cannot count the flakes of earlier runs in the file that TESTRUN_FLAKES names: %v.\n", err)
		return 1
	}
	if failed := earlier + len(failures); failed > mostFlakes && len(failures) > 0 {
		fmt.Fprintf(out, "FAIL\t%d tests have failed, so none runs again: at most %d may be flakes\n", failed, mostFlakes)
		return 1
	}
	var flakes strings.Builder
	for _, test := range failures {
		fmt.Fprintf(out, "AGAIN\t%s\t%s\n", test.Package, test.Test)
		alone := report{out: out}
		if code := alone.goTest(append(slices.Clone(test.Flags), "-count=1", "-run=^"+test.Test+"$", test.Package), events); code != 0 {
			return code
		}
		if !slices.Contains(alone.passed, test.Test) {
			fmt.Fprintf(out, "FAIL\t%s\t%s has not run again\n", test.Package, test.Test)
			return 1
		}
		fmt.Fprintf(&flakes, flaked+"%s (passed alone) in %s\n", test.Test, test.Package)
		for line := range strings.Lines(test.Output) {
			// No output looks like the line of another flake.
			flakes.WriteString("    " + strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	fmt.Fprint(out, flakes.String())
	if name := os.Getenv("TESTRUN_FLAKES"); name != "" && len(failures) > 0 {
		if err := appendTo(name, flakes.String()); err != nil {
			fmt.Fprintf(os.Stderr, "Cannot keep the flakes, which TESTRUN_FLAKES asks for: %v.\n", err)
			return 1
		}
	}
	return 0
}

func appendTo(name, text string) error {
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

func (r *report) read(events io.Reader) error {
	r.output = map[string][]event{}
	for decoder := json.NewDecoder(events); ; {
		var e event
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		r.add(e)
	}
}

func (r *report) add(e event) {
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.fatal = r.fatal || fatal.MatchString(e.Output)
		if reason, ok := strings.CutPrefix(e.Output, "Skipped: "); ok && e.Test == "" {
			r.printSkip(e.Package, "TestMain", strings.TrimSpace(reason))
			return
		}
		r.output[e.Package] = append(r.output[e.Package], e)
	case "pass", "skip", "fail":
		switch {
		case e.Test == "":
			r.closePackage(e)
		case e.Action == "fail":
			e.Output, e.all = lastLogged(r.outputOf(e, false)), r.endOf(e)
			r.failed = append(r.failed, e)
		case e.Action == "skip":
			r.skip(e)
		case e.Action == "pass":
			r.passed = append(r.passed, e.Test)
			r.take(e)
		}
	}
}

// fatal matches the output of test binaries that have not run all tests, or not correctly.
var fatal = regexp.MustCompile(`^(panic: |fatal error: |signal: |WARNING: DATA RACE|exit status ([02-9]|1\d)|\*\*\* Test killed)`)

// nameSlow names the packages that took a second or longer, the slowest first.
func (r *report) nameSlow() {
	slices.SortStableFunc(r.packages, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	for _, e := range r.packages {
		if e.Elapsed >= 1 {
			fmt.Fprintf(r.out, "%6.0fs\t%s\n", e.Elapsed, e.Package)
		}
	}
}

// nameFailed names the failed tests, with their output.
func (r *report) nameFailed() {
	for _, test := range r.failed {
		fmt.Fprintf(r.out, "FAIL\t%s\t%s\n%s", test.Package, test.Test, test.Output)
	}
}

// outputOf returns a test's output. That of subtests that have not passed is part of it on request.
func (r *report) outputOf(test event, subtests bool) string {
	var output strings.Builder
	for _, e := range r.output[test.Package] {
		if e.Test == test.Test || subtests && strings.HasPrefix(e.Test, test.Test+"/") {
			output.WriteString(e.Output)
		}
	}
	return output.String()
}

// endOf returns the end of the output of a test and its subtests.
func (r *report) endOf(test event) string {
	all := r.outputOf(test, true)
	if len(all) > mostOutput {
		end := all[len(all)-mostOutput:]
		if _, whole, _ := strings.Cut(end, "\n"); whole != "" {
			end = whole
		}
		return "(…)\n" + end
	}
	return all
}

// take removes a test's output and returns it.
func (r *report) take(test event) string {
	taken := r.outputOf(test, false)
	r.output[test.Package] = slices.DeleteFunc(r.output[test.Package], func(e event) bool { return e.Test == test.Test })
	return taken
}

func (r *report) skip(test event) {
	r.printSkip(test.Package, test.Test, skipReason(r.take(test)))
}

func (r *report) printSkip(pkg, test, reason string) {
	switch {
	case strings.HasPrefix(reason, "long:"):
		r.long++
		return
	case !strings.HasPrefix(reason, "hardware:"):
		r.needless++
	}
	fmt.Fprintf(r.out, "SKIP\t%s\t%s: %s\n", pkg, test, reason)
}

// skipReason finds in a test's output the argument of t.Skip, which is the last thing it logged.
func skipReason(output string) string {
	// "    file_test.go:12: the text"
	_, text, _ := strings.Cut(lastLogged(output), ".go:")
	_, text, _ = strings.Cut(text, ": ")
	if reason, _, _ := strings.Cut(text, "\n"); reason != "" {
		return reason
	}
	return "no reason given"
}

// logged matches the first line that a test logs at once. Further lines are indented more.
var logged = regexp.MustCompile(`^ {4,}\w+\.go:\d+: `)

// lastLogged finds in a test's output the last thing it logged.
func lastLogged(output string) string {
	var last strings.Builder
	var indent string
	for line := range strings.Lines(output) {
		if logged.MatchString(line) {
			last.Reset()
			indent = line[:len(line)-len(strings.TrimLeft(line, " "))] + "    "
		} else if last.Len() == 0 || !strings.HasPrefix(line, indent) {
			indent = "\x00"
			continue
		}
		last.WriteString(line)
	}
	return last.String()
}

// closePackage prints the closing line of a package, and for a failed one all output of the
// tests that did not pass.
func (r *report) closePackage(e event) {
	for _, line := range r.output[e.Package] {
		closing := line.Test == "" && (strings.HasPrefix(line.Output, "ok  \t") || strings.HasPrefix(line.Output, "?   \t"))
		if e.Action == "fail" || closing {
			fmt.Fprint(r.out, line.Output)
		}
	}
	delete(r.output, e.Package)
	r.packages = append(r.packages, e)
}
