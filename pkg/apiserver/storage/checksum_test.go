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
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

func TestChecksumTransformer(t *testing.T) {
	key := value.DefaultContext("/registry/key")
	sealed := string(etcd.SealValue(string(key), []byte("k8s\x00value")))
	embedded := checksumTransformer{identity.NewEncryptCheckTransformer(), true, newLargeObjects(), &atomic.Int64{}}
	external := checksumTransformer{identity.NewEncryptCheckTransformer(), false, newLargeObjects(), &atomic.Int64{}}
	for name, test := range map[string]struct {
		transformer checksumTransformer
		stored      string
		want        string
		stale       bool
		err         error
	}{
		"with a checksum":                         {embedded, sealed, "k8s\x00value", false, nil},
		"of an earlier server":                    {embedded, "k8s\x00value", "k8s\x00value", true, nil},
		"changed":                                 {embedded, strings.Replace(sealed, "value", "other", 1), "", false, registry.ErrDamaged},
		"of a restored snapshot, elsewhere":       {external, sealed, "k8s\x00value", true, nil},
		"of an external etcd":                     {external, "k8s\x00value", "k8s\x00value", false, nil},
		"of a restored snapshot, and was changed": {external, strings.Replace(sealed, "value", "other", 1), "", false, registry.ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			got, stale, err := test.transformer.TransformFromStorage(t.Context(), []byte(test.stored), key)
			require.ErrorIs(t, err, test.err)
			require.Equal(t, test.want, string(got))
			require.Equal(t, test.stale, stale)
		})
	}
	for name, test := range map[string]struct {
		transformer checksumTransformer
		want        string
	}{
		"to the embedded etcd": {embedded, sealed},
		"to an external etcd":  {external, "k8s\x00value"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.transformer.TransformToStorage(t.Context(), []byte("k8s\x00value"), key)
			require.NoError(t, err)
			require.Equal(t, test.want, string(got))
		})
	}
}
