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
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// trouble is what happens to a request.
type trouble int

const (
	none trouble = iota
	// cut requests don't arrive, and neither does anything after them.
	cut
	// lost is the answer to a request that has arrived.
	lost
	// late answers come after lateness.
	late
)

const lateness = time.Second

// link is a connection of "migrate" to kube-apiserver or to the server's etcd.
type link struct {
	mu sync.Mutex
	// steps are the kinds of writes that have been met, each when it came first.
	steps []string
	// meets says what happens to a request, which is a write if it has a step.
	meets func(step string) trouble
	// refused are requests to kube-apiserver that it forbids, as method, path and body.
	refused *regexp.Regexp
	// whole is canceled when the connection is cut.
	whole context.Context
	cut   context.CancelFunc
}

// repair makes the connection a new one, to whose requests happens what a function says.
func (l *link) repair(meets func(step string) trouble) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps, l.meets = nil, meets
	l.whole, l.cut = context.WithCancel(context.Background())
}

// refuse forbids requests that match an expression, unless they are only tried. An empty one matches none.
func (l *link) refuse(expression string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = nil
	if expression != "" {
		l.refused = regexp.MustCompile(expression)
	}
}

// refuses answers a request that is refused.
func (l *link) refuses(w http.ResponseWriter, req *http.Request) bool {
	l.mu.Lock()
	refused := l.refused
	l.mu.Unlock()
	if refused == nil || req.Method == http.MethodGet || req.URL.Query().Has("dryRun") {
		return false
	}
	body, _ := io.ReadAll(req.Body)
	req.Body = io.NopCloser(bytes.NewReader(body))
	// In JSON or protobuf.
	if req.Method == http.MethodDelete && bytes.Contains(body, []byte(metav1.DryRunAll)) {
		return false
	}
	if !refused.MatchString(req.Method + " " + req.URL.Path + " " + string(body)) {
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"refused for good"}`)
	return true
}

func (l *link) broken() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.whole
}

// meet says what happens to a request.
func (l *link) meet(step string) trouble {
	l.mu.Lock()
	defer l.mu.Unlock()
	if step != "" && !slices.Contains(l.steps, step) {
		l.steps = append(l.steps, step)
	}
	happens := l.meets(step)
	if happens == cut {
		l.cut()
	}
	return happens
}

func fine(string) trouble { return none }

// cutAt cuts the connection for good at a step, counted from 1.
func (l *link) cutAt(step int) func(string) trouble {
	return func(string) trouble {
		if len(l.steps) >= step {
			return cut
		}
		return none
	}
}

// firstOfEach loses the first answer to each kind of writes.
func firstOfEach() func(string) trouble {
	seen := map[string]bool{}
	return func(step string) trouble {
		if step == "" || seen[step] {
			return none
		}
		seen[step] = true
		return lost
	}
}

// everyOther loses every other answer to a write.
func everyOther() func(string) trouble {
	writes := 0
	return func(step string) trouble {
		if step == "" {
			return none
		}
		writes++
		if writes%2 == 1 {
			return lost
		}
		return none
	}
}

// once loses one answer to a write, the first of a step.
func (l *link) once(step int) func(string) trouble {
	done := false
	return func(string) trouble {
		if len(l.steps) == step && !done {
			done = true
			return lost
		}
		return none
	}
}

func delayed(step string) trouble {
	if step == "" {
		return none
	}
	return late
}

// toKube returns a connection to kube-apiserver, with the flag that makes "migrate" use it.
func (c *cluster) toKube(t *testing.T) (l *link, flag string) {
	t.Helper()
	config := c.RESTConfig()
	transport, err := rest.TransportFor(config)
	require.NoError(t, err)
	target, err := url.Parse(config.Host)
	require.NoError(t, err)
	l = &link{}
	l.repair(fine)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if l.refuses(w, req) {
			return
		}
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		switch req = req.WithContext(ctx); l.meet(stepOfKube(req)) {
		case cut:
			panic(http.ErrAbortHandler)
		case lost:
			proxy.ServeHTTP(httptest.NewRecorder(), req)
			panic(http.ErrAbortHandler)
		case late:
			time.Sleep(lateness)
		}
		defer context.AfterFunc(l.broken(), cancel)()
		proxy.ServeHTTP(w, req)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = serverTLS(t, c.ControlPlane)
	server.StartTLS()
	t.Cleanup(server.Close)
	kubeconfig, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "a",
		"clusters": []any{map[string]any{"name": "a", "cluster": map[string]any{"server": server.URL, "certificate-authority": c.PKI.ServingCA.File}}},
		"contexts": []any{map[string]any{"name": "a", "context": map[string]any{"cluster": "a"}}},
	})
	require.NoError(t, err)
	return l, "--kubeconfig=" + framework.File(t, string(kubeconfig))
}

// kubeResource is what a path names.
var kubeResource = regexp.MustCompile(`^/(?:api|apis/[^/]+)/[^/]+/(?:namespaces/[^/]+/)?([^/]+)`)

func stepOfKube(req *http.Request) string {
	match := kubeResource.FindStringSubmatch(req.URL.Path)
	if req.Method == http.MethodGet || match == nil || req.URL.Query().Has("dryRun") || match[1] == "selfsubjectreviews" {
		return ""
	}
	return req.Method + " " + match[1]
}

// toEtcd returns a connection to the server's etcd, with the flag that makes "migrate" use it.
func (c *cluster) toEtcd(t *testing.T) (l *link, flag string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "") //nolint:usetesting // The path of a socket has to be short.
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	listener, err := net.Listen("unix", filepath.Join(dir, "etcd.sock"))
	require.NoError(t, err)
	proxy := passOn(t, listener, "unix://"+filepath.Join(c.dataDir, "etcd.sock"), insecure.NewCredentials())
	proxy.link = &link{}
	proxy.link.repair(fine)
	return proxy.link, "--data-dir=" + dir
}

const kvService = "/etcdserverpb.KV/"

// savedPhase is what the state says when it is written.
var savedPhase = regexp.MustCompile(`"phase":"(\w+)"`)

func stepOfEtcd(method string, request []byte) string {
	method = strings.TrimPrefix(method, kvService)
	if method == "Range" {
		return ""
	}
	if match := savedPhase.FindSubmatch(request); match != nil {
		return "saved " + string(match[1])
	}
	return method
}

// passOn passes on a request to etcd that has one answer.
func (l *link) passOn(method string, from grpc.ServerStream, to grpc.ClientStream) error {
	request, answer := &message{}, &message{}
	if err := from.RecvMsg(request); err != nil {
		return err
	}
	happens := l.meet(stepOfEtcd(method, request.content))
	if happens == cut {
		return status.Error(codes.Unavailable, "the connection is cut")
	}
	if err := to.SendMsg(request); err != nil {
		return err
	}
	if err := to.CloseSend(); err != nil {
		return err
	}
	if err := to.RecvMsg(answer); err != nil {
		return err
	}
	switch happens {
	case lost:
		return status.Error(codes.Unavailable, "the answer is lost")
	case late:
		time.Sleep(lateness)
	}
	return from.SendMsg(answer)
}

// over runs a command of "migrate" with connections that these flags are of.
func (c *cluster) over(t *testing.T, command string, args ...string) (code int, stderr string) {
	t.Helper()
	// It repeats what fails, and some waits of its own last for minutes.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, framework.Program(t, c.ControlPlane, c.binary), append(c.args(command), args...)...)
	cmd.Stderr = &said
	_ = cmd.Run() // The code says it.
	require.NoError(t, ctx.Err(), "It does not end:\n%s", &said)
	return cmd.ProcessState.ExitCode(), said.String()
}

// A migration whose answers are lost after kube-apiserver has done what was asked for, or are late, goes
// on as if nothing had happened.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	c := newDefinedCluster(t)
	kube, byKube := c.toKube(t)
	before := c.everything(t)
	informer := c.watch(t)
	kube.repair(firstOfEach()) // Each is asked for again after a second.
	code, stderr := c.over(t, "run", byKube)
	require.Equal(t, 0, code, stderr)
	require.Equal(t, "Moved", c.phase(t))
	require.Empty(t, cmp.Diff(before, c.everything(t)))
	informer.require(t, before)
	if testing.Short() {
		return
	}
	back := append(c.kubeEtcd(t), byKube)
	for name, way := range map[string][]string{"by kube-apiserver": {byKube}, "by its etcd": back} {
		kube.repair(everyOther())
		code, stderr = c.over(t, "back", way...)
		require.Equal(t, 0, code, "%s: %s", name, stderr)
		require.Empty(t, cmp.Diff(before, c.everything(t)))
		informer.require(t, before)
		code, stderr = c.over(t, "finish", way...)
		require.Equal(t, 0, code, stderr)
		kube.repair(delayed)
		code, stderr = c.over(t, "run", byKube)
		require.Equal(t, 0, code, stderr)
		require.Empty(t, cmp.Diff(before, c.everything(t)))
	}
	kube.repair(delayed)
	code, stderr = c.over(t, "back", back...)
	require.Equal(t, 0, code, stderr)
	require.Empty(t, cmp.Diff(before, c.everything(t)))
	informer.require(t, before)
}

// Each connection is cut for good, at each step. The migration can be aborted, or goes on if it is run
// again, and clients can use the objects then. The same holds if only an answer of etcd is lost.
// MIGRATION_CUTS=1000 does that at each step of both ways and not at a few, and MIGRATION_SEED repeats a
// failed run.
func TestCutConnections(t *testing.T) {
	framework.Long(t, "TestLostAnswers is the short one")
	t.Parallel()
	c := newDefinedCluster(t)
	before := c.everything(t)
	informer := c.watch(t)
	kube, byKube := c.toKube(t)
	etcd, byEtcd := c.toEtcd(t)
	walk := walk{cluster: c, args: []string{byKube, byEtcd}, kubeEtcd: c.kubeEtcd(t), same: func() {
		t.Helper()
		require.Empty(t, cmp.Diff(before, c.everything(t)))
		controlplane.Eventually(t, func() error { return c.createPizza(t, c.restaurant(), "between", nil) })
		require.NoError(t, c.pizzas().Delete(t.Context(), "between", metav1.DeleteOptions{}))
		informer.require(t, before)
	}}
	seed := number(t, "MIGRATION_SEED", rand.Uint64N(1<<32))
	t.Logf("MIGRATION_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, way := range []string{"run", "back"} {
		kube.repair(fine)
		etcd.repair(fine)
		walk.finish(t, way)
		var cuts []func(onwards bool)
		in := func(l *link, name string, meets func(step int) func(string) trouble) {
			for step, kind := range l.steps {
				cuts = append(cuts, func(onwards bool) {
					walk.through(t, way, fmt.Sprintf("%s at the step %d, %s", name, step+1, kind), onwards, func() { l.repair(meets(step + 1)) }, l)
				})
			}
		}
		in(kube, "kube-apiserver is cut", kube.cutAt)
		in(etcd, "etcd is cut", etcd.cutAt)
		in(etcd, "the answer of etcd is lost", etcd.once)
		walk.undo(t, way)
		random.Shuffle(len(cuts), func(i, j int) { cuts[i], cuts[j] = cuts[j], cuts[i] })
		for i, cut := range cuts[:min(len(cuts), int(number(t, "MIGRATION_CUTS", 2)))] {
			cut(i%2 == 0)
		}
		if way == "run" {
			walk.finish(t, way) // To go back.
		}
	}
}

// walk is what TestCutConnections does at each step.
type walk struct {
	*cluster
	// args are the flags of the connections, and kubeEtcd the flags for kube-apiserver's etcd.
	args, kubeEtcd []string
	same           func()
}

// command runs a command that has to succeed.
func (w walk) command(t *testing.T, command string, args ...string) {
	t.Helper()
	code, stderr := w.over(t, command, append(args, w.args...)...)
	require.Equal(t, 0, code, "%s: %s", command, stderr)
}

// finish goes all of a way.
func (w walk) finish(t *testing.T, way string) {
	t.Helper()
	args := []string(nil)
	if way == "back" {
		args = w.kubeEtcd
	}
	w.command(t, way, args...)
	w.same()
}

// undo makes it possible to go a way once more.
func (w walk) undo(t *testing.T, way string) {
	t.Helper()
	if way == "run" {
		w.finish(t, "back")
		w.command(t, "finish")
		return
	}
	w.command(t, "finish")
	w.finish(t, "run")
}

// through goes a way in trouble, and then on or back without any.
func (w walk) through(t *testing.T, way, name string, onwards bool, begin func(), l *link) {
	t.Helper()
	args := w.args
	if way == "back" {
		args = append(slices.Clone(w.args), w.kubeEtcd...)
	}
	begin()
	code, stderr := w.over(t, way, args...)
	l.repair(fine)
	phase := w.phase(t)
	t.Logf("%s, %s: code %d, %s", way, name, code, phase)
	last := map[string]string{"run": "Moved", "back": "Returned"}[way]
	if code == 0 {
		require.Equal(t, last, phase, "%s, %s: %s", way, name, stderr)
	}
	switch {
	case onwards, phase == "Releasing", phase == last:
		w.finish(t, way)
		w.undo(t, way)
	case strings.HasPrefix(phase, "Error: no migration"), way == "back" && phase == "Moved":
		w.same()
	default:
		w.command(t, "abort")
		w.same()
	}
}
