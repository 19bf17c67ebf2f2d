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
	"net"
	"path"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"k8s.io/apiserver/pkg/server/egressselector"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/startup"
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
	return startup.Await(ctx, "etcd", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if err := etcd.Read(ctx, client, path.Join("/", config.Prefix, "health")); err != nil {
			return fmt.Errorf("etcd at %v does not answer: check that it runs, its addresses in --etcd-servers, and --etcd-cafile, --etcd-certfile and --etcd-keyfile (%w)", config.Transport.ServerList, err)
		}
		return nil
	})
}

// NewEtcdClient returns a client of these servers with the credentials of the flags.
func (o CompletedOptions) NewEtcdClient(servers ...string) (*clientv3.Client, error) {
	config := o.Etcd.StorageConfig.Transport
	files := transport.TLSInfo{
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
	var options []grpc.DialOption
	if config.EgressLookup != nil {
		dial, err := config.EgressLookup(egressselector.Etcd.AsNetworkContext())
		if err != nil {
			return nil, err
		}
		if dial != nil {
			options = append(options, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return dial(ctx, "tcp", address)
			}))
		}
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: servers, TLS: tlsConfig, DialOptions: options, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("--etcd-servers can't be used: %w", err)
	}
	return client, nil
}
