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

package e2e

import (
	"fmt"
	"path"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// keys is the prefix of the keys under which the test's objects are stored.
func (s subject) keys() string {
	elements := []string{"/registry", s.Group, s.resource}
	if s.namespace != "" {
		elements = append(elements, s.namespace)
	}
	return path.Join(elements...) + "/" + s.id + "-"
}

// stored returns what etcd has of the test's objects, by key and revision.
func (s subject) stored(t *testing.T) map[string]string {
	t.Helper()
	answer, err := etcdOf(t, cp.APIServer).Get(t.Context(), s.keys(), clientv3.WithPrefix())
	require.NoError(t, err)
	all := map[string]string{}
	for _, kv := range answer.Kvs {
		all[fmt.Sprintf("%s at revision %d", kv.Key, kv.ModRevision)] = string(kv.Value)
	}
	return all
}

// etcdOf connects to the etcd that is embedded in a server.
func etcdOf(t *testing.T, server *controlplane.Component) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{"unix://" + filepath.Join(server.Dir(), "data", "etcd.sock")},
		DialTimeout: 5 * time.Second,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}
