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
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	componentbaseconfig "k8s.io/component-base/config"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/authorization"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
	"restaurant.programming-kubernetes.info/apiserver/pkg/certificates"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

const (
	// maxStreamsPerConnection is how many requests a client may have at once over a
	// connection of HTTP/2.
	maxStreamsPerConnection = 100
	// etcdPrefix is where the objects of all groups are stored in etcd.
	etcdPrefix = "/registry"
	// stateDir is where each server has its data directory by default.
	stateDir = "/var/lib"
	// watchGracePeriod bounds how long a stopping server takes to end its watches. It ends a few at a
	// time so that their clients do not all come back at once.
	watchGracePeriod = 10 * time.Second
)

// Options are the operator's choices, set by flags. The zero value is not usable: see NewOptions.
type Options struct {
	name    string
	groups  []registry.Group
	plugins []admission.Plugin

	// Base is nil for a server of groups only.
	Base *Base

	ServerRun      *genericoptions.ServerRunOptions
	Etcd           *genericoptions.EtcdOptions
	SecureServing  *genericoptions.SecureServingOptionsWithLoopback
	Authentication *genericoptions.DelegatingAuthenticationOptions
	// APIAudiences are the audiences of tokens of clients that connect directly, by default
	// kube-apiserver's.
	APIAudiences   []string
	Authorization  *authorization.Options
	Audit          *genericoptions.AuditOptions
	Features       *genericoptions.FeatureOptions
	CoreAPI        *genericoptions.CoreAPIOptions
	Admission      *genericoptions.AdmissionOptions
	EgressSelector *genericoptions.EgressSelectorOptions
	Traces         *genericoptions.TracingOptions

	// Bounds limit the cost of requests.
	Bounds limits.Bounds

	// EtcdTransactions is false for a backend without transactions of several keys. References between
	// objects are then only as exact as admission's look at other objects.
	EtcdTransactions bool
	// EmbeddedEtcd is used when Etcd names no servers.
	EmbeddedEtcd etcd.Config

	// LeaderElection elects, among all replicas, the one that runs the groups' controllers.
	LeaderElection componentbaseconfig.LeaderElectionConfiguration
	// RunControllers is false for a replica that never runs them.
	RunControllers bool

	// ServingCert makes the replicas issue their certificates from a certificate authority of their own,
	// if its Secret is named.
	ServingCert certificates.Config

	// StartupTimeout bounds how long Config waits for kube-apiserver, for the permissions
	// of this server, and for etcd or the data directory.
	StartupTimeout time.Duration
}

// NewOptions returns the defaults for a server of the groups. Servers in one namespace or one process
// have different names, each a DNS label. These defaults follow from the name:
//
//   - the Service that leads kube-apiserver to it: the name,
//   - the Lease of its controllers: the name and "-controllers",
//   - the data directory of the embedded etcd: /var/lib and the name,
//   - its user agent, and the label "server" of its own metrics: the name.
//
// Feature gates and the registry of metrics belong to the process, whose servers share them.
func NewOptions(name string, groups ...registry.Group) *Options {
	// This comes before k8s.io/apiserver's defaults, which ask its feature gate. Until then the gate takes
	// the version that is stamped into the binary for one of Kubernetes.
	serverRun := newServerRunOptions()
	plugins := admission.Plugins(ownPlugins(groups)...)
	recommended := genericoptions.NewRecommendedOptions(etcdPrefix, nil)
	// Lists of any size are read from etcd as protobuf several times faster.
	recommended.Etcd.DefaultStorageMediaType = runtime.ContentTypeProtobuf
	// Without a port, no client could reach the server or check its health.
	recommended.SecureServing.Required = true
	// With k8s.io/apiserver's 1000, a connection may keep 250 MB of bodies waiting.
	recommended.SecureServing.HTTP2MaxStreamsPerConnection = maxStreamsPerConnection
	// A generated certificate is kept in memory: it is of no use to the next start.
	recommended.SecureServing.ServerCert.CertDirectory = ""
	return &Options{
		name:           name,
		groups:         groups,
		plugins:        plugins,
		ServerRun:      serverRun,
		Etcd:           recommended.Etcd,
		SecureServing:  recommended.SecureServing,
		Authentication: recommended.Authentication,
		Authorization:  authorization.NewOptions(recommended.Authorization),
		Audit:          recommended.Audit,
		Features:       recommended.Features,
		CoreAPI:        recommended.CoreAPI,
		Admission:      admission.Options(plugins),
		EgressSelector: recommended.EgressSelector,
		Traces:         recommended.Traces,
		Bounds:         limits.DefaultBounds(),

		EtcdTransactions: true,
		EmbeddedEtcd: etcd.Config{
			Dir:        DefaultDataDir(name),
			QuotaBytes: etcd.DefaultQuotaBytes,
		},
		LeaderElection: componentbaseconfig.LeaderElectionConfiguration{
			LeaderElect:   true,
			LeaseDuration: metav1.Duration{Duration: 15 * time.Second},
			RenewDeadline: metav1.Duration{Duration: 10 * time.Second},
			RetryPeriod:   metav1.Duration{Duration: 2 * time.Second},
			ResourceLock:  resourcelock.LeasesResourceLock,
			ResourceName:  name + "-controllers",
		},
		RunControllers: true,
		ServingCert: certificates.Config{
			Service:    name,
			CAValidity: 365 * 24 * time.Hour,
			Validity:   30 * 24 * time.Hour,
		},
		StartupTimeout: cluster.DefaultTimeout,
	}
}

// DefaultDataDir returns the default data directory of the embedded etcd for a server of this name.
func DefaultDataDir(name string) string { return filepath.Join(stateDir, name) }

func newServerRunOptions() *genericoptions.ServerRunOptions {
	component, components := newComponent()
	options := genericoptions.NewServerRunOptionsForComponent(component, components)
	// By default k8s.io/apiserver does not end watches, but waits a minute for their clients to do so.
	// Upstream fault 55.
	options.ShutdownWatchTerminationGracePeriod = watchGracePeriod
	return options
}

func ownPlugins(groups []registry.Group) (plugins []admission.Plugin) {
	for _, group := range groups {
		plugins = append(plugins, group.Admission...)
	}
	return plugins
}
