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

// Package operations tests what operators live through: servers that start in any
// order, are misconfigured, stop, are killed, and lose what they depend on.
package operations

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// cp is the control plane that all tests share. Its own server stores objects in
// an etcd of its own. Tests that stop anything in it do not run in parallel, so
// that they are over when those that do run.
var cp *controlplane.ControlPlane

func TestMain(m *testing.M) {
	controlplane.Main(m, &cp, controlplane.Config{
		APIServer: controlplane.ServerConfig{
			Etcd: "storage",
			// What cannot be answered is not to take a minute to say so.
			ComponentConfig: controlplane.ComponentConfig{Flags: []string{"--request-timeout=" + requestTimeout.String()}},
		},
		ControllerManager: controlplane.ComponentConfig{Off: true},
	}, fixture.Toppings("tomato"))
}

const (
	// requestTimeout is how long the shared server may take for a request.
	requestTimeout = 6 * time.Second
	// patience bounds every wait for something that happens in its own time. It
	// is generous: how fast things are is not what is tested here.
	patience = time.Minute
)

var servers atomic.Int32

// newServer adds a server to a control plane. It is not started; the test's end
// stops it.
func newServer(t *testing.T, cp *controlplane.ControlPlane, config controlplane.ServerConfig) *controlplane.Component {
	t.Helper()
	// The path of the socket in its folder has to be short.
	server, err := cp.NewAPIServer(fmt.Sprintf("server-%d", servers.Add(1)), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	return server
}

// flags configures a server with an etcd of its own in its process.
func flags(flags ...string) controlplane.ServerConfig {
	return controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Flags: flags}}
}

// waitForLog waits until a component has logged something.
func waitForLog(t *testing.T, component *controlplane.Component, want string) {
	t.Helper()
	controlplane.Eventually(t, func() error {
		log, err := os.ReadFile(component.LogFile())
		if err == nil && !strings.Contains(string(log), want) {
			return fmt.Errorf("%s has not logged %q, but:\n%s", component.Name(), want, log)
		}
		return err
	})
}

// end waits until a component has ended and returns how.
func end(t *testing.T, component *controlplane.Component) string {
	t.Helper()
	controlplane.Eventually(t, func() error {
		if pid := component.PID(); pid != 0 {
			return fmt.Errorf("%s still runs as process %d", component.Name(), pid)
		}
		return nil
	})
	_, how, _ := strings.Cut(component.WaitReady(t.Context()).Error(), " ended by itself, ")
	how, _, _ = strings.Cut(how, ":")
	return how
}

// execute runs the server's binary, which must end by itself, and returns its exit
// code with what it has printed.
func execute(t *testing.T, args ...string) (code int, output string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(cp.Kubectl(ctx).Path), "apiserver"), args...)
	var buffer bytes.Buffer
	cmd.Stdout, cmd.Stderr = &buffer, &buffer
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	require.NoError(t, ctx.Err(), "The server has not ended by itself: %s", buffer.String())
	return cmd.ProcessState.ExitCode(), buffer.String()
}

// configFor is a client configuration for a user at a component. An administrator
// is in the group system:masters.
func configFor(t *testing.T, cp *controlplane.ControlPlane, at *controlplane.Component, user string, groups ...string) *rest.Config {
	t.Helper()
	config, err := cp.RESTConfigFor(user, groups...)
	require.NoError(t, err)
	config.Host = at.URL()
	config.WarningHandler = rest.NoWarnings{}
	return config
}

// client is an administrator's at a component.
func client(t *testing.T, at *controlplane.Component) versioned.Interface {
	t.Helper()
	return versioned.NewForConfigOrDie(configFor(t, cp, at, "admin", "system:masters"))
}

// get returns the code and the body of the answer to an administrator.
func get(t *testing.T, at *controlplane.Component, path string) (code int, body string) {
	t.Helper()
	code, body, err := getAs(t, configFor(t, cp, at, "admin", "system:masters"), path)
	require.NoError(t, err)
	return code, body
}

// getAs returns an error if there is no answer.
func getAs(t *testing.T, config *rest.Config, path string) (code int, body string, err error) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	defer client.CloseIdleConnections()
	response, err := client.Get(config.Host + path)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}

// waitUnready waits until a server says which check keeps it from being ready.
func waitUnready(t *testing.T, server *controlplane.Component, check string) {
	t.Helper()
	controlplane.Eventually(t, func() error {
		code, body, err := getAs(t, configFor(t, cp, server, "admin", "system:masters"), "/readyz?verbose")
		if err == nil && (code != http.StatusInternalServerError || !strings.Contains(body, "\n[-]"+check+" failed")) {
			return fmt.Errorf("%s does not say that %s failed, but: %d %s", server.Name(), check, code, body)
		}
		return err
	})
}

// stock gives a server with an etcd of its own what pizzas need.
func stock(t *testing.T, at *controlplane.Component) {
	t.Helper()
	require.NoError(t, fixture.CreateToppings(t.Context(), client(t, at), "tomato"))
}

func pizza(name string) *restaurantv1.Pizza {
	return &restaurantv1.Pizza{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       restaurantv1.PizzaSpec{Toppings: []restaurantv1.PizzaTopping{{Name: "tomato"}}},
	}
}

// freePort is a port that nobody listens on now.
func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().(*net.TCPAddr).Port
}
