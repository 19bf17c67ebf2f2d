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
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
)

func TestPublishQuota(t *testing.T) {
	for name, quota := range map[string]int64{"first": 1 << 30, "second": 2 << 30} {
		forget, err := PublishQuota(name, etcd.Config{QuotaBytes: quota})
		require.NoError(t, err)
		t.Cleanup(forget)
	}
	const metric = "apiserver_embedded_etcd_quota_bytes"
	require.NoError(t, testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(`# HELP `+metric+` [ALPHA] How large the database of the embedded etcd may become, in bytes: --etcd-quota-backend-bytes.
# TYPE `+metric+` gauge
`+metric+`{server="first"} 1.073741824e+09
`+metric+`{server="second"} 2.147483648e+09
`), metric))
}
