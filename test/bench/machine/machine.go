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

// Package machine says on what a benchmark has run, and what its processes have used. It takes
// Linux.
package machine

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Run says what was run where, so that it can be run again.
type Run struct {
	Command  string `json:"command"`
	Date     string `json:"date"`
	Commit   string `json:"commit"`
	Machine  string `json:"machine"`
	Versions string `json:"versions"`
}

// Describe describes a run of the command now, in the repository's root directory.
func Describe(ctx context.Context, command string) Run {
	return Run{
		Command: command,
		Date:    time.Now().UTC().Format(time.RFC3339),
		Commit:  output(ctx, "git", "describe", "--always", "--dirty"),
		Machine: fmt.Sprintf("%d processors (%s), %s of memory, %s/%s %s", runtime.NumCPU(),
			fileField("/proc/cpuinfo", "model name"), fileField("/proc/meminfo", "MemTotal"),
			runtime.GOOS, runtime.GOARCH, output(ctx, "uname", "-r")),
		Versions: fmt.Sprintf("%s, %s", runtime.Version(),
			output(ctx, filepath.FromSlash("_output/bin/kube-apiserver"), "--version")),
	}
}

// Print writes the description, a line for each of its parts.
func (r Run) Print(out io.Writer) {
	fmt.Fprintf(out, "command:  %s\ndate:     %s\ncommit:   %s\nmachine:  %s\nversions: %s\n", r.Command, r.Date, r.Commit, r.Machine, r.Versions)
}

// Resident returns how many bytes of memory a process has now, and has had at most.
func Resident(pid int) (now, peak int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("cannot measure memory, which takes Linux and a running process: %w", err)
	}
	if now, err = statusBytes(string(status), "VmRSS"); err != nil {
		return 0, 0, err
	}
	peak, err = statusBytes(string(status), "VmHWM")
	return now, peak, err
}

// ForgetPeak resets Resident's peak, see proc(5), clear_refs.
func ForgetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// tick is the unit of the times in /proc, see sysconf(3), _SC_CLK_TCK.
const tick = 10 * time.Millisecond

// CPU returns how much processor time a process has used since its start, to a hundredth of
// a second.
func CPU(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("cannot measure processor time, which takes Linux and a running process: %w", err)
	}
	return statCPU(string(stat))
}

// statCPU reads the text of /proc/PID/stat, see proc(5).
func statCPU(stat string) (time.Duration, error) {
	// The name of the program, the second field, may hold anything but ends with the last
	// parenthesis.
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	const user, system = 11, 12
	if len(fields) <= system {
		return 0, fmt.Errorf("%q is not the status of a process", stat)
	}
	var ticks int64
	for _, field := range fields[user : system+1] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

// output returns the first line a command prints.
func output(ctx context.Context, name string, args ...string) string {
	text, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// fileField returns a field of one of the files of Linux that describe the
// machine.
func fileField(path, name string) string {
	file, err := os.Open(path)
	if err != nil {
		return "unknown"
	}
	defer file.Close()
	value, found := field(file, name)
	if !found {
		return "unknown"
	}
	return value
}

// field returns the value of the first line "name: value".
func field(text io.Reader, name string) (value string, found bool) {
	for lines := bufio.NewScanner(text); lines.Scan(); {
		if key, value, found := strings.Cut(lines.Text(), ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}

// statusBytes returns an amount of memory from the text of /proc/PID/status.
func statusBytes(status, name string) (int64, error) {
	value, _ := field(strings.NewReader(status), name)
	kilobytes, err := strconv.ParseInt(strings.TrimSuffix(value, " kB"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the process's status does not say %s: is it still running?", name)
	}
	return kilobytes << 10, nil
}
