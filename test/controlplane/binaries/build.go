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
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// interval is the time between two reports on a build.
const interval = 15 * time.Second

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
	built := b.target
	if b.shared {
		built = filepath.Join(temp, name)
	}
	args := append([]string{"build", "-v", "-ldflags", strings.TrimSpace("-s -w " + b.ldflags), "-o", built}, b.flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, b.pkg)...)
	cmd.Dir = b.dir
	cmd.Env = append(append(os.Environ(), "GOTMPDIR="+temp), b.env...)
	// The go command ends its compilers.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	output, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	began := time.Now()
	var complaints []string
	if err = cmd.Start(); err == nil {
		lines := make(chan string)
		go func() {
			defer close(lines)
			for scanner := bufio.NewScanner(output); scanner.Scan(); {
				lines <- scanner.Text()
			}
		}()
		complaints = o.follow(name, began, lines)
		err = cmd.Wait()
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return fmt.Errorf("building %s: %w", name, context.Cause(ctx))
	default:
		return fmt.Errorf("%s cannot be built: go build %s: %w\n%s", name, b.pkg, err, strings.Join(complaints, "\n"))
	}
	if b.shared {
		if err := os.Rename(built, b.target); err != nil {
			return err
		}
	}
	if took := time.Since(began); took >= interval {
		o.progress("%s: built (%.0f s)", name, took.Seconds())
	}
	return nil
}

// follow condenses the output of "go build -v", which has a line for each package and
// each downloaded module. It returns all other lines.
func (o Options) follow(name string, began time.Time, lines <-chan string) (rest []string) {
	ticker := time.NewTicker(interval)
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
