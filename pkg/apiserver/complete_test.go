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

package apiserver

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/component-base/tracing"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/requirements"
	"restaurant.programming-kubernetes.info/apiserver/pkg/certificates"
)

// A second Complete once saw values that the first had written into the options. These were
// the first's kubeconfig, an embedded etcd as if it were an external one, and a
// certificate.
func TestCompleteLeavesItsReceiverAlone(t *testing.T) {
	options := NewOptions("test")
	options.CoreAPI.CoreAPIKubeconfigPath, options.EmbeddedEtcd.Dir = "first", "data"
	first, err := options.Complete()
	if err != nil {
		t.Fatal(err)
	}
	type state struct {
		Authentication, Authorization, Dir, LeaseNamespace string
		Servers                                            []string
		Generated                                          bool
		ServingCert                                        certificates.Config
	}
	stateOf := func(o *Options) state {
		return state{
			o.Authentication.RemoteKubeConfigFile, o.Authorization.RemoteKubeConfigFile, o.EmbeddedEtcd.Dir, o.LeaderElection.ResourceNamespace,
			o.Etcd.StorageConfig.Transport.ServerList, o.SecureServing.ServerCert.GeneratedCert != nil, o.ServingCert,
		}
	}
	untouched := NewOptions("test")
	untouched.EmbeddedEtcd.Dir = "data"
	if diff := cmp.Diff(stateOf(untouched), stateOf(options), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("Complete has changed the options (-before +after):\n%s", diff)
	}

	options.CoreAPI.CoreAPIKubeconfigPath = "second"
	second, err := options.Complete()
	if err != nil {
		t.Fatal(err)
	}
	for kubeconfig, completed := range map[string]CompletedOptions{"first": first, "second": second} {
		got := []string{completed.Authentication.RemoteKubeConfigFile, completed.Authorization.RemoteKubeConfigFile}
		if want := []string{kubeconfig, kubeconfig}; !slices.Equal(got, want) {
			t.Errorf("got the kubeconfigs %q, want %q", got, want)
		}
		if !completed.Embedded() {
			t.Error("the embedded etcd is not started")
		}
	}
}

func TestOneNameForAServer(t *testing.T) {
	options := NewOptions("bakery")
	got := []string{options.EmbeddedEtcd.Dir, options.LeaderElection.ResourceName, options.ServingCert.Service, requirements.UserAgent(options.name)[:len("bakery/")]}
	if want := []string{"/var/lib/bakery", "bakery-controllers", "bakery", "bakery/"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for name, problem := range map[string]string{"bakery": "", "the bakery": "a lowercase RFC 1123 label", "": "a lowercase RFC 1123 label"} {
		errs := CompletedOptions{&completedOptions{Options: Options{name: name}}}.validateName()
		if (len(errs) == 0) != (problem == "") {
			t.Errorf("got %v for the name %q", errs, name)
		}
	}
}

// Close releases everything that was prepared for a server that can't be made.
func TestCloseReleases(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	options := NewOptions("test")
	options.EmbeddedEtcd.Dir = filepath.Join(t.TempDir(), "data")
	options.SecureServing.Listener = listener
	completed, err := options.Complete()
	if err != nil {
		t.Fatal(err)
	}
	config, err := completed.newConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := completed.applyServing(&config.Generic.Config, config.connections, requirements.Granted{}); err != nil {
		t.Fatal(err)
	}
	traces := &shutdownCounter{TracerProvider: config.Generic.TracerProvider}
	config.Generic.TracerProvider = traces
	for range 2 {
		if err := config.Close(); err != nil {
			t.Error(err)
		}
	}
	again, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatalf("the port is still taken: %v", err)
	}
	again.Close()
	if traces.times != 1 {
		t.Errorf("the tracer provider was shut down %d times, want once", traces.times)
	}
}

type shutdownCounter struct {
	tracing.TracerProvider
	times int
}

func (c *shutdownCounter) Shutdown(context.Context) error {
	c.times++
	return nil
}
