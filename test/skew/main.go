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

// Command skew runs end-to-end tests with several releases of Kubernetes, and writes what
// came out into the table of docs/compatibility.md. Run it in the root of the repository:
//
//	go run ./test/skew 1.34 1.35
//
// kube-apiserver, kube-controller-manager and kubectl of each release are built the first
// time, into the user's cache. Rows of releases that are not named are left as they are.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane/binaries"
)

const document = "docs/compatibility.md"

// packages are the columns of the table.
var packages = []string{"e2e/api", "e2e/admission", "e2e/doctor", "e2e/customresources", "e2e/migration"}

func main() {
	timeout := flag.Duration("timeout", 20*time.Minute, "time that the tests of a package may take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *timeout, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, timeout time.Duration, versions []string) error {
	if len(versions) == 0 {
		return fmt.Errorf("no version is named: name releases of Kubernetes, such as 1.34 or %s", binaries.Version())
	}
	// The rows are changes, too.
	described, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--match=v*").Output()
	if err != nil {
		return fmt.Errorf("git describe: %w", err)
	}
	commit := strings.TrimSpace(string(described))
	var failures []error
	for _, version := range versions {
		row, err := runVersion(ctx, timeout, version, commit)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("with Kubernetes %s: %w", version, err))
		}
		if row == "" {
			continue
		}
		fmt.Println(row)
		content, err := os.ReadFile(document)
		if err != nil {
			return err
		}
		updated, err := withRow(string(content), row)
		if err != nil {
			return err
		}
		if err := os.WriteFile(document, []byte(updated), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(failures...)
}

// runVersion builds a release and runs the tests of a commit. It returns a row of the table if
// the tests ran, and an error if something is wrong.
func runVersion(ctx context.Context, timeout time.Duration, version, commit string) (row string, err error) {
	options := binaries.Options{Version: version, Progress: func(message string) { fmt.Println(message) }}
	release, err := options.Release()
	if err != nil {
		return "", err
	}
	// The tests find the programs of the default version elsewhere.
	if release != binaries.Version() {
		if _, err := binaries.Kubernetes(ctx, options, "kube-apiserver", "kube-controller-manager", "kubectl"); err != nil {
			return "", err
		}
	}
	temp, err := os.MkdirTemp("", "skew-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	events := filepath.Join(temp, "events.json")
	args := []string{"tool", "-modfile=hack/tools/lint/go.mod", "gotestsum", "--format=pkgname", "--jsonfile=" + events, "--", "-vet=off", "-trimpath", "-count=1", "-p=2", "-timeout=" + timeout.String()}
	for _, name := range packages {
		args = append(args, "./test/"+name)
	}
	fmt.Printf("Kubernetes %s: go %s\n", release, strings.Join(args, " "))
	command := exec.CommandContext(ctx, "go", args...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.Env = append(os.Environ(), "CGO_ENABLED=0", binaries.VersionVariable+"="+release)
	// So that the tests stop their processes.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	failed := command.Run()
	results, err := readResults(events)
	if err != nil {
		return "", errors.Join(failed, err)
	}
	cells := []string{release}
	for _, name := range packages {
		cells = append(cells, results[path.Base(name)].String())
	}
	cells = append(cells, commit, time.Now().UTC().Format(time.DateOnly), fmt.Sprintf("%s/%s, %d processors", runtime.GOOS, runtime.GOARCH, runtime.NumCPU()))
	return "| " + strings.Join(cells, " | ") + " |", failed
}

// result counts the tests of a package, and their subtests.
type result struct{ passed, failed, skipped int }

func (r result) String() string {
	total := r.passed + r.failed + r.skipped
	switch {
	case total == 0:
		return "not run"
	case r.failed > 0:
		return fmt.Sprintf("%d of %d failed", r.failed, total)
	case r.skipped > 0:
		return fmt.Sprintf("%d passed, %d skipped", r.passed, r.skipped)
	}
	return fmt.Sprintf("%d passed", r.passed)
}

// readResults returns the results by the last part of a package's name.
func readResults(file string) (map[string]result, error) {
	events, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer events.Close()
	results := map[string]result{}
	for decoder := json.NewDecoder(events); ; {
		var event struct{ Action, Package, Test string }
		if err := decoder.Decode(&event); errors.Is(err, io.EOF) {
			return results, nil
		} else if err != nil {
			return nil, err
		}
		name := path.Base(event.Package)
		r := results[name]
		switch {
		case event.Test == "":
			// The last event of a package, which may fail without a test that does.
			if event.Action == "fail" && r.failed == 0 {
				r.failed++
			}
		case event.Action == "fail":
			r.failed++
		case event.Action == "pass":
			r.passed++
		case event.Action == "skip":
			r.skipped++
		}
		results[name] = r
	}
}

const head = "| Kubernetes |"

// withRow puts a row into the table of a document, in the place of the one of the same minor
// version.
func withRow(document, row string) (string, error) {
	lines := strings.SplitAfter(document, "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, head) {
			continue
		}
		at := i + 2 // after the head and the line below it
		for at < len(lines) && strings.HasPrefix(lines[at], "|") && minor(lines[at]) < minor(row) {
			at++
		}
		rest := at
		if rest < len(lines) && strings.HasPrefix(lines[rest], "|") && minor(lines[rest]) == minor(row) {
			rest++
		}
		return strings.Join(lines[:at], "") + row + "\n" + strings.Join(lines[rest:], ""), nil
	}
	return "", fmt.Errorf("there is no table whose head begins with %q", head)
}

// minor returns the minor version that a row is about.
func minor(row string) (number int) {
	_, _ = fmt.Sscanf(row, "| v1.%d.", &number)
	return number
}
