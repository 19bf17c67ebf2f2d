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
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	pollInterval = 50 * time.Millisecond

	// readyTimeout and stopTimeout are the defaults of Timeouts. They are generous, since a
	// machine that builds and tests at once is slow.
	readyTimeout = 5 * time.Minute
	stopTimeout  = 2 * time.Minute

	// lingerTimeout is how long a component that waits for its clients may take to end before
	// it is killed.
	lingerTimeout = 5 * time.Second

	// tailLines is the number of log lines in an error: enough to see a panic's reason above
	// its stack.
	tailLines = 40
)

// Component is one process of the control plane, or a server in the process of the test.
// Its methods may be called from several goroutines.
type Component struct {
	name string
	host Host
	port int
	// binary returns the path of the program, and builds it if necessary.
	binary func(context.Context) (string, error)
	// run is set for a server in this process, which has no binary.
	run      func(ctx context.Context, args []string) error
	timeouts Timeouts
	// dir is the process's working directory with its data.
	dir      string
	logFile  string
	lockFile string
	// ownCertificate is set if another certificate authority than the control plane's has
	// issued the component's certificate.
	ownCertificate bool
	// attached is set for a component that another process runs, see Config.Attach.
	attached bool
	// rank orders the stopping: higher ranks stop first.
	rank int
	// lingers is set for a component that waits for its clients, so that it may have to be
	// killed.
	lingers bool
	// args returns the flags that the component needs in this control plane.
	args func() ([]string, error)
	// check returns nil when the component is ready.
	check func(context.Context) error
	died  chan<- error

	mu       sync.Mutex
	flags    []string
	env      []string
	process  *process
	stopping bool
}

// Name returns the component's name, for instance "kube-apiserver".
func (c *Component) Name() string { return c.name }

// Host returns the host of the component.
func (c *Component) Host() Host { return c.host }

// Port returns the port that the component listens on.
func (c *Component) Port() int { return c.port }

// URL returns the component's address. It serves TLS with a certificate signed
// by PKI.ServingCA.
func (c *Component) URL() string { return "https://" + address(c.host, c.port) }

// LogFile returns the file with the output of the component. Restarts within a run append to
// it. The previous run's file is kept beside it.
func (c *Component) LogFile() string { return c.logFile }

// Dir returns the directory with the component's data.
func (c *Component) Dir() string { return c.dir }

// PID returns the id of the running process, or 0. For a server in this process, it is the id
// of this process.
func (c *Component) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running() {
		return 0
	}
	return c.process.pid
}

// SetFlags replaces the extra flags of the component, from its next start on. An extra flag
// overrides the component's own flag of the same name.
func (c *Component) SetFlags(flags ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flags = slices.Clone(flags)
}

// Start starts the component and waits until it is ready.
func (c *Component) Start(ctx context.Context) error {
	if err := c.launchWith(ctx); err != nil {
		return err
	}
	return c.WaitReady(ctx)
}

// Launch starts the component without waiting until it is ready.
func (c *Component) Launch() error {
	return c.launchWith(context.Background())
}

// launchWith starts the component. The context limits the build of its program.
func (c *Component) launchWith(ctx context.Context) error {
	if c.attached {
		return fmt.Errorf("%s runs in a control plane of another process, which alone can start and stop it: "+
			"run this test without %s", c.name, AttachVariable)
	}
	var binary string
	if c.run == nil {
		var err error
		if binary, err = c.binary(ctx); err != nil {
			return fmt.Errorf("cannot start %s: %w", c.name, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running() {
		return fmt.Errorf("%s is running already, as process %d", c.name, c.process.pid)
	}
	if err := c.launch(binary); err != nil {
		var taken *PortTakenError
		if errors.As(err, &taken) {
			return err
		}
		return fmt.Errorf("cannot start %s: %w", c.name, err)
	}
	return nil
}

func (c *Component) launch(binary string) error {
	if err := checkPort(c.name, c.host, c.port); err != nil {
		return err
	}
	for _, dir := range []string{c.dir, filepath.Dir(c.logFile), filepath.Dir(c.lockFile)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	args, err := c.args()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(c.logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args = mergeFlags(args, c.flags)
	if c.run != nil {
		c.process, c.stopping = startFunction(c.run, args), false
		go c.watch(c.process)
		_, err := fmt.Fprintf(log, "%s runs in process %d, which has its log\n", c.name, c.process.pid)
		return err
	}
	lock, holder, err := takeLock(c.lockFile)
	if errors.Is(err, errLocked) {
		return fmt.Errorf("process %d, left over from an earlier run, still uses %s: end it with \"kill %d\"", holder, c.dir, holder)
	}
	if err != nil {
		return err
	}
	// The child keeps the lock, and this process releases it.
	defer lock.Close()

	cmd := c.host.Command(context.Background(), binary, args...)
	cmd.Dir = c.dir
	cmd.Env = append(environment(), c.env...)
	cmd.Stdout, cmd.Stderr = log, log
	process, err := startProcess(cmd, lock)
	if err != nil {
		return err
	}
	c.process, c.stopping = process, false
	go c.watch(process)
	return writePID(lock, process.pid)
}

// watch reports a process that ends unexpectedly.
func (c *Component) watch(process *process) {
	<-process.done
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == process && !c.stopping {
		select {
		case c.died <- fmt.Errorf("%w; %s", c.ended(process), c.logTail()):
		default: // An earlier death is being reported; one is enough.
		}
	}
}

func (c *Component) ended(process *process) error {
	how := "without an error"
	if process.err != nil {
		how = "with " + process.err.Error()
	}
	return fmt.Errorf("%s ended by itself, %s", c.name, how)
}

func (c *Component) running() bool {
	return c.process != nil && !c.process.ended()
}

// whileRunning returns a context that ends with the component's process. Its cause then says
// how the process ended.
func (c *Component) whileRunning(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.attached {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	process := c.process
	c.mu.Unlock()
	if process == nil {
		cancel(fmt.Errorf("%s has not been started", c.name))
		return ctx, func() {}
	}
	go func() {
		select {
		case <-process.done:
			cancel(c.ended(process))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// WaitReady waits until the component is ready. Its error shows the end of the component's
// log.
func (c *Component) WaitReady(ctx context.Context) error {
	ctx, cancel := c.whileRunning(ctx)
	defer cancel()
	if err := eventually(ctx, c.timeouts.Ready, c.check); err != nil {
		return fmt.Errorf("%s did not become ready: %w; %s", c.name, err, c.logTail())
	}
	return nil
}

// Stop ends the component gracefully, by force if that takes too long, and returns when it is
// gone. It does nothing if the component is not running.
func (c *Component) Stop() error {
	if c.attached {
		return nil
	}
	process := c.expectEnd()
	if process == nil {
		return nil
	}
	if c.lingers {
		process.stop(lingerTimeout)
		return nil
	}
	if process.stop(c.timeouts.Stop) {
		return fmt.Errorf("%s did not end within %s and was killed; %s", c.name, c.timeouts.Stop, c.logTail())
	}
	return nil
}

// Kill ends the component as a crash would and returns when it is gone. It does nothing if the
// component is not running. A server in this process cannot be killed: its context is
// canceled, as by Stop.
func (c *Component) Kill() {
	if c.run != nil {
		_ = c.Stop()
		return
	}
	if process := c.expectEnd(); process != nil {
		process.kill()
	}
}

func (c *Component) expectEnd() *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping = true
	return c.process
}

// Restart stops the component, starts it again and waits until it is ready.
func (c *Component) Restart(ctx context.Context) error {
	if err := c.Stop(); err != nil {
		return err
	}
	return c.Start(ctx)
}

// eventually repeats a function until it succeeds, for a bounded time. Its error has the
// reason for the end and the last failure.
func eventually(ctx context.Context, timeout time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%s are over", timeout))
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(pollInterval):
		}
	}
}

func (c *Component) logTail() string {
	return fmt.Sprintf("the end of its log %s:\n%s", c.logFile, tail(c.logFile, tailLines))
}

// mergeFlags returns base without the flags that extra sets, and then extra. The components
// can't do this, as some of their flags add up when they are given twice.
func mergeFlags(base, extra []string) []string {
	name := func(flag string) string {
		name, _, _ := strings.Cut(flag, "=")
		return name
	}
	set := map[string]bool{}
	for _, flag := range extra {
		set[name(flag)] = true
	}
	merged := slices.DeleteFunc(slices.Clone(base), func(flag string) bool { return set[name(flag)] })
	return append(merged, extra...)
}

// environment returns this process's environment without variables that change the components.
// These would give etcd flags, kubectl and client libraries another cluster, or all programs a
// proxy.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(strings.ToUpper(variable), "=")
		return strings.HasPrefix(name, "ETCD_") || strings.HasPrefix(name, "KUBE") || strings.HasSuffix(name, "_PROXY")
	})
}

// CheckURL returns a check that a GET of the URL answers 200.
func CheckURL(client *http.Client, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		const patience = 20 * time.Second
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s answers %s", url, response.Status)
		}
		return nil
	}
}
