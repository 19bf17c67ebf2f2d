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

// Package migration tests how objects move from CustomResourceDefinitions to the server.
package migration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

const serverNamespace = "restaurant-system"

// cluster serves the restaurant from CustomResourceDefinitions, and has a server beside
// that, to which nothing leads yet.
type cluster struct {
	*controlplane.ControlPlane
	// server is what the objects move to, and binary its program.
	server *controlplane.Component
	binary string
	// flags are what each command of "migrate" gets, too.
	flags []string
	// raise are the flags that allow to write missing revisions.
	raise []string
	// dataDir is the server's.
	dataDir string
	// operator is the configuration of the users of the objects.
	operator *rest.Config
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := newDefinitions(t)
	c.server, c.binary, c.flags = c.APIServer, "apiserver", []string{"--service-namespace=" + serverNamespace}
	c.dataDir = framework.DataDir(c.APIServer)
	require.NoError(t, c.Install(t.Context()))
	c.kubectl(t, fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {namespace: %s, name: apiserver}, spec: {type: ExternalName, externalName: localhost}}`, serverNamespace),
		"apply", "--server-side", "--force-conflicts", "--filename=-")
	require.NoError(t, c.APIServer.Start(t.Context()))
	return c
}

// raiseRevision allows "migrate" to write missing revisions: the etcds of the tests are young.
var raiseRevision = []string{"--raise-revision"}

// newDefinedCluster has a server of custom resources instead.
func newDefinedCluster(t *testing.T) *cluster {
	t.Helper()
	c := newDefinitions(t)
	c.binary, c.flags = "crd-apiserver", []string{"--service-namespace=crd-apiserver", "--groups=" + restaurant.GroupName}
	c.kubectl(t, menus, "create", "--filename=-")
	controlplane.Eventually(t, func() error { return c.createMenu(t, "summer") })
	require.NoError(t, framework.InstallCRDServer(t.Context(), c.ControlPlane))
	var err error
	c.server, err = framework.NewCRDServer(c.ControlPlane, "crd-apiserver", []string{restaurant.GroupName})
	require.NoError(t, err)
	require.NoError(t, c.server.Start(t.Context()))
	c.dataDir = filepath.Join(c.server.Dir(), "data")
	return c
}

// menus is a definition with all that kube-apiserver moves out of the versions when they are equal there.
const menus = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: menus.` + restaurant.GroupName + `}
spec:
  group: ` + restaurant.GroupName + `
  names: {plural: menus, singular: menu, kind: Menu, listKind: MenuList}
  scope: Namespaced
  versions:
    - &version
      name: v1
      served: true
      storage: true
      subresources:
        status: {}
        scale: {specReplicasPath: .spec.seats, statusReplicasPath: .status.seats}
      selectableFields: [{jsonPath: .spec.season}]
      additionalPrinterColumns: [{name: Season, type: string, jsonPath: .spec.season}]
      schema:
        openAPIV3Schema:
          description: A menu.
          type: object
          properties:
            spec:
              type: object
              properties:
                season: {type: string, x-kubernetes-validations: [{rule: self == oldSelf, message: a season does not change}]}
                seats: {type: integer, maximum: 100}
            status: {type: object, properties: {seats: {type: integer}, approved: {type: boolean}}}
    - {<<: *version, name: v1beta1, storage: false}
`

func (c *cluster) menus() dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(c.config()).Resource(gvr("menus")).Namespace(metav1.NamespaceDefault)
}

func (c *cluster) createMenu(t *testing.T, name string) error {
	t.Helper()
	_, err := c.menus().Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gvr("menus").GroupVersion().String(), "kind": "Menu", "metadata": map[string]any{"name": name}, "spec": map[string]any{"season": name, "seats": int64(4)},
	}}, metav1.CreateOptions{})
	return err
}

// kubeEtcd are the flags that lead "migrate" to kube-apiserver's etcd.
func (c *cluster) kubeEtcd(t *testing.T) []string {
	t.Helper()
	issued, err := c.PKI.EtcdCA.Issue(controlplane.Certificate{User: "migrate"})
	require.NoError(t, err)
	return []string{
		"--kube-etcd-servers=" + c.Etcd.URL(), "--kube-etcd-cafile=" + c.PKI.ServingCA.File,
		"--kube-etcd-certfile=" + framework.File(t, string(issued.Cert)), "--kube-etcd-keyfile=" + framework.File(t, string(issued.Key)),
	}
}

// newDefinitions has only the definitions, and some objects.
func newDefinitions(t *testing.T) *cluster {
	t.Helper()
	cp := controlplane.ForTest(t, controlplane.Config{
		APIServer: controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Off: true, Flags: []string{"--run-controllers=false"}}},
	})
	c := &cluster{ControlPlane: cp, raise: raiseRevision, operator: newOperator(t, cp)}
	webhook, err := framework.NewWebhook(cp, "webhook")
	require.NoError(t, err)
	manifests, err := framework.Kustomize(t.Context(), cp, "artifacts/crd")
	require.NoError(t, err)
	require.NoError(t, framework.Apply(t.Context(), cp, framework.CallAt(cp, webhook, manifests)))
	require.NoError(t, webhook.Start(t.Context()))
	controlplane.Eventually(t, func() error {
		return fixture.CreateToppings(t.Context(), c.restaurant(), "mozzarella", "tomato", "salami")
	})
	controlplane.Eventually(t, func() error {
		return c.createPizza(t, c.restaurant(), "first", nil)
	})
	return c
}

// newOperator returns the configuration of a user who may do everything, and whose writes kube-apiserver
// holds, as it does not for members of system:masters.
func newOperator(t *testing.T, cp *controlplane.ControlPlane) *rest.Config {
	t.Helper()
	framework.Kubectl(t, cp, "create", "clusterrolebinding", "operators", "--clusterrole=cluster-admin", "--group=operators")
	config, err := cp.RESTConfigFor("operator", "operators")
	require.NoError(t, err)
	config.WarningHandler = rest.NoWarnings{}
	return config
}

// config is an operator's, for objects that may be custom resources.
func (c *cluster) config() *rest.Config {
	config := rest.CopyConfig(c.operator)
	config.ContentType = runtime.ContentTypeJSON
	config.QPS = -1
	return config
}

func (c *cluster) restaurant() versioned.Interface { return versioned.NewForConfigOrDie(c.config()) }

func (c *cluster) pizzas() dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(c.config()).Resource(gvr("pizzas")).Namespace(metav1.NamespaceDefault)
}

func gvr(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: restaurant.GroupName, Version: "v1", Resource: resource}
}

// createPizza creates a pizza that has been changed.
func (c *cluster) createPizza(t *testing.T, client versioned.Interface, name string, change func(metav1.Object)) error {
	t.Helper()
	pizza := framework.Pizza(name)
	if change != nil {
		change(pizza)
	}
	_, err := client.RestaurantV1().Pizzas(metav1.NamespaceDefault).Create(t.Context(), pizza, metav1.CreateOptions{})
	return err
}

// dependent creates a ConfigMap that a pizza owns.
func (c *cluster) dependent(t *testing.T, pizza string) {
	t.Helper()
	owner, err := c.pizzas().Get(t.Context(), pizza, metav1.GetOptions{})
	require.NoError(t, err)
	_, err = framework.Kube(c.ControlPlane).CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:            "of-" + pizza,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: pizza, UID: owner.GetUID()}},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func (c *cluster) kubectl(t *testing.T, stdin string, args ...string) {
	t.Helper()
	cmd := c.Kubectl(t.Context(), args...)
	cmd.Stdin = strings.NewReader(stdin)
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)
}

// args are the arguments of a command of "migrate".
func (c *cluster) args(command string) []string {
	args := []string{
		"migrate", command, "--kubeconfig=" + c.Kubeconfig(), "--data-dir=" + c.dataDir,
		fmt.Sprintf("--service-port=%d", c.server.Port()),
	}
	if command == "run" {
		args = append(args, "--service-ca-file="+c.PKI.ServingCA.File)
	}
	if command == "run" || command == "back" || command == "plan" {
		args = append(args, c.raise...)
	}
	return append(args, c.flags...)
}

// migrate runs a command of "migrate".
func (c *cluster) migrate(t *testing.T, command string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return framework.ToolOf(t, c.ControlPlane, c.binary, append(c.args(command), args...)...)
}

// killIn runs a command of "migrate" until it says a line that ends like this, such as a phase, and kills it.
func (c *cluster) killIn(t *testing.T, line, command string, args ...string) {
	t.Helper()
	cmd, _ := c.startUntil(t, line, command, args...)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
}

// startUntil starts a command of "migrate", and waits for a line that ends like this, such as a phase.
// It returns the command, and the rest of its output.
func (c *cluster) startUntil(t *testing.T, line, command string, args ...string) (*exec.Cmd, io.Reader) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, framework.Program(t, c.ControlPlane, c.binary), append(c.args(command), args...)...)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var lines bytes.Buffer
	found := false
	for scanner := bufio.NewScanner(stderr); !found && scanner.Scan(); {
		lines.WriteString(scanner.Text() + "\n")
		found = strings.HasSuffix(scanner.Text(), line)
	}
	if !found {
		_ = cmd.Wait()
	}
	require.True(t, found, "It has not come to %q:\n%s", line, &lines)
	return cmd, stderr
}

// phase returns the phase of the migration, or an error if there is none.
func (c *cluster) phase(t *testing.T) string {
	t.Helper()
	code, stdout, stderr := c.migrate(t, "status", "--output=json")
	if code != 0 {
		return stderr
	}
	var state struct{ Phase string }
	require.NoError(t, json.Unmarshal([]byte(stdout), &state))
	return state.Phase
}

// etcd is the server's.
func (c *cluster) etcd(t *testing.T) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(c.dataDir, "etcd.sock")}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// checksums is how many objects of the group the server's etcd has. All have a checksum.
func (c *cluster) checksums(t *testing.T) int {
	t.Helper()
	stored, err := c.etcd(t).Get(t.Context(), "/registry/"+restaurant.GroupName+"/", clientv3.WithPrefix())
	require.NoError(t, err)
	for _, kv := range stored.Kvs {
		require.True(t, etcd.ValueIsSealed(kv.Value), "%s has no checksum", kv.Key)
	}
	return len(stored.Kvs)
}

// everything is all objects of the group, by resource, namespace and name, without what
// differs between two servers.
func (c *cluster) everything(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	found := map[string]*unstructured.Unstructured{}
	resources := []string{"pizzas", "toppings"}
	if c.binary == "crd-apiserver" {
		resources = append(resources, "menus")
	}
	for _, resource := range resources {
		list, err := dynamic.NewForConfigOrDie(c.config()).Resource(gvr(resource)).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, item := range list.Items {
			item.SetResourceVersion("")
			found[resource+"/"+item.GetNamespace()+"/"+item.GetName()] = &item
		}
	}
	return found
}

func parse(t *testing.T, data string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, object.UnmarshalJSON([]byte(data)))
	return object
}
