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
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// limited is a backend whose transactions have one key, as kine's.
type limited struct {
	etcdserverpb.UnimplementedKVServer
}

func (limited) Txn(_ context.Context, txn *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	if len(txn.Compare) > 1 {
		return nil, errors.New("unsupported transaction")
	}
	return &etcdserverpb.TxnResponse{}, nil
}

func TestCheckTransactions(t *testing.T) {
	config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
	member, err := config.Start(t.Context())
	require.NoError(t, err)
	defer func() { _ = member.Close() }()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "localhost:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	etcdserverpb.RegisterKVServer(server, limited{})
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	for endpoint, want := range map[string]string{
		config.Endpoint():                    "",
		"http://" + listener.Addr().String(): "rpc error: code = Unknown desc = unsupported transaction",
	} {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
		require.NoError(t, err)
		defer func() { _ = client.Close() }()
		got := ""
		if err := CheckTransactions(t.Context(), client, "/registry/health"); err != nil {
			got = err.Error()
		}
		if got != want {
			assert.Failf(t, "unexpected", "got %q of %s, want %q", got, endpoint, want)
		}
	}
	if revision := member.Server.KV().Rev(); revision != 1 {
		assert.Failf(t, "unexpected", "the revision is %d: something was written", revision)
	}
}
