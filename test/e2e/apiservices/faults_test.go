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

package apiservices

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	command "restaurant.programming-kubernetes.info/apiserver/pkg/cmd/doctor"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// finding is a line of the plugin's.
type finding struct {
	Server, Check, Status, Cause, Since, Fix, Command string
}

func (f finding) String() string {
	return strings.Join([]string{f.Server, f.Status + " " + f.Check, f.Cause, f.Fix, f.Command}, " | ")
}

// examine runs the plugin and returns what is not as it should be.
func examine(args ...string) (wrong []finding, err error) {
	plugin := command.NewPlugin()
	var out bytes.Buffer
	plugin.SetOut(&out)
	plugin.SetErr(io.Discard)
	plugin.SetArgs(append([]string{"--kubeconfig=" + cp.Kubeconfig(), "--output=json", "--quiet"}, args...))
	failed := plugin.ExecuteContext(context.Background())
	var output struct{ Results []finding }
	if err := json.Unmarshal(out.Bytes(), &output); err != nil {
		return nil, fmt.Errorf("%w: %w", failed, err)
	}
	failures := slices.ContainsFunc(output.Results, func(found finding) bool { return found.Status == "failure" })
	if failures != (failed != nil) {
		err = fmt.Errorf("the exit code does not tell of failures: %w", failed)
	}
	return output.Results, err
}

// wanted is what is to be found. Cause and command are regular expressions.
type wanted struct{ status, check, cause, command string }

// fault is something that is wrong with a server.
type fault struct {
	// seed makes the fault.
	seed func(*testing.T, *scene)
	// want is what is found, and nothing if the server is healthy.
	want []wanted
	// cured is set if the commands that are found are all that it takes.
	cured bool
}

// TestFaults has all faults in a cluster at the same time, each with a server of its own. It pastes
// all commands that are found. Afterwards, nothing is worse, and what is to be cured is cured.
func TestFaults(t *testing.T) {
	all := faults(t)
	scenes := map[string]*scene{}
	var group errgroup.Group
	group.SetLimit(8)
	for number, name := range slices.Sorted(maps.Keys(all)) {
		scene := newScene(number)
		scenes[name] = scene
		all[name].seed(t, scene)
		group.Go(func() error { return scene.create(t) })
	}
	require.NoError(t, group.Wait())

	var found map[string][]finding
	eventually(t, func() (problems []string) {
		found = examineScenes(t, scenes)
		for name, fault := range all {
			if problem := compare(fault.want, found[name]); problem != "" {
				problems = append(problems, name+": "+problem)
			}
		}
		return problems
	})

	group = errgroup.Group{}
	group.SetLimit(4)
	for name, findings := range found {
		group.Go(func() error {
			for _, found := range findings {
				if output, err := shell(t, found.Command); err != nil && !fails.MatchString(found.Command) {
					return fmt.Errorf("%s: %s: %w: %s", name, found.Command, err, output)
				}
				scenes[name].pasted(found.Command)
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	eventually(t, func() (problems []string) {
		now := examineScenes(t, scenes)
		for name, fault := range all {
			if fault.cured && len(now[name]) > 0 {
				problems = append(problems, fmt.Sprintf("%s is not cured: %v", name, now[name]))
			}
			if worse(found[name], now[name]) {
				problems = append(problems, fmt.Sprintf("%s is worse than %v: %v", name, found[name], now[name]))
			}
		}
		return problems
	})
}

// fails matches commands that show what a server does not have, or what only a node or cert-manager
// has.
var fails = regexp.MustCompile(`^kubectl (get --raw=|logs |describe certificates\.cert-manager\.io )`)

func eventually(t *testing.T, try func() []string) {
	t.Helper()
	controlplane.Eventually(t, func() error {
		if problems := try(); len(problems) > 0 {
			slices.Sort(problems)
			return fmt.Errorf("%d problems:\n%s", len(problems), strings.Join(problems, "\n"))
		}
		return nil
	})
}

// examineScenes returns the findings by scene.
func examineScenes(t *testing.T, scenes map[string]*scene) map[string][]finding {
	t.Helper()
	results, err := examine()
	require.NoError(t, err)
	found := map[string][]finding{}
	for _, result := range results {
		for name, scene := range scenes {
			if namespace, _, _ := strings.Cut(strings.TrimPrefix(result.Server, "Service "), "/"); strings.TrimSuffix(namespace, "-gone") == scene.name {
				found[name] = append(found[name], result)
			}
		}
	}
	return found
}

// compare returns what differs between what is wanted and what was found.
func compare(want []wanted, found []finding) string {
	if len(found) != len(want) {
		return fmt.Sprintf("got %d findings, want %d: %v", len(found), len(want), found)
	}
	for i, want := range want {
		if got := found[i]; got.Status != want.status || got.Check != want.check || !regexp.MustCompile(want.cause).MatchString(got.Cause) || !regexp.MustCompile("^(?:"+want.command+")$").MatchString(got.Command) {
			return fmt.Sprintf("got %s, want %+v", got, want)
		}
	}
	return ""
}

// worse reports whether there is something now that was not there, or was only a warning.
func worse(before, now []finding) bool {
	return len(now) > len(before) || slices.ContainsFunc(now, func(now finding) bool {
		return !slices.ContainsFunc(before, func(before finding) bool {
			return before.Check == now.Check && (before.Status == now.Status || before.Status == "failure")
		})
	})
}

// shell runs a line as an operator pastes it.
func shell(t testing.TB, line string) (output []byte, err error) {
	t.Helper()
	kubectl := cp.Kubectl(context.WithoutCancel(t.Context()))
	command := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", line)
	command.Env = slices.Concat(kubectl.Env, []string{"PATH=" + filepath.Dir(kubectl.Path) + ":" + os.Getenv("PATH")})
	return command.CombinedOutput()
}
