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
package doctor

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// encryptionKeys reads what begins with the number of a key. 1 is the present one.
type encryptionKeys struct{ value.Transformer }

func (encryptionKeys) TransformFromStorage(_ context.Context, data []byte, _ value.Context) ([]byte, bool, error) {
	switch {
	case bytes.HasPrefix(data, []byte("1")):
		return data[1:], false, nil
	case bytes.HasPrefix(data, []byte("2")):
		return data[1:], true, nil
	}
	return nil, false, errors.New("no such key")
}

func TestCheckStorage(t *testing.T) {
	config := etcd.Config{Dir: filepath.Join(t.TempDir(), "data"), QuotaBytes: 64 << 20}
	member, err := config.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, member.Close())
	})
	things := keys.Objects{
		GroupResource: schema.GroupResource{Group: "example.com", Resource: "things"}, Prefix: "/registry/things/",
		Versions: []string{"v1", "v1beta1", "v1alpha1"}, StorageVersion: "v1", Encryption: encryptionKeys{},
	}
	const v1, v1alpha1 = `{"apiVersion":"example.com/v1","kind":"Thing"}`, `{"apiVersion":"example.com/v1alpha1","kind":"Thing"}`
	const rewriting = `rewrite them by a StorageVersionMigration, see "Rewrite what is stored" in docs/operations/upgrade.md`
	for name, test := range map[string]struct {
		objects map[string]string
		stores  func(context.Context) ([]keys.Objects, error)
		servers string
		socket  string
		want    []Finding
	}{
		"as it should be": {
			objects: map[string]string{"a": "1" + v1, "b": "1" + v1},
			want: []Finding{{Status: OK, Cause: "all 2 things.example.com are stored in the version v1 and under the present key: " +
				"no stored object is in v1alpha1 or v1beta1 any more, so that a release may drop it, once no older release runs that writes it"}},
		},
		"an old version, and an old key": {
			objects: map[string]string{"a": "1" + v1alpha1, "b": "2" + v1, "c": "2" + v1alpha1},
			want: []Finding{
				{Status: Warning, Cause: "2 of 3 things.example.com are stored in the version v1alpha1, and not in v1, so that no release may drop v1alpha1", Fix: rewriting},
				{Status: Warning, Cause: "2 of 3 things.example.com are stored under an old key, or not encrypted, so that this may not be taken out of --encryption-provider-config", Fix: rewriting},
			},
		},
		"a key that is missing": {
			objects: map[string]string{"a": "3" + v1, "b": "1" + v1},
			want: []Finding{{
				Status: Failure, Cause: "1 of 2 things.example.com can't be read, such as /registry/things/a: no such key",
				Fix: "check --encryption-provider-config: the keys under which objects are stored must be in it",
			}},
		},
		"nothing is stored": {
			stores: func(context.Context) ([]keys.Objects, error) { return nil, nil },
			want:   []Finding{{Status: OK, Cause: "the server stores nothing"}},
		},
		"nobody knows what is stored": {
			stores: func(context.Context) ([]keys.Objects, error) { return nil, errors.New("forbidden") },
			want:   []Finding{{Status: Skipped, Cause: "what the server stores can't be found out (forbidden)"}},
		},
		"an etcd of their own": {
			objects: map[string]string{"a": "1" + v1alpha1},
			servers: "unix:///nonexistent",
			stores: func(context.Context) ([]keys.Objects, error) {
				own := things
				own.Servers = []string{config.Endpoint()}
				return []keys.Objects{own}, nil
			},
			want: []Finding{{Status: Warning, Cause: "1 of 1 things.example.com are stored in the version v1alpha1, and not in v1, so that no release may drop v1alpha1", Fix: rewriting}},
		},
		"an etcd that can't be reached": {
			servers: "unix:///nonexistent",
			want:    []Finding{{Status: Failure, Cause: "the etcd of things.example.com can't be reached (unix:///nonexistent)", Fix: "check the flags of etcd"}},
		},
		"an etcd elsewhere": {
			socket: "/nonexistent/etcd.sock",
			want: []Finding{{
				Status: Skipped, Cause: "the embedded etcd can't be looked at from here (stat /nonexistent/etcd.sock: no such file or directory)",
				Fix: "run this in the server's pod and as its user, with the server's --data-dir, or name an external etcd by --etcd-servers",
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := func(servers ...string) (*clientv3.Client, error) {
				if servers[0] != config.Endpoint() {
					return nil, errors.New(servers[0])
				}
				return clientv3.New(clientv3.Config{Endpoints: servers})
			}
			writer, err := client(config.Endpoint())
			require.NoError(t, err)
			defer func() { _ = writer.Close() }()
			_, err = writer.Delete(t.Context(), "/", clientv3.WithPrefix())
			require.NoError(t, err)
			for name, data := range test.objects {
				// With a checksum, as a server with an embedded etcd writes it.
				_, err = writer.Put(t.Context(), things.Prefix+name, string(etcd.SealValue(things.Prefix+name, []byte(data))))
				require.NoError(t, err)
			}
			if test.stores == nil {
				test.stores = func(context.Context) ([]keys.Objects, error) { return []keys.Objects{things}, nil }
			}
			if test.servers == "" {
				test.servers = config.Endpoint()
			}
			e := &examination{Config: Config{EtcdServers: []string{test.servers}, EtcdClient: client, EtcdSocket: test.socket, Stores: test.stores}}
			got := e.checkStorage(t.Context())
			require.Equal(t, test.want, got)
		})
	}
}

// A scan that did not read all objects does not call all of them fine.
func TestScanIsBounded(t *testing.T) {
	found := scan{objects: maxScanned, more: true, versions: map[string]int{"v1": maxScanned}}
	store := keys.Objects{GroupResource: schema.GroupResource{Resource: "things"}, StorageVersion: "v1", Versions: []string{"v1", "v1beta1"}}
	want := []Finding{{Status: Skipped, Cause: "all the first 100000 things are stored in the version v1 and under the present key; the others were not looked at"}}
	require.Equal(t, want, found.results(&store))
}
