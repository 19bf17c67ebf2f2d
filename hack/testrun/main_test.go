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
		})
	}
}

func TestReportRefusesOtherInput(t *testing.T) {
	require.Error(t, (&report{}).read(strings.NewReader("ok p 0.1s")))
}

// Output that can't be understood is read to its end, or "go test" would wait for that
// forever.
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
		t.Fatal("it has not ended")
	}
}

// goTestJSON turns lines of "action|test|output", and perhaps "|seconds", into the events that go test
// -json prints for a package p.
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
