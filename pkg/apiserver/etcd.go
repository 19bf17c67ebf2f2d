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
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/component-base/tracing"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/transport"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/references"
)

// awaitEtcd waits for an external etcd. The library alone gives it 20 seconds, and
// does not say what it is waiting for.
// Upstream fault 33.
func (o CompletedOptions) awaitEtcd(ctx context.Context) error {
	config := o.Etcd.StorageConfig
	client, err := o.NewEtcdClient(config.Transport.ServerList...)
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
		if !o.EtcdTransactions || len(o.groups) == 0 {
			return nil
		}
		if err := etcd.CheckTransactions(ctx, client, key); err != nil {
			return fmt.Errorf("etcd at %v has no transactions of several keys, which keep references between objects exact: if it is kine, set --etcd-transactions=false (%w)", config.Transport.ServerList, err)
		}
		return nil
	})
}

// NewEtcdClient returns a client of these servers with the credentials of the flags. Whoever
// asks it wants to know soon that etcd answers again.
func (o CompletedOptions) NewEtcdClient(servers ...string) (*clientv3.Client, error) {
	var egress egressselector.Lookup
	if !o.embeddedEtcd {
		egress = o.Egress
	}
	return o.etcdClient(servers, egress, grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: transport.RedialInterval, Multiplier: 1, MaxDelay: transport.RedialInterval},
		MinConnectTimeout: transport.RedialPatience,
	}))
}

func (o CompletedOptions) etcdClient(servers []string, egress egressselector.Lookup, options ...grpc.DialOption) (*clientv3.Client, error) {
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
	if egress != nil {
		dial, err := egress(egressselector.Etcd.AsNetworkContext())
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
		// The library's own.
		DialKeepAliveTime: 30 * time.Second, DialKeepAliveTimeout: 10 * time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("--etcd-servers can't be used: %w", err)
	}
	return client, nil
}

// applyEtcd makes what stores objects.
func (o CompletedOptions) applyEtcd(config *Config) error {
	generic := &config.Generic.Config
	options := *o.Etcd
	// Upstream fault 48.
	options.StorageConfig.Transport.TracerProvider = generic.TracerProvider
	livez := generic.LivezChecks
	if _, err := o.applyStored(config, &options); err != nil {
		return err
	}
	remote := options.StorageConfig.Transport
	// It waits for etcd, tells how long it has waited, and has spans in traces, as the library's
	// own clients.
	traced := grpc.WithStatsHandler(otelgrpc.NewClientHandler(
		otelgrpc.WithMessageEvents(otelgrpc.ReceivedEvents, otelgrpc.SentEvents),
		otelgrpc.WithPropagators(tracing.Propagators()), otelgrpc.WithTracerProvider(remote.TracerProvider)))
	var err error
	if config.etcdClient, err = o.etcdClient(remote.ServerList, remote.EgressLookup, traced); err != nil {
		return err
	}
	config.etcdClient.KV = etcd3.NewETCDLatencyTracker(config.etcdClient.KV)
	config.references = references.New(config.etcdClient, options.StorageConfig.Prefix)
	var raw rawStorage
	if o.EtcdTransactions {
		raw = rawStorage{config.references, remote.ServerList}
	}
	config.history = newHistory()
	go config.history.follow(config.etcdClient, keys.HistoryKey(options.StorageConfig.Prefix, ""))
	generic.RESTOptionsGetter = config.withCache(generic.RESTOptionsGetter, raw)
	// While etcd is unavailable, this server is not ready, but a restart would fix nothing:
	// discovery goes on, and all else does once etcd is back.
	// Upstream fault 54.
	generic.LivezChecks = livez
	if config.etcd != nil {
		generic.AddReadyzChecks(healthz.NamedCheck("etcd-alarms", func(*http.Request) error { return config.etcd.CheckAlarms() }))
	}
	return nil
}

// applyStored says where each resource is stored, and as what: by which codec, encrypted, and
// with a checksum.
func (o CompletedOptions) applyStored(config *Config, options *genericoptions.EtcdOptions) (*serverstorage.DefaultStorageFactory, error) {
	config.Etcd = options
	factory, err := storageFactory(config, options)
	if err != nil {
		return nil, err
	}
	generic := &config.Generic.Config
	if err := options.ApplyWithStorageFactoryTo(factory, generic); err != nil {
		return nil, fmt.Errorf("--encryption-provider-config, or another flag of etcd: %w", err)
	}
	// Made again, as the one of the options knows of no checksums.
	generic.ResourceTransformers = checksummed{generic.ResourceTransformers, o.embeddedEtcd}
	generic.RESTOptionsGetter = options.CreateRESTOptionsGetter(factory, generic.ResourceTransformers)
	return factory, nil
}

// storageFactory returns where and how each resource is stored.
// Upstream fault 49.
func storageFactory(config *Config, options *genericoptions.EtcdOptions) (*serverstorage.DefaultStorageFactory, error) {
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
	factory := serverstorage.NewDefaultStorageFactory(options.StorageConfig, options.DefaultStorageMediaType, config.Codecs,
		encoding, serverstorage.NewResourceConfig(), prefixes)
	overrides, err := genericoptions.ParseEtcdServersOverrides(options.EtcdServersOverrides)
	if err != nil {
		return nil, err
	}
	for _, override := range overrides {
		factory.SetEtcdLocation(override.GroupResource, override.Servers)
	}
	return factory, nil
}
