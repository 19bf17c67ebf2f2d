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

package operations

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const (
	// allowed and undecided are answers, as framework.Send returns them.
	allowed   = "200 , Retry-After: "
	undecided = "503 kube-apiserver can't be asked whether this request is allowed, Retry-After: 1"
)

// signal sends a signal to a component that runs. The id 0 of one that does not would be
// this process and all that belong to it.
func signal(t *testing.T, component *controlplane.Component, signal syscall.Signal) {
	t.Helper()
	pid := component.PID()
	require.NotZero(t, pid, "%s does not run.", component.Name())
	require.NoError(t, syscall.Kill(pid, signal))
	if signal == syscall.SIGSTOP {
		controlplane.Eventually(t, func() error { return requireStopped(pid) })
	}
}

// requireStopped returns an error while a thread of the process still runs: on a busy machine
// it does so for a while after the signal.
func requireStopped(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		return err
	}
	for _, thread := range threads {
		status, err := os.ReadFile(thread)
		if err != nil {
			return err
		}
		if !bytes.Contains(status, []byte("\nState:\tT")) {
			return fmt.Errorf("%s is not of a stopped thread", thread)
		}
	}
	return nil
}

// waitForAnswer waits until a GET of the pizzas has an answer.
func waitForAnswer(t *testing.T, config *rest.Config, want string) {
	t.Helper()
	controlplane.Eventually(t, func() error {
		got, err := framework.Send(config, http.MethodGet, framework.PizzasPath, "", "")
		if err == nil && got != want {
			err = fmt.Errorf("the answer is %q, not %q", got, want)
		}
		return err
	})
}

// While etcd is unavailable, no request waits for it as long as it may, and the server says by
// name what is missing.
func TestRequestsDoNotWaitForEtcd(t *testing.T) {
	framework.Long(t, "timeouts are waited for")
	t.Parallel()
	const requestTimeout = time.Hour
	config := framework.Flags("--request-timeout="+requestTimeout.String(), "--run-controllers=false")
	config.Etcd = "brownout"
	server := framework.NewServer(t, cp, config)
	etcd := cp.Component(config.Etcd)
	require.NoError(t, etcd.Start(t.Context()))
	require.NoError(t, server.Start(t.Context()))
	framework.Stock(t, cp, server)
	pizzas := framework.ClientAt(t, cp, server).RestaurantV1().Pizzas("default")
	_, err := pizzas.Create(t.Context(), framework.Pizza("before"), metav1.CreateOptions{})
	require.NoError(t, err)
	watcher, err := pizzas.Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer watcher.Stop()
	require.Equal(t, watch.Added, framework.Next(t, watcher).Type)

	const (
		again   = "504 Timeout: etcd has not answered in time, Retry-After: 2"
		unknown = "504 Timeout: etcd has not answered in time, so that it is not known whether the action has been executed: " +
			`read pizzas.restaurant.programming-kubernetes.info "before" before you send it again, Retry-After: `
	)
	for _, away := range []struct {
		name        string
		leave, back func()
	}{
		{"stopped", func() { require.NoError(t, etcd.Stop()) }, func() { require.NoError(t, etcd.Start(t.Context())) }},
		{"frozen", func() { signal(t, etcd, syscall.SIGSTOP) }, func() { signal(t, etcd, syscall.SIGCONT) }},
	} {
		away.leave()
		admin := framework.AdminConfig(t, cp, server)
		var requests sync.WaitGroup
		for _, request := range []struct{ method, path, contentType, body, want string }{
			{"GET", framework.PizzasPath, "", "", again},
			{"GET", framework.PizzasPath + "/before", "", "", again},
			{"POST", framework.PizzasPath, "application/json", `{"metadata":{"name":"during"},"spec":{"toppings":[{"name":"tomato"}]}}`, again},
			{"POST", framework.PizzasPath + "/before/bake", "application/json", "{}", unknown},
			{"PATCH", framework.PizzasPath + "/before", "application/merge-patch+json", `{"spec":{"replicas":2}}`, again},
			{"DELETE", framework.PizzasPath + "/before", "", "", again},
		} {
			requests.Go(func() {
				got, err := framework.Send(admin, request.method, request.path, request.contentType, request.body)
				if err != nil {
					got = err.Error()
				}
				assert.Equal(t, request.want, got, "%s %s", request.method, request.path)
			})
		}
		requests.Wait()
		framework.WaitUnready(t, cp, server, "etcd")
		for path, want := range map[string]int{"/livez": http.StatusOK, "/healthz": http.StatusInternalServerError} {
			code, body := framework.Get(t, cp, server, path+"?verbose")
			require.Equal(t, want, code, "%s: %s", path, body)
		}
		_, body := framework.Get(t, cp, server, "/healthz?verbose")
		require.Contains(t, body, "\n[-]etcd failed")

		away.back()
		require.NoError(t, server.WaitReady(t.Context()))
		_, err = pizzas.Patch(t.Context(), "before", types.MergePatchType, []byte(`{"metadata":{"labels":{"seen":"`+away.name+`"}}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		require.Equal(t, watch.Modified, framework.Next(t, watcher).Type, "The watch does not go on after the outage.")
	}
}

// While kube-apiserver is unavailable, a server knows for some seconds more what users may
// do. It refuses all others in a way that makes clients try again.
func TestKubeAPIServerGoesAwayAndComesBack(t *testing.T) {
	framework.Long(t, "kube-apiserver is restarted")
	server := cp.APIServer
	pid := server.PID()
	readers := map[string]*rest.Config{
		"known":           framework.ConfigFor(t, cp, server, "known"),
		"known, by proxy": framework.FrontProxy(t, cp, server, cp.PKI.FrontProxyCA, "known-by-proxy", "system:authenticated"),
	}
	strangers := map[string]*rest.Config{
		"unknown":           framework.ConfigFor(t, cp, server, "unknown"),
		"unknown, by proxy": framework.FrontProxy(t, cp, server, cp.PKI.FrontProxyCA, "unknown-by-proxy", "system:authenticated"),
	}
	framework.Kubectl(t, cp, "create", "role", "reader", "--verb=list", "--resource=pizzas.restaurant.programming-kubernetes.info")
	framework.Kubectl(t, cp, "create", "rolebinding", "reader", "--role=reader", "--user=known", "--user=unknown", "--user=known-by-proxy", "--user=unknown-by-proxy")
	for _, reader := range readers {
		waitForAnswer(t, reader, allowed)
	}

	cp.KubeAPIServer.Kill()
	for name, reader := range readers {
		got, err := framework.Send(reader, http.MethodGet, framework.PizzasPath, "", "")
		require.NoError(t, err)
		require.Equal(t, allowed, got, "The decision about a reader that is %s is not remembered.", name)
	}
	for name, stranger := range strangers {
		got, err := framework.Send(stranger, http.MethodGet, framework.PizzasPath, "", "")
		require.NoError(t, err)
		require.Equal(t, undecided, got, "A reader is %s.", name)
		got, err = framework.Send(stranger, http.MethodGet, "/version", "", "")
		require.NoError(t, err)
		require.Equal(t, undecided, got, "A reader is %s.", name)
	}
	early := framework.NewServer(t, cp, framework.Flags("--run-controllers=false"))
	require.NoError(t, early.Launch())
	framework.WaitForLog(t, early, `"Waiting for the cluster" reason="kube-apiserver at `+cp.KubeAPIServer.URL()+` can't be reached: `)
	anybody := framework.ConfigFor(t, cp, server, "anybody")
	anybody.CertData, anybody.KeyData, anybody.BearerToken = nil, nil, "a-token"
	got, err := framework.Send(anybody, http.MethodGet, framework.PizzasPath, "", "")
	require.NoError(t, err)
	require.Equal(t, "401 Unauthorized, Retry-After: ", got)
	for _, reader := range readers {
		waitForAnswer(t, reader, undecided)
	}

	// This is what a client makes of it.
	err = versioned.NewForConfigOrDie(strangers["unknown"]).RestaurantV1().RESTClient().Get().AbsPath(framework.PizzasPath).MaxRetries(0).Do(t.Context()).Error()
	require.True(t, apierrors.IsServiceUnavailable(err), "%v", err)
	seconds, retry := apierrors.SuggestsClientDelay(err)
	require.True(t, retry)
	require.Equal(t, 1, seconds)
	var status apierrors.APIStatus
	require.ErrorAs(t, err, &status)
	require.Equal(t, "kube-apiserver can't be asked whether this request is allowed", status.Status().Message)

	// An administrator needs nobody's permission, and nobody needs any to see that the
	// server is well.
	code, body := framework.Get(t, cp, server, framework.PizzasPath)
	require.Equal(t, http.StatusOK, code, body)
	nobody := framework.ConfigFor(t, cp, server, "nobody")
	nobody.CertData, nobody.KeyData = nil, nil
	for _, path := range []string{"/livez", "/healthz", "/readyz"} {
		code, body, err := framework.GetAs(t, nobody, path)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, code, "%s: %s", path, body)
	}

	require.NoError(t, cp.KubeAPIServer.Start(t.Context()))
	require.NoError(t, early.WaitReady(t.Context()), "A server that was started before its cluster.")
	for _, reader := range readers {
		waitForAnswer(t, reader, allowed)
	}
	for _, stranger := range strangers {
		waitForAnswer(t, stranger, allowed)
	}
	require.NoError(t, cp.WaitAvailable(t.Context()))
	code, body = framework.Get(t, cp, cp.KubeAPIServer, framework.PizzasPath)
	require.Equal(t, http.StatusOK, code, body)
	require.Equal(t, pid, server.PID(), "The server has been restarted.")
}
