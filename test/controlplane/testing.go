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

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Main runs all tests of a test binary with one control plane, and stores it in *cp.
// Call it as the whole of TestMain:
//
//	var cp *controlplane.ControlPlane
//
//	func TestMain(m *testing.M) { controlplane.Main(m, &cp, controlplane.Config{}) }
//
// Config.Dir is a temporary directory, unless it is set. The preparations run before
// the tests. If a test fails, the ends of all logs are printed and the directory is
// kept.
func Main(m *testing.M, cp **ControlPlane, config Config, preparations ...Preparation) {
	os.Exit(run(m, cp, config, preparations))
}

// AfterTests makes Main call a check after all tests. Its error fails them. Preparations call
// AfterTests.
func (cp *ControlPlane) AfterTests(look func() error) { cp.afterTests = append(cp.afterTests, look) }

// Preparation adds objects to a control plane that has just started.
type Preparation func(context.Context, *ControlPlane) error

func run(m *testing.M, cp **ControlPlane, config Config, preparations []Preparation) (code int) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	temporary := config.Dir == ""
	if temporary {
		dir, err := os.MkdirTemp("", "controlplane-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		config.Dir = dir
	}
	started, err := Start(ctx, config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*cp = started

	// The tests run in the foreground, so that this process has to clean up after an interrupt.
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-ended:
		case <-ctx.Done():
			if err := started.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			os.Exit(1)
		}
	}()

	code = prepareAndRun(ctx, m, started, preparations)
	for _, look := range started.afterTests {
		if err := look(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if code != 0 {
		started.writeLogs(os.Stderr)
	}
	if err := started.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code == 0 && temporary {
		if err := os.RemoveAll(config.Dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

func prepareAndRun(ctx context.Context, m *testing.M, cp *ControlPlane, preparations []Preparation) (code int) {
	for _, prepare := range preparations {
		if err := prepare(ctx, cp); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// ForTest starts a control plane for one test, and stops it when the test ends. Its directory is
// temporary unless Config.Dir is set. If the test fails, the ends of all logs are printed.
func ForTest(t testing.TB, config Config) *ControlPlane {
	t.Helper()
	if config.Dir == "" {
		config.Dir = filepath.Join(t.TempDir(), "controlplane")
	}
	cp, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			cp.writeLogs(t.Output())
		}
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cp
}

// Patience limits every wait of a test. It is generous, as tests do not assert speed.
const Patience = 3 * time.Minute

// Eventually repeats a function until it succeeds. It fails the test if that takes longer than
// Patience.
func Eventually(t testing.TB, try func() error) {
	t.Helper()
	err := eventually(context.WithoutCancel(t.Context()), Patience, func(context.Context) error { return try() })
	if err != nil {
		t.Fatal(err)
	}
}

// writeLogs prints the end of every component's log.
func (cp *ControlPlane) writeLogs(out io.Writer) {
	for _, component := range cp.Components() {
		if _, err := os.Stat(component.LogFile()); errors.Is(err, os.ErrNotExist) {
			continue
		}
		fmt.Fprintf(out, "%s: %s\n", component.Name(), component.logTail())
	}
}
