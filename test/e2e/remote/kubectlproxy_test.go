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

package remote

import (
	"context"
	"encoding/json"
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// TestKubectlProxy uses the API by curl, which "kubectl proxy" gives the rights of its
// user.
func TestKubectlProxy(t *testing.T) {
	framework.Long(t, "TestSOCKS is the short one")
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip(err, "- install Debian's package curl")
	}
	cp := start(t, controlplane.Config{})
	proxy := follow(t, user{ControlPlane: cp}.command(t, "proxy", "--port=0"))
	address := regexp.MustCompile(`^Starting to serve on (127\.0\.0\.1:\d+)$`).FindStringSubmatch(proxy.line())
	require.NotNil(t, address)
	curl := func(path string, args ...string) *exec.Cmd {
		ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
		t.Cleanup(cancel)
		return exec.CommandContext(ctx, "curl", append([]string{"--silent", "--show-error", "--fail-with-body", "--no-buffer", "--noproxy", "*", "http://" + address[1] + path}, args...)...)
	}
	send := func(into any, path string, args ...string) {
		t.Helper()
		output, err := curl(path, args...).Output()
		require.NoError(t, err, "%s", output)
		require.NoError(t, json.Unmarshal(output, into), "%s", output)
	}
	post := func(into any, path, body string) {
		t.Helper()
		send(into, path, "--header", "Content-Type: application/json", "--data", body)
	}

	var created, got restaurantv1.Pizza
	post(&created, pizzas, margherita("margherita", 2))
	send(&got, pizzas+"/margherita")
	require.Equal(t, created, got)
	var list restaurantv1.PizzaList
	send(&list, pizzas)
	require.Len(t, list.Items, 1)
	require.Equal(t, created.UID, list.Items[0].UID)

	watch := follow(t, curl(pizzas+"?watch=true&resourceVersion="+list.ResourceVersion))
	tracked := follow(t, curl(pizzas+"/margherita"+track))
	require.Equal(t, "0 of 2 baked", tracked.line())
	for i, want := range []string{"1 of 2 baked", "2 of 2 baked: ready"} {
		var answer restaurantv1.Bake
		post(&answer, pizzas+"/margherita/bake", bake)
		require.Equal(t, int32(1), answer.Status.Baked)
		require.Equal(t, want, tracked.line())
		var event struct {
			Type   string
			Object restaurantv1.Pizza
		}
		require.NoError(t, json.Unmarshal([]byte(watch.line()), &event))
		require.Equal(t, "MODIFIED", event.Type)
		require.Equal(t, int32(i+1), event.Object.Status.Replicas)
	}
	tracked.ends()

	var status metav1.Status
	send(&status, pizzas+"/margherita", "--request", "DELETE")
	require.Equal(t, metav1.StatusSuccess, status.Status)

	// A client that is not on this machine, or a web page of another host, is refused.
	output, err := curl(pizzas, "--header", "Host: attacker.example.com").Output()
	require.Error(t, err)
	require.Equal(t, "Forbidden\n", string(output))
}
