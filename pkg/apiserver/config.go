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
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericadmission "k8s.io/apiserver/pkg/admission"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	componentbaseconfig "k8s.io/component-base/config"
	"k8s.io/component-base/tracing"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/authentication"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/filters"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/requirements"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/storage"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/transport"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// resyncPeriod is how often informers of the cluster's objects resync.
const resyncPeriod = 10 * time.Minute

// Config holds the parts of a server. If New is not called, the caller must call Close.
type Config struct {
	// Name is the name of the server, see NewOptions.
	Name    string
	Generic *genericapiserver.RecommendedConfig
	Groups  []registry.Group
	// Etcd are the options of storage, for objects that are not of the groups.
	Etcd *genericoptions.EtcdOptions
	// Scheme and Codecs know the types of the groups.
	Scheme *runtime.Scheme
	Codecs serializer.CodecFactory
	// Runtimes has the runtimes of the groups that have one, by the group's name.
	Runtimes map[string]registry.Runtime
	// Bounds limit the cost of requests.
	Bounds limits.Bounds
	// RunControllers is false if the groups' controllers run elsewhere only.
	RunControllers bool
	// LeaderElection says which replica runs the groups' controllers.
	LeaderElection componentbaseconfig.LeaderElectionConfiguration

	base    *Base
	streams *filters.Streams
	// connections are the connections of the server.
	connections *transport.Connections
	// withoutMessages are the resources whose types have no protobuf messages.
	withoutMessages map[schema.GroupVersionResource]bool
	// frontProxy is nil if no request headers are believed.
	frontProxy *authentication.FrontProxy
	// etcd is nil if it does not run inside this server.
	etcd         *etcd.Etcd
	embeddedEtcd etcd.Config
	storage      *storage.Storage
	closeOnce    func() error
}

// CompletedConfig is the result of Config.Complete, and of nothing else.
type CompletedConfig struct {
	*completedConfig
}

type completedConfig struct {
	*Config
	generic genericapiserver.CompletedConfig
}

// Config waits for the server's prerequisites, starts the embedded etcd, and returns a config.
// Its clients and informers are made but do nothing yet. Each reason for waiting is logged
// once; after StartupTimeout the last one is the error.
//
// Server.Run, a failed New, or Close stops what Config started.
func (o CompletedOptions) Config(ctx context.Context) (*Config, error) {
	ready, embedded, err := o.awaitPrerequisites(ctx)
	if err != nil {
		return nil, err
	}
	config, err := o.newConfig(embedded)
	if err != nil {
		return nil, errors.Join(err, config.Close())
	}
	if err := o.applyTo(ctx, config, ready); err != nil {
		return nil, errors.Join(err, config.Close())
	}
	return config, nil
}

// newConfig returns a config that owns the embedded etcd, even with an error.
func (o CompletedOptions) newConfig(etcd *etcd.Etcd) (*Config, error) {
	scheme := runtime.NewScheme()
	registry.InstallMeta(scheme)
	codecs := serializer.NewCodecFactory(scheme)
	config := &Config{
		Name:    o.name,
		Generic: genericapiserver.NewRecommendedConfig(codecs),
		Groups:  o.groups,
		Scheme:  scheme,
		Codecs:  codecs,

		Runtimes:       map[string]registry.Runtime{},
		Bounds:         o.Bounds,
		RunControllers: o.RunControllers,
		LeaderElection: o.LeaderElection,

		base:        o.Base,
		streams:     newStreams(o.groups),
		connections: transport.NewConnections(o.Bounds),
		etcd:        etcd,

		embeddedEtcd: o.EmbeddedEtcd,

		withoutMessages: map[schema.GroupVersionResource]bool{},
	}
	config.closeOnce = sync.OnceValue(config.close)
	for _, group := range o.groups {
		if err := group.InstallTypes(scheme); err != nil {
			return config, err
		}
		withoutMessages, err := group.WithoutMessages(scheme)
		if err != nil {
			return config, err
		}
		maps.Copy(config.withoutMessages, withoutMessages)
	}
	boundTerminations(o.groups, scheme)
	if err := config.setOpenAPI(); err != nil {
		return config, err
	}
	config.Generic.BuildHandlerChainFunc = config.buildHandlerChain
	config.Generic.LongRunningFunc = config.streams.LongRunning(config.Generic.LongRunningFunc)
	config.Generic.RequestInfoResolver = filters.ResolveRequestInfo(genericapiserver.NewRequestInfoResolver(&config.Generic.Config))
	return config, nil
}

// Close stops everything that was started for the config. It may be called again, also after
// the server has called it.
func (c *Config) Close() error { return c.closeOnce() }

func (c *Config) close() error {
	if serving := c.Generic.SecureServing; serving != nil {
		_ = serving.Listener.Close() // A server has closed it.
	}
	// The server has done it, too, and has sent all spans.
	_ = c.Generic.TracerProvider.Shutdown(context.Background())
	if c.storage != nil {
		_ = c.storage.Close() // Nobody uses it any more.
	}
	if c.etcd == nil {
		return nil
	}
	return c.etcd.Close()
}

func newStreams(groups []registry.Group) *filters.Streams {
	var always, followed []schema.GroupResource
	for _, group := range groups {
		for resource, which := range group.LongRunning() {
			if which == registry.IfFollowed {
				followed = append(followed, resource)
			} else {
				always = append(always, resource)
			}
		}
	}
	return filters.NewStreams(always, followed)
}

// applyTo is RecommendedOptions.ApplyTo of k8s.io/apiserver with a storage factory that
// stores each group in a version of its own. The order matters: later options
// use what earlier ones have set.
func (o CompletedOptions) applyTo(ctx context.Context, config *Config, ready requirements.Granted) error {
	generic := &config.Generic.Config
	if err := o.ServerRun.ApplyTo(generic); err != nil {
		return err
	}
	var err error
	if generic.EgressSelector, err = o.egress(); err != nil {
		return err
	}
	if err := o.applyServing(generic, config.connections, ready); err != nil {
		return err
	}
	if err := o.applyTraces(ctx, generic); err != nil {
		return err
	}
	if config.storage, err = o.storageConfig().ApplyTo(generic, config.Scheme, config.Codecs); err != nil {
		return err
	}
	config.Etcd = config.storage.Etcd
	if config.etcd != nil {
		generic.AddReadyzChecks(healthz.NamedCheck("etcd-alarms", func(*http.Request) error { return config.etcd.CheckAlarms() }))
	}
	delegation := authentication.Delegation{
		DelegatingAuthenticationOptions: o.Authentication,
		AlwaysAllowPaths:                o.Authorization.AlwaysAllowPaths,
		Audiences:                       o.APIAudiences,
		TokensPerClient:                 o.Bounds.TokensPerClient,
		NoteTooManyTokens:               filters.NoteTooManyTokens,
	}
	if config.frontProxy, err = delegation.ApplyTo(ctx, generic, ready.Authentication); err != nil {
		return err
	}
	authentication.AwaitClientCAs(generic.SecureServing, ready.ClientCAs)
	if err := o.Authorization.ApplyTo(generic, ready.Authorization, filters.RetryableDenial); err != nil {
		return err
	}
	if err := o.applyAudit(generic); err != nil {
		return err
	}
	reportExpiration(config.Name, generic.SecureServing.Cert)
	o.reportPlugins()
	return o.applyCluster(config, ready)
}

// applyServing listens on the port, but accepts no connections yet.
func (o CompletedOptions) applyServing(config *genericapiserver.Config, connections *transport.Connections, ready requirements.Granted) error {
	// k8s.io/apiserver keeps the listener, which is for one server, in the options, and forgets
	// the port if it can't be listened on.
	// Upstream fault 35.
	options := *o.SecureServing.SecureServingOptions
	if err := options.WithLoopback().ApplyToConfig(config); err != nil {
		return serveError(o.SecureServing.BindPort, err)
	}
	config.SecureServing.Listener = connections.Listener(config.SecureServing.Listener)
	// The warnings that this server sends are for its users, not for its own log.
	// Upstream fault 53.
	config.LoopbackClientConfig.WarningHandler = rest.NoWarnings{}
	// It would compress each event of a watch for itself.
	config.LoopbackClientConfig.DisableCompression = true
	config.LoopbackClientConfig.QPS = -1
	// With --bind-address it is not to the loopback interface, which HTTPS_PROXY spares.
	// Upstream fault 52.
	config.LoopbackClientConfig.Proxy = http.ProxyURL(nil)
	if ready.ServingCert != nil {
		config.SecureServing.Cert = ready.ServingCert
	}
	return nil
}

// serveError names the flags that may be wrong.
func serveError(port int, err error) error {
	if strings.Contains(err.Error(), "failed to create listener") {
		return fmt.Errorf("port %d can't be listened on; choose another with --secure-port: %w", port, err)
	}
	return fmt.Errorf("TLS can't be served; check --tls-cert-file, --tls-private-key-file and the other --tls flags: %w", err)
}

// applyCluster makes the clients, informers and admission plugins that use the cluster.
func (o CompletedOptions) applyCluster(config *Config, ready requirements.Granted) error {
	generic := config.Generic
	generic.ClientConfig = rest.CopyConfig(ready.Core)
	generic.ClientConfig.Wrap(tracing.WrapperFor(generic.TracerProvider))
	kubeClient, err := kubernetes.NewForConfig(generic.ClientConfig)
	if err != nil {
		return err
	}
	generic.SharedInformerFactory = informers.NewSharedInformerFactory(kubeClient, resyncPeriod)
	admission.TolerateAbsence(generic.SharedInformerFactory, cluster.CopiesLabel)
	dynamicClient, err := dynamic.NewForConfig(generic.ClientConfig)
	if err != nil {
		return err
	}
	features := *o.Features
	// Upstream fault 63.
	features.EnablePriorityAndFairness = features.EnablePriorityAndFairness && ready.Prioritized
	if err := features.ApplyTo(&generic.Config, kubeClient, generic.SharedInformerFactory); err != nil {
		return err
	}
	initializers, err := admission.Initializers(generic, dynamicClient)
	if err != nil {
		return err
	}
	own, err := config.newRuntimes()
	if err != nil {
		return err
	}
	if err := o.Admission.ApplyTo(&generic.Config, generic.SharedInformerFactory, kubeClient, dynamicClient, o.FeatureGate(), generic.EffectiveVersion,
		append(initializers, own...)...); err != nil {
		return fmt.Errorf("--admission-control-config-file, or another flag of admission: %w", err)
	}
	return nil
}

// newRuntimes creates the runtimes of the groups and returns the initializers of their
// admission plugins.
func (c *Config) newRuntimes() (initializers []genericadmission.PluginInitializer, err error) {
	loopback := rest.CopyConfig(c.Generic.LoopbackClientConfig)
	for _, group := range c.Groups {
		if group.Runtime == nil {
			continue
		}
		runtime, err := group.Runtime(registry.Clients{Loopback: loopback, Cluster: c.Generic.ClientConfig})
		if err != nil {
			return nil, fmt.Errorf("connecting the parts of %s with their server: %w", group.Name, err)
		}
		if runtime.Informers == nil {
			return nil, fmt.Errorf("set Informers in the Runtime of %s: the server starts them, and is ready when they have synced", group.Name)
		}
		c.Runtimes[group.Name] = runtime
		if runtime.Admission != nil {
			initializers = append(initializers, runtime.Admission)
		}
	}
	return initializers, nil
}

// buildHandlerChain wraps the installed API, innermost handler first. The package comment lists
// the handlers in the order of a request, with their purposes.
func (c *Config) buildHandlerChain(handler http.Handler, config *genericapiserver.Config) http.Handler {
	codecs := config.Serializer
	handler = c.storage.WithReferences(handler)                                                                               // Only the API stores objects.
	handler = filters.WithCurrentOpenAPI(handler)                                                                             // Redirects do not pass kube-apiserver.
	handler = c.streams.WithShutdown(handler, config)                                                                         // k8s.io/apiserver does not end WebSockets.
	handler = filters.WithoutProtobuf(handler, c.withoutMessages)                                                             // k8s.io/apiserver would answer 406 after a write.
	handler = limits.WithGate(handler, codecs, config.LongRunningFunc, c.Bounds, config.MaxRequestBodyBytes, transport.Admit) // Behind authorization: only writers send bodies.
	handler = genericapiserver.DefaultBuildHandlerChain(handler, config)                                                      // Authenticates and authorizes for the handlers above.
	handler = filters.WithRetryableErrors(handler, codecs)                                                                    // Rewrites refusals of the handlers inside.
	handler = filters.WithRequestBounds(handler, codecs, c.Bounds, config.RequestTimeout, c.frontProxy.Sends)                 // Before authentication, and reviews of impersonation.
	handler = c.connections.Handler(handler)                                                                                  // Counts all requests of a connection.
	handler = cluster.WithServerHeader(handler, c.Name)                                                                       // Also on refusals.
	return handler
}

// Complete fills in all derived values.
func (c *Config) Complete() CompletedConfig {
	return CompletedConfig{&completedConfig{Config: c, generic: c.Generic.Complete()}}
}

// storageConfig says where and how a server with these options stores objects.
func (o CompletedOptions) storageConfig() storage.Config {
	config := storage.Config{
		Name:         o.name,
		Etcd:         o.Etcd,
		Groups:       o.groups,
		Embedded:     o.embeddedEtcd,
		Transactions: o.EtcdTransactions,
		Egress:       o.Egress,
	}
	if o.Base != nil {
		config.Custom, config.CustomGroups = true, o.Base.Groups
	}
	return config
}
