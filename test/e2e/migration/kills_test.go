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
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// number is an environment variable, or what it is by default.
func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	value, err := strconv.ParseUint(text, 10, 32)
	require.NoError(t, err, variable)
	return value
}

// killsPerMove is how much is killed on each way at most.
const killsPerMove = 3

// The tool, the server with its etcd, kube-apiserver or kube-apiserver's etcd is killed during a
// migration, again and again and wherever it is. The migration ends with an error or goes on. When it
// is run again, all objects are where they should be, as they were, and own what they owned. Clients
// write all the time, and no write is lost that was acknowledged. MIGRATION_KILLS=100 does that more
// often than once, and MIGRATION_SEED repeats what has failed.
func TestKilledServers(t *testing.T) {
	framework.Long(t, "everything is killed")
	t.Parallel()
	c := newDefinedCluster(t)
	args := c.kubeEtcd(t)
	require.NoError(t, c.createPizza(t, c.restaurant(), "owner", func(pizza metav1.Object) { pizza.SetFinalizers([]string{"example.com/kept"}) }))
	c.dependent(t, "owner")
	want := c.everything(t)
	seed := number(t, "MIGRATION_SEED", rand.Uint64N(1<<32))
	t.Logf("MIGRATION_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	writers := c.startWriters(t)
	for range number(t, "MIGRATION_KILLS", 1) {
		c.moveKilled(t, random, "run")
		requireSame(t, c, writers, want)
		c.moveKilled(t, random, "back", args...)
		requireSame(t, c, writers, want)
		code, _, stderr := c.migrate(t, "finish")
		require.Equal(t, 0, code, stderr)
	}
	_, err := framework.Kube(c.ControlPlane).CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(t.Context(), "of-owner", metav1.GetOptions{})
	require.NoError(t, err)
}

// moveKilled runs a command of "migrate" until it succeeds. At first something is killed each time,
// when the command has said some lines.
func (c *cluster) moveKilled(t *testing.T, random *rand.Rand, command string, args ...string) {
	t.Helper()
	victims := []*controlplane.Component{nil, c.server, c.KubeAPIServer, c.Etcd}
	for range 1 + random.IntN(killsPerMove) {
		c.killAfter(t, 1+random.IntN(12), victims[random.IntN(len(victims))], command, args...)
	}
	controlplane.Eventually(t, func() error {
		if code, _, stderr := c.migrate(t, command, args...); code != 0 {
			return fmt.Errorf("%s: %s", command, stderr)
		}
		return nil
	})
}

// killAfter runs a command of "migrate" and kills something when it has said some lines: the command
// itself if there is no other victim.
func (c *cluster) killAfter(t *testing.T, lines int, victim *controlplane.Component, command string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, framework.Program(t, c.ControlPlane, c.binary), append(c.args(command), args...)...)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var said []string
	for scanner := bufio.NewScanner(stderr); scanner.Scan(); {
		said = append(said, scanner.Text())
		if len(said) != lines {
			continue
		}
		if victim == nil {
			said = append(said, "--- the command is killed")
			require.NoError(t, cmd.Process.Kill())
			continue
		}
		said = append(said, "--- "+victim.Name()+" is killed")
		victim.Kill()
		require.NoError(t, victim.Start(t.Context()))
	}
	t.Logf("%s: %v:\n%s", command, cmd.Wait(), strings.Join(said, "\n"))
}

// writers count in an annotation of an object each, and repeat whatever fails. Each write requires
// that the one before it is there.
type writers struct {
	stop func()
	uids []types.UID

	mu sync.Mutex
	// acknowledged are the last numbers that were.
	acknowledged []int
	lost         []string
}

func (c *cluster) startWriters(t *testing.T) *writers {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	w := &writers{acknowledged: make([]int, 4), stop: func() {
		cancel()
		wg.Wait()
	}}
	t.Cleanup(w.stop)
	for i := range w.acknowledged {
		name := writtenBy(i)
		require.NoError(t, c.createPizza(t, c.restaurant(), name, func(pizza metav1.Object) { pizza.SetAnnotations(map[string]string{counted: "0"}) }))
		pizza, err := c.pizzas().Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		w.uids = append(w.uids, pizza.GetUID())
		wg.Go(func() {
			for n := 1; every(ctx, 20*time.Millisecond); {
				if w.count(ctx, c, i, n) {
					n++
				}
			}
		})
	}
	return w
}

// every waits, and says whether to go on.
func every(ctx context.Context, interval time.Duration) bool {
	select {
	case <-time.After(interval):
		return true
	case <-ctx.Done():
		return false
	}
}

// count writes a number, and says whether it is acknowledged.
func (w *writers) count(ctx context.Context, c *cluster, i, n int) bool {
	const path = "/metadata/annotations/example.com~1count"
	patch := fmt.Appendf(nil, `[{"op": "test", "path": %q, "value": "%d"}, {"op": "replace", "path": %q, "value": "%d"}]`, path, n-1, path, n)
	pizza, err := c.pizzas().Patch(ctx, writtenBy(i), types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil {
		// It may have been written all the same.
		if pizza, err = c.pizzas().Get(ctx, writtenBy(i), metav1.GetOptions{}); err != nil {
			return false
		}
	}
	got := pizza.GetAnnotations()[counted]
	w.mu.Lock()
	defer w.mu.Unlock()
	switch got {
	case strconv.Itoa(n):
		w.acknowledged[i] = n
		return true
	case strconv.Itoa(n - 1):
	default:
		w.lost = append(w.lost, fmt.Sprintf("%s has the number %s after %d", writtenBy(i), got, n-1))
	}
	return false
}

// counted is the annotation with the number.
const counted = "example.com/count"

func writtenBy(i int) string { return fmt.Sprintf("written-%d", i) }

func (w *writers) losses() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.lost)
}

func (w *writers) last() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.acknowledged)
}

// require requires that clients can write, and that nothing is lost of what was acknowledged.
func (w *writers) require(t *testing.T, c *cluster) {
	t.Helper()
	before := w.last()
	controlplane.Eventually(t, func() error {
		for i, n := range w.last() {
			if len(w.losses()) > 0 {
				return nil
			}
			if n == before[i] {
				return fmt.Errorf("%s has not been written again after %d", writtenBy(i), n)
			}
		}
		return nil
	})
	require.Empty(t, w.losses(), "Writes that were acknowledged are lost.")
	before = w.last()
	for i, n := range before {
		pizza, err := c.pizzas().Get(t.Context(), writtenBy(i), metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, w.uids[i], pizza.GetUID())
		got, err := strconv.Atoi(pizza.GetAnnotations()[counted])
		require.NoError(t, err)
		require.GreaterOrEqual(t, got, n, "A write that was acknowledged is lost.")
	}
}

func requireSame(t *testing.T, c *cluster, writers *writers, want map[string]*unstructured.Unstructured) {
	t.Helper()
	writers.require(t, c)
	found := c.everything(t)
	for i := range writers.uids {
		delete(found, "pizzas/"+metav1.NamespaceDefault+"/"+writtenBy(i))
	}
	require.Empty(t, cmp.Diff(want, found))
}
