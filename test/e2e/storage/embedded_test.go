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
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// names returns the names of all pizzas of a server.
func names(t *testing.T, server *controlplane.Component) sets.Set[string] {
	t.Helper()
	list, err := framework.ClientAt(t, cp, server).RestaurantV1().Pizzas("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	names := sets.New[string]()
	for _, pizza := range list.Items {
		names.Insert(pizza.Name)
	}
	return names
}

// A server whose database is full says so, still answers reads, and recovers in
// both ways that it names.
func TestDatabaseIsFull(t *testing.T) {
	framework.Long(t, "a database is filled")
	t.Parallel()
	const quota = "--etcd-quota-backend-bytes=%d"
	server := framework.NewServer(t, cp, framework.Flags(fmt.Sprintf(quota, 8<<20)))
	require.NoError(t, server.Start(t.Context()))
	framework.Stock(t, cp, server)
	pizzas := framework.ClientAt(t, cp, server).RestaurantV1().Pizzas("default")
	large := framework.Pizza("")
	large.GenerateName = "large-"
	large.Annotations = map[string]string{"example.com/menu": strings.Repeat("x", 200<<10)}
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		_, err = pizzas.Create(t.Context(), large, metav1.CreateOptions{})
	}
	require.True(t, apierrors.IsServiceUnavailable(err), "got %v", err)
	framework.WaitUnready(t, cp, server, "etcd-alarms")
	code, _ := framework.Get(t, cp, server, "/readyz/etcd-alarms")
	require.Equal(t, 500, code)
	stored := names(t, server)
	require.NotEmpty(t, stored)

	require.NoError(t, pizzas.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	require.NoError(t, server.Restart(t.Context()))
	_, err = framework.ClientAt(t, cp, server).RestaurantV1().Pizzas("default").Create(t.Context(), large, metav1.CreateOptions{})
	require.NoError(t, err)
}
