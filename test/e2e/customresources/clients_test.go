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

package customresources

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// An informer that has watched kube-apiserver's objects sees those at the server once the group is registered. It
// kept its watch at kube-apiserver, and then began one at a revision that the server's etcd had not reached.
func TestInformerAcrossRegister(t *testing.T) {
	t.Parallel()
	const group = "informed.example.com"
	ns := framework.Namespace(t, cp)
	content, err := json.Marshal(widgets(group, false))
	require.NoError(t, err)
	apply(t, content)
	awaitServed(t, group, "v1")
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(framework.Dynamic(cp), 0, ns, nil)
	informer := factory.ForResource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}).Informer()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	factory.Start(ctx.Done())
	require.True(t, cache.WaitForCacheSync(ctx.Done(), informer.HasSynced))
	require.NoError(t, framework.RegisterCRDServer(t.Context(), cp, server, group))
	create(t, group, "v1", ns, "one")
	require.Eventually(t, func() bool {
		_, found, err := informer.GetStore().GetByKey(ns + "/one")
		return err == nil && found
	}, time.Minute, time.Second/10, "The informer does not see the widget.")
}
