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
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/storage/value"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
)

// Objects that "migrate" had written once had no checksums.
func TestStoresWriteWhatTheServerWrites(t *testing.T) {
	for name, test := range map[string]struct {
		args   []string
		sealed bool
	}{
		"to the embedded etcd": {nil, true},
		"to an external etcd":  {[]string{"--etcd-servers=https://etcd:2379"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			stores, err := parse(t, test.args...).Stores(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(stores) == 0 {
				t.Fatal("got no stores")
			}
			for _, store := range stores {
				key := value.DefaultContext(store.Prefix + "name")
				stored, err := store.Transformer.TransformToStorage(t.Context(), []byte("k8s\x00value"), key)
				if err != nil || etcd.ValueIsSealed(stored) != test.sealed {
					t.Errorf("%s: got %q (%v)", store.GroupResource, stored, err)
				}
				if data, stale, err := store.Transformer.TransformFromStorage(t.Context(), stored, key); string(data) != "k8s\x00value" || stale || err != nil {
					t.Errorf("%s: got %q, stale %v, error %v", store.GroupResource, data, stale, err)
				}
				if data, err := store.Encryption.TransformToStorage(t.Context(), []byte("value"), key); string(data) != "value" || err != nil {
					t.Errorf("%s: got %q (%v)", store.GroupResource, data, err)
				}
			}
		})
	}
}

// Tools that look into the etcd of all other objects would find none of these.
func TestStoresOfAnotherEtcd(t *testing.T) {
	const other = "https://other:2379"
	for name, args := range map[string][]string{"embedded": nil, "external": {"--etcd-servers=https://etcd:2379"}} {
		t.Run(name, func(t *testing.T) {
			stores, err := parse(t, append(args, "--etcd-servers-overrides=workshop.example.com/machines#"+other)...).Stores(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, store := range stores {
				want := []string(nil)
				if store.Resource == "machines" {
					found, want = true, []string{other}
				}
				if !slices.Equal(store.Servers, want) {
					t.Errorf("%s: got %v, want %v", store.GroupResource, store.Servers, want)
				}
			}
			if !found {
				t.Error("got no machines")
			}
		})
	}
}
