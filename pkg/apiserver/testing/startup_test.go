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

package testing

import (
	"context"
	"net"
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/testing/cluster"
	"restaurant.programming-kubernetes.info/apiserver/test/workshop"
)

// configure returns the completed options of a server that is not started.
func configure(t *testing.T, of *cluster.Cluster, args ...string) apiserver.CompletedOptions {
	t.Helper()
	options := apiserver.NewOptions("test", workshop.Group())
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	for _, section := range options.Flags().FlagSets {
		flags.AddFlagSet(section)
	}
	require.NoError(t, flags.Parse(append([]string{"--data-dir=" + shortTempDir(t), "--kubeconfig=" + of.Kubeconfig(t), jsonStorage}, args...)))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	options.SecureServing.Listener = listener
	completed, err := options.Complete()
	require.NoError(t, err)
	return completed
}

// failing answers requests for a path with a status.
func failing(name string, code int) func(*cluster.Cluster) {
	return func(c *cluster.Cluster) {
		c.Fail(func(req *http.Request) int {
			if path.Base(req.URL.Path) == name {
				return code
			}
			return 0
		})
	}
}

func publishing(data map[string]string) func(*cluster.Cluster) {
	return func(c *cluster.Cluster) { c.Publish(data) }
}

func forbidding(verb, resource string) func(*cluster.Cluster) {
	return func(c *cluster.Cluster) {
		c.AllowSelf(func(attributes authorizationv1.ResourceAttributes) bool {
			return attributes.Verb != verb || attributes.Resource != resource
		})
	}
}

// TestWaiting is about everything that a server waits for, and the advice in its errors.
func TestWaiting(t *testing.T) {
	t.Parallel()
	const (
		published = "extension-apiserver-authentication"
		waited    = "the cluster was not ready within --startup-timeout: "
		admission = ": bind a ClusterRole to its user that allows get, list and watch, or disable the admission plugins that read it with --disable-admission-plugins"
		// slow is for what is looked at when the cluster is ready.
		slow      = "--startup-timeout=10s"
		delegator = ": bind the ClusterRole system:auth-delegator to its user with a ClusterRoleBinding"
	)
	users, proxies := string(cluster.NewCA(t, "users").PEM()), string(cluster.NewCA(t, "proxies").PEM())
	for name, test := range map[string]struct {
		cluster func(*cluster.Cluster)
		flags   []string
		// want begins the error, with HOST for the cluster's address.
		want string
	}{
		"kube-apiserver has just started": {publishing(nil), nil, waited + "kube-apiserver at HOST has not published the ConfigMap " + published + " in kube-system yet"},
		"kube-apiserver fails":            {failing(published, 500), nil, waited + "kube-apiserver at HOST can't be reached: check that it runs, and the address in the file of --kubeconfig ("},
		"no credentials":                  {failing(published, 401), nil, waited + "kube-apiserver at HOST does not accept the credentials of this server: check the file of --kubeconfig, or the token of the service account ("},
		"no role binding":                 {failing(published, 403), nil, waited + "this server may not read the ConfigMap " + published + ": bind the Role extension-apiserver-authentication-reader in kube-system to its user with a RoleBinding ("},
		"no request-header CA":            {publishing(map[string]string{"client-ca-file": users}), nil, waited + "there is no request-header CA, so no front proxy can assert an identity: start kube-apiserver with --requestheader-client-ca-file, which it publishes in the ConfigMap " + published + ", or this server with a flag of the same name"},
		"a CA that is none":               {publishing(map[string]string{"requestheader-client-ca-file": "none"}), nil, waited + "requestheader-client-ca-file in the ConfigMap " + published + " holds no certificates; see the file of this flag of kube-apiserver: "},
		"names that are not a list":       {publishing(map[string]string{"requestheader-client-ca-file": proxies, "requestheader-allowed-names": "me"}), nil, waited + "requestheader-allowed-names in the ConfigMap " + published + " is not a JSON list: "},
		"reviews can't be asked for":      {failing("selfsubjectaccessreviews", 500), nil, waited + "kube-apiserver at HOST does not say whether this server may create tokenreviews.authentication.k8s.io: "},
		"no tokens may be reviewed":       {forbidding("create", "tokenreviews"), nil, waited + "this server may not create tokenreviews.authentication.k8s.io" + delegator},
		"no access may be reviewed":       {forbidding("create", "subjectaccessreviews"), nil, waited + "this server may not create subjectaccessreviews.authorization.k8s.io" + delegator},
		"admission can't read":            {forbidding("list", "services"), nil, waited + "this server may not list services" + admission},
		"no etcd": {func(*cluster.Cluster) {}, []string{"--etcd-servers=http://127.0.0.1:1", slow},
			"etcd was not ready within --startup-timeout: etcd at [http://127.0.0.1:1] does not answer: check that it runs, its addresses in --etcd-servers, and --etcd-cafile, --etcd-certfile and --etcd-keyfile ("},
		// Waiting would fix none of these.
		"one CA for users and front proxies": {publishing(map[string]string{"client-ca-file": users, "requestheader-client-ca-file": users}), nil,
			`the server refuses to start: the request-header CA and the client CA overlap in "CN=users" and no --requestheader-allowed-names are set, so that every user with a client certificate could act as any other: give kube-apiserver a front-proxy CA of its own, or both servers the allowed names`},
		"a file that does not exist": {func(*cluster.Cluster) {}, []string{"--client-ca-file=missing.crt"},
			"the server refuses to start: --client-ca-file can't be used: "},
		"keys of etcd that do not exist": {func(*cluster.Cluster) {}, []string{"--etcd-servers=https://127.0.0.1:1", "--etcd-cafile=missing.crt", slow},
			"--etcd-cafile, --etcd-certfile or --etcd-keyfile can't be used: "},
		"no kubeconfig": {func(*cluster.Cluster) {}, []string{"--authorization-kubeconfig=missing"}, "reading the file of --authorization-kubeconfig: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := cluster.Start(t)
			test.cluster(of)
			_, err := configure(t, of, append([]string{"--startup-timeout=3s"}, test.flags...)...).Config(t.Context())
			want := strings.ReplaceAll(test.want, "HOST", of.URL())
			require.Error(t, err)
			require.True(t, strings.HasPrefix(err.Error(), want), "got  %v\nwant %s", err, want)
		})
	}
}

// A start does not wait longer for a kube-apiserver that accepts requests and answers none.
func TestSilentCluster(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"extension-apiserver-authentication": "can't be reached: check that it runs",
		"selfsubjectaccessreviews":           "does not say whether this server may create tokenreviews.authentication.k8s.io",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := cluster.Start(t)
			end := make(chan struct{})
			t.Cleanup(func() { close(end) })
			of.Fail(func(req *http.Request) int {
				if path.Base(req.URL.Path) == name {
					<-end
				}
				return 0
			})
			_, err := configure(t, of, "--startup-timeout=3s").Config(t.Context())
			require.ErrorContains(t, err, want)
		})
	}
}

// A server may be started before its cluster, and be told to stop while it waits.
func TestToldToStopWhileWaiting(t *testing.T) {
	t.Parallel()
	of := cluster.Start(t)
	of.Publish(nil)
	ctx, cancel := context.WithCancel(t.Context())
	of.Fail(func(*http.Request) int {
		cancel() // It has begun to wait.
		return 0
	})
	_, err := configure(t, of).Config(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

// A cluster that is missing at first may come.
func TestStartBeforeTheCluster(t *testing.T) {
	t.Parallel()
	of := cluster.Start(t)
	missing := http.StatusServiceUnavailable
	of.Fail(func(req *http.Request) int {
		if path.Base(req.URL.Path) != "extension-apiserver-authentication" {
			return 0
		}
		code := missing
		missing = 0 // The next request finds it.
		return code
	})
	server := startWith(t, Config{Cluster: of, Flags: []string{"--run-controllers=false"}})
	create(t, server.ClientConfig, "drill")
}

// A server without a permission that it can do without limits requests by itself.
func TestWithoutPriorities(t *testing.T) {
	t.Parallel()
	of := cluster.Start(t)
	forbidding("watch", "prioritylevelconfigurations")(of)
	server := startWith(t, Config{Cluster: of, Flags: []string{"--run-controllers=false"}})
	ready, code := get(t, server.ClientConfig, "/readyz?verbose")
	require.Equal(t, http.StatusOK, code)
	require.NotContains(t, ready, "priority-and-fairness")
	create(t, server.ClientConfig, "drill")
}

// A Config that fails leaves nothing behind that it has started.
func TestConfigThatFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		flags []string
		want  string
	}{
		"a certificate that does not exist": {[]string{"--tls-cert-file=missing.crt", "--tls-private-key-file=missing.key"},
			"TLS can't be served; check --tls-cert-file, --tls-private-key-file and the other --tls flags: "},
		"a plugin that can't be configured": {[]string{"--admission-control-config-file=" + file(t, `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins: [{name: ResourceQuota, configuration: {apiVersion: v1, kind: Config}}]
`)}, "--admission-control-config-file, or another flag of admission: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			completed := configure(t, cluster.Start(t), test.flags...)
			for range 2 {
				_, err := completed.Config(t.Context())
				require.ErrorContains(t, err, test.want)
				require.NotContains(t, err.Error(), "startup-timeout", "The first has kept the data directory.")
			}
		})
	}
}
