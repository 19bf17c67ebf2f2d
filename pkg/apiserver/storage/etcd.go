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

package storage

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path"
	"time"

	etcdtransport "go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/egressselector"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/component-base/tracing"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/egress"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/references"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// Config says where and how objects are stored.
type Config struct {
	// Name is the name of the server.
	Name   string
	Etcd   *genericoptions.EtcdOptions
	Groups []registry.Group
	// Embedded is set if etcd runs inside the server.
	Embedded bool
	// Transactions is false for a backend without transactions of several keys.
	Transactions bool
	// Egress is how an external etcd is reached.
	Egress egressselector.Lookup
	// Custom is set if the server also stores objects that are not of groups in Go. CustomGroups
	// returns the groups of these objects.
	Custom       bool
	CustomGroups func() []string
}

// Storage stores the objects of a server.
type Storage struct {
	// Etcd are the options that are used.
	Etcd *genericoptions.EtcdOptions

	// client writes, with the references between objects.
	client     *clientv3.Client
	references *references.References
	history    *history
	large      largeObjects
}

// Close closes the client of etcd.
func (s *Storage) Close() error { return s.client.Close() }

// WithReferences returns a handler whose requests may refer to objects.
func (s *Storage) WithReferences(next http.Handler) http.Handler {
	return s.references.Handler(next)
}

// Await waits for an external etcd. k8s.io/apiserver alone gives it 20 seconds, and
// does not say what it is waiting for.
// Upstream fault 33.
func (o Config) Await(ctx context.Context) error {
	config := o.Etcd.StorageConfig
	client, err := o.NewClient(config.Transport.ServerList...)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	return cluster.Await(ctx, "etcd", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		key := path.Join("/", config.Prefix, "health")
		if err := etcd.Read(ctx, client, key); err != nil {
			return fmt.Errorf("etcd at %v does not answer: check that it runs, its addresses in --etcd-servers, and --etcd-cafile, --etcd-certfile and --etcd-keyfile (%w)", config.Transport.ServerList, err)
		}
		if !o.Transactions || len(o.Groups) == 0 {
			return nil
		}
		if err := etcd.CheckTransactions(ctx, client, key); err != nil {
			return fmt.Errorf("etcd at %v has no transactions of several keys, which keep references between objects exact: if it is kine, set --etcd-transactions=false (%w)", config.Transport.ServerList, err)
		}
		return nil
	})
}

// NewClient returns a client of these servers with the credentials of the flags. Its callers need to
// notice quickly that etcd answers again.
func (o Config) NewClient(servers ...string) (*clientv3.Client, error) {
	var lookup egressselector.Lookup
	if !o.Embedded {
		lookup = o.Egress
	}
	return o.client(servers, lookup, grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: egress.RedialInterval, Multiplier: 1, MaxDelay: egress.RedialInterval},
		MinConnectTimeout: egress.RedialPatience,
	}))
}

func (o Config) client(servers []string, lookup egressselector.Lookup, options ...grpc.DialOption) (*clientv3.Client, error) {
	config := o.Etcd.StorageConfig.Transport
	files := etcdtransport.TLSInfo{
		CertFile:      config.CertFile,
		KeyFile:       config.KeyFile,
		TrustedCAFile: config.TrustedCAFile,
	}
	tlsConfig, err := files.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--etcd-cafile, --etcd-certfile or --etcd-keyfile can't be used: %w", err)
	}
	if files.Empty() && files.TrustedCAFile == "" {
		tlsConfig = nil
	}
	if lookup != nil {
		dial, err := lookup(egressselector.Etcd.AsNetworkContext())
		if err != nil {
			return nil, err
		}
		if dial != nil {
			options = append(options, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return dial(ctx, "tcp", address)
			}))
		}
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: servers, TLS: tlsConfig, DialOptions: options, Logger: zap.NewNop(),
		// As k8s.io/apiserver's own.
		DialKeepAliveTime: 30 * time.Second, DialKeepAliveTimeout: 10 * time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("--etcd-servers can't be used: %w", err)
	}
	return client, nil
}

// ApplyTo makes a server store its objects.
func (o Config) ApplyTo(config *genericapiserver.Config, scheme *runtime.Scheme, codecs serializer.CodecFactory) (*Storage, error) {
	options := *o.Etcd
	// Upstream fault 48.
	options.StorageConfig.Transport.TracerProvider = config.TracerProvider
	livez := config.LivezChecks
	_, transformers, err := o.applyStored(&options, config, scheme, codecs)
	if err != nil {
		return nil, err
	}
	remote := options.StorageConfig.Transport
	// It waits for etcd, tells how long it has waited, and has spans in traces, as k8s.io/apiserver's
	// own clients.
	traced := grpc.WithStatsHandler(otelgrpc.NewClientHandler(
		otelgrpc.WithMessageEvents(otelgrpc.ReceivedEvents, otelgrpc.SentEvents),
		otelgrpc.WithPropagators(tracing.Propagators()), otelgrpc.WithTracerProvider(remote.TracerProvider)))
	client, err := o.client(remote.ServerList, remote.EgressLookup, traced)
	if err != nil {
		return nil, err
	}
	client.KV = etcd3.NewETCDLatencyTracker(client.KV)
	s := &Storage{
		Etcd:       &options,
		client:     client,
		references: references.New(client, options.StorageConfig.Prefix),
		history:    newHistory(),
		large:      transformers.large,
	}
	var raw rawStorage
	if o.Transactions {
		raw = rawStorage{s.references, remote.ServerList}
	}
	go s.history.follow(client, keys.HistoryKey(options.StorageConfig.Prefix, ""))
	config.RESTOptionsGetter = s.withCache(config.RESTOptionsGetter, raw)
	// While etcd is unavailable, this server is not ready, but a restart would fix nothing.
	// Discovery goes on, and everything else does once etcd is back.
	// Upstream fault 54.
	config.LivezChecks = livez
	return s, nil
}

// applyStored configures the place, codec, encryption and checksums of each stored resource.
func (o Config) applyStored(options *genericoptions.EtcdOptions, config *genericapiserver.Config, scheme *runtime.Scheme, codecs serializer.CodecFactory) (*serverstorage.DefaultStorageFactory, checksummed, error) {
	factory, err := o.storageFactory(options, scheme, codecs)
	if err != nil {
		return nil, checksummed{}, err
	}
	// Priority and fairness gets no counts of objects. With them, a list could take up to a hundred seats, and a single
	// slow reader a priority level. The gate counts sizes.
	if err := options.ApplyWithStorageFactoryTo(factory, config); err != nil {
		return nil, checksummed{}, fmt.Errorf("--encryption-provider-config, or another flag of etcd: %w", err)
	}
	// The getter of the options knows of no checksums.
	transformers := checksummed{config.ResourceTransformers, o.Embedded, newLargeObjects()}
	config.ResourceTransformers = transformers
	config.RESTOptionsGetter = options.CreateRESTOptionsGetter(factory, transformers)
	return factory, transformers, nil
}

// storageFactory returns where and how each resource is stored.
// Upstream fault 49.
func (o Config) storageFactory(options *genericoptions.EtcdOptions, scheme *runtime.Scheme, codecs serializer.CodecFactory) (*serverstorage.DefaultStorageFactory, error) {
	encoding := serverstorage.NewDefaultResourceEncodingConfig(scheme)
	prefixes := map[schema.GroupResource]string{}
	var asJSON []schema.GroupResource
	for _, group := range o.Groups {
		maps.Copy(prefixes, group.StoragePrefixes())
		versions, err := group.StorageVersions(scheme)
		if err != nil {
			return nil, err
		}
		withoutMessages, err := group.WithoutMessages(scheme)
		if err != nil {
			return nil, err
		}
		for resource, version := range versions {
			if withoutMessages[version.WithResource(resource.Resource)] {
				asJSON = append(asJSON, resource)
			}
			encoding.SetResourceEncoding(resource, version, schema.GroupVersion{Group: group.Name, Version: runtime.APIVersionInternal})
		}
	}
	factory := serverstorage.NewDefaultStorageFactory(options.StorageConfig, options.DefaultStorageMediaType, codecs,
		encoding, serverstorage.NewResourceConfig(), prefixes)
	for _, resource := range asJSON {
		factory.SetSerializer(resource, runtime.ContentTypeJSON, nil)
	}
	overrides, err := genericoptions.ParseEtcdServersOverrides(options.EtcdServersOverrides)
	if err != nil {
		return nil, err
	}
	for _, override := range overrides {
		factory.SetEtcdLocation(override.GroupResource, override.Servers)
	}
	return factory, nil
}
