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

package attacks

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

const cgroups = "/sys/fs/cgroup"

// container is a host whose programs may have so much memory together, and are killed by the
// kernel when they need more.
type container struct {
	controlplane.Host
	// dir is the cgroup.
	dir string
}

// newContainer makes a cgroup, of version 1 or 2, below that of this process, which takes the
// permission to do so.
func newContainer(name string, limit int64) (*container, error) {
	root, own, file := filepath.Join(cgroups, "memory"), ownCgroup("memory"), "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers")); err == nil {
		root, own, file = cgroups, ownCgroup(""), "memory.max"
	}
	var errs []error
	// In a container, the path may be that outside of it.
	for _, parent := range []string{filepath.Join(root, own), root} {
		dir := filepath.Join(parent, fmt.Sprintf("attacked-%s-%d", name, os.Getpid()))
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			if err = os.WriteFile(filepath.Join(dir, file), []byte(strconv.FormatInt(limit, 10)), 0o644); err == nil {
				return &container{controlplane.Local(), dir}, nil
			}
			_ = os.Remove(dir) // The error is returned.
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// ownCgroup is the path of this process for a controller of version 1, or, without one, in
// version 2.
func ownCgroup(controller string) string {
	file, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.SplitN(lines.Text(), ":", 3)
		if len(fields) == 3 && fields[1] == controller {
			return fields[2]
		}
	}
	return ""
}

// Command returns a command that enters the cgroup before it runs the program.
func (c *container) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	const enter = `echo $$ >"$0" && exec "$@"`
	return c.Host.Command(ctx, "/bin/sh", append([]string{"-c", enter, filepath.Join(c.dir, "cgroup.procs"), name}, args...)...)
}

// remove removes the cgroup, in which nothing may run any more.
func (c *container) remove() error { return os.Remove(c.dir) }
