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
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	componentbaseconfig "k8s.io/component-base/config"
	"k8s.io/component-base/tracing"
	baseversion "k8s.io/component-base/version"
	"k8s.io/kube-openapi/pkg/common"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/filters"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// resyncPeriod is how often informers of the cluster's objects repeat what they know.
const resyncPeriod = 10 * time.Minute

// Config is all that a server is made of.
type Config struct {
	Generic *genericapiserver.RecommendedConfig
	Groups  []registry.Group
	// Scheme and Codecs know the types of the groups.
	Scheme *runtime.Scheme
	Codecs serializer.CodecFactory
	// Runtimes are those of the groups that have one, by the group's name.
	Runtimes map[string]registry.Runtime
	// RunControllers is false if the groups' controllers run elsewhere only.
	RunControllers bool
	// LeaderElection says which replica runs the groups' controllers.
	LeaderElection componentbaseconfig.LeaderElectionConfiguration
	// Bounds are what a request may cost.
	Bounds filters.Bounds

	streams *filters.Streams
}

// CompletedConfig is a Config after Complete; nothing else makes one.
type CompletedConfig struct {
	*completedConfig
}

type completedConfig struct {
	*Config
	generic genericapiserver.CompletedConfig
}

// Config turns the options into a config. Clients and informers are created, but
// nothing runs yet.
func (o CompletedOptions) Config() (*Config, error) {
	scheme := runtime.NewScheme()
	registry.InstallMeta(scheme)
	for _, group := range o.groups {
		if err := group.InstallTypes(scheme); err != nil {
			return nil, err
		}
	}
	codecs := serializer.NewCodecFactory(scheme)
	config := &Config{
		Generic: genericapiserver.NewRecommendedConfig(codecs),
		Groups:  o.groups,
		Scheme:  scheme,
		Codecs:  codecs,

		Runtimes:       map[string]registry.Runtime{},
		RunControllers: o.RunControllers,
		LeaderElection: o.LeaderElection,
		Bounds:         o.Bounds,

		streams: filters.NewStreams(o.Bounds, longRunning(o.groups)...),
	}
	config.setOpenAPI()
	config.Generic.BuildHandlerChainFunc = config.buildHandlerChain
	config.Generic.LongRunningFunc = config.streams.LongRunning(config.Generic.LongRunningFunc)
	config.Generic.RequestInfoResolver = filters.ResolveRequestInfo(genericapiserver.NewRequestInfoResolver(&config.Generic.Config))
	return config, o.applyTo(config)
}

func longRunning(groups []registry.Group) (subresources []schema.GroupResource) {
	for _, group := range groups {
		subresources = append(subresources, group.LongRunning()...)
	}
	return subresources
}

// applyTo is RecommendedOptions.ApplyTo of the library with a storage factory that
// stores each group in a version of its own. The order matters: later options
// use what earlier ones have set.
func (o CompletedOptions) applyTo(config *Config) error {
	generic := config.Generic
	if err := o.ServerRun.ApplyTo(&generic.Config); err != nil {
		return err
	}
	var err error
	if generic.EgressSelector, err = o.egress(); err != nil {
		return err
	}
	// Upstream fault 35.
	port := o.SecureServing.BindPort // It is not kept when it can't be listened on.
	if err := o.SecureServing.ApplyToConfig(&generic.Config); err != nil {
		return serveError(port, err)
	}
	if serving := generic.SecureServing; serving != nil {
		serving.Listener = filters.BoundConnections(serving.Listener, o.Bounds)
	}
	if err := o.applyTraces(&generic.Config); err != nil {
		return err
	}
	// Upstream fault 48.
	o.Etcd.StorageConfig.Transport.TracerProvider = generic.TracerProvider
	factory, err := o.storageFactory(config)
	if err != nil {
		return err
	}
	livez := generic.LivezChecks
	if err := o.Etcd.ApplyWithStorageFactoryTo(factory, &generic.Config); err != nil {
		return fmt.Errorf("--encryption-provider-config, or another flag of etcd: %w", err)
	}
	// While etcd is unavailable, this server is not ready, but a restart would fix
	// nothing: discovery works, and everything else does again once etcd is back.
	// Upstream fault 54.
	generic.LivezChecks = livez
	if err := o.applyAuthentication(&generic.Config); err != nil {
		return err
	}
	if err := o.applyAuthorization(&generic.Config); err != nil {
		return err
	}
	if err := o.applyAudit(&generic.Config); err != nil {
		return err
	}
	if generic.ClientConfig, err = o.Kubeconfig(); err != nil {
		return err
	}
	generic.ClientConfig.Wrap(tracing.WrapperFor(generic.TracerProvider))
	// kube-apiserver itself says when it is asked too much.
	generic.ClientConfig.QPS = -1
	kubeClient, err := kubernetes.NewForConfig(generic.ClientConfig)
	if err != nil {
		return err
	}
	generic.SharedInformerFactory = informers.NewSharedInformerFactory(kubeClient, resyncPeriod)
	admission.TolerateAbsence(generic.SharedInformerFactory)
	dynamicClient, err := dynamic.NewForConfig(generic.ClientConfig)
	if err != nil {
		return err
	}
	if err := o.Features.ApplyTo(&generic.Config, kubeClient, generic.SharedInformerFactory); err != nil {
		return err
	}
	initializers, err := admission.Initializers(generic, dynamicClient)
	if err != nil {
		return err
	}
	own, err := config.connect()
	if err != nil {
		return err
	}
	if err := o.Admission.ApplyTo(&generic.Config, generic.SharedInformerFactory, kubeClient, dynamicClient, o.featureGate(), generic.EffectiveVersion,
		append(initializers, own...)...); err != nil {
		return fmt.Errorf("--admission-control-config-file, or another flag of admission: %w", err)
	}
	return nil
}

// connect creates the runtimes of the groups and returns what initializes their
// admission plugins.
func (c *Config) connect() (initializers []genericadmission.PluginInitializer, err error) {
	loopback := rest.CopyConfig(c.Generic.LoopbackClientConfig)
	loopback.QPS = -1
	// With --bind-address it is not to the loopback interface, which HTTPS_PROXY spares.
	// Upstream fault 52.
	loopback.Proxy = http.ProxyURL(nil)
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

// serveError names the flags that there is something wrong with.
func serveError(port int, err error) error {
	if strings.Contains(err.Error(), "failed to create listener") {
		return fmt.Errorf("port %d can't be listened on; choose another with --secure-port: %w", port, err)
	}
	return fmt.Errorf("TLS can't be served; check --tls-cert-file, --tls-private-key-file and the other --tls flags: %w", err)
}

// Upstream fault 49.
func (o CompletedOptions) storageFactory(config *Config) (serverstorage.StorageFactory, error) {
	encoding := serverstorage.NewDefaultResourceEncodingConfig(config.Scheme)
	prefixes := map[schema.GroupResource]string{}
	for _, group := range config.Groups {
		maps.Copy(prefixes, group.StoragePrefixes())
		versions, err := group.StorageVersions(config.Scheme)
		if err != nil {
			return nil, err
		}
		for resource, version := range versions {
			encoding.SetResourceEncoding(resource, version, schema.GroupVersion{Group: group.Name, Version: runtime.APIVersionInternal})
		}
	}
	factory := serverstorage.NewDefaultStorageFactory(o.Etcd.StorageConfig, o.Etcd.DefaultStorageMediaType, config.Codecs,
		encoding, serverstorage.NewResourceConfig(), prefixes)
	overrides, err := genericoptions.ParseEtcdServersOverrides(o.Etcd.EtcdServersOverrides)
	if err != nil {
		return nil, err
	}
	for _, override := range overrides {
		factory.SetEtcdLocation(override.GroupResource, override.Servers)
	}
	return factory, nil
}

func (c *Config) setOpenAPI() {
	definitions := func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		all := map[string]common.OpenAPIDefinition{}
		for _, group := range c.Groups {
			maps.Copy(all, group.OpenAPI(ref))
		}
		return all
	}
	names := make([]string, 0, len(c.Groups))
	for _, group := range c.Groups {
		names = append(names, group.Name)
	}
	namer := openapi.NewDefinitionNamer(c.Scheme)
	c.Generic.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	c.Generic.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	c.Generic.OpenAPIConfig.Info.Title = strings.Join(slices.Sorted(slices.Values(names)), ", ")
	c.Generic.OpenAPIConfig.Info.Version = baseversion.Get().GitVersion
	c.Generic.OpenAPIV3Config.Info = c.Generic.OpenAPIConfig.Info
}

// buildHandlerChain puts the bounds around the handlers of the library: those of what every
// request has outside of all of them, those of bodies behind authentication and
// authorization, so that only who may write makes the server read a body.
func (c *Config) buildHandlerChain(handler http.Handler, config *genericapiserver.Config) http.Handler {
	handler = c.streams.WithShutdown(filters.WithCurrentOpenAPI(handler), config)
	handler = filters.WithClientContext(filters.WithBodyBounds(handler, config.Serializer, c.Bounds, config.MaxRequestBodyBytes))
	handler = genericapiserver.DefaultBuildHandlerChain(handler, config)
	handler = filters.WithPendingBound(handler, config.Serializer, config.RequestInfoResolver, config.LongRunningFunc, c.Bounds)
	handler = filters.WithBodyDeadline(filters.WithRetryableErrors(handler, config.Serializer), config.RequestTimeout)
	return filters.WithRequestBounds(handler, config.Serializer, c.Bounds)
}

// Complete fills in what follows from the rest.
func (c *Config) Complete() CompletedConfig {
	return CompletedConfig{&completedConfig{Config: c, generic: c.Generic.Complete()}}
}
