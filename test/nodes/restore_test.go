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
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/informers/externalversions"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

const (
	rcloneImage  = "docker.io/rclone/rclone:1.76.0"
	busyboxImage = "docker.io/library/busybox:1.37"
	// These are sections of the page about backups.
	storeSection, volumesSection = "Outside of the cluster", "Restore into new volumes"
	// stopServer begins the commands that stop the server of "standalone".
	stopServer = "kubectl scale --namespace restaurant-system deployment"
	// Commands of the page name a snapshot by a variable, which each block of commands sets.
	savedVariable, savedSnapshot = "${SNAPSHOT:?}", "restaurant-$(date +%F).snapshot"
)

// startStore starts an S3 server beside the control plane.
func (o *operations) startStore(t *testing.T) {
	t.Helper()
	if o.stored {
		return
	}
	o.stored = true
	c, dir := o.cluster, filepath.Join(o.Dir, "store")
	pair, err := c.PKI.ServingCA.Issue(controlplane.Certificate{User: "store", Hosts: []string{controlAddress}})
	require.NoError(t, err)
	cert, key, objects, sidecar := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "objects"), filepath.Join(dir, "sidecar")
	write(t, cert, string(pair.Cert))
	write(t, key, string(pair.Key))
	// A directory is a bucket.
	for _, made := range []string{filepath.Join(objects, "backups"), sidecar} {
		require.NoError(t, os.MkdirAll(made, 0o700))
	}
	const address = controlAddress + ":443"
	c.startProgram(t, "versitygw", controlplane.Program{
		Args: []string{"--port=" + address, "--access=operator", "--secret=open-sesame", "--cert=" + cert, "--key=" + key, "posix", "--sidecar=" + sidecar, objects},
		Host: c.control,
		Check: func(ctx context.Context) error {
			raw, err := c.control.DialContext(ctx, "tcp", address)
			if err != nil {
				return err
			}
			connection := tls.Client(raw, &tls.Config{RootCAs: c.PKI.ServingCA.Pool(), ServerName: controlAddress, MinVersion: tls.VersionTLS12})
			defer connection.Close()
			return connection.HandshakeContext(ctx)
		},
	})
}

// copyBackups makes backups go to the store, and returns the command that lists them.
func (o *operations) copyBackups(t *testing.T) (list string) {
	t.Helper()
	list = o.prepareStore(t)
	o.addComponents(t, o.page.YAML(t, storeSection, "components:"))
	o.Run(t, "kubectl apply -k restaurant")
	return list
}

// prepareStore starts the store, creates its Secret, and returns the command that lists its
// content.
func (o *operations) prepareStore(t *testing.T, replacements ...string) (list string) {
	t.Helper()
	o.startStore(t)
	write(t, filepath.Join(o.Dir, "ca.crt"), string(o.cluster.PKI.ServingCA.CertPEM()))
	o.follow(t, storeSection, "cat >rclone.conf", append(replacements, "s3.example.com", controlAddress, "KEY", "operator", "SECRET", "open-sesame", "BUCKET", "backups",
		"--from-file=rclone.conf", "--from-file=rclone.conf --from-file=ca.crt")...)
	return "export SSL_CERT_DIR=$PWD\n" + o.page.Commands(t, storeSection, "rclone --config")
}

// addComponents adds the documentation's components at the end of the kustomization, which ends
// with components.
func (o *operations) addComponents(t *testing.T, text string) {
	t.Helper()
	components := ""
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "  - ") {
			components += line
		}
	}
	require.NotEmpty(t, components)
	o.kustomize(t, o.kustomization+components)
}

// backUp saves a snapshot in the store, and returns its name.
func (o *operations) backUp(t *testing.T, list string) string {
	t.Helper()
	began := time.Now()
	o.testNightlyBackup(t)
	t.Logf("a backup took %.0f s", time.Since(began).Seconds())
	lines := strings.Split(strings.TrimSpace(o.Run(t, list)), "\n")
	fields := strings.Split(lines[len(lines)-1], ";")
	name := fields[len(fields)-1]
	require.Regexp(t, `^snapshot-\d{8}T\d{6}Z\.db$`, name)
	return name
}

// testReadSnapshot copies a snapshot out of the claim of the nightly backups.
func (o *operations) testReadSnapshot(t *testing.T) {
	const section, first = "Read a snapshot from the claim", "kubectl create"
	list, read, found := strings.Cut(o.page.Commands(t, section, first), "NAME=")
	require.True(t, found)
	name := regexp.MustCompile(`snapshot-\d{8}T\d{6}Z\.db`).FindString(o.Run(t, list))
	require.NotEmpty(t, name)
	require.Contains(t, o.Run(t, With(t, "NAME="+read, "snapshot-20261121T031700Z.db", name)), "SHA-256:")
}

// watched is the knowledge of a client that has watched all the time.
type watched struct {
	client  versioned.Interface
	store   cache.Store
	version string
}

// watch begins to watch pizzas, and then creates one and deletes another. An earlier snapshot has
// neither change.
func (o *operations) watch(t *testing.T) *watched {
	t.Helper()
	config, err := o.cluster.RESTConfigFor(user)
	require.NoError(t, err)
	client, err := versioned.NewForConfig(config)
	require.NoError(t, err)
	factory := externalversions.NewSharedInformerFactoryWithOptions(client, 0, externalversions.WithNamespace(metav1.NamespaceDefault))
	w := &watched{client: client, store: factory.Restaurant().V1().Pizzas().Informer().GetStore()}
	factory.Start(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	pizzas := client.RestaurantV1().Pizzas(metav1.NamespaceDefault)
	margherita, err := pizzas.Get(t.Context(), "margherita", metav1.GetOptions{})
	require.NoError(t, err)
	_, err = pizzas.Create(t.Context(), &restaurantv1.Pizza{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Spec: margherita.Spec}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, pizzas.Delete(t.Context(), "margherita", metav1.DeleteOptions{}))
	list, err := pizzas.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	w.version = list.ResourceVersion
	w.await(t, true, false)
	return w
}

// await waits until the client knows, or no longer knows, two pizzas.
func (w *watched) await(t *testing.T, later, margherita bool) {
	t.Helper()
	controlplane.Eventually(t, func() error {
		_, hasLater, _ := w.store.GetByKey("default/later")
		_, hasMargherita, _ := w.store.GetByKey("default/margherita")
		if hasLater != later || hasMargherita != margherita {
			return fmt.Errorf("a client that watches knows later: %t, margherita: %t", hasLater, hasMargherita)
		}
		return nil
	})
}

// restored requires that the pizzas are as before watch, and that clients know.
func (w *watched) restored(t *testing.T) {
	t.Helper()
	w.await(t, false, true)
	pizzas := w.client.RestaurantV1().Pizzas(metav1.NamespaceDefault)
	_, err := pizzas.Get(t.Context(), "later", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	stream, err := pizzas.Watch(t.Context(), metav1.ListOptions{ResourceVersion: w.version})
	if err == nil {
		defer stream.Stop()
		event := <-stream.ResultChan()
		err = apierrors.FromObject(event.Object)
	}
	require.True(t, apierrors.IsResourceExpired(err) || apierrors.IsGone(err), "A watch from before gets %v.", err)
}

// volumes returns the directories of claims.
func (o *operations) volumes(t *testing.T, namespace string, claims ...string) []string {
	t.Helper()
	var dirs []string
	for _, claim := range claims {
		dirs = append(dirs, strings.TrimSpace(o.Run(t, "kubectl get persistentvolume --output=jsonpath='{.spec.local.path}' "+
			"$(kubectl get pvc --namespace "+namespace+" "+claim+" --output=jsonpath='{.spec.volumeName}')")))
	}
	return dirs
}

// empty deletes the content of volumes.
func empty(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, entry := range entries {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, entry.Name())))
		}
	}
}

// without removes the components of a restore, as the documentation says.
func (o *operations) without(t *testing.T, installed string) {
	t.Helper()
	o.kustomize(t, installed)
	o.Run(t, "kubectl apply -k restaurant")
	o.clear(t)
}

// clear deletes the leftovers of a restore.
func (o *operations) clear(t *testing.T) {
	t.Helper()
	o.follow(t, volumesSection, "kubectl delete --namespace restaurant-system --ignore-not-found")
	o.rolledOut(t)
	o.awaitCalmOf(t, "salami")
}

// testRestoreFromStore restores "ha" by components.
func (o *operations) testRestoreFromStore(t *testing.T) {
	list, installed := o.copyBackups(t), o.kustomization
	o.restoreFromStore(t, list, func(t *testing.T) {
		t.Helper()
		o.addComponents(t, o.page.YAML(t, volumesSection, "components:"))
		o.follow(t, volumesSection, "kubectl apply -k")
	}, func(t *testing.T) {
		t.Helper()
		o.without(t, installed)
	})
}

// restoreFromStore loses all volumes of "ha", including the backups, and restores it. The two
// functions begin and end the restore.
func (o *operations) restoreFromStore(t *testing.T, list string, begin, end func(t *testing.T)) {
	t.Helper()
	name := o.backUp(t, list)
	client := o.watch(t)
	load := o.loadOf(t, "salami")
	began := time.Now()
	o.loseVolumes(t, "restaurant-system")
	o.follow(t, volumesSection, "kubectl create configmap", "snapshot-20261121T031700Z.db", name)
	begin(t)
	o.rolledOut(t)
	o.awaitCalmOf(t, "salami")
	t.Logf("ha was restored from the store after %.0f s: %s", time.Since(began).Seconds(), load.Stop())
	client.restored(t)
	end(t)
	o.requireMembers(t)
	o.backUp(t, list)
}

// loseVolumes stops etcd, and empties its volumes and the backups' volume. Claims and Jobs are deleted.
func (o *operations) loseVolumes(t *testing.T, namespace string) {
	t.Helper()
	there := []string{"--namespace restaurant-system", "--namespace " + namespace}
	lost := o.volumes(t, namespace, "data-etcd-0", "data-etcd-1", "data-etcd-2", "backups")
	o.follow(t, volumesSection, "kubectl scale", there...)
	empty(t, lost...)
	o.follow(t, volumesSection, "kubectl delete --namespace restaurant-system jobs", append(there, "pvc/data-etcd-0", "pvc/backups pvc/data-etcd-0")...)
}

// requireMembers requires that etcd has its three members.
func (o *operations) requireMembers(t *testing.T) {
	t.Helper()
	variable, _, found := strings.Cut(o.page.Commands(t, "A lost member of etcd", `E="kubectl exec`), "$E member remove")
	require.True(t, found)
	require.Equal(t, 3, strings.Count(o.Run(t, variable), "started"))
}

// testQuorum loses two members of etcd with their volumes, and keeps the data of the third.
func (o *operations) testQuorum(t *testing.T) {
	const section = "Without a quorum"
	lost := o.volumes(t, "restaurant-system", "data-etcd-1", "data-etcd-2")
	installed, load := o.kustomization, o.loadOf(t, "salami")
	client := o.watch(t)
	began := time.Now()
	o.Run(t, "kubectl scale --namespace restaurant-system statefulset/etcd --replicas=1\n"+
		"kubectl wait --namespace restaurant-system --for=delete --timeout=5m pod/etcd-1 pod/etcd-2")
	empty(t, lost...)
	require.Contains(t, o.follow(t, section, "SNAPSHOT="), "SHA-256:")
	o.follow(t, volumesSection, "kubectl scale")
	o.follow(t, section, "kubectl delete")
	o.follow(t, volumesSection, "kubectl create configmap")
	o.addComponents(t, With(t, o.page.YAML(t, volumesSection, "components:"), "  - ../artifacts/deploy/components/restore-store\n", ""))
	apply, rollout, found := strings.Cut(o.page.Commands(t, volumesSection, "kubectl apply -k"), "\n")
	require.True(t, found)
	o.Run(t, apply)
	o.follow(t, volumesSection, "for pod in", savedVariable, savedSnapshot)
	o.Run(t, rollout)
	o.awaitCalmOf(t, "salami")
	t.Logf("ha was restored from its last member after %.0f s: %s", time.Since(began).Seconds(), load.Stop())
	client.await(t, true, false)
	o.without(t, installed)
	// The third member has kept its old data.
	o.follow(t, "Delete old directories", "POD=")
	o.requireMembers(t)
	o.asUser(t, "kubectl delete pizza later")
	o.asUser(t, "kubectl apply --filename=artifacts/examples/2-pizzas.yaml")
}

// testRestoreVolume loses the volumes of "standalone" and of its backups, and restores it.
func (o *operations) testRestoreVolume(t *testing.T) {
	name := o.backUp(t, o.copyBackups(t))
	client := o.watch(t)
	installed, load := o.kustomization, o.loadOf(t, "salami")
	began := time.Now()
	lost := o.volumes(t, "restaurant-system", "apiserver-data", "backups")
	o.follow(t, volumesSection, stopServer)
	empty(t, lost...)
	o.follow(t, volumesSection, "kubectl delete --namespace restaurant-system jobs", "pvc/data-etcd-0 pvc/data-etcd-1 pvc/data-etcd-2", "pvc/apiserver-data pvc/backups")
	o.follow(t, volumesSection, "kubectl create configmap", "snapshot-20261121T031700Z.db", name)
	o.addComponents(t, With(t, o.page.YAML(t, volumesSection, "components:"), "restore-etcd", "restore-embedded"))
	o.follow(t, volumesSection, "kubectl apply -k", "statefulset/etcd", "deployment/apiserver")
	o.awaitCalmOf(t, "salami")
	t.Logf("standalone was restored from the store after %.0f s: %s", time.Since(began).Seconds(), load.Stop())
	client.restored(t)
	o.without(t, installed)
}

// restoreCustomResources saves a snapshot of crd-apiserver in the store, and restores it. Before,
// it loses a pizza or, with "ha", all volumes.
func (o *operations) restoreCustomResources(t *testing.T, overlay string, page *Document, file, installed string) {
	t.Helper()
	here := []string{"--namespace restaurant-system", "--namespace crd-apiserver"}
	backup := "backup-embedded"
	lose := func() {
		o.follow(t, volumesSection, stopServer, append(here, "deployment/apiserver", "deployment/crd-apiserver")...)
	}
	restore := With(t, page.YAML(t, "Backups and restore", "components:"), "components:\n", "")
	if overlay == "ha" {
		backup, lose, restore = "backup-etcd", func() { o.loseVolumes(t, "crd-apiserver") }, With(t, restore, "restore-embedded", "restore-etcd")
	}
	const apply = "kubectl apply -k crd-apiserver\nkubectl rollout status --namespace crd-apiserver --timeout=10m deployment/crd-apiserver"
	list := o.prepareStore(t, here...)
	const components = "  - ../artifacts/crd-apiserver/components/"
	installed += components + backup + "\n" + components + "backup-store\n"
	write(t, file, installed)
	o.Run(t, apply)
	o.saveNow(t, "crd-apiserver", here...)
	lines := strings.Split(strings.TrimSpace(o.Run(t, list)), ";")
	name := lines[len(lines)-1]
	o.asUser(t, "kubectl delete pizza salami")
	// The revision is close to the one of the cluster's etcd, which has to be raised above it on the
	// way back.
	revision := strings.TrimSpace(o.Run(t, "echo $(($(kubectl get --raw /apis/restaurant.programming-kubernetes.info/v1/pizzas | jq --raw-output .metadata.resourceVersion) + 1000))"))
	began := time.Now()
	lose()
	o.follow(t, volumesSection, "kubectl create configmap", append(here, "snapshot-20261121T031700Z.db", name, "$(date +%s%6N)", revision)...)
	write(t, file, installed+restore)
	o.Run(t, apply)
	o.awaitCalmOf(t, "salami")
	t.Logf("crd-apiserver, %s, was restored from the store after %.0f s", overlay, time.Since(began).Seconds())
	write(t, file, installed)
	o.Run(t, apply)
	o.awaitCalmOf(t, "salami")
}

// testRestoreEtcd makes the servers use another etcd, which loses its data, and restores it.
func (o *operations) testRestoreEtcd(t *testing.T) {
	const section = "Restore an existing etcd"
	c, host := o.cluster, o.cluster.Nodes[0].Host
	dir, url, peer := t.TempDir(), "https://"+host.Address()+":2379", "http://"+host.Address()+":2380"
	pair, err := c.PKI.ServingCA.Issue(controlplane.Certificate{User: "restaurant-etcd", Hosts: []string{host.Address()}})
	require.NoError(t, err)
	cert, key, data := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "data")
	write(t, cert, string(pair.Cert))
	write(t, key, string(pair.Key))
	etcd, err := c.NewProgram("restaurant-etcd", controlplane.Program{
		Binary: filepath.Join(binDir(), "etcd"), Host: host,
		Args: []string{
			"--name=etcd-0", "--data-dir=" + data, "--listen-client-urls=" + url, "--advertise-client-urls=" + url,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=etcd-0=" + peer,
			"--listen-metrics-urls=http://" + host.Address() + ":2381",
			"--cert-file=" + cert, "--key-file=" + key, "--client-cert-auth=true", "--trusted-ca-file=" + c.PKI.EtcdCA.File,
		},
		Check: func(ctx context.Context) error { return answers(host, "http://"+host.Address()+":2381/readyz")(ctx) },
	})
	require.NoError(t, err)
	require.NoError(t, etcd.Start(t.Context()))
	o.kustomize(t, With(t, o.kustomization, c.Etcd.URL(), url))
	o.Run(t, "kubectl apply -k restaurant")
	o.rolledOut(t)
	o.pizzas(t)
	o.follow(t, "Save", "SNAPSHOT=")
	client := o.watch(t)
	load := o.loadOf(t, "salami")
	began := time.Now()
	etcd.Kill()
	require.NoError(t, os.RemoveAll(data))
	o.follow(t, section, "apiserver snapshot restore", savedVariable, savedSnapshot, "/var/lib/etcd", data, "REVISION", "$(date +%s%6N)",
		"etcd-0=https://etcd-0.example.com:2380,etcd-1=https://etcd-1.example.com:2380", "etcd-0="+peer)
	require.NoError(t, etcd.Start(t.Context()))
	o.awaitCalmOf(t, "salami")
	t.Logf("external-etcd was restored after %.0f s: %s", time.Since(began).Seconds(), load.Stop())
	client.restored(t)
}
