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

package api

import (
	"bufio"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/scheme"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// A stream is what a tracked pizza says line by line.
type stream struct {
	t     *testing.T
	lines *bufio.Reader
}

// says requires the next line. As it is asked for before anything else is done to
// the pizza, a line that were held back somewhere would never come.
func (s stream) says(want string) {
	s.t.Helper()
	line, err := s.lines.ReadString('\n')
	require.NoError(s.t, err, "The stream has ended after %q.", line)
	require.Equal(s.t, want+"\n", line)
}

// ends requires that there is no more, and that nothing was cut off.
func (s stream) ends() {
	s.t.Helper()
	rest, err := io.ReadAll(s.lines)
	require.NoError(s.t, err)
	require.Empty(s.t, string(rest))
}

// trackPath is where the margherita of newKubectl is tracked.
func trackPath(k kubectl) string { return strings.Replace(bakePath(k), "/bake", "/track", 1) }

// What a stream says is tested in pkg/registry/restaurant. Here are the clients of users.
func TestTypedTrack(t *testing.T) {
	t.Parallel()
	namespace, client := framework.Namespace(t, cp), framework.Restaurant(cp).RestaurantV1()
	pizza := framework.Pizza("margherita")
	pizza.Spec.Replicas = new(int32(2))
	_, err := client.Pizzas(namespace).Create(t.Context(), pizza, metav1.CreateOptions{})
	require.NoError(t, err)
	body, err := client.RESTClient().Get().Namespace(namespace).Resource("pizzas").Name("margherita").SubResource("track").
		VersionedParams(&restaurantv1.PizzaTrackOptions{Follow: true, TimeoutSeconds: new(int64(30))}, scheme.ParameterCodec).Stream(t.Context())
	require.NoError(t, err)
	defer body.Close()
	progress := stream{t, bufio.NewReader(body)}
	progress.says("0 of 2 baked")
	_, err = client.Pizzas(namespace).Bake(t.Context(), "margherita", &restaurantv1.Bake{Spec: restaurantv1.BakeSpec{Count: new(int32(2))}}, metav1.CreateOptions{})
	require.NoError(t, err)
	progress.says("2 of 2 baked: ready")
	progress.ends()
}

func TestKubectlTrack(t *testing.T) {
	t.Parallel()
	k := newKubectl(t)
	cmd := k.command(t, "get", "--raw", trackPath(k)+"?follow=true")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	pizza := stream{t, bufio.NewReader(stdout)}
	for _, want := range []string{"0 of 3 baked", "1 of 3 baked", "2 of 3 baked"} {
		pizza.says(want)
		k.okWith(t, "{}", "create", "--raw", bakePath(k), "--filename=-")
	}
	pizza.says("3 of 3 baked: ready")
	pizza.ends()
	require.NoError(t, cmd.Wait())
	require.Equal(t, answer{stderr: `The PizzaTrackOptions "" is invalid: timeoutSeconds: Invalid value: 0: must be greater than or equal to 1` + "\n", code: 1},
		k.run(t, "", "get", "--raw", trackPath(k)+"?follow=true&timeoutSeconds=0"))
}
