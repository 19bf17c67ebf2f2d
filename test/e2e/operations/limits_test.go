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
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

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

// The cluster's rules of priority and fairness hold for this server, too.
func TestPrioritiesOfTheCluster(t *testing.T) {
	t.Parallel()
	const glutton = "glutton"
	framework.Kubectl(t, cp, "create", "role", glutton, "--verb=list", "--resource=pizzas.restaurant.programming-kubernetes.info")
	framework.Kubectl(t, cp, "create", "rolebinding", glutton, "--role="+glutton, "--user="+glutton)

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
	limited := framework.ConfigFor(t, cp, cp.APIServer, glutton)
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
// too late is refused, and its answer is recorded. So is one with yet another random token.
func TestAuthorizationIsLimited(t *testing.T) {
	t.Parallel()
	const burst = 3
	server := framework.NewServer(t, cp, framework.Flags("--authorization-qps=0.001", fmt.Sprintf("--authorization-burst=%d", burst), "--authorization-timeout=1s", "--max-new-tokens-per-client=1",
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

	answered := map[string]int{}
	for i := range 30 {
		config := rest.AnonymousClientConfig(framework.AdminConfig(t, cp, server))
		config.BearerToken = fmt.Sprintf("guessed-%d", i)
		got, err := framework.Send(config, http.MethodGet, "/version", "", "")
		require.NoError(t, err)
		answered[got]++
	}
	const unknown, tooMany = "401 Unauthorized, Retry-After: ", "429 this client presents too many bearer tokens that are not known to be valid, Retry-After: 1"
	require.Equal(t, 30, answered[unknown]+answered[tooMany], "%v", answered)
	require.GreaterOrEqual(t, answered[unknown], 10, "%v", answered)
	require.Positive(t, answered[tooMany], "%v", answered)
	require.Contains(t, known[0](), "403 ", "Others are refused, too.")

	require.NoError(t, server.Stop())
	codes := map[string]int{}
	for _, event := range framework.AuditEvents(t, filepath.Join(server.Dir(), "audit.log"), "") {
		codes[fmt.Sprint(event.User.Username, " ", event.Verb, " ", event.Stage, " ", event.ResponseStatus.Code)]++
	}
	require.Equal(t, map[string]int{
		"nobody-0 list ResponseComplete 403":      3,
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
