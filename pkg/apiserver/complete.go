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
	"cmp"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/egressselector"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/egress"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

// CompletedOptions are the result of Options.Complete, and of nothing else.
type CompletedOptions struct {
	*completedOptions
}

type completedOptions struct {
	Options
	embeddedEtcd bool
	// egress reads the file of --egress-selector-config-file once.
	egress func() (*egressselector.EgressSelector, error)
}

// Embedded reports whether etcd runs inside this server.
func (o CompletedOptions) Embedded() bool { return o.embeddedEtcd }

// Complete returns the options with all derived values filled in. The receiver is not
// changed, so that it can be changed and completed again.
func (o *Options) Complete() (CompletedOptions, error) {
	if err := o.ApplyFeatureGates(); err != nil {
		return CompletedOptions{}, err
	}
	completed := CompletedOptions{&completedOptions{Options: o.copy()}}
	egressFile := o.EgressSelector.ConfigFile
	completed.egress = sync.OnceValues(func() (*egressselector.EgressSelector, error) { return egress.NewSelector(egressFile) })

	kubeconfig := o.CoreAPI.CoreAPIKubeconfigPath
	completed.Authentication.RemoteKubeConfigFile = cmp.Or(o.Authentication.RemoteKubeConfigFile, kubeconfig)
	completed.Authorization.RemoteKubeConfigFile = cmp.Or(o.Authorization.RemoteKubeConfigFile, kubeconfig)
	namespace := cluster.Namespace(kubeconfig)
	completed.LeaderElection.ResourceNamespace = cmp.Or(o.LeaderElection.ResourceNamespace, namespace)
	completed.ServingCert.Namespace = namespace
	if err := completed.completeAPIServices(); err != nil {
		return CompletedOptions{}, err
	}
	if err := completed.completeEtcd(); err != nil {
		return CompletedOptions{}, err
	}
	if err := completed.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return CompletedOptions{}, fmt.Errorf("--tls-cert-file and --tls-private-key-file are not set and no certificate can be generated: %w", err)
	}
	return completed, nil
}

// copy returns options whose sections can be changed without changing these.
func (o *Options) copy() Options {
	out := *o
	out.ServerRun = new(*o.ServerRun)
	out.Etcd = new(*o.Etcd)
	out.SecureServing = new(*o.SecureServing.SecureServingOptions).WithLoopback()
	out.Authentication = new(*o.Authentication)
	out.Authorization = new(*o.Authorization)
	out.Authorization.DelegatingAuthorizationOptions = new(*o.Authorization.DelegatingAuthorizationOptions)
	out.Audit = new(*o.Audit)
	out.Features = new(*o.Features)
	out.CoreAPI = new(*o.CoreAPI)
	out.Admission = new(*o.Admission)
	out.EgressSelector = new(*o.EgressSelector)
	out.Traces = new(*o.Traces)
	out.ServingCert.APIServices = slices.Clone(o.ServingCert.APIServices)
	return out
}

func (o CompletedOptions) completeAPIServices() error {
	for _, group := range o.groups {
		apiServices, err := group.APIServices()
		if err != nil {
			return err
		}
		o.ServingCert.APIServices = append(o.ServingCert.APIServices, apiServices...)
	}
	return nil
}

// completeEtcd selects the embedded etcd if no other one is named.
func (o CompletedOptions) completeEtcd() error {
	transport := &o.Etcd.StorageConfig.Transport
	o.embeddedEtcd = len(transport.ServerList) == 0
	if !o.embeddedEtcd {
		transport.EgressLookup = o.etcdEgress
		return nil
	}
	if o.EmbeddedEtcd.Dir != "" {
		dir, err := filepath.Abs(o.EmbeddedEtcd.Dir)
		if err != nil {
			return fmt.Errorf("--data-dir: %w", err)
		}
		o.EmbeddedEtcd.Dir = dir
	}
	transport.ServerList = []string{o.EmbeddedEtcd.Endpoint()}
	return nil
}

// Egress returns a dialer for a network, or nil to reach it directly.
func (o CompletedOptions) Egress(network egressselector.NetworkContext) (utilnet.DialFunc, error) {
	selector, err := o.egress()
	if err != nil || selector == nil {
		return nil, err
	}
	return selector.Lookup(network)
}

// etcdEgress returns a dialer for etcd that tries again, see egress.EtcdDialer.
func (o CompletedOptions) etcdEgress(network egressselector.NetworkContext) (utilnet.DialFunc, error) {
	dial, err := o.Egress(network)
	if err != nil {
		return nil, err
	}
	return egress.EtcdDialer(dial, o.Etcd.StorageConfig.Transport.ServerList), nil
}
