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
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/scheme"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
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

// track connects to a path for controlplane.Patience at most.
func track(t *testing.T, client *http.Client, url string) (stream, *http.Response) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	t.Cleanup(func() { response.Body.Close() })
	require.Equal(t, http.StatusOK, response.StatusCode)
	return stream{t, bufio.NewReader(response.Body)}, response
}

// mustBake bakes some of the pizza "a".
func (s subject) mustBake(t *testing.T, count int) {
	t.Helper()
	_, err := s.bake(t, framework.Config(cp), count, metav1.CreateOptions{})
	require.NoError(t, err)
}

func TestTrack(t *testing.T) {
	t.Parallel()
	for _, door := range doors() {
		client, err := rest.HTTPClientFor(door.config)
		require.NoError(t, err)
		for _, version := range framework.Versions() {
			for name, test := range map[string]struct {
				query string
				run   func(*testing.T, subject, stream)
			}{
				"not followed": {"", func(_ *testing.T, _ subject, pizza stream) {
					pizza.says("0 of 3 baked")
				}},
				"not followed for a time": {"?follow=false&timeoutSeconds=9", func(_ *testing.T, _ subject, pizza stream) {
					pizza.says("0 of 3 baked")
				}},
				"until it is ready": {"?follow=true", func(t *testing.T, s subject, pizza stream) {
					pizza.says("0 of 3 baked")
					s.mustBake(t, 1)
					pizza.says("1 of 3 baked")
					_, err := s.patch(t, "a", types.MergePatchType, `{"spec":{"replicas":5}}`)
					require.NoError(t, err)
					pizza.says("1 of 5 baked")
					_, err = s.patch(t, "a", types.MergePatchType, `{"metadata":{"labels":{"no":"progress"}}}`)
					require.NoError(t, err)
					_, err = s.patch(t, "a", types.MergePatchType, `{"status":{"replicas":0}}`, "status")
					require.NoError(t, err)
					pizza.says("0 of 5 baked")
					s.mustBake(t, 5)
					pizza.says("5 of 5 baked: ready")
				}},
				"until nothing is wanted": {"?follow=true", func(t *testing.T, s subject, pizza stream) {
					pizza.says("0 of 3 baked")
					_, err := s.patch(t, "a", types.MergePatchType, `{"spec":{"replicas":0}}`, "scale")
					require.NoError(t, err)
					pizza.says("0 of 0 baked: ready")
				}},
				"until it is deleted": {"?follow=true", func(t *testing.T, s subject, pizza stream) {
					pizza.says("0 of 3 baked")
					_, err := s.patch(t, "a", types.MergePatchType, `{"metadata":{"finalizers":["example.com/e2e"]}}`)
					require.NoError(t, err)
					require.NoError(t, s.Client().Delete(t.Context(), s.Name("a"), metav1.DeleteOptions{}))
					_, err = s.patch(t, "a", types.MergePatchType, `{"status":{"replicas":1}}`, "status")
					require.NoError(t, err)
					pizza.says("1 of 3 baked")
					_, err = s.patch(t, "a", types.MergePatchType, `{"metadata":{"finalizers":null}}`)
					require.NoError(t, err)
					pizza.says("deleted")
				}},
				"until the time is over": {"?follow=true&timeoutSeconds=1", func(_ *testing.T, _ subject, pizza stream) {
					pizza.says("0 of 3 baked")
					pizza.says("timed out after 1s")
				}},
			} {
				t.Run(door.name+"/"+version+"/"+name, func(t *testing.T) {
					t.Parallel()
					s := newSubject(t, "Pizza", version)
					s.wanting(t, 3)
					pizza, response := track(t, client, door.config.Host+s.Path()+"/"+s.Name("a")+"/track"+test.query)
					require.Equal(t, "text/plain; charset=utf-8", response.Header.Get("Content-Type"))
					require.Equal(t, version == "v1alpha1", response.Header.Get("Warning") != "", "Only a deprecated version is warned of.")
					test.run(t, s, pizza)
					pizza.ends()
				})
			}
		}
	}
}

// trackPath is where the margherita of newKubectl is tracked.
func trackPath(k kubectl) string { return strings.Replace(bakePath(k), "/bake", "/track", 1) }

func TestTypedTrack(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	s := newSubject(t, "Pizza", "v1")
	s.wanting(t, 2)
	body, err := framework.Restaurant(cp).RestaurantV1().RESTClient().Get().Namespace(s.Namespace).Resource("pizzas").Name(s.Name("a")).SubResource("track").
		VersionedParams(&restaurantv1.PizzaTrackOptions{Follow: true, TimeoutSeconds: new(int64(30))}, scheme.ParameterCodec).Stream(t.Context())
	require.NoError(t, err)
	defer body.Close()
	pizza := stream{t, bufio.NewReader(body)}
	pizza.says("0 of 2 baked")
	s.mustBake(t, 2)
	pizza.says("2 of 2 baked: ready")
	pizza.ends()
}

func TestKubectlTrack(t *testing.T) {
	framework.AlsoRemote(t)
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

// A stream goes on without its client for no longer than it takes to notice, and
// without a trace.
func TestTrackUntilTheClientLeaves(t *testing.T) {
	t.Parallel()
	client, err := rest.HTTPClientFor(framework.Config(cp))
	require.NoError(t, err)
	for _, door := range doors() {
		t.Run(door.name, func(t *testing.T) {
			t.Parallel()
			k := newKubectl(t)
			ctx, leave := context.WithCancel(t.Context())
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, door.config.Host+trackPath(k)+"?follow=true&timeoutSeconds=3600", http.NoBody)
			require.NoError(t, err)
			response, err := client.Do(request)
			require.NoError(t, err)
			defer response.Body.Close()
			stream{t, bufio.NewReader(response.Body)}.says("0 of 3 baked")
			id := response.Header.Get(auditv1.HeaderAuditID)
			leave()
			require.NotNil(t, audited(t, id).ResponseStatus)
		})
	}
}

func TestBadTracks(t *testing.T) {
	tooLittle := "timeoutSeconds: Invalid value: %d: must be greater than or equal to 1"
	requireRefused(t, map[string]badRequest{
		"timeoutSeconds/none":     get("{pizza}/track?follow=true&timeoutSeconds=0").gets(422, fmt.Sprintf(tooLittle, 0)),
		"timeoutSeconds/negative": get("{pizza}/track?follow=true&timeoutSeconds=-1").gets(422, fmt.Sprintf(tooLittle, -1)),
		"timeoutSeconds/too much": get("{pizza}/track?follow=true&timeoutSeconds=3601").gets(422, "timeoutSeconds: Invalid value: 3601: must be less than or equal to 3600"),
		"timeoutSeconds/huge":     get("{pizza}/track?follow=true&timeoutSeconds=9223372036854775808").gets(400),
		"timeoutSeconds/a word":   get("{pizza}/track?follow=true&timeoutSeconds=soon").gets(400),
		"timeoutSeconds/unused":   get("{pizza}/track?timeoutSeconds=0").gets(422, fmt.Sprintf(tooLittle, 0)),
		"dryRun":                  get("{pizza}/track?dryRun=All").gets(400).saying("dryRun is not supported"),
		"no pizza":                get("{pizzas}/new/track").gets(404).saying(`pizzas.{group} "new" not found`),
		"a topping":               get("{topping}/track").gets(404),
		"all":                     get("{root}/pizzas/track").gets(404),
		"further":                 get("{pizza}/track/more").gets(404),
		"method/delete":           remove("{pizza}/track", "").gets(405),
	})
}
