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

package migration

import (
	"bufio"
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// Debian's, with the package python3-kubernetes.
const python = "/usr/bin/python3"

// Python's client lists page by page and retries nothing. It misses nothing on the way there and back, nor
// when the server restarts.
func TestPythonClient(t *testing.T) {
	framework.Long(t, "objects move there and back")
	if err := exec.CommandContext(t.Context(), python, "-c", "import kubernetes").Run(); err != nil {
		t.Skip("it needs Debian's python3-kubernetes")
	}
	t.Parallel()
	c := newDefinedCluster(t)
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, c.createPizza(t, c.restaurant(), name, nil))
	}
	follower := c.followInPython(t)
	change := func(created, deleted string) {
		t.Helper()
		controlplane.Eventually(t, func() error { return c.createPizza(t, c.restaurant(), created, nil) })
		require.NoError(t, c.pizzas().Delete(t.Context(), deleted, metav1.DeleteOptions{}))
		list, err := c.pizzas().List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		names := sets.New[string]()
		for _, pizza := range list.Items {
			names.Insert(pizza.GetName())
		}
		follower.await(t, names)
	}
	last := "before"
	change(last, "a")
	for _, command := range []string{"run", "back"} {
		code, _, stderr := c.migrate(t, command)
		require.Equal(t, 0, code, stderr)
		change("after-"+command, last)
		last = "after-" + command
		if command == "run" {
			require.NoError(t, c.server.Restart(t.Context()))
			change("restarted", "b")
		}
	}
	t.Logf("%v", follower.counts)
	require.NotZero(t, follower.counts["CONTINUED"])
	require.NotZero(t, follower.counts["FAILED 410"], "The switches end its watches.")
}

// pythonFollower is a process in Python that follows pizzas.
type pythonFollower struct {
	mu sync.Mutex
	// pizzas are those that it knows.
	pizzas sets.Set[string]
	// counts are how often it said something without a name.
	counts map[string]int
}

func (c *cluster) followInPython(t *testing.T) *pythonFollower {
	t.Helper()
	f := &pythonFollower{pizzas: sets.New[string](), counts: map[string]int{}}
	cmd := exec.CommandContext(t.Context(), python, "testdata/follow.py", c.Kubeconfig(), restaurant.GroupName, "v1", metav1.NamespaceDefault, "pizzas")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			f.note(lines.Text())
		}
	})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		reading.Wait()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(&stderr)
		}
	})
	return f
}

func (f *pythonFollower) note(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch what, name, _ := strings.Cut(line, " "); what {
	case "LISTED", "ADDED", "MODIFIED":
		f.pizzas.Insert(name)
	case "DELETED":
		f.pizzas.Delete(name)
	case "LISTING":
		f.pizzas = sets.New[string]()
	default:
		f.counts[line]++
	}
}

// await waits until the process knows these pizzas, and no others.
func (f *pythonFollower) await(t *testing.T, names sets.Set[string]) {
	t.Helper()
	controlplane.Eventually(t, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if diff := cmp.Diff(sets.List(names), sets.List(f.pizzas)); diff != "" {
			return fmt.Errorf("the client misses something (-want +got):\n%s%v", diff, f.counts)
		}
		return nil
	})
}
