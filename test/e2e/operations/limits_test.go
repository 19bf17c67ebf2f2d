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

package operations

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/informers/externalversions"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

const (
	tooMany   = "429 this server has too many requests to work on, Retry-After: 1"
	limitRole = "limited-reader"
)

// admitReaders lets users do with pizzas what they like.
func admitReaders(t *testing.T, at *controlplane.Component, users ...string) {
	t.Helper()
	framework.Kubectl(t, cp, "create", "role", limitRole+"-"+users[0], "--verb=*", "--resource=pizzas.restaurant.programming-kubernetes.info,pizzas.restaurant.programming-kubernetes.info/track")
	for _, user := range users {
		framework.Kubectl(t, cp, "create", "rolebinding", limitRole+"-"+user, "--role="+limitRole+"-"+users[0], "--user="+user)
		waitForAnswer(t, framework.ConfigFor(t, cp, at, user), allowed)
	}
}

// order is a request whose body is not complete before finish is called. It is being
// worked on until then.
type order struct {
	answer chan string
	body   *io.PipeWriter
	name   string
}

func placeOrder(t *testing.T, config *rest.Config, name string) *order {
	t.Helper()
	body, writer := io.Pipe()
	placed := &order{make(chan string, 1), writer, name}
	client := framework.HTTPClient(t, config)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, config.Host+framework.PizzasPath, body)
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	go func() { placed.answer <- answerOf(client.Do(request)) }()
	return placed
}

func (o *order) finish(t *testing.T) {
	t.Helper()
	content, err := json.Marshal(framework.Pizza(o.name))
	require.NoError(t, err)
	_, err = o.body.Write(content)
	require.NoError(t, err, "Nobody works on the order %s any more.", o.name)
	require.NoError(t, o.body.Close())
}

// answerOf is like what framework.Send returns, but for a success only its code.
func answerOf(response *http.Response, err error) string {
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	if response.StatusCode < http.StatusBadRequest {
		return fmt.Sprint(response.StatusCode)
	}
	var status metav1.Status
	if err := json.NewDecoder(response.Body).Decode(&status); err != nil {
		return fmt.Sprintf("%d, which is not explained: %v", response.StatusCode, err)
	}
	return fmt.Sprintf("%d %s, Retry-After: %s", response.StatusCode, status.Message, response.Header.Get("Retry-After"))
}

// requireOneAtATime places two orders. The server must work on one only.
func requireOneAtATime(t *testing.T, config *rest.Config, meanwhile func()) {
	t.Helper()
	first, second := placeOrder(t, config, "first"), placeOrder(t, config, "second")
	select {
	case answer := <-first.answer:
		require.Equal(t, tooMany, answer)
		first = second
	case answer := <-second.answer:
		require.Equal(t, tooMany, answer)
	case <-t.Context().Done():
		require.Fail(t, "Both orders are being worked on.")
	}
	meanwhile()
	first.finish(t)
	require.Equal(t, "201", <-first.answer)
}

// A server that may not read the cluster's priorities says so. It works on no more
// requests than its flags say, but for watches and streams.
func TestLimitsWithoutPriorities(t *testing.T) {
	framework.Long(t, "a server is started for each limit")
	t.Parallel()
	const user = "unprioritized"
	roles := kubernetes.NewForConfigOrDie(cp.RESTConfig()).RbacV1().ClusterRoles()
	role, err := roles.Get(t.Context(), "restaurant-apiserver", metav1.GetOptions{})
	require.NoError(t, err)
	rules := slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.APIGroups, flowcontrolv1.GroupName) })
	require.NotEqual(t, len(role.Rules), len(rules))
	_, err = roles.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}, metav1.CreateOptions{})
	require.NoError(t, err)
	framework.Kubectl(t, cp, "create", "clusterrolebinding", user, "--clusterrole="+user, "--user="+user)
	framework.Kubectl(t, cp, "create", "clusterrolebinding", user+":delegator", "--clusterrole=system:auth-delegator", "--user="+user)
	framework.Kubectl(t, cp, "create", "rolebinding", user, "--namespace=kube-system", "--role=extension-apiserver-authentication-reader", "--user="+user)
	kubeconfig, err := cp.KubeconfigFor(user)
	require.NoError(t, err)
	config := framework.Flags("--max-requests-inflight=1", "--max-mutating-requests-inflight=1", "--run-controllers=false")
	config.Etcd, config.Kubeconfig = "limited", kubeconfig
	server := framework.NewServer(t, cp, config)
	etcd := cp.Component(config.Etcd)
	require.NoError(t, etcd.Start(t.Context()))
	require.NoError(t, server.Start(t.Context()))
	log, err := os.ReadFile(server.LogFile())
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(log), "Limiting requests by --max-requests-inflight and --max-mutating-requests-inflight, not by the cluster's FlowSchemas and PriorityLevelConfigurations"))
	framework.Stock(t, cp, server)
	admitReaders(t, server, "unprioritized-reader")
	reader := framework.ConfigFor(t, cp, server, "unprioritized-reader")
	hold(t, reader)

	requireOneAtATime(t, reader, func() {
		waitForAnswer(t, reader, allowed) // Reading is counted for itself.
	})

	// A request that etcd does not answer is being worked on.
	signal(t, etcd, syscall.SIGSTOP)
	resume := func() { signal(t, etcd, syscall.SIGCONT) }
	t.Cleanup(resume)
	answers := make(chan string, 2)
	for range cap(answers) {
		client := framework.HTTPClient(t, reader)
		go func() { answers <- answerOf(client.Get(reader.Host + framework.PizzasPath)) }()
	}
	require.Equal(t, tooMany, <-answers)
	resume()
	require.Equal(t, "200", <-answers)
}

// A server waits for the rest of a body no longer than a request may take.
func TestBodyThatDoesNotCome(t *testing.T) {
	framework.Long(t, "timeouts are waited for")
	t.Parallel()
	server := framework.NewServer(t, cp, framework.Flags("--enable-priority-and-fairness=false", "--max-mutating-requests-inflight=1", "--request-timeout=10s"))
	require.NoError(t, server.Start(t.Context()))
	framework.Stock(t, cp, server)
	admitReaders(t, server, "slow-reader", "next-reader")
	slow, next := framework.ConfigFor(t, cp, server, "slow-reader"), framework.ConfigFor(t, cp, server, "next-reader")
	slow.NextProtos = []string{"http/1.1"}
	client := framework.HTTPClient(t, next)
	content, err := json.Marshal(framework.Pizza("next"))
	require.NoError(t, err)
	requireNext := func(want string, before func()) {
		controlplane.Eventually(t, func() error {
			before()
			if answer := answerOf(client.Post(next.Host+framework.PizzasPath+"?dryRun=All", "application/json", bytes.NewReader(content))); answer != want {
				return fmt.Errorf("the next order gets %s", answer)
			}
			return nil
		})
	}
	// On a busy machine, its time may be over before anybody else comes.
	over := true
	var waiting *order
	requireNext(tooMany, func() {
		if waiting != nil {
			over = len(waiting.answer) > 0
		}
		if over {
			waiting = placeOrder(t, slow, "slow")
			_, err := waiting.body.Write([]byte("{"))
			require.NoError(t, err)
		}
	})
	requireNext("201", func() {})
}

// hold leaves a watch and a stream open until the test ends.
func hold(t *testing.T, config *rest.Config) {
	t.Helper()
	pizzas := versioned.NewForConfigOrDie(config).RestaurantV1().Pizzas("default")
	wanted := framework.Pizza("held")
	wanted.Spec.Replicas = ptr.To[int32](1)
	_, err := pizzas.Create(t.Context(), wanted, metav1.CreateOptions{})
	require.NoError(t, err)
	watcher, err := pizzas.Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	t.Cleanup(watcher.Stop)
	framework.Next(t, watcher)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+framework.PizzasPath+"/held/track?follow=true&timeoutSeconds=3600", http.NoBody)
	require.NoError(t, err)
	response, err := framework.HTTPClient(t, config).Do(request)
	require.NoError(t, err)
	t.Cleanup(func() { response.Body.Close() })
	require.Equal(t, http.StatusOK, response.StatusCode)
	_, err = io.ReadFull(response.Body, make([]byte, len("0 of 1 baked\n")))
	require.NoError(t, err)
}

// The cluster's rules of priority and fairness hold for this server, too. A user with one
// seat is worked for once at a time, and nobody else is hindered. Watches and streams keep
// no seat.
func TestPrioritiesOfTheCluster(t *testing.T) {
	framework.Long(t, "servers are started")
	t.Parallel()
	const glutton, modest = "glutton", "modest"
	// A share of one is then one seat.
	server := framework.NewServer(t, cp, framework.Flags("--max-requests-inflight=10", "--max-mutating-requests-inflight=10"))
	require.NoError(t, server.Start(t.Context()))
	framework.Stock(t, cp, server)
	admitReaders(t, server, glutton, modest)

	client := kubernetes.NewForConfigOrDie(cp.RESTConfig()).FlowcontrolV1()
	eventuallyCreate(t, func() error {
		_, err := client.PriorityLevelConfigurations().Create(t.Context(), &flowcontrolv1.PriorityLevelConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: glutton},
			Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
				Type: flowcontrolv1.PriorityLevelEnablementLimited,
				Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
					NominalConcurrencyShares: ptr.To[int32](1),
					BorrowingLimitPercent:    ptr.To[int32](0),
					LimitResponse:            flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
				},
			},
		}, metav1.CreateOptions{})
		return err
	})
	level, err := client.PriorityLevelConfigurations().Get(t.Context(), glutton, metav1.GetOptions{})
	require.NoError(t, err)
	eventuallyCreate(t, func() error {
		_, err := client.FlowSchemas().Create(t.Context(), &flowcontrolv1.FlowSchema{
			ObjectMeta: metav1.ObjectMeta{Name: glutton},
			Spec: flowcontrolv1.FlowSchemaSpec{
				PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level.Name},
				MatchingPrecedence:         100,
				Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
					Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: glutton}}},
					ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
						Verbs: []string{"*"}, APIGroups: []string{"restaurant.programming-kubernetes.info"}, Resources: []string{"*"}, Namespaces: []string{"*"},
					}},
				}},
			},
		}, metav1.CreateOptions{})
		return err
	})
	limited := framework.ConfigFor(t, cp, server, glutton)
	connection := framework.HTTPClient(t, limited)
	controlplane.Eventually(t, func() error {
		response, err := connection.Get(limited.Host + framework.PizzasPath)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if got := response.Header.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID); got != string(level.UID) {
			return fmt.Errorf("the priority level is %s, not %s", got, level.UID)
		}
		return nil
	})

	hold(t, limited)
	requireOneAtATime(t, limited, func() {
		// It is the one seat for reading and writing.
		require.Equal(t, tooMany, answerOf(connection.Get(limited.Host+framework.PizzasPath)))
		others := framework.ConfigFor(t, cp, server, modest)
		waitForAnswer(t, others, allowed)
		_, err := versioned.NewForConfigOrDie(others).RestaurantV1().Pizzas("default").Create(t.Context(), framework.Pizza("modest"), metav1.CreateOptions{})
		require.NoError(t, err)
	})
}

// eventuallyCreate creates something by kube-apiserver, whose etcd may be too slow on a busy machine.
func eventuallyCreate(t *testing.T, create func() error) {
	t.Helper()
	controlplane.Eventually(t, func() error {
		if err := create(); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	})
}

// mayList asks kube-apiserver itself.
func mayList(t *testing.T, user string) bool {
	t.Helper()
	review, err := kubernetes.NewForConfigOrDie(cp.RESTConfig()).AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: "default", Verb: "list", Group: "restaurant.programming-kubernetes.info", Version: "v1", Resource: "pizzas",
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return review.Status.Allowed
}

// A server remembers kube-apiserver's decisions as long as flags say.
func TestAuthorizationIsRemembered(t *testing.T) {
	framework.Long(t, "decisions expire")
	t.Parallel()
	const ttl = "--authorization-webhook-cache-%sauthorized-ttl=%s"
	long := framework.NewServer(t, cp, framework.Flags(fmt.Sprintf(ttl, "", "1h"), fmt.Sprintf(ttl, "un", "1h")))
	short := framework.NewServer(t, cp, framework.Flags(fmt.Sprintf(ttl, "", "1s"), fmt.Sprintf(ttl, "un", "1s")))
	require.NoError(t, long.Start(t.Context()))
	require.NoError(t, short.Start(t.Context()))
	framework.Kubectl(t, cp, "create", "role", "remembered", "--verb=list", "--resource=pizzas.restaurant.programming-kubernetes.info")
	const former, coming = "former-reader", "coming-reader"
	// A user with another certificate is asked about again.
	users := map[string]*rest.Config{former: framework.ConfigFor(t, cp, long, former), coming: framework.ConfigFor(t, cp, long, coming)}
	code := func(at *controlplane.Component, user string) int {
		t.Helper()
		config := rest.CopyConfig(users[user])
		config.Host = at.URL()
		code, _, err := framework.GetAs(t, config, framework.PizzasPath)
		require.NoError(t, err)
		return code
	}

	// One was allowed and is not any more, the other the reverse.
	framework.Kubectl(t, cp, "create", "rolebinding", former, "--role=remembered", "--user="+former)
	controlplane.Eventually(t, func() error {
		if !mayList(t, former) {
			return fmt.Errorf("%s is not allowed yet", former)
		}
		return nil
	})
	admin := httpClient(t, long)
	const reviews = `apiserver_delegated_authz_request_total{code="201"}`
	for _, server := range []*controlplane.Component{long, short} {
		require.Equal(t, http.StatusOK, code(server, former))
		require.Equal(t, http.StatusForbidden, code(server, coming))
	}
	require.InDelta(t, 2, metric(t, admin, long, reviews), 0)
	framework.Kubectl(t, cp, "delete", "rolebinding", former)
	framework.Kubectl(t, cp, "create", "rolebinding", coming, "--role=remembered", "--user="+coming)
	controlplane.Eventually(t, func() error {
		if mayList(t, former) || !mayList(t, coming) {
			return fmt.Errorf("kube-apiserver has not changed its mind yet")
		}
		return nil
	})

	const times = 20
	for range times {
		require.Equal(t, http.StatusOK, code(long, former))
		require.Equal(t, http.StatusForbidden, code(long, coming))
	}
	require.InDelta(t, 2, metric(t, admin, long, reviews), 0, "kube-apiserver has been asked again.")
	for user, want := range map[string]int{former: http.StatusForbidden, coming: http.StatusOK} {
		controlplane.Eventually(t, func() error {
			if got := code(short, user); got != want {
				return fmt.Errorf("%s still gets %d", user, got)
			}
			return nil
		})
	}
}

// auditPolicy records the users of requests for pizzas, and the answers.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    users: [system:apiserver] # The server's own parts.
  - level: Metadata
    resources: [{group: restaurant.programming-kubernetes.info, resources: [pizzas]}]
  - level: None
`

// kube-apiserver is asked no more often than flags allow. A request whose turn would come
// too late is refused, and its answer is recorded.
func TestAuthorizationIsLimited(t *testing.T) {
	t.Parallel()
	const burst = 3
	server := framework.NewServer(t, cp, framework.Flags("--authorization-qps=0.001", fmt.Sprintf("--authorization-burst=%d", burst), "--authorization-timeout=1s",
		"--authorization-webhook-cache-unauthorized-ttl=1h", "--audit-policy-file="+framework.File(t, auditPolicy), "--audit-log-path=audit.log"))
	require.NoError(t, server.Start(t.Context()))
	answersAt := func(path, user string) func() string {
		config := framework.ConfigFor(t, cp, server, user)
		client := framework.HTTPClient(t, config)
		return func() string { return answerOf(client.Get(config.Host + path)) }
	}
	answers := func(user string) func() string { return answersAt(framework.PizzasPath, user) }
	var known []func() string
	for i := range burst {
		known = append(known, answers(fmt.Sprintf("nobody-%d", i)))
	}
	for range 2 {
		for i, answer := range known {
			require.Equal(t, fmt.Sprintf(`403 pizzas.restaurant.programming-kubernetes.info is forbidden: User "nobody-%d" cannot list resource "pizzas" `+
				`in API group "restaurant.programming-kubernetes.info" in the namespace "default", Retry-After: `, i), answer())
		}
	}
	require.Equal(t, undecided, answers("one-too-many")())
	require.Equal(t, undecided, answersAt(framework.PizzasPath+"?watch=true", "one-too-many")())

	require.NoError(t, server.Stop())
	codes := map[string]int{}
	for _, event := range framework.AuditEvents(t, filepath.Join(server.Dir(), "audit.log"), "") {
		codes[fmt.Sprint(event.User.Username, " ", event.Verb, " ", event.Stage, " ", event.ResponseStatus.Code)]++
	}
	require.Equal(t, map[string]int{
		"nobody-0 list ResponseComplete 403":      2,
		"nobody-1 list ResponseComplete 403":      2,
		"nobody-2 list ResponseComplete 403":      2,
		"one-too-many list ResponseComplete 503":  1,
		"one-too-many watch ResponseStarted 503":  1,
		"one-too-many watch ResponseComplete 503": 1,
	}, codes)
}

// The reviews that requests wait for pass kube-apiserver's priorities. They once waited behind
// these requests until all had failed, as each of these users asked for its first pizza.
func TestReviewsPassPriorities(t *testing.T) {
	const users, group = 60, "system:serviceaccounts:default"
	crowded := controlplane.ForTest(t, controlplane.Config{
		KubeAPIServer:     controlplane.ComponentConfig{Flags: []string{"--max-requests-inflight=20", "--max-mutating-requests-inflight=10"}},
		ControllerManager: controlplane.ComponentConfig{Off: true},
	})
	require.NoError(t, fixture.Toppings("tomato")(t.Context(), crowded))
	_, err := framework.Restaurant(crowded).RestaurantV1().Pizzas("default").Create(t.Context(), framework.Pizza("margherita"), metav1.CreateOptions{})
	require.NoError(t, err)
	framework.Kubectl(t, crowded, "create", "role", "readers", "--verb=get", "--resource=pizzas.restaurant.programming-kubernetes.info")
	framework.Kubectl(t, crowded, "create", "rolebinding", "readers", "--role=readers", "--group="+group)
	var all sync.WaitGroup
	together := make(chan struct{})
	for i := range users {
		config, err := crowded.RESTConfigFor(fmt.Sprintf("system:serviceaccount:default:reader-%d", i), "system:serviceaccounts", group)
		require.NoError(t, err)
		client := framework.HTTPClient(t, config)
		require.Equal(t, "200", answerOf(client.Get(config.Host+"/version"))) // They are connected.
		all.Go(func() {
			<-together
			assert.Equal(t, "200", answerOf(client.Get(config.Host+framework.PizzasPath+"/margherita")))
		})
	}
	close(together)
	all.Wait()
}

// The agents of a DaemonSet share an account. A bound of watches by account once stopped them.
func TestInformersOfAnAccount(t *testing.T) {
	const informers = 1500
	admitReaders(t, cp.KubeAPIServer, "agents")
	config := framework.ConfigFor(t, cp, cp.KubeAPIServer, "agents")
	config.QPS = -1
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var synced []cache.InformerSynced
	for range informers {
		factory := externalversions.NewSharedInformerFactoryWithOptions(versioned.NewForConfigOrDie(config), 0, externalversions.WithNamespace(metav1.NamespaceDefault))
		synced = append(synced, factory.Restaurant().V1().Pizzas().Informer().HasSynced)
		factory.StartWithContext(ctx)
	}
	patience, cancel := context.WithTimeout(ctx, controlplane.Patience)
	defer cancel()
	require.True(t, cache.WaitForCacheSync(patience.Done(), synced...))
}
