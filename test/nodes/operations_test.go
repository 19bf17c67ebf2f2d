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

package nodes

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const (
	root = "../.."
	// The documentation gives the servers' images these names.
	image    = "registry.example.com/restaurant/apiserver"
	crdImage = "registry.example.com/crd-apiserver"
	// These are versions of two builds.
	oldVersion, newVersion = "v0.37.0", "v0.37.1"
	// user may edit objects in the namespace "default", and nothing else.
	user = "maria"
)

// archive returns the path of an image's archive.
func archive(name string) string { return filepath.Join(root, "_output", "nodes", name+".tar") }

// TestOperations follows docs/operations and the pages about custom resources with their own
// commands. OVERLAYS is a regular expression.
func TestOperations(t *testing.T) {
	c := ForTest(t, 3, map[string]string{
		pauseImage:                   archive("pause"),
		"quay.io/coreos/etcd:v3.7.3": archive("etcd"),
		image + ":" + oldVersion:     archive(oldVersion),
		image + ":" + newVersion:     archive(newVersion),
		crdImage + ":" + oldVersion:  archive("crd-apiserver"),
		"registry.example.com/restaurant/webhook:" + oldVersion: archive("webhook"),
		rcloneImage: archive("rclone"),
	})
	// The documentation's kustomization has the component "monitoring".
	require.NoError(t, c.Apply(t.Context(), filepath.Join(root, "test", "e2e", "deploy", "testdata", "monitoring-crds.yaml")))
	o := newOperations(t, c)
	selected := regexp.MustCompile("^(" + os.Getenv("OVERLAYS") + ")$")
	ran := false
	run := func(overlay string, test func(*testing.T)) {
		if selected.MatchString(overlay) {
			ran = true
			t.Run(overlay, test)
		}
	}
	o.Run(t, "kubectl create rolebinding "+user+" --clusterrole=edit --user="+user)
	run("standalone", func(t *testing.T) {
		t.Run("quickstart", o.testQuickstart)
		o.install(t, "standalone", "backup-embedded")
		o.pizzas(t)
		t.Run("doctor", o.testDoctor)
		t.Run("nightly backup", o.testNightlyBackup)
		t.Run("restore", o.testRestoreVolume)
		t.Run("backup", o.testBackup)
	})
	run("sizes", func(t *testing.T) {
		o.install(t, "standalone", "doctor")
		o.pizzas(t)
		o.testSizes(t)
	})
	run("ha", func(t *testing.T) {
		for _, node := range c.Nodes {
			node.importImages(t, map[string]string{busyboxImage: archive("busybox")})
		}
		o.install(t, "ha", "backup-etcd")
		o.pizzas(t)
		t.Run("doctor", o.testDoctor)
		t.Run("nightly backup", o.testNightlyBackup)
		t.Run("snapshot from the claim", o.testReadSnapshot)
		t.Run("new certificate authority", o.testServingCA)
		t.Run("upgrade", o.testUpgrade)
		t.Run("drain", o.testDrain)
		t.Run("vanished node", o.testVanishedNode)
		t.Run("lost member", o.testLostMember)
		t.Run("restore", o.testRestoreFromStore)
		t.Run("quorum", o.testQuorum)
		t.Run("encryption", o.testEncryption)
		t.Run("new certificate authority of etcd", o.testEtcdCA)
	})
	run("external-etcd", func(t *testing.T) {
		o.install(t, "external-etcd", "doctor", o.prepareEtcd)
		o.pizzas(t)
		t.Run("doctor", o.testDoctor)
		t.Run("upgrade", o.testUpgrade)
		t.Run("restore", o.testRestoreEtcd)
	})
	run("helm", o.testHelm)
	run("crd-apiserver", func(t *testing.T) {
		t.Run("quickstart", o.testQuickstartOfCustomResources)
		for _, overlay := range []string{"standalone", "ha"} {
			t.Run(overlay, func(t *testing.T) { o.testCustomResources(t, overlay) })
		}
		t.Run("helm", o.testHelmOfCustomResources)
	})
	run("types", o.testTypes)
	require.True(t, ran, "OVERLAYS names no overlay: %q", os.Getenv("OVERLAYS"))
}

// operations follows the documentation as an operator does.
type operations struct {
	*Operator

	page *Document
	// kustomization is the kustomization.yaml in "restaurant".
	kustomization string
	// stored is set when the store of backups runs.
	stored bool
}

func newOperations(t *testing.T, c *Cluster) *operations {
	t.Helper()
	o := &operations{Operator: c.NewOperator(t), page: Read(t, filepath.Join(root, "docs", "operations", "*.md"))}
	require.NoError(t, os.CopyFS(filepath.Join(o.Dir, "artifacts"), os.DirFS(filepath.Join(root, "artifacts"))))
	return o
}

// follow executes a block of commands of the documentation, with replacements.
func (o *operations) follow(t *testing.T, section, first string, replacements ...string) string {
	t.Helper()
	began := time.Now()
	output := o.Run(t, With(t, o.page.Commands(t, section, first), replacements...))
	t.Logf("%s: %s … took %.0f s", section, first, time.Since(began).Seconds())
	return output
}

// kustomize changes the kustomization.
func (o *operations) kustomize(t *testing.T, content string) {
	t.Helper()
	o.kustomization = content
	write(t, filepath.Join(o.Dir, "restaurant", "kustomization.yaml"), content)
}

// install installs an overlay with one more component, after preparations. At the end of the test
// it is uninstalled, and must leave nothing behind.
func (o *operations) install(t *testing.T, overlay, component string, preparations ...func(*testing.T)) {
	t.Helper()
	before, err := framework.Inventory(t.Context(), o.cluster.ControlPlane)
	require.NoError(t, err)
	t.Cleanup(func() { o.uninstall(t, before) })
	o.kustomize(t, With(t, o.monitored(t), "overlays/ha", "overlays/"+overlay))
	o.addComponent(t, "deploy/components/"+component)
	for _, prepare := range preparations {
		prepare(t)
	}
	output := o.follow(t, "Install", "kubectl restaurant-apiserver doctor")
	require.NotContains(t, output, "Warning:")
}

// monitored returns the documentation's kustomization for a cluster with the Prometheus Operator.
func (o *operations) monitored(t *testing.T) string {
	t.Helper()
	return o.page.YAML(t, "Install", "kind: Kustomization") + o.page.YAML(t, "Install", "components/monitoring")
}

// addComponent adds a component to the kustomization, without applying it.
func (o *operations) addComponent(t *testing.T, name string) {
	t.Helper()
	const monitoring = "  - ../artifacts/deploy/components/monitoring\n"
	o.kustomize(t, With(t, o.kustomization, monitoring, monitoring+strings.Replace(monitoring, "deploy/components/monitoring", name, 1)))
}

func (o *operations) uninstall(t *testing.T, before map[string]string) {
	t.Helper()
	if t.Failed() {
		o.explain(t)
	}
	output, err := o.Try(context.Background(), o.page.Commands(t, "Uninstall", "kubectl delete -k"))
	require.NoError(t, err, output)
	o.requireInventory(t, before)
}

// requireInventory waits until the cluster has the same objects as before.
func (o *operations) requireInventory(t *testing.T, before map[string]string) {
	t.Helper()
	ctx := context.Background() // The test's own is over.
	controlplane.Eventually(t, func() error {
		after, err := framework.Inventory(ctx, o.cluster.ControlPlane)
		if err != nil {
			return err
		}
		if left, lost := framework.Difference(after, before), framework.Difference(before, after); len(left)+len(lost) > 0 {
			return fmt.Errorf("the uninstalled has left behind %v, and taken away %v", left, lost)
		}
		return nil
	})
}

// explain prints the state of the cluster to explain a failure.
func (o *operations) explain(t *testing.T) {
	t.Helper()
	output, err := o.Try(context.Background(), `kubectl get pods,pvc --all-namespaces --output=wide
kubectl get apiservices | grep restaurant
for namespace in restaurant-system crd-apiserver; do
	kubectl describe pods --namespace $namespace | tail --lines=150
	kubectl logs --namespace $namespace --selector=app.kubernetes.io/part-of --all-containers --prefix --tail=20
done`)
	t.Log(output, err)
}

// pizzas creates toppings as the administrator, and pizzas as a user.
func (o *operations) pizzas(t *testing.T) {
	t.Helper()
	o.Run(t, "kubectl apply --filename=artifacts/examples/1-toppings.yaml")
	o.asUser(t, "kubectl apply --filename=artifacts/examples/2-pizzas.yaml")
	require.Contains(t, o.asUser(t, "kubectl get pizzas"), "margherita")
	_, err := o.Try(t.Context(), o.userCommand(t, "kubectl delete topping basil"))
	require.ErrorContains(t, err, `User "`+user+`" cannot delete`)
}

func (o *operations) userCommand(t *testing.T, command string) string {
	t.Helper()
	return strings.Replace(command, "kubectl", "kubectl --kubeconfig="+o.cluster.kubeconfigFor(t, user), 1)
}

func (o *operations) asUser(t *testing.T, command string) string {
	t.Helper()
	return o.Run(t, o.userCommand(t, command))
}

// testDoctor examines the installation from a pod of the server.
func (o *operations) testDoctor(t *testing.T) {
	require.Contains(t, o.follow(t, "Doctor", "kubectl exec"), "\n0 failures, ")
}

func (o *operations) testNightlyBackup(t *testing.T) { o.saveNow(t, "restaurant-system") }

// saveNow runs the nightly backup in a namespace, with replacements in the documentation's command.
func (o *operations) saveNow(t *testing.T, namespace string, replacements ...string) {
	t.Helper()
	job := regexp.MustCompile(`job\.batch/\S+`).FindString(o.follow(t, "Every night", "kubectl create job", replacements...))
	o.Run(t, "kubectl wait --namespace "+namespace+" --for=condition=Complete --timeout=5m "+job)
}

// awaitCalm waits until none of many requests fails.
func (o *operations) awaitCalm(t *testing.T) {
	t.Helper()
	o.awaitCalmOf(t, "margherita")
}

func (o *operations) awaitCalmOf(t *testing.T, pizza string) {
	t.Helper()
	controlplane.Eventually(t, func() error {
		load := o.loadOf(t, pizza)
		for load.Requests() < 200 && t.Context().Err() == nil {
			time.Sleep(pause)
		}
		if result := load.Stop(); result.Failed > 0 {
			return errors.New(result.String())
		}
		return nil
	})
}

// testBackup saves a snapshot and restores it twice.
func (o *operations) testBackup(t *testing.T) {
	require.Contains(t, o.follow(t, "Save", "SNAPSHOT="), "SHA-256:")
	installed, dir := o.kustomization, "/var/lib/restored"
	for _, again := range []string{"", "-again"} {
		o.asUser(t, "kubectl delete pizza margherita")
		replacements := []string{savedVariable, savedSnapshot, dir, dir + again}
		o.follow(t, "Restore", "kubectl exec", replacements...)
		o.kustomize(t, installed+With(t, o.page.YAML(t, "Restore", "patches:"), dir, dir+again))
		o.follow(t, "Install", "kubectl restaurant-apiserver doctor")
		o.asUser(t, "kubectl get pizza margherita")
	}
}

// testSizes stores as many pizzas as fit into the manifests' memory by the documentation, and lists
// them.
func (o *operations) testSizes(t *testing.T) {
	config, err := o.cluster.RESTConfigFor(user)
	require.NoError(t, err)
	config.QPS = -1
	client, err := versioned.NewForConfig(config)
	require.NoError(t, err)
	pizzas := client.RestaurantV1().Pizzas(metav1.NamespaceDefault)
	margherita, err := pizzas.Get(t.Context(), "margherita", metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, margherita.Spec.Toppings, 3)
	stored := 0
	for _, number := range []int{10_000, 47_000} {
		require.Contains(t, o.page.section(t, "Sizes"), fmt.Sprintf("| %d 000 pizzas |", number/1000))
		began := time.Now()
		var workers errgroup.Group
		workers.SetLimit(16)
		for ; stored < number; stored++ {
			pizza := &restaurantv1.Pizza{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pizza-%d", stored)}, Spec: margherita.Spec}
			workers.Go(func() error {
				_, err := pizzas.Create(t.Context(), pizza, metav1.CreateOptions{})
				return err
			})
		}
		require.NoError(t, workers.Wait())
		list, err := pizzas.List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		require.NoError(t, err)
		require.Greater(t, len(list.Items), number)
		pod := o.pods(t, "restaurant-apiserver")[0]
		require.Zero(t, pod.Status.ContainerStatuses[0].RestartCount)
		metrics, err := o.metrics(t, pod.Status.PodIP)
		require.NoError(t, err)
		t.Logf("%d pizzas were created within %.0f s; the server takes %.0f MiB, and the database %.0f MB", number, time.Since(began).Seconds(),
			metric(t, metrics, "process_resident_memory_bytes")/(1<<20), metric(t, metrics, "apiserver_storage_size_bytes")/1e6)
	}
}

// metric returns the first value of a metric.
func metric(t *testing.T, metrics, name string) float64 {
	t.Helper()
	for line := range strings.Lines(metrics) {
		if fields := strings.Fields(line); len(fields) == 2 && (fields[0] == name || strings.HasPrefix(fields[0], name+"{")) {
			value, err := strconv.ParseFloat(fields[1], 64)
			require.NoError(t, err)
			return value
		}
	}
	require.Fail(t, "there is no metric "+name)
	return 0
}

// pods returns the pods with a name. There must be at least one.
func (o *operations) pods(t *testing.T, name string) []corev1.Pod {
	t.Helper()
	found, err := framework.Kube(o.cluster.ControlPlane).CoreV1().Pods("restaurant-system").
		List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + name})
	require.NoError(t, err)
	require.NotEmpty(t, found.Items)
	return found.Items
}

// testUpgrade upgrades and goes back while clients use the server.
func (o *operations) testUpgrade(t *testing.T) {
	installed := o.kustomization
	for _, version := range []string{newVersion, oldVersion} {
		load := o.load(t)
		o.kustomize(t, With(t, installed, oldVersion, version))
		o.follow(t, "Upgrade", "kubectl apply -k")
		o.rolledOut(t)
		result := load.Stop()
		t.Logf("to %s: %s", version, result)
		require.Zero(t, result.Failed)
	}
}

func (o *operations) rolledOut(t *testing.T) {
	t.Helper()
	o.Run(t, `for workload in $(kubectl get --namespace restaurant-system --ignore-not-found --output=name deployment/apiserver statefulset/etcd); do
	kubectl rollout status --namespace restaurant-system $workload --timeout=5m
done`)
}

func (o *operations) load(t *testing.T) *Load {
	t.Helper()
	return o.loadOf(t, "margherita")
}

func (o *operations) loadOf(t *testing.T, pizza string) *Load {
	t.Helper()
	config, err := o.cluster.RESTConfigFor(user)
	require.NoError(t, err)
	return StartLoad(t, config, pizza, 4)
}

// testDrain drains one node after the other, as for an upgrade of the nodes.
func (o *operations) testDrain(t *testing.T) {
	for _, node := range o.cluster.Nodes {
		load := o.load(t)
		began := time.Now()
		o.Run(t, "kubectl drain "+node.Name+" --ignore-daemonsets --delete-emptydir-data --timeout=5m")
		drained := time.Since(began)
		o.Run(t, "kubectl uncordon "+node.Name)
		o.rolledOut(t)
		result := load.Stop()
		t.Logf("%s was drained within %.0f s: %s", node.Name, drained.Seconds(), result)
		require.Zero(t, result.Failed)
	}
}

// testVanishedNode cuts off a node without draining it.
func (o *operations) testVanishedNode(t *testing.T) {
	node := o.cluster.Nodes[0]
	load := o.load(t)
	began := time.Now()
	node.Vanish(t)
	o.Run(t, "kubectl wait --for=condition=Ready=Unknown --timeout=5m node/"+node.Name)
	t.Logf("%s is known to be away after %.0f s", node.Name, time.Since(began).Seconds())
	time.Sleep(30 * time.Second) // Count requests that fail even then.
	t.Log(load.Stop())
	o.awaitCalm(t)
	node.Return(t)
	o.Run(t, "kubectl wait --for=condition=Ready --timeout=5m node/"+node.Name)
	o.rolledOut(t)
}

// testLostMember deletes the data of a member of etcd, and replaces it.
func (o *operations) testLostMember(t *testing.T) {
	const section, first = "A lost member of etcd", `E="kubectl exec`
	volume := strings.TrimSpace(o.Run(t, "kubectl get persistentvolume --output=jsonpath='{.spec.local.path}' "+
		"$(kubectl get pvc --namespace restaurant-system data-etcd-1 --output=jsonpath='{.spec.volumeName}')"))
	require.NoError(t, os.RemoveAll(filepath.Join(volume, "data")))
	o.Run(t, "kubectl delete pod --namespace restaurant-system etcd-1")
	load := o.load(t)
	commands := o.page.Commands(t, section, first)
	variable, _, found := strings.Cut(commands, "$E member remove")
	require.True(t, found)
	var id string
	for line := range strings.Lines(o.Run(t, variable)) {
		if fields := strings.Split(line, ", "); len(fields) > 2 && fields[2] == "etcd-1" {
			id = fields[0]
		}
	}
	o.follow(t, section, first, "ID-OF-ETCD-1", id)
	o.rolledOut(t)
	t.Log(load.Stop())
	o.asUser(t, "kubectl get pizza margherita")
	require.Equal(t, 3, strings.Count(o.Run(t, variable), "started"))
	strategy := "kubectl get statefulset --namespace restaurant-system etcd --output=jsonpath='{.spec.updateStrategy.type}'"
	require.Equal(t, "RollingUpdate", o.Run(t, strategy), "No upgrade would reach etcd any more.")
}

// prepareEtcd makes the servers use the cluster's etcd with their own prefix.
func (o *operations) prepareEtcd(t *testing.T) {
	c := o.cluster
	pair, err := c.PKI.EtcdCA.Issue(controlplane.Certificate{User: "restaurant"})
	require.NoError(t, err)
	for name, content := range map[string][]byte{"ca.crt": c.PKI.ServingCA.CertPEM(), "tls.crt": pair.Cert, "tls.key": pair.Key} {
		write(t, filepath.Join(o.Dir, name), string(content))
	}
	o.follow(t, "An existing etcd", "kubectl create namespace")
	o.kustomize(t, o.kustomization+`
patches:
  - patch: |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: apiserver, namespace: restaurant-system}
      spec: {template: {spec: {containers: [{name: apiserver, env: [
        {name: APISERVER_ETCD_SERVERS, value: "`+c.Etcd.URL()+`"}, {name: APISERVER_ETCD_PREFIX, value: /restaurant}]}]}}}
`)
}

// testEncryption encrypts stored objects, and replaces the key.
func (o *operations) testEncryption(t *testing.T) {
	const section, one, other = "Encryption at rest", "2026-11", "2027-11"
	configuration := o.page.YAML(t, section, "kind: EncryptionConfiguration")
	entry := `- {name: "` + one + `", secret: "…"}`
	keys := map[string]string{}
	for _, name := range []string{one, other} {
		keys[name] = With(t, entry, one, name, "…", strings.TrimSpace(o.Run(t, "head -c 32 /dev/urandom | base64")))
	}
	configure := func(names ...string) (hash string) {
		var entries string
		for _, name := range names {
			entries += keys[name] + "\n            "
		}
		content := With(t, configuration, entry, entries)
		write(t, filepath.Join(o.Dir, "restaurant", "encryption.yaml"), content)
		return fmt.Sprintf("%x", sha256.Sum256([]byte(content)))
	}
	configure(one)
	o.kustomize(t, o.kustomization+o.page.YAML(t, section, "secretGenerator"))
	o.follow(t, "Install", "kubectl restaurant-apiserver doctor")
	o.rewrite(t, one)

	for _, names := range [][]string{{one, other}, {other, one}} {
		hash := configure(names...)
		o.Run(t, "kubectl apply -k restaurant")
		o.awaitConfiguration(t, hash)
	}
	o.rewrite(t, other)
	o.awaitConfiguration(t, func() string {
		hash := configure(other)
		o.Run(t, "kubectl apply -k restaurant")
		return hash
	}())
	require.Contains(t, o.asUser(t, "kubectl get pizzas"), "margherita")
}

// rewrite encrypts everything under the first key.
func (o *operations) rewrite(t *testing.T, key string) {
	t.Helper()
	o.follow(t, "Rewrite what is stored", "kubectl wait --namespace")
	etcdctl, _, found := strings.Cut(o.page.Commands(t, "A lost member of etcd", `E="kubectl exec`), "$E member list")
	require.True(t, found)
	stored := o.Run(t, etcdctl+"$E get --prefix --print-value-only /registry/restaurant.programming-kubernetes.info/ | grep --text --only-matching '^k8s:enc:[^:]*:v1:[^:]*:' | sort | uniq")
	require.Equal(t, "k8s:enc:secretbox:v1:"+key+":\n", stored)
	readable := o.Run(t, etcdctl+"$E get --prefix --print-value-only /registry/restaurant.programming-kubernetes.info/ | grep --text --count margherita || true")
	require.Equal(t, "0\n", readable)
}

// awaitConfiguration waits until all replicas have read a file.
func (o *operations) awaitConfiguration(t *testing.T, hash string) {
	t.Helper()
	began := time.Now()
	controlplane.Eventually(t, func() error {
		for _, pod := range o.pods(t, "restaurant-apiserver") {
			metrics, err := o.metrics(t, pod.Status.PodIP)
			if err != nil {
				return err
			}
			if !strings.Contains(metrics, hash) {
				return fmt.Errorf("%s has not read the new configuration", pod.Name)
			}
		}
		return nil
	})
	t.Logf("all replicas have the new configuration after %.0f s", time.Since(began).Seconds())
}

func (o *operations) metrics(t *testing.T, ip string) (string, error) {
	t.Helper()
	config := o.cluster.RESTConfig()
	config.Host = "https://" + net.JoinHostPort(ip, "8443")
	config.Insecure, config.CAFile, config.CAData = true, "", nil
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	response, err := client.Get(config.Host + "/metrics")
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// testHelm installs, upgrades under load, restores and uninstalls by the chart.
func (o *operations) testHelm(t *testing.T) {
	before, err := framework.Inventory(t.Context(), o.cluster.ControlPlane)
	require.NoError(t, err)
	chart := o.chart(t, "restaurant-apiserver")
	helm := framework.GoTool(t, root, "helm", "helm")
	t.Cleanup(func() {
		if t.Failed() {
			o.explain(t)
			return
		}
		output, err := o.Try(context.Background(), helm+" uninstall restaurant --namespace restaurant-system && kubectl delete namespace restaurant-system")
		require.NoError(t, err, output)
		o.requireInventory(t, before)
	})
	o.follow(t, "Install", "kubectl create namespace", "make chart VERSION=v0.37.0\n", "", "helm install", helm+" install", "_output/chart/restaurant-apiserver", chart)
	o.rolledOut(t)
	o.Run(t, "kubectl wait --for=condition=Available --timeout=2m apiservices --selector=app.kubernetes.io/part-of=restaurant-apiserver")
	require.Contains(t, o.follow(t, "Install", "helm test", "helm test", helm+" test"), "permissions", "The findings are not printed.")
	o.pizzas(t)
	load := o.load(t)
	upgrade := helm + " upgrade restaurant " + chart + " --namespace restaurant-system --reuse-values --set "
	o.Run(t, upgrade+"image.tag="+newVersion)
	o.rolledOut(t)
	result := load.Stop()
	t.Logf("upgrade by Helm: %s", result)
	require.Zero(t, result.Failed)

	list := o.prepareStore(t)
	o.Run(t, upgrade+"backup.enabled=true --set backup.store=true")
	restore := func(t *testing.T, from string) {
		t.Helper()
		o.follow(t, volumesSection, "helm upgrade", "helm upgrade", helm+" upgrade", "_output/chart/restaurant-apiserver", chart, "restore=store", "restore="+from)
	}
	o.restoreFromStore(t, list, func(t *testing.T) {
		t.Helper()
		restore(t, "store")
	}, func(t *testing.T) {
		t.Helper()
		restore(t, "none")
		o.clear(t)
	})
}

// chart builds a chart.
func (o *operations) chart(t *testing.T, name string) string {
	t.Helper()
	chart := filepath.Join(t.TempDir(), "chart")
	build := exec.CommandContext(t.Context(), filepath.Join("hack", "build-chart.sh"), chart, name)
	build.Dir, build.Env = root, append(os.Environ(), "VERSION="+oldVersion)
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))
	return chart
}
