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
// Package attacks replays what was found to bring the server down. There are floods of
// frames, requests that cost much more than they look, and clients that do not read or
// write. The server has as much memory as a small container, and has to stay within it,
// while others go on.
//
// Each attack takes a second, and is sent to the server directly. "make test-attacks" lets each
// take a minute, and sends those that kube-apiserver would forward through it, too. It demands
// that /readyz answers in time, and prints a table.
package attacks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// cp is the control plane that all tests share.
var cp *controlplane.ControlPlane

const (
	// pizzas are stored before the attacks, each with an annotation of pizzaBytes.
	pizzas     = 1000
	pizzaBytes = 16 << 10

	menuNamespace      = "menu"      // of the pizzas
	attackedNamespace  = "attacked"  // in which an attacker may write
	bystanderNamespace = "bystander" // of somebody else

	nobody = "attacker-nobody" // has no permissions
	reader = "attacker-reader" // may read all pizzas
	writer = "attacker-writer" // may write in a namespace
	// labeller may, too. The server remembers the writes of a user, which count for that user's next
	// attack.
	labeller  = "attacker-labeller"
	bystander = "bystander"
	// account is what the names of the ServiceAccounts begin with that may write.
	account, accounts = "attacker-", 5
	// otherNamespaces have a ServiceAccount each that may write in the same namespace.
	otherNamespaces = 12
)

// target is a program that is attacked.
type target struct {
	*controlplane.Component
	// limit is how much memory it may have.
	limit int64
	// container keeps it to that, or is nil if none can be made here.
	container *container
}

// server is attacked; webhook is attacked, too, where it converts and judges custom resources.
var server, webhook = target{limit: 512 << 20}, target{limit: 256 << 20}

// contained is the configuration of a program with the target's limit.
func (t *target) contained(name string) controlplane.ComponentConfig {
	// As in the manifests.
	config := controlplane.ComponentConfig{Env: []string{fmt.Sprintf("GOMEMLIMIT=%d", t.limit)}}
	var err error
	if t.container, err = newContainer(name, t.limit); err == nil {
		config.Host = t.container
	} else {
		fmt.Printf("No cgroup can be made, so that nothing but the resident memory of the %s tells whether it has enough: %v\n", name, err)
	}
	return config
}

// leave stops the program and removes its container.
func (t *target) leave() error {
	if t.container == nil {
		return nil
	}
	return errors.Join(t.Stop(), t.container.remove())
}

func TestMain(m *testing.M) {
	if os.Getenv(orders) != "" {
		if err := obey(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	config := controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Off: true}}
	if !framework.WithCRDServer() {
		config.ComponentConfig = server.contained("server")
	}
	controlplane.Main(m, &cp, controlplane.Config{APIServer: config}, serve, createToppings, permit, stock)
}

// patternDefinition is of a kind whose objects have many elements that can be invalid, or have defaults.
func patternDefinition() string {
	definition := `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: patterns.restaurant.programming-kubernetes.info
spec:
  group: restaurant.programming-kubernetes.info
  names: {kind: Pattern, plural: patterns}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                pattern: {type: array, items: {type: string, pattern: ^a$}}
                defaulted:
                  type: array
                  items:
                    type: object
                    properties:
                      text: {type: string, default: ` + strings.Repeat("x", 1<<10) + `}
`
	for i := range 20 {
		definition += fmt.Sprintf("                      n%d: {type: integer, default: 1}\n", i)
	}
	return definition
}

// serve has the server that is attacked run.
func serve(ctx context.Context, cp *controlplane.ControlPlane) (err error) {
	server.Component = cp.APIServer
	cp.AfterTests(func() error { return errors.Join(server.leave(), webhook.leave()) })
	if !framework.WithCRDServer() {
		return nil
	}
	if webhook.Component, err = framework.DefineRestaurant(ctx, cp, webhook.contained("webhook")); err != nil {
		return err
	}
	patterns := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(patternDefinition()), patterns); err != nil {
		return err
	}
	if err := framework.Apply(ctx, cp, []*unstructured.Unstructured{patterns}); err != nil {
		return err
	}
	server.Component, err = framework.StartCRDServer(ctx, cp, server.contained("crd-apiserver"), restaurant.GroupName)
	if err != nil {
		return err
	}
	return framework.RegisterCRDServer(ctx, cp, server.Component, restaurant.GroupName)
}

func createToppings(ctx context.Context, cp *controlplane.ControlPlane) error {
	return fixture.CreateToppings(ctx, restaurantClient(framework.Config(cp)), "tomato")
}

// restaurantClient speaks JSON, as custom resources do.
func restaurantClient(config *rest.Config) versioned.Interface {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeJSON
	return versioned.NewForConfigOrDie(config)
}

// perAttack is how long each attack takes, and whether this is the long form of the test.
func perAttack(t *testing.T) (duration time.Duration, long bool) {
	t.Helper()
	text, long := os.LookupEnv("ATTACK_SECONDS")
	if !long {
		return time.Second, false
	}
	seconds, err := strconv.Atoi(text)
	require.NoError(t, err, "ATTACK_SECONDS must be a number of seconds")
	return time.Duration(seconds) * time.Second, true
}

// permit makes the namespaces, and lets users do what their names say.
func permit(ctx context.Context, cp *controlplane.ControlPlane) error {
	client := framework.Kube(cp)
	group := framework.GroupPath[len("/apis/"):]
	for _, name := range []string{menuNamespace, attackedNamespace, bystanderNamespace} {
		if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for _, role := range []struct {
		user, group, namespace string
		verbs                  []string
	}{
		{reader, reader, menuNamespace, []string{"get", "list", "watch"}},
		{writer, "system:serviceaccounts", attackedNamespace, []string{"*"}},
		{labeller, labeller, attackedNamespace, []string{"*"}},
		{bystander, bystander, bystanderNamespace, []string{"*"}},
	} {
		meta := metav1.ObjectMeta{Name: role.user, Namespace: role.namespace}
		if _, err := client.RbacV1().Roles(role.namespace).Create(ctx, &rbacv1.Role{
			ObjectMeta: meta,
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{"pizzas", "pizzas/track", "pizzas/bake", "pizzas/scale", "patterns"}, Verbs: role.verbs}},
		}, metav1.CreateOptions{}); err != nil {
			return err
		}
		if _, err := client.RbacV1().RoleBindings(role.namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.user},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: role.user},
				{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: role.group}},
		}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for i := range otherNamespaces {
		if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(account, i)}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for _, of := range append(serviceAccounts(accounts, 0), serviceAccounts(0, otherNamespaces)...) {
		if _, err := client.CoreV1().ServiceAccounts(of.Namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: of.Name}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// serviceAccounts are those of one namespace, and one of each of others.
func serviceAccounts(ofOne, others int) (all []types.NamespacedName) {
	for i := range ofOne {
		all = append(all, types.NamespacedName{Namespace: attackedNamespace, Name: fmt.Sprint(account, i)})
	}
	for i := range others {
		all = append(all, types.NamespacedName{Namespace: fmt.Sprint(account, i), Name: account + "0"})
	}
	return all
}
