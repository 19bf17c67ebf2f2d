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

package binaries

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// defaultInterval is the default of Options.Interval.
const defaultInterval = 5 * time.Second

// build is a build of the go command.
type build struct {
	// dir is the working directory, and target the built file.
	dir, target, pkg string
	// shared is set if others may start the target at any moment. The go command usually
	// puts a program in place by renaming it, but not always.
	shared     bool
	flags, env []string
	ldflags    string
}

// build builds a program, and replaces it as a whole or not at all.
func (o Options) build(ctx context.Context, b build) (err error) {
	name := filepath.Base(b.target)
	// The directory is in the file system of the program, where the go command puts it in
	// place by renaming it. Therefore an interrupted build leaves no partial program.
	temp, err := os.MkdirTemp(filepath.Dir(b.target), ".build-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	output := b.target
	if b.shared {
		output = filepath.Join(temp, name)
	}
	args := append([]string{"build", "-v", "-ldflags", strings.TrimSpace("-s -w " + b.ldflags), "-o", output}, b.flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, b.pkg)...)
	cmd.Dir = b.dir
	cmd.Env = append(append(os.Environ(), "GOTMPDIR="+temp), b.env...)
	// The process group includes the compilers.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	said, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	lines := make(chan string)
	go func() {
		defer close(lines)
		for reader := bufio.NewReader(said); ; {
			line, err := reader.ReadString('\n')
			if line != "" {
				lines <- strings.TrimSuffix(line, "\n")
			}
			if err != nil {
				return
			}
		}
	}()
	ended := make(chan error, 1)
	began := time.Now()
	go func() {
		err := cmd.Run()
		_ = write.Close()
		ended <- err
	}()
	complaints := o.follow(name, began, lines)
	err = <-ended
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return fmt.Errorf("building %s: %w", name, context.Cause(ctx))
	default:
		return fmt.Errorf("%s cannot be built: go build %s: %w\n%s", name, b.pkg, err, strings.Join(complaints, "\n"))
	}
	if b.shared {
		if err := os.Rename(output, b.target); err != nil {
			return err
		}
	}
	if took := time.Since(began); took >= defaultInterval {
		o.progress("%s: built (%.0f s)", name, took.Seconds())
	}
	return nil
}

// follow condenses the output of "go build -v", which has a line for each package and
// each downloaded module. It returns all other lines.
func (o Options) follow(name string, began time.Time, lines <-chan string) (rest []string) {
	ticker := time.NewTicker(cmp.Or(o.Interval, defaultInterval))
	defer ticker.Stop()
	modules, packages := 0, 0
	for {
		select {
		case line, open := <-lines:
			switch {
			case !open:
				return rest
			case strings.HasPrefix(line, "go: downloading "):
				modules++
			case strings.ContainsAny(line, " :#"):
				rest = append(rest, line)
			default:
				packages++
			}
		case <-ticker.C:
			downloaded := ""
			if modules > 0 {
				downloaded = fmt.Sprintf("%d modules downloaded, ", modules)
			}
			o.progress("%s: %s%d packages compiled (%.0f s)", name, downloaded, packages, time.Since(began).Seconds())
		}
	}
}
