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

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/registry/generic"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/storage"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// NewEtcdClient returns a client of these servers with the credentials of the flags, see
// storage.Config.NewClient.
func (o CompletedOptions) NewEtcdClient(servers ...string) (*clientv3.Client, error) {
	return o.storageConfig().NewClient(servers...)
}

// Stores returns where and how a server with these options stores each resource, for tools
// that read or write etcd beside the server.
func (o CompletedOptions) Stores(ctx context.Context) ([]keys.Objects, error) {
	config, err := o.newConfig(nil)
	if err != nil {
		return nil, err
	}
	stores, etcd, encryptionOf, err := o.storageConfig().Stores(&config.Generic.Config, config.Scheme, config.Codecs)
	if err != nil || o.Base == nil {
		return stores, err
	}
	config.Etcd = etcd
	if config.Generic.ClientConfig, err = o.Kubeconfig(); err != nil {
		return nil, err
	}
	others, err := o.Base.Stores(ctx, config)
	for i := range others {
		others[i].Encryption = encryptionOf(others[i].GroupResource)
	}
	return append(stores, others...), err
}

// NewStoredVerifier returns a function that verifies a value in etcd for a server with these flags,
// see storage.Config.NewVerifier.
func (o CompletedOptions) NewStoredVerifier(ctx context.Context) (func(key string, stored []byte) (resource string, err error), error) {
	return o.storageConfig().NewVerifier(ctx)
}

// BaseStorage makes the stores of a Base work like the stores of the groups in Go, see
// storage.Storage.BaseStorage.
func (c *Config) BaseStorage(getter generic.RESTOptionsGetter, newCache storage.NewCache) generic.RESTOptionsGetter {
	return c.storage.BaseStorage(getter, newCache)
}
