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
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/compatibility"
	componentbaseconfig "k8s.io/component-base/config"
	componentbaseoptions "k8s.io/component-base/config/options"
	componentbasevalidation "k8s.io/component-base/config/validation"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	baseversion "k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/authentication"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/filters"
	"restaurant.programming-kubernetes.info/apiserver/pkg/certificates"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	"restaurant.programming-kubernetes.info/apiserver/pkg/startup"
)

const (
	// etcdPrefix is where the objects of all groups are stored in etcd.
	etcdPrefix = "/registry"
	// emulatedReleases is how many releases of the library --emulated-version may
	// go back, KEP-4330.
	emulatedReleases = 3
	// maxStreamsPerConnection is how many requests a client may have at once over a
	// connection of HTTP/2.
	maxStreamsPerConnection = 100
	// watchGracePeriod bounds how long a stopping server takes to end its watches,
	// a few at a time so that their clients do not all come back at once.
	watchGracePeriod = 10 * time.Second
)

// Options are what an operator can choose, by flags.
type Options struct {
	groups []registry.Group

	ServerRun      *genericoptions.ServerRunOptions
	Etcd           *genericoptions.EtcdOptions
	EmbeddedEtcd   etcd.Config
	SecureServing  *genericoptions.SecureServingOptionsWithLoopback
	Authentication *genericoptions.DelegatingAuthenticationOptions
	Authorization  *AuthorizationOptions
	Audit          *genericoptions.AuditOptions
	Features       *genericoptions.FeatureOptions
	CoreAPI        *genericoptions.CoreAPIOptions
	Admission      *genericoptions.AdmissionOptions
	EgressSelector *genericoptions.EgressSelectorOptions
	Traces         *genericoptions.TracingOptions
	Logs           *logsapi.LoggingConfiguration
	LeaderElection componentbaseconfig.LeaderElectionConfiguration

	// Bounds are what a request may cost.
	Bounds filters.Bounds
	// RunControllers is false for a replica that never runs the groups' controllers.
	RunControllers bool

	// ServingCert makes the replicas have certificates of an authority of their own,
	// if its Secret is named.
	ServingCert certificates.Config
	plugins     []admission.Plugin
	// StartupTimeout bounds the wait for kube-apiserver, RBAC, and etcd or the data
	// folder.
	StartupTimeout time.Duration
}

// NewOptions returns the defaults for a server of the groups.
func NewOptions(groups ...registry.Group) *Options {
	components := compatibility.NewComponentGlobalsRegistry()
	// The library has one feature gate for the whole process, which takes new
	// features only before its first use.
	// Upstream fault 51.
	if _, known := utilfeature.DefaultMutableFeatureGate.GetAll()[logsapi.ContextualLogging]; !known {
		utilruntime.Must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))
	}
	// The library's features follow the version of the library, whatever version
	// is stamped into the binary.
	library := version.MustParse(baseversion.DefaultKubeBinaryVersion)
	oldest := library.SubtractMinor(emulatedReleases)
	utilruntime.Must(components.Register(compatibility.DefaultKubeComponent,
		compatibility.NewEffectiveVersion(library, false, oldest, oldest), utilfeature.DefaultMutableFeatureGate))

	serverRun := genericoptions.NewServerRunOptionsForComponent(compatibility.DefaultKubeComponent, components)
	// By default the library does not end watches, but waits a minute for their clients to.
	// Upstream fault 55.
	serverRun.ShutdownWatchTerminationGracePeriod = watchGracePeriod

	var own []admission.Plugin
	for _, group := range groups {
		own = append(own, group.Admission...)
	}
	plugins := admission.Plugins(own...)

	recommended := genericoptions.NewRecommendedOptions(etcdPrefix, nil)
	// Lists of any size are read from etcd as protobuf several times faster.
	recommended.Etcd.DefaultStorageMediaType = runtime.ContentTypeProtobuf
	// Nobody could reach a server without a port, nor learn how it is.
	recommended.SecureServing.Required = true
	// With the library's 1000, a connection may keep 250 MB of bodies waiting.
	recommended.SecureServing.HTTP2MaxStreamsPerConnection = maxStreamsPerConnection
	// A generated certificate is kept in memory: it is of no use to the next start.
	recommended.SecureServing.ServerCert.CertDirectory = ""
	return &Options{
		groups:         groups,
		ServerRun:      serverRun,
		Etcd:           recommended.Etcd,
		EmbeddedEtcd:   etcd.DefaultConfig(),
		SecureServing:  recommended.SecureServing,
		Authentication: recommended.Authentication,
		Authorization:  newAuthorizationOptions(recommended.Authorization),
		Audit:          recommended.Audit,
		Features:       recommended.Features,
		CoreAPI:        recommended.CoreAPI,
		Admission:      admission.Options(plugins),
		EgressSelector: recommended.EgressSelector,
		Traces:         recommended.Traces,
		Logs:           logsapi.NewLoggingConfiguration(),
		LeaderElection: componentbaseconfig.LeaderElectionConfiguration{
			LeaderElect:   true,
			LeaseDuration: metav1.Duration{Duration: 15 * time.Second},
			RenewDeadline: metav1.Duration{Duration: 10 * time.Second},
			RetryPeriod:   metav1.Duration{Duration: 2 * time.Second},
			ResourceLock:  resourcelock.LeasesResourceLock,
			ResourceName:  "apiserver-controllers",
		},
		Bounds:         filters.DefaultBounds(),
		RunControllers: true,
		ServingCert: certificates.Config{
			Service:           "apiserver",
			AuthorityValidity: 365 * 24 * time.Hour,
			Validity:          30 * 24 * time.Hour,
		},
		plugins:        plugins,
		StartupTimeout: startup.DefaultTimeout,
	}
}

// Flags returns the flags in the sections of --help.
func (o *Options) Flags() (sections cliflag.NamedFlagSets) {
	o.ServerRun.AddUniversalFlags(sections.FlagSet("generic"))
	o.Etcd.AddFlags(sections.FlagSet("etcd"))
	o.SecureServing.AddFlags(sections.FlagSet("secure serving"))
	o.Bounds.AddFlags(sections.FlagSet("bounds"))
	o.Authentication.AddFlags(sections.FlagSet("authentication"))
	o.Authorization.AddFlags(sections.FlagSet("authorization"))
	o.Audit.AddFlags(sections.FlagSet("auditing"))
	o.Features.AddFlags(sections.FlagSet("features"))
	o.Admission.AddFlags(sections.FlagSet("admission"))
	sections.FlagSet("egress selector").StringVar(&o.EgressSelector.ConfigFile, "egress-selector-config-file", o.EgressSelector.ConfigFile, ""+
		"File with an EgressSelectorConfiguration, which names the proxies by which this server reaches kube-apiserver (controlplane), the webhooks of Services (cluster), and an external etcd (etcd).")
	o.Traces.AddFlags(sections.FlagSet("traces"))
	logsapi.AddFlags(o.Logs, sections.FlagSet("logs"))

	certificate := sections.FlagSet("own certificate authority")
	certificate.StringVar(&o.ServingCert.Secret, "serving-ca-secret", o.ServingCert.Secret, ""+
		"Name of a Secret in the namespace of this server in which its replicas keep a certificate authority of their own. It is created and renewed as needed, the APIServices are made to trust it, and each replica gives itself a certificate. Not together with --tls-cert-file.")
	certificate.StringVar(&o.ServingCert.Service, "serving-service", o.ServingCert.Service, ""+
		"Name of the Service in the namespace of this server by which kube-apiserver reaches it. With --serving-ca-secret only.")
	certificate.DurationVar(&o.ServingCert.AuthorityValidity, "serving-ca-validity", o.ServingCert.AuthorityValidity, ""+
		"How long the certificate authority of --serving-ca-secret is valid for. It is renewed after two thirds of that.")
	certificate.DurationVar(&o.ServingCert.Validity, "serving-cert-validity", o.ServingCert.Validity, ""+
		"How long a certificate issued by the certificate authority of --serving-ca-secret is valid for. It is renewed after two thirds of that.")

	controllers := sections.FlagSet("controllers")
	controllers.BoolVar(&o.RunControllers, "run-controllers", o.RunControllers, ""+
		"Whether this server runs controllers, such as those that keep the status of objects, when it is elected among its replicas.")
	componentbaseoptions.BindLeaderElectionFlags(&o.LeaderElection, controllers)

	cluster := sections.FlagSet("cluster")
	cluster.StringVar(&o.CoreAPI.CoreAPIKubeconfigPath, "kubeconfig", o.CoreAPI.CoreAPIKubeconfigPath, ""+
		"Kubeconfig for the cluster's kube-apiserver. Optional in a pod, where the service account is used.")
	cluster.DurationVar(&o.StartupTimeout, "startup-timeout", o.StartupTimeout, ""+
		"How long to wait at startup for kube-apiserver, for this server's role bindings, for etcd, and for a previous process to release the data directory.")

	etcd := sections.FlagSet("embedded etcd")
	etcd.StringVar(&o.EmbeddedEtcd.Dir, "data-dir", o.EmbeddedEtcd.Dir, ""+
		"Folder for the data of the embedded etcd, which is used when --etcd-servers is not set.")
	etcd.Int64Var(&o.EmbeddedEtcd.QuotaBytes, "etcd-quota-backend-bytes", o.EmbeddedEtcd.QuotaBytes, ""+
		"Size of the embedded etcd's database in bytes above which it raises an alarm and accepts no writes.")
	return sections
}

func (o *Options) featureGate() featuregate.FeatureGate {
	return o.ServerRun.ComponentGlobalsRegistry.FeatureGateFor(o.ServerRun.ComponentName)
}

// Embedded tells whether etcd runs inside this server.
func (o *Options) Embedded() bool { return len(o.Etcd.StorageConfig.Transport.ServerList) == 0 }

// CompletedOptions are Options after Complete.
type CompletedOptions struct {
	*completedOptions
}

type completedOptions struct {
	Options
	embeddedEtcd bool
	// egress reads the file of --egress-selector-config-file once.
	egress func() (*egressselector.EgressSelector, error)
}

// Complete fills in what follows from other options.
func (o *Options) Complete() (CompletedOptions, error) {
	completed := completedOptions{
		Options:      *o,
		embeddedEtcd: o.Embedded(),
		egress:       sync.OnceValues(func() (*egressselector.EgressSelector, error) { return newEgressSelector(o.EgressSelector.ConfigFile) }),
	}
	if err := o.ServerRun.Complete(); err != nil {
		return CompletedOptions{}, err
	}
	for _, path := range []*string{&o.Authentication.RemoteKubeConfigFile, &o.Authorization.RemoteKubeConfigFile} {
		if *path == "" {
			*path = o.CoreAPI.CoreAPIKubeconfigPath
		}
	}
	namespace := startup.Namespace(o.CoreAPI.CoreAPIKubeconfigPath)
	completed.LeaderElection.ResourceNamespace = cmp.Or(o.LeaderElection.ResourceNamespace, namespace)
	completed.ServingCert.Namespace = namespace
	for _, group := range o.groups {
		apiServices, err := group.APIServices()
		if err != nil {
			return CompletedOptions{}, err
		}
		completed.ServingCert.APIServices = append(completed.ServingCert.APIServices, apiServices...)
	}
	if completed.embeddedEtcd {
		if o.EmbeddedEtcd.Dir != "" {
			dir, err := filepath.Abs(o.EmbeddedEtcd.Dir)
			if err != nil {
				return CompletedOptions{}, fmt.Errorf("--data-dir: %w", err)
			}
			completed.EmbeddedEtcd.Dir = dir
		}
		o.Etcd.StorageConfig.Transport.ServerList = []string{completed.EmbeddedEtcd.Endpoint()}
	} else {
		o.Etcd.StorageConfig.Transport.EgressLookup = CompletedOptions{&completed}.Egress
	}
	if err := o.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return CompletedOptions{}, fmt.Errorf("--tls-cert-file and --tls-private-key-file are not set and no certificate can be generated: %w", err)
	}
	return CompletedOptions{&completed}, nil
}

// Validate returns everything that is wrong, each error with its flag.
func (o CompletedOptions) Validate() []error {
	var errs []error
	if o.embeddedEtcd {
		errs = append(errs, o.EmbeddedEtcd.Validate()...)
		for _, external := range []struct{ flag, value string }{
			{"etcd-cafile", o.Etcd.StorageConfig.Transport.TrustedCAFile},
			{"etcd-certfile", o.Etcd.StorageConfig.Transport.CertFile},
			{"etcd-keyfile", o.Etcd.StorageConfig.Transport.KeyFile},
		} {
			if external.value != "" {
				errs = append(errs, fmt.Errorf("--%s is for an external etcd: set --etcd-servers too", external.flag))
			}
		}
	}
	if o.StartupTimeout <= 0 {
		errs = append(errs, fmt.Errorf("--startup-timeout must be above 0, not %s", o.StartupTimeout))
	}
	if o.Authentication.SkipInClusterLookup && o.Authentication.RequestHeader.ClientCAFile == "" {
		errs = append(errs, errors.New("--authentication-skip-lookup needs --requestheader-client-ca-file: without it no front proxy can assert an identity"))
	}
	if o.ServingCert.Secret != "" {
		if o.SecureServing.ServerCert.CertKey.CertFile != "" {
			errs = append(errs, errors.New("--serving-ca-secret and --tls-cert-file exclude each other: the certificate comes from either"))
		}
		for _, problem := range utilvalidation.IsDNS1123Subdomain(o.ServingCert.Secret) {
			errs = append(errs, fmt.Errorf("--serving-ca-secret %q: %s", o.ServingCert.Secret, problem))
		}
		for _, problem := range utilvalidation.IsDNS1123Label(o.ServingCert.Service) {
			errs = append(errs, fmt.Errorf("--serving-service %q: %s", o.ServingCert.Service, problem))
		}
		if err := o.ServingCert.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("--serving-cert-validity or --serving-ca-validity: %w", err))
		}
	}
	// Upstream fault 43.
	if o.Features.EnablePriorityAndFairness && o.ServerRun.MaxRequestsInFlight == 0 && o.ServerRun.MaxMutatingRequestsInFlight == 0 {
		errs = append(errs, errors.New("--max-requests-inflight and --max-mutating-requests-inflight must not both be 0, unless --enable-priority-and-fairness is false"))
	}
	// Upstream fault 42.
	if _, err := genericoptions.ParseWatchCacheSizes(o.Etcd.WatchCacheSizes); err != nil {
		errs = append(errs, fmt.Errorf("--watch-cache-sizes: %w", err))
	}
	if _, err := o.egress(); err != nil {
		// Upstream fault 40.
		errs = append(errs, fmt.Errorf("--egress-selector-config-file: %w", err))
	}
	for _, err := range componentbasevalidation.ValidateLeaderElectionConfiguration(&o.LeaderElection, nil) {
		errs = append(errs, fmt.Errorf("--leader-elect-lease-duration, or another flag of leader election: %w", err))
	}
	for _, section := range [][]error{
		o.ServerRun.Validate(),
		o.Etcd.Validate(),
		o.SecureServing.Validate(),
		o.Bounds.Validate(),
		o.Authentication.Validate(),
		o.Authorization.Validate(),
		o.Audit.Validate(),
		o.Features.Validate(),
		o.CoreAPI.Validate(),
		o.Admission.Validate(),
		admission.ValidateConfigFile(o.Admission.ConfigFile, o.Admission.Plugins.Registered()),
	} {
		errs = append(errs, section...)
	}
	_, tracing := o.tracingConfiguration()
	for _, err := range []error{o.validateEncryption(), o.validateAudit(), tracing} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// dependencies run before the server and stop after it.
type dependencies struct {
	cluster *cluster
	// servingCert is nil if the certificate comes from elsewhere.
	servingCert *certificates.Manager
	// etcd is nil if it does not run inside this server.
	etcd *etcd.Etcd
}

// start waits for the cluster and for etcd, or starts the embedded one.
func (o CompletedOptions) start(ctx context.Context) (*dependencies, error) {
	ctx, cancel := context.WithTimeout(ctx, o.StartupTimeout)
	defer cancel()
	cluster, err := o.newCluster()
	if err != nil {
		return nil, err
	}
	if err := cluster.wait(ctx); err != nil {
		return nil, err
	}
	if cluster.unprioritized != nil {
		klog.InfoS("Limiting requests by --max-requests-inflight and --max-mutating-requests-inflight, not by the cluster's FlowSchemas and PriorityLevelConfigurations; restart after granting list and watch on them", "reason", cluster.unprioritized.Error())
		// Upstream fault 63.
		o.Features.EnablePriorityAndFairness = false
	}
	d := &dependencies{cluster: cluster}
	if o.ServingCert.Secret != "" {
		if d.servingCert, err = certificates.New(o.ServingCert, cluster.coreClient.config); err != nil {
			return nil, err
		}
		if err := startup.Await(ctx, "the serving certificate", d.servingCert.Sync); err != nil {
			return nil, err
		}
	}
	if !o.embeddedEtcd {
		return d, o.awaitEtcd(ctx)
	}
	d.etcd, err = o.EmbeddedEtcd.Start(ctx)
	return d, err
}

// applyTo gives a config what the dependencies have.
func (d *dependencies) applyTo(config *genericapiserver.Config) error {
	if d.servingCert != nil {
		config.SecureServing.Cert = d.servingCert
	}
	authentication.AwaitClientCAs(config.SecureServing, d.cluster.clientCAs)
	config.AddReadyzChecks(d.readyzChecks()...)
	return watchExpiration(config.SecureServing.Cert)
}

// context ends with its parent, or when a dependency has failed, with that cause.
func (d *dependencies) context(ctx context.Context) context.Context {
	if d.etcd == nil {
		return ctx
	}
	ctx, fail := context.WithCancelCause(ctx)
	go func() {
		select {
		case err := <-d.etcd.Err():
			fail(fmt.Errorf("the embedded etcd has stopped: %w", err))
		case <-ctx.Done():
		}
	}()
	return ctx
}

// readyzChecks are the checks that the generic server does not have.
func (d *dependencies) readyzChecks() []healthz.HealthChecker {
	if d.etcd == nil {
		return nil
	}
	return []healthz.HealthChecker{healthz.NamedCheck("etcd-alarms", func(*http.Request) error { return d.etcd.CheckAlarms() })}
}

// Close stops the dependencies.
func (d *dependencies) Close() error {
	if d.etcd == nil {
		return nil
	}
	return d.etcd.Close()
}
