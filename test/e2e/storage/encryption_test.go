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
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	kms "k8s.io/kms/pkg/service"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	restaurantclient "restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/typed/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// recipe is what nobody is to read in a database.
const recipe = "grandmother-keeps-this-to-herself"

// encryptionKey is a provider of one key.
func encryptionKey(provider, name string) string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	return fmt.Sprintf(`{%s: {keys: [{name: %s, secret: %s}]}}`, provider, name, base64.StdEncoding.EncodeToString(secret))
}

func encryptionConfig(resource string, providers ...string) string {
	return fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
  - resources: [%q]
    providers: [%s]
`, resource, strings.Join(providers, ", "))
}

// storedIn returns what the etcd of a server has below a prefix.
func storedIn(t *testing.T, prefix string, config clientv3.Config) map[string]string {
	t.Helper()
	config.DialTimeout = controlplane.Patience
	client, err := clientv3.New(config)
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
	defer cancel()
	answer, err := client.Get(ctx, prefix, clientv3.WithPrefix())
	require.NoError(t, err)
	values := map[string]string{}
	for _, kv := range answer.Kvs {
		value, err := etcd.OpenValue(string(kv.Key), kv.Value)
		require.NoError(t, err)
		values[strings.TrimPrefix(string(kv.Key), prefix)] = string(value)
	}
	return values
}

// embeddedEtcdOf is one for the etcd inside a server.
func embeddedEtcdOf(server *controlplane.Component) clientv3.Config {
	return clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(framework.DataDir(server), "etcd.sock")}}
}

func secretPizza(name string) *restaurantv1.Pizza {
	pizza := framework.Pizza(name)
	pizza.Annotations = map[string]string{"example.com/recipe": recipe}
	return pizza
}

// Keys are replaced while two replicas run, as docs/operations/encryption.md describes it. At each
// step, either can read what the other one writes, although they take it one after the other. A
// file that can't be used changes nothing.
func TestEncryptionKeyRotation(t *testing.T) {
	framework.Long(t, "servers are restarted for each key")
	t.Parallel()
	const still = "--run-controllers=false"
	old, successor := encryptionKey("secretbox", "old"), encryptionKey("secretbox", "new")
	stored := controlplane.ServerConfig{Etcd: "storage", ComponentConfig: controlplane.ComponentConfig{Flags: []string{still}}}
	cp := controlplane.ForTest(t, controlplane.Config{APIServer: stored})
	another := framework.NewServer(t, cp, stored)
	require.NoError(t, another.Start(t.Context()))
	type replica struct {
		*controlplane.Component
		file   string
		admin  *rest.Config
		pizzas restaurantclient.PizzaInterface
		pid    int
	}
	var replicas []*replica
	for _, server := range []*controlplane.Component{cp.APIServer, another} {
		admin := framework.AdminConfig(t, cp, server)
		replicas = append(replicas, &replica{
			Component: server, file: framework.File(t, encryptionConfig("*.*", old, "{identity: {}}")),
			admin: admin, pizzas: versioned.NewForConfigOrDie(admin).RestaurantV1().Pizzas("default"),
		})
	}
	require.NoError(t, fixture.CreateToppings(t.Context(), versioned.NewForConfigOrDie(replicas[0].admin), "tomato"))
	_, err := replicas[0].pizzas.Create(t.Context(), secretPizza("plain"), metav1.CreateOptions{})
	require.NoError(t, err)

	// use gives replicas new keys.
	use := func(replicas []*replica, providers ...string) {
		t.Helper()
		content := encryptionConfig("*.*", providers...)
		for _, replica := range replicas {
			framework.ReplaceFile(t, replica.file, []byte(content))
		}
		for _, replica := range replicas {
			waitReloaded(t, replica.admin, content)
		}
	}
	// share makes each replica write and all of them read.
	share := func(step string) {
		t.Helper()
		for i, writer := range replicas {
			name := fmt.Sprintf("%s-%d", step, i)
			_, err := writer.pizzas.Create(t.Context(), secretPizza(name), metav1.CreateOptions{})
			require.NoError(t, err)
			for _, reader := range replicas {
				got, err := reader.pizzas.Get(t.Context(), name, metav1.GetOptions{})
				require.NoError(t, err, "%s can't read what %s has written.", reader.Name(), writer.Name())
				require.Equal(t, recipe, got.Annotations["example.com/recipe"])
			}
		}
	}
	keys := func(want ...string) {
		t.Helper()
		got := sets.New[string]()
		for _, value := range storedIn(t, "/registry/restaurant", framework.EtcdConfig(t, cp, cp.Component("storage"))) {
			prefix, _, _ := strings.Cut(value, ":v1:")
			key, _, _ := strings.Cut(strings.TrimPrefix(value, prefix+":v1:"), ":")
			if strings.HasPrefix(value, "k8s\x00") {
				prefix, key = "plain", ""
			}
			got.Insert(strings.TrimPrefix(prefix, "k8s:enc:secretbox") + key)
		}
		require.Equal(t, want, sets.List(got))
	}

	issued, err := cp.PKI.EtcdCA.Issue(controlplane.Certificate{User: "doctor"})
	require.NoError(t, err)
	reach := []string{
		"--etcd-servers=" + cp.Component("storage").URL(), "--etcd-cafile=" + cp.PKI.ServingCA.File,
		"--etcd-certfile=" + framework.File(t, string(issued.Cert)), "--etcd-keyfile=" + framework.File(t, string(issued.Key)),
	}
	// diagnose requires what the doctor says about the stored pizzas.
	diagnose := func(want string) {
		t.Helper()
		_, stdout, stderr := framework.Tool(t, cp, nil, slices.Concat([]string{"doctor", "--kubeconfig=" + cp.Kubeconfig(), "--encryption-provider-config=" + replicas[0].file}, reach)...)
		require.Regexp(t, `(?m)^`+want+`$`, stdout, stderr)
	}
	const present = `ok +storage +all \d+ pizzas\.\S+ are stored in the version v1 and under the present key: no stored object is in v1alpha1 or v1beta1 any more, .*`

	keys("plain")
	for _, replica := range replicas {
		replica.SetFlags(still, "--encryption-provider-config="+replica.file, "--encryption-provider-config-automatic-reload=true")
		require.NoError(t, replica.Restart(t.Context()))
		replica.pid = replica.PID()
	}
	require.NoError(t, cp.WaitAvailable(t.Context()))
	share("encrypted")
	keys("old", "plain")
	diagnose(`warning +storage +1 of 3 pizzas\.\S+ are stored under an old key, or not encrypted, .*`)
	rewrite(t, cp)
	keys("old")
	diagnose(present)

	// The one that has not noticed yet goes on as well as the one that has.
	framework.ReplaceFile(t, replicas[0].file, []byte(encryptionConfig("*.*", strings.Replace(successor, "secret: ", "secret: short", 1))))
	use(replicas[1:], old, successor)
	waitForMetric(t, replicas[0].admin, `apiserver_encryption_config_controller_automatic_reloads_total{`, `status="failure"`)
	framework.WaitForLog(t, replicas[0].Component, "error processing encryption config file "+replicas[0].file)
	require.NoError(t, replicas[0].WaitReady(t.Context()))
	share("broken")
	keys("old")

	use(replicas[:1], old, successor)
	share("second")
	keys("old")
	use(replicas[:1], successor, old)
	share("mixed")
	keys("new", "old")
	diagnose(`warning +storage +\d+ of 9 pizzas\.\S+ are stored under an old key, or not encrypted, .*`)
	use(replicas[1:], successor, old)
	rewrite(t, cp)
	keys("new")
	diagnose(present)
	use(replicas, successor)
	share("done")
	keys("new")
	for _, replica := range replicas {
		list, err := replica.pizzas.List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		require.NoError(t, err)
		require.Len(t, list.Items, 11)
		got, err := replica.pizzas.Get(t.Context(), "plain", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, recipe, got.Annotations["example.com/recipe"])
		require.NoError(t, replica.WaitReady(t.Context()))
		require.Equal(t, replica.pid, replica.PID(), "%s has been restarted.", replica.Name())
	}
}

// waitReloaded waits until a server uses what its file has now.
func waitReloaded(t *testing.T, server *rest.Config, content string) {
	t.Helper()
	waitForMetric(t, server, "apiserver_encryption_config_controller_last_config_info{", fmt.Sprintf("hash=\"sha256:%x\"", sha256.Sum256([]byte(content))))
}

// waitForMetric waits for a metric about the file, which is looked at once a minute.
func waitForMetric(t *testing.T, server *rest.Config, name, label string) {
	t.Helper()
	deadline := time.Now().Add(3 * controlplane.Patience)
	for {
		code, metrics, err := framework.GetAs(t, server, "/metrics")
		require.NoError(t, err)
		require.Equal(t, 200, code)
		for line := range strings.Lines(metrics) {
			if strings.HasPrefix(line, name) && strings.Contains(line, label) {
				return
			}
		}
		require.True(t, time.Now().Before(deadline), "The server has no metric %s…%s.", name, label)
		time.Sleep(time.Second)
	}
}

// kmsPlugin is a key management service that keeps its key here.
type kmsPlugin struct{ cipher.AEAD }

// Encrypt encrypts a key that data is encrypted with.
func (p kmsPlugin) Encrypt(_ context.Context, _ string, data []byte) (*kms.EncryptResponse, error) {
	nonce := make([]byte, p.NonceSize())
	_, _ = rand.Read(nonce)
	return &kms.EncryptResponse{Ciphertext: p.Seal(nonce, nonce, data, nil), KeyID: "mine"}, nil
}

// Decrypt decrypts what Encrypt returned.
func (p kmsPlugin) Decrypt(_ context.Context, _ string, request *kms.DecryptRequest) ([]byte, error) {
	return p.Open(nil, request.Ciphertext[:p.NonceSize()], request.Ciphertext[p.NonceSize():], nil)
}

// Status says that all is well.
func (kmsPlugin) Status(context.Context) (*kms.StatusResponse, error) {
	return &kms.StatusResponse{Version: "v2", Healthz: "ok", KeyID: "mine"}, nil
}

// A server whose key is with a plugin is ready when that is there.
func TestEncryptionByKMS(t *testing.T) {
	framework.Long(t, "servers are restarted for each key")
	t.Parallel()
	block, err := aes.NewCipher([]byte("0123456789abcdef"))
	require.NoError(t, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(t, err)
	socket := filepath.Join(t.TempDir(), "kms.sock")
	config := framework.File(t, encryptionConfig("*.*", "{kms: {apiVersion: v2, name: vault, endpoint: \"unix://"+socket+"\"}}"))
	server := framework.NewServer(t, cp, framework.Flags("--encryption-provider-config="+config))
	require.NoError(t, server.Launch())
	framework.WaitUnready(t, cp, server, "kms-providers")

	plugin := kms.NewGRPCService(socket, controlplane.Patience, kmsPlugin{aead})
	go func() { _ = plugin.ListenAndServe() }()
	t.Cleanup(plugin.Close)
	require.NoError(t, server.WaitReady(t.Context()))
	framework.Stock(t, cp, server)
	_, err = framework.ClientAt(t, cp, server).RestaurantV1().Pizzas("default").Create(t.Context(), secretPizza("secret"), metav1.CreateOptions{})
	require.NoError(t, err)
	stored := storedIn(t, "/registry/restaurant.programming-kubernetes.info/pizzas/", embeddedEtcdOf(server))
	require.Len(t, stored, 1)
	require.True(t, strings.HasPrefix(stored["default/secret"], "k8s:enc:kms:v2:vault:"), "%q", stored)
	require.NotContains(t, stored["default/secret"], recipe)
	require.Equal(t, recipe, pizzasOf(t, server)["secret"].Annotations["example.com/recipe"])
}
