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
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReport(t *testing.T) {
	for name, test := range map[string]struct {
		events   string
		printed  string
		needless int
		long     int
	}{
		"a package that passes is one line": {
			events: `
output|TestGood|=== RUN   TestGood
output|TestGood|    good_test.go:1: a detail
output|TestGood|--- PASS: TestGood (0.00s)
pass|TestGood|
output||noise of a TestMain
output||PASS
output||ok  	p	0.1s
pass||`,
			printed: "ok  \tp\t0.1s\n",
		},
		"a package without tests is not a skipped test": {
			events: `
output||?   	p	[no test files]
skip||`,
			printed: "?   \tp\t[no test files]\n",
		},
		"a failed package shows all but the tests that passed": {
			events: `
output|TestGood|=== RUN   TestGood
output|TestBad|=== RUN   TestBad
output|TestGood|--- PASS: TestGood (0.00s)
pass|TestGood|
output|TestBad|    bad_test.go:1: began
output|TestBad|    bad_test.go:2: wrong:
output|TestBad|        1 in place of 2
output|TestBad|    etcd: the end of its log
output|TestBad|        a trace
output|TestBad|--- FAIL: TestBad (0.00s)
fail|TestBad|
output|TestHangs|=== RUN   TestHangs
output||panic: test timed out
output||FAIL	p	0.1s
fail||`,
			printed: `=== RUN   TestBad
    bad_test.go:1: began
    bad_test.go:2: wrong:
        1 in place of 2
    etcd: the end of its log
        a trace
--- FAIL: TestBad (0.00s)
=== RUN   TestHangs
panic: test timed out
FAIL	p	0.1s
FAIL	p	TestBad
    bad_test.go:2: wrong:
        1 in place of 2
`,
		},
		"a build that fails shows the compiler's words": {
			events: `
build-output||p/a.go:1:1: undefined: x
build-fail||
output||FAIL	p [build failed]
fail||`,
			printed: "p/a.go:1:1: undefined: x\nFAIL\tp [build failed]\n",
		},
		"a skipped test is shown with the last thing it said": {
			events: `
output|TestSkip|=== RUN   TestSkip
output|TestSkip|    skip_test.go:3: preparing
output|TestSkip|    skip_test.go:4: kubectl is missing: run make
output|TestSkip|--- SKIP: TestSkip (0.00s)
skip|TestSkip|
output||ok  	p	0.1s
pass||`,
			printed:  "SKIP\tp\tTestSkip: kubectl is missing: run make\nok  \tp\t0.1s\n",
			needless: 1,
		},
		"a test may be skipped for want of hardware": {
			events: `
output|TestSkip|    skip_test.go:4: hardware: it takes 4 cores
output|TestSkip|--- SKIP: TestSkip (0.00s)
skip|TestSkip|`,
			printed: "SKIP\tp\tTestSkip: hardware: it takes 4 cores\n",
		},
		"a test skipped without a word is needless": {
			events: `
output|TestSkip|--- SKIP: TestSkip (0.00s)
skip|TestSkip|`,
			printed:  "SKIP\tp\tTestSkip: no reason given\n",
			needless: 1,
		},
		"packages that take long are named in the end, the slowest first": {
			events: `
output||ok  	p	1.2s
pass|||1.2
output||ok  	p	0.9s
pass|||0.9
output||ok  	p	60.4s
pass|||60.4`,
			printed: "ok  \tp\t1.2s\nok  \tp\t0.9s\nok  \tp\t60.4s\n    60s\tp\n     1s\tp\n",
		},
		"what is long is counted": {
			events: `
output|TestLong|    long_test.go:4: long: it moves 1,000 objects
output|TestLong|--- SKIP: TestLong (0.00s)
skip|TestLong|
output||Skipped: long: it breaks servers for an hour
output||ok  	p	0.1s
pass||`,
			printed: "ok  \tp\t0.1s\n",
			long:    2,
		},
		"a package may be skipped as a whole": {
			events: `
output||Skipped: this needs root
output||ok  	p	0.1s
pass||`,
			printed:  "SKIP\tp\tTestMain: this needs root\nok  \tp\t0.1s\n",
			needless: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var printed strings.Builder
			report := report{out: &printed}
			require.NoError(t, report.read(strings.NewReader(goTestJSON(test.events))))
			report.nameSlow()
			report.nameFailed()
			require.Equal(t, test.printed, printed.String())
			require.Equal(t, test.needless, report.needless)
			require.Equal(t, test.long, report.long)
		})
	}
}

func TestReportRefusesOtherInput(t *testing.T) {
	require.Error(t, (&report{}).read(strings.NewReader("ok p 0.1s")))
}

// Output that can't be parsed is read to its end, or "go test" would wait for ever.
func TestRunEndsWithOtherOutput(t *testing.T) {
	dir := t.TempDir()
	const script = "#!/bin/sh\necho ok p 0.1s\nhead -c 1000000 /dev/zero\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o700))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	code := make(chan int)
	go func() { code <- run(nil) }()
	select {
	case got := <-code:
		require.Equal(t, 1, got)
	case <-time.After(time.Minute):
		require.Fail(t, "it has not ended")
	}
}

const failedTest = `
output|TestBad|    bad_test.go:2: wrong
output|TestBad|--- FAIL: TestBad (0.00s)
fail|TestBad|
output||exit status 1
output||FAIL	p	0.1s
fail||`

func TestRerun(t *testing.T) {
	const passedAlone = `
output|TestBad|--- PASS: TestBad (0.00s)
pass|TestBad|
output||ok  	p	0.1s
pass||`
	// The first line is a flake, the other what it logged.
	const (
		one   = "FLAKED: TestWorse (passed alone) in q\n    worse_test.go:2: it has FLAKED: \n"
		three = one + one + one
		flake = "FLAKED: TestBad (passed alone) in p\n        bad_test.go:2: wrong\n    --- FAIL: TestBad (0.00s)\n"
	)
	for name, test := range map[string]struct {
		first, alone string
		earlier      string
		noRerun      bool
		otherFails   bool
		code         int
		flakes       string
	}{
		"a test that passes alone is a flake": {
			first: failedTest, alone: passedAlone,
			flakes: flake,
		},
		"a flake is shown with all that it printed": {
			first: "output|TestBad|    bad_test.go:1: began\noutput|TestBad|FLAKED: a raw line" + failedTest, alone: passedAlone,
			flakes: strings.Replace(flake, "p\n", "p\n        bad_test.go:1: began\n    FLAKED: a raw line\n", 1),
		},
		"the end of a long output is kept": {
			first: strings.Repeat("output|TestBad|"+strings.Repeat("x", 99)+"\n", 100) + failedTest[1:], alone: passedAlone,
			flakes: strings.Replace(flake, "p\n", "p\n    (…)\n"+strings.Repeat("    "+strings.Repeat("x", 99)+"\n", 40), 1),
		},
		"the end of a long line is kept": {
			first: "output|TestBad|" + strings.Repeat("x", 5000) + "\nfail|TestBad|\nfail||", alone: passedAlone,
			flakes: "FLAKED: TestBad (passed alone) in p\n    (…)\n    " + strings.Repeat("x", 4095) + "\n",
		},
		"a flaking subtest is shown with its test": {
			first: `
output|TestBad/one|    bad_test.go:3: wrong again
output|TestBad/one|    --- FAIL: TestBad/one (0.00s)
fail|TestBad/one|` + failedTest, alone: passedAlone,
			flakes: strings.Replace(flake, "p\n", "p\n        bad_test.go:3: wrong again\n        --- FAIL: TestBad/one (0.00s)\n", 1),
		},
		"a test that fails alone has failed":    {first: failedTest, alone: failedTest, code: 1},
		"a test whose package fails has failed": {first: failedTest, alone: passedAlone + "\nfail||", code: 1},
		"a test that has not run has failed":    {first: failedTest, alone: "output||ok  \tp\t0.1s [no tests to run]\npass||", code: 1},
		"a unit test has no second chance":      {first: failedTest, alone: passedAlone, noRerun: true, code: 1},
		"more than three failures are no flake": {first: "fail|TestA|\nfail|TestB|\nfail|TestC|" + failedTest, alone: passedAlone, code: 1},
		"flakes of earlier runs count":          {earlier: three, first: failedTest, alone: passedAlone, code: 1, flakes: three},
		"a third flake is none too many": {
			earlier: one + one, first: failedTest, alone: passedAlone,
			flakes: one + one + flake,
		},
		"a data race is no flake":             {first: "output|TestBad|WARNING: DATA RACE" + failedTest, alone: passedAlone, code: 1},
		"a panic leaves tests that never ran": {first: "output|TestBad|panic: no" + failedTest, alone: passedAlone, code: 1},
		"a TestMain that fails ran no test":   {first: failedTest, otherFails: true, alone: passedAlone, code: 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first := goTestJSON(test.first)
			if test.otherFails {
				first += `{"Action":"fail","Package":"q"}` + "\n"
			}
			for file, content := range map[string]string{
				"first": first, "alone": goTestJSON(test.alone),
				"go": "#!/bin/sh\ncase \"$*\" in\n" +
					"'test -json -short -p=2 -count=1 -run=^TestBad$ p') cat " + dir + "/alone; ! grep -q '\"fail\"' " + dir + "/alone ;;\n" +
					"'test -json -short -p=2 -run=^Test p q') cat " + dir + "/first; exit 1 ;;\n" +
					"*) echo \"unexpected: $*\" >&2; exit 3 ;;\nesac\n",
			} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o700))
			}
			flakes := filepath.Join(dir, "flakes")
			if test.earlier != "" {
				require.NoError(t, os.WriteFile(flakes, []byte(test.earlier), 0o600))
			}
			t.Setenv("TESTRUN_FLAKES", flakes)
			t.Setenv("TESTRUN_FAILED", "")
			t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
			args := []string{"-rerun", "-short", "-p=2", "-run=^Test", "p", "q"}
			if test.noRerun {
				args = args[1:]
			}
			require.Equal(t, test.code, run(args))
			content, err := os.ReadFile(flakes)
			if test.flakes == "" {
				require.ErrorIs(t, err, os.ErrNotExist)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.flakes, string(content))
		})
	}
}

// Two runs leave their failed tests to a third.
func TestRerunLater(t *testing.T) {
	const fails, passes, panics = "first; exit 1", "alone", "panic; exit 1"
	for name, test := range map[string]struct {
		runs, alone string
		codes       []int
		last        int
		flakes      int
	}{
		"none has failed":              {runs: passes, alone: fails, codes: []int{0, 0}},
		"both fail, and pass alone":    {runs: fails, alone: passes, codes: []int{0, 0}, flakes: 2},
		"four runs fail":               {runs: fails, alone: passes, codes: []int{0, 0, 0, 0}, last: 1},
		"a test fails alone":           {runs: fails, alone: fails, codes: []int{0}, last: 1},
		"a run that panics fails then": {runs: panics, alone: passes, codes: []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range map[string]string{
				"first": goTestJSON(failedTest), "panic": goTestJSON("output|TestBad|panic: no" + failedTest),
				"alone": goTestJSON("pass|TestBad|\npass||"),
				"go": "#!/bin/sh\ncd " + dir + "\ncase \"$*\" in\n" +
					"'test -json -p=2 -count=1 -run=^TestBad$ p') cat " + test.alone + " ;;\n" +
					"*) cat " + test.runs + " ;;\nesac\n",
			} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o700))
			}
			flakes := filepath.Join(dir, "flakes")
			t.Setenv("TESTRUN_FLAKES", flakes)
			t.Setenv("TESTRUN_FAILED", filepath.Join(dir, "failed"))
			t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
			for _, code := range test.codes {
				require.Equal(t, code, run([]string{"-rerun", "-p=2", "p"}))
				require.NoFileExists(t, flakes)
			}
			require.Equal(t, test.last, run([]string{"-rerun"}))
			content, _ := os.ReadFile(flakes)
			require.Equal(t, test.flakes, strings.Count(string(content), flaked))
		})
	}
}

// goTestJSON turns lines of "action|test|output", with an optional "|seconds", into the events of go
// test -json for a package p.
func goTestJSON(lines string) string {
	var events strings.Builder
	for line := range strings.Lines(strings.TrimPrefix(lines, "\n")) {
		fields := append(strings.SplitN(strings.TrimSuffix(line, "\n"), "|", 4), "0")
		if fields[2] != "" {
			fields[2] += "\n"
		}
		fmt.Fprintf(&events, `{"Action":%q,"Package":"p","Test":%q,"Output":%q,"Elapsed":%s}`+"\n", fields[0], fields[1], fields[2], fields[3])
	}
	return events.String()
}
