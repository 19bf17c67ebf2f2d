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

package migration

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// TestManyObjects is TestThereAndBack with MIGRATION_OBJECTS more objects. Which of the two etcds is ahead at first
// makes no difference.
func TestManyObjects(t *testing.T) {
	framework.Long(t, "many objects are moved")
	for name, test := range map[string]struct{ serverAhead, byEtcd bool }{
		// The names are short, since the path of a socket is.
		"etcd": {serverAhead: true, byEtcd: true},
		"api":  {serverAhead: false, byEtcd: false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newDefinedCluster(t)
			c.fill(t, int(number(t, "MIGRATION_OBJECTS", 500)))
			if test.serverAhead {
				raiseFar(t, c)
			}
			var args []string
			if test.byEtcd {
				args = c.kubeEtcd(t)
			}
			c.thereAndBack(t, args)
		})
	}
}

// fill makes objects by writing copies of one into kube-apiserver's etcd, with names and UIDs of their own. They are in
// a namespace of their own, which clients do not list.
func (c *cluster) fill(t *testing.T, objects int) {
	t.Helper()
	const namespace = "many"
	framework.Kubectl(t, c.ControlPlane, "create", "namespace", namespace)
	require.NoError(t, c.createPizza(t, c.restaurant(), "template", nil))
	template, err := c.pizzas().Get(t.Context(), "template", metav1.GetOptions{})
	require.NoError(t, err)
	template.SetResourceVersion("")
	template.SetNamespace(namespace)
	etcd := framework.EtcdClient(t, c.ControlPlane, c.Etcd)
	var workers errgroup.Group
	workers.SetLimit(64)
	for i := range objects {
		object := template.DeepCopy()
		object.SetName(fmt.Sprintf("pizza-%d", i))
		object.SetUID(uuid.NewUUID())
		data, err := object.MarshalJSON()
		require.NoError(t, err)
		workers.Go(func() error {
			_, err := etcd.Put(t.Context(), "/registry/"+restaurant.GroupName+"/pizzas/"+namespace+"/"+object.GetName(), string(data))
			return err
		})
	}
	require.NoError(t, workers.Wait())
	list, err := dynamic.NewForConfigOrDie(c.config()).Resource(gvr("pizzas")).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, objects)
}

// raiseFar makes the server's etcd go on far above where kube-apiserver's is.
func raiseFar(t *testing.T, c *cluster) {
	t.Helper()
	list, err := c.Kubectl(t.Context(), "get", "--raw=/api/v1/namespaces?limit=1").Output()
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(list), `"resourceVersion":"`)
	text, _, _ := strings.Cut(after, `"`)
	now, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	etcd := c.etcd(t)
	var workers errgroup.Group
	for range 32 {
		workers.Go(func() error {
			for {
				response, err := etcd.Put(t.Context(), "/revision", "")
				if err != nil || response.Header.Revision > now+20_000 {
					return err
				}
			}
		})
	}
	require.NoError(t, workers.Wait())
}
