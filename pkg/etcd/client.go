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

package etcd

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// CheckTransactions returns an error if the backend of a client has no transactions of several
// keys, as kine has none. It writes nothing.
func CheckTransactions(ctx context.Context, client *clientv3.Client, key string) error {
	absent := func(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), "=", 0) }
	_, err := client.Txn(ctx).If(absent(key+"/a"), absent(key+"/b")).Then(clientv3.OpGet(key)).Else(clientv3.OpGet(key)).Commit()
	return err
}

// Read reads a key, which need not exist, and returns the cause if that fails. The client
// itself would wait for a connection, and report only that it has none.
// Upstream fault 34.
func Read(ctx context.Context, client *clientv3.Client, key string) error {
	_, err := etcdserverpb.NewKVClient(client.ActiveConnection()).Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(key)})
	return err
}
