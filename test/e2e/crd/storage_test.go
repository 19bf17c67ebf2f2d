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

package crd

import (
	"context"
	"crypto/tls"
	"fmt"
	"path"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// etcd connects to the one that has the objects.
func etcd(t *testing.T) *clientv3.Client {
	t.Helper()
	issued, err := cp.PKI.EtcdCA.Issue(controlplane.Certificate{User: "test"})
	require.NoError(t, err)
	certificate, err := tls.X509KeyPair(issued.Cert, issued.Key)
	require.NoError(t, err)
	server := cp.Etcd
	if framework.WithCRDServer() {
		server = cp.Component(framework.CRDServerEtcd)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{server.URL()},
		TLS:       &tls.Config{RootCAs: cp.PKI.ServingCA.Pool(), Certificates: []tls.Certificate{certificate}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// stored returns what etcd has of an object, and its key.
func stored(t *testing.T, object *unstructured.Unstructured) (content *unstructured.Unstructured, key string) {
	t.Helper()
	resource := map[string]string{"Pizza": "pizzas", "Topping": "toppings"}[object.GetKind()]
	key = path.Join("/registry", restaurant.GroupName, resource, object.GetNamespace(), object.GetName())
	answer, err := etcd(t).Get(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, answer.Kvs, 1, "Nothing is stored at %s.", key)
	content = &unstructured.Unstructured{}
	require.NoError(t, content.UnmarshalJSON(answer.Kvs[0].Value))
	return content, key
}

// rewrite changes an object in etcd, where nobody objects.
func rewrite(t *testing.T, object *unstructured.Unstructured, change func(*unstructured.Unstructured)) {
	t.Helper()
	content, key := stored(t, object)
	change(content)
	value, err := content.MarshalJSON()
	require.NoError(t, err)
	_, err = etcd(t).Put(t.Context(), key, string(value))
	require.NoError(t, err)
}

// A list with an object that can't be converted is refused as a whole.
func TestConversionFails(t *testing.T) {
	framework.Long(t, "kube-apiserver gives up after a while")
	ns := framework.Namespace(t, cp)
	var objects []*unstructured.Unstructured
	for _, name := range []string{"a", "b", "c"} {
		created, err := pizzas("v1", ns).Create(t.Context(), pizza("v1", name, nil), metav1.CreateOptions{})
		require.NoError(t, err)
		objects = append(objects, created)
	}
	rewrite(t, objects[1], func(stored *unstructured.Unstructured) {
		require.NoError(t, unstructured.SetNestedField(stored.Object, "tomato", "spec", "toppings"))
	})

	const reason = "json: cannot unmarshal string into Go struct field PizzaSpec.spec.toppings of type []v1.PizzaTopping"
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		_, err := pizzas(version, ns).Get(t.Context(), "b", metav1.GetOptions{})
		requireServerError(t, err, "request.objects[0]: "+reason)
		list, err := pizzas(version, ns).List(t.Context(), metav1.ListOptions{Limit: 10})
		requireServerError(t, err, "request.objects[0]: "+reason)
		require.Nil(t, list)
		read, err := pizzas(version, ns).Get(t.Context(), "c", metav1.GetOptions{})
		require.NoError(t, err, "The others can be read one by one.")
		require.Equal(t, framework.Toppings(version, "mozzarella", "tomato", "salami"), read.Object["spec"].(map[string]any)["toppings"])
	}

	require.NoError(t, pizzas("v1", ns).Delete(t.Context(), "b", metav1.DeleteOptions{}))
	for _, version := range framework.Versions() {
		eventually(t, func(ctx context.Context) error {
			list, err := pizzas(version, ns).List(ctx, metav1.ListOptions{})
			if err == nil && len(list.Items) != 2 {
				err = fmt.Errorf("there are %d pizzas in %s", len(list.Items), version)
			}
			return err
		})
	}
}

// Objects move from one version of the storage to another by being written again,
// after which the old version is no longer needed. A webhook that starts meanwhile
// converts the objects that it reads itself.
func TestStorageMigration(t *testing.T) {
	ns := framework.Namespace(t, cp)
	createTopping(t, "rocket")
	topping, err := toppings("v1").Get(t.Context(), "rocket", metav1.GetOptions{})
	require.NoError(t, err)
	spec := map[string]any{"replicas": int64(2), "toppings": framework.Toppings("v1", "rocket×3")}
	old, err := pizzas("v1", ns).Create(t.Context(), pizza("v1", "old", spec), metav1.CreateOptions{})
	require.NoError(t, err)
	requireStoredIn(t, "v1", old, topping)

	storeIn(t, "v1alpha1", ns)
	requireStoredIn(t, "v1", old, topping)
	require.NoError(t, webhook.Stop())
	require.NoError(t, webhook.Start(t.Context()))
	for _, version := range framework.Versions() {
		read, err := pizzas(version, ns).Get(t.Context(), "old", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, map[string]any{"replicas": int64(2), "toppings": framework.Toppings(version, "rocket×3")}, read.Object["spec"])
	}

	migrate(t, "v1alpha1")
	requireStoredIn(t, "v1alpha1", old, topping)
	content, _ := stored(t, old)
	require.Equal(t, []any{"rocket", "rocket", "rocket"}, content.Object["spec"].(map[string]any)["toppings"])
	// All objects that it watches are stored in another version now, and have to be
	// converted by it.
	require.NoError(t, webhook.Stop())
	require.NoError(t, webhook.Start(t.Context()))

	storeIn(t, "v1", ns)
	migrate(t, "v1")
	requireStoredIn(t, "v1", old, topping)
	read, err := pizzas("v1", ns).Get(t.Context(), "old", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, spec, read.Object["spec"])
	require.EqualValues(t, 1, read.GetGeneration())
}

func requireStoredIn(t *testing.T, version string, objects ...*unstructured.Unstructured) {
	t.Helper()
	for _, object := range objects {
		content, key := stored(t, object)
		require.Equal(t, gvr(version, "").GroupVersion().String(), content.GetAPIVersion(), key)
	}
}

// storeIn makes a version the one in which objects are stored from now on, and waits
// until they are.
func storeIn(t *testing.T, version, ns string) {
	t.Helper()
	client := framework.Dynamic(cp).Resource(definitions)
	for _, resource := range []string{"pizzas", "toppings"} {
		require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
			definition, err := client.Get(t.Context(), resource+"."+restaurant.GroupName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, defined := range definition.Object["spec"].(map[string]any)["versions"].([]any) {
				defined := defined.(map[string]any)
				defined["storage"] = defined["name"] == version
			}
			_, err = client.Update(t.Context(), definition, metav1.UpdateOptions{})
			return err
		}))
	}
	write := map[string]func(ctx context.Context) (*unstructured.Unstructured, error){
		"pizza": func(ctx context.Context) (*unstructured.Unstructured, error) {
			return pizzas("v1", ns).Create(ctx, pizzaNamed("new-"), metav1.CreateOptions{})
		},
		"topping": func(ctx context.Context) (*unstructured.Unstructured, error) {
			topping := framework.Object("v1", "Topping", "", map[string]any{"cost": "1"})
			topping.SetGenerateName("new-")
			return toppings("v1").Create(ctx, topping, metav1.CreateOptions{})
		},
	}
	for kind, write := range write {
		eventually(t, func(ctx context.Context) error {
			created, err := write(ctx)
			if err != nil {
				return err
			}
			if content, _ := stored(t, created); content.GetAPIVersion() != gvr(version, "").GroupVersion().String() {
				return fmt.Errorf("a new %s is stored in %s", kind, content.GetAPIVersion())
			}
			return nil
		})
	}
}

func pizzaNamed(prefix string) *unstructured.Unstructured {
	object := pizza("v1", "", nil)
	object.SetGenerateName(prefix)
	return object
}

// migrate writes all objects again, and says so in the definitions.
func migrate(t *testing.T, version string) {
	t.Helper()
	for _, resource := range []string{"pizzas", "toppings"} {
		all := framework.Dynamic(cp).Resource(gvr("v1", resource))
		list, err := all.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, item := range list.Items {
			_, err := all.Namespace(item.GetNamespace()).Update(t.Context(), &item, metav1.UpdateOptions{})
			require.NoError(t, err)
			requireStoredIn(t, version, &item)
		}
		_, err = framework.Dynamic(cp).Resource(definitions).Patch(t.Context(), resource+"."+restaurant.GroupName, types.MergePatchType,
			[]byte(`{"status":{"storedVersions":["`+version+`"]}}`), metav1.PatchOptions{}, "status")
		require.NoError(t, err)
	}
}
