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

// Package testing runs API servers in the process of a test. Each has a free port, an etcd
// and a data directory of its own. They extend a stub of kube-apiserver, whose answers the
// test can set. So all of a server runs as it does in a cluster, except for the work of
// kube-apiserver itself. Only tests with a real kube-apiserver show what it does: see
// test/controlplane.
package testing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/testing/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// patience is how long a server may take to become ready or to stop on a busy machine.
const patience = 2 * time.Minute

// Config describes a server to start.
type Config struct {
	// Name is the name of the server, by default "test". Servers that run at once and have
	// metrics of their own have different names.
	Name string
	// Groups are those that it serves.
	Groups []registry.Group
	// Flags are flags of the command, besides those for the port, the data directory and the
	// kubeconfig.
	Flags []string
	// Cluster is the cluster that it extends, by default one of its own.
	Cluster *cluster.Cluster
}

// Server runs until the end of the test, or until it is stopped.
type Server struct {
	// ClientConfig is for a client that may do everything.
	ClientConfig *rest.Config
	// Cluster is the cluster that the server extends.
	Cluster *cluster.Cluster
	// Dir is the data directory.
	Dir string

	stop   context.CancelFunc
	result chan error
}

// StartTestServer starts a server and returns when it is ready. It is stopped at the end of
// the test, which fails if the server fails.
func StartTestServer(t testing.TB, config Config) *Server {
	t.Helper()
	s := &Server{Cluster: config.Cluster, Dir: shortTempDir(t), result: make(chan error, 1)}
	if s.Cluster == nil {
		s.Cluster = cluster.Start(t)
	}
	options := apiserver.NewOptions(cmp.Or(config.Name, "test"), config.Groups...)
	serving := cluster.NewCA(t, "serving")
	if err := s.configure(t, options, serving, config.Flags); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	server, err := newServer(ctx, options)
	if err != nil {
		stop()
		t.Fatal(err)
	}
	go func() { s.result <- server.Run(ctx) }()
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("the server of the test: %v", err)
		}
	})
	s.ClientConfig = &rest.Config{Host: "https://" + options.SecureServing.Listener.Addr().String(), QPS: -1}
	s.ClientConfig.CAData = serving.PEM()
	s.ClientConfig = s.UserConfig(t, "admin", user.SystemPrivilegedGroup)
	if err := s.awaitReady(); err != nil {
		t.Fatal(err)
	}
	return s
}

// configure sets the options that differ between servers.
func (s *Server) configure(t testing.TB, options *apiserver.Options, serving *cluster.CA, args []string) error {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	for _, section := range options.Flags().FlagSets {
		flags.AddFlagSet(section)
	}
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	cert, key := serving.ServingCertificate(t)
	if err := errors.Join(os.WriteFile(certFile, cert, 0o600), os.WriteFile(keyFile, key, 0o600)); err != nil {
		return err
	}
	if err := flags.Parse(append([]string{
		"--data-dir=" + s.Dir, "--kubeconfig=" + s.Cluster.Kubeconfig(t), "--bind-address=127.0.0.1",
		"--tls-cert-file=" + certFile, "--tls-private-key-file=" + keyFile,
	}, args...)); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	options.SecureServing.Listener = listener
	return nil
}

func newServer(ctx context.Context, options *apiserver.Options) (*apiserver.Server, error) {
	completed, err := options.Complete()
	if err != nil {
		return nil, err
	}
	if err := utilerrors.NewAggregate(completed.Validate()); err != nil {
		return nil, err
	}
	config, err := completed.Config(ctx)
	if err != nil {
		return nil, err
	}
	return config.Complete().New()
}

// Stop stops the server, if it still runs, and returns its error.
func (s *Server) Stop() error {
	s.stop()
	select {
	case err := <-s.result:
		s.result <- nil // The error has been returned.
		return err
	case <-time.After(patience):
		return fmt.Errorf("it has not stopped within %s", patience)
	}
}

// UserConfig returns the configuration of a client that connects directly with the
// certificate of a user.
func (s *Server) UserConfig(t testing.TB, name string, groups ...string) *rest.Config {
	t.Helper()
	config := rest.CopyConfig(s.ClientConfig)
	config.CertData, config.KeyData = s.Cluster.Users.ClientCertificate(t, name, groups...)
	return config
}

// TokenConfig returns the configuration of a client that connects directly with a bearer
// token. The cluster has to know the token. If it is empty, the client has no credentials.
func (s *Server) TokenConfig(token string) *rest.Config {
	config := rest.AnonymousClientConfig(s.ClientConfig)
	config.BearerToken = token
	return config
}

// FrontProxyConfig returns the configuration of a client through kube-apiserver, which
// asserts the identity of its user.
func (s *Server) FrontProxyConfig(t testing.TB, name string, groups ...string) *rest.Config {
	t.Helper()
	config := rest.CopyConfig(s.ClientConfig)
	config.CertData, config.KeyData = s.Cluster.FrontProxy.ClientCertificate(t, cluster.FrontProxyName)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport.NewAuthProxyRoundTripper(name, "", groups, nil, next)
	})
	return config
}

func (s *Server) awaitReady() error {
	client, err := rest.HTTPClientFor(s.ClientConfig)
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-s.result:
			s.result <- nil
			return false, fmt.Errorf("the server has stopped: %w", err)
		default:
		}
		err := ready(ctx, client, s.ClientConfig.Host)
		if err != nil && ctx.Err() == nil {
			last = err // A failure after the timeout says less.
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the server is not ready: %w", errors.Join(err, last))
	}
	return nil
}

func ready(ctx context.Context, client *http.Client, host string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(req)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, err := io.ReadAll(response.Body)
		return errors.Join(fmt.Errorf("/readyz answers %s: %s", response.Status, body), err)
	}
	return nil
}

// shortTempDir returns a directory with a path that is short enough for the socket of etcd
// in it, whatever the name of the test.
func shortTempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "apiserver") //nolint:usetesting // That of the test is too long.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
