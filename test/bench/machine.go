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

// describe prints what the figures depend on.
func describe(ctx context.Context, out io.Writer, command string) {
	fmt.Fprintf(out, "command:  %s\n", command)
	fmt.Fprintf(out, "date:     %s\n", time.Now().UTC().Format(time.RFC3339))
	fmt.Fprintf(out, "commit:   %s\n", output(ctx, "git", "describe", "--always", "--dirty"))
	fmt.Fprintf(out, "machine:  %d processors (%s), %s of memory, %s/%s %s\n", runtime.NumCPU(),
		fileField("/proc/cpuinfo", "model name"), fileField("/proc/meminfo", "MemTotal"),
		runtime.GOOS, runtime.GOARCH, output(ctx, "uname", "-r"))
	fmt.Fprintf(out, "versions: %s, %s\n", runtime.Version(),
		output(ctx, filepath.FromSlash("_output/bin/kube-apiserver"), "--version"))
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
