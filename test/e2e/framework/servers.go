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

package framework

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// servers counts the servers of NewServer, for their names.
var servers atomic.Int32

// NewServer adds a server to a control plane without starting it. The server stops when the test
// ends.
func NewServer(t *testing.T, cp *controlplane.ControlPlane, config controlplane.ServerConfig) *controlplane.Component {
	t.Helper()
	// The name is short, since the path of the socket in the server's directory has to be short.
	server, err := cp.NewAPIServer(fmt.Sprintf("server-%d", servers.Add(1)), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	return server
}

// Flags returns the configuration of a server with an etcd in its process.
func Flags(flags ...string) controlplane.ServerConfig {
	return controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Flags: flags}}
}

// WaitForLog waits until a component has logged something.
func WaitForLog(t *testing.T, component *controlplane.Component, want string) {
	t.Helper()
	controlplane.Eventually(t, func() error {
		log, err := os.ReadFile(component.LogFile())
		if err == nil && !strings.Contains(string(log), want) {
			return fmt.Errorf("%s has not logged %q, but:\n%s", component.Name(), want, log)
		}
		return err
	})
}

// ConfigFor returns a client configuration for a user at a component. An administrator is in the
// group system:masters.
func ConfigFor(t *testing.T, cp *controlplane.ControlPlane, at *controlplane.Component, user string, groups ...string) *rest.Config {
	t.Helper()
	config, err := cp.RESTConfigFor(user, groups...)
	require.NoError(t, err)
	config.Host = at.URL()
	config.WarningHandler = rest.NoWarnings{}
	return config
}

// AdminConfig returns an administrator's client configuration at a component.
func AdminConfig(t *testing.T, cp *controlplane.ControlPlane, at *controlplane.Component) *rest.Config {
	t.Helper()
	return ConfigFor(t, cp, at, "admin", "system:masters")
}

// ClientAt returns an administrator's client at a component.
func ClientAt(t *testing.T, cp *controlplane.ControlPlane, at *controlplane.Component) versioned.Interface {
	t.Helper()
	return versioned.NewForConfigOrDie(AdminConfig(t, cp, at))
}

// Get returns the code and the body of a component's answer to an administrator.
func Get(t *testing.T, cp *controlplane.ControlPlane, at *controlplane.Component, path string) (code int, body string) {
	t.Helper()
	code, body, err := GetAs(t, AdminConfig(t, cp, at), path)
	require.NoError(t, err)
	return code, body
}

// GetAs returns the code and the body of an answer to a user, or an error if there is none.
func GetAs(t *testing.T, config *rest.Config, path string) (code int, body string, err error) {
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

// WaitUnready waits until a server says which check keeps it from being ready.
func WaitUnready(t *testing.T, cp *controlplane.ControlPlane, server *controlplane.Component, check string) {
	t.Helper()
	controlplane.Eventually(t, func() error {
		code, body, err := GetAs(t, AdminConfig(t, cp, server), "/readyz?verbose")
		if err == nil && (code != http.StatusInternalServerError || !strings.Contains(body, "\n[-]"+check+" failed")) {
			return fmt.Errorf("%s does not say that %s failed, but: %d %s", server.Name(), check, code, body)
		}
		return err
	})
}

// Stock creates the Topping of a Pizza in a server with its own etcd.
func Stock(t *testing.T, cp *controlplane.ControlPlane, at *controlplane.Component) {
	t.Helper()
	require.NoError(t, fixture.CreateToppings(t.Context(), ClientAt(t, cp, at), "tomato"))
}

// Pizza returns a Pizza with one tomato.
func Pizza(name string) *restaurantv1.Pizza {
	return &restaurantv1.Pizza{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       restaurantv1.PizzaSpec{Toppings: []restaurantv1.PizzaTopping{{Name: "tomato"}}},
	}
}

// EtcdConfig returns a client configuration for an etcd of the control plane.
func EtcdConfig(t *testing.T, cp *controlplane.ControlPlane, etcd *controlplane.Component) clientv3.Config {
	t.Helper()
	config, err := cp.EtcdTLS()
	require.NoError(t, err)
	return clientv3.Config{Endpoints: []string{etcd.URL()}, Logger: zap.NewNop(), TLS: config}
}

// EtcdClient returns a client of an etcd of the control plane. It is closed when the test ends.
func EtcdClient(t *testing.T, cp *controlplane.ControlPlane, etcd *controlplane.Component) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(EtcdConfig(t, cp, etcd))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// DataDir returns the data directory of a server with an etcd in its process.
func DataDir(server *controlplane.Component) string { return filepath.Join(server.Dir(), "data") }

// FreePort returns a port that no process listens on now.
func FreePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().(*net.TCPAddr).Port
}
