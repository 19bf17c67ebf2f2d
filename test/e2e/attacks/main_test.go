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
// Package attacks has twelve attacks on a server in a container of 1 GiB, beside a neighbor who gets, lists and creates
// objects through kube-apiserver. docs/lab/attacks.md says what they do.
//
// "make test" has one of them for a second. "make nightly SUITE=attacks" has all of them, also on crd-apiserver and the webhook
// of custom resources. With ATTACKED=kube-apiserver, they attack kube-apiserver with these custom resources.
package attacks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

const (
	memoryLimit = 1 << 30 // of the program that is attacked
	menuPizzas  = 10_000  // in every list of the menu

	menuNamespace, attackedNamespace, neighborNamespace = "menu", "attacked", "neighborhood"

	stranger = "stranger" // has no permissions
	attacker = "attacker" // may use the menu and the attacked namespace
	neighbor = "neighbor" // may use another one
)

var (
	// cp is the control plane that all tests share.
	cp *controlplane.ControlPlane
	// server is attacked, and webhook, too, if there is one.
	server, webhook *controlplane.Component
	// containers are theirs, as far as they can be made here.
	containers []container
)

// shortAttack is the one that takes shortTime in "make test".
const shortAttack, shortTime = "bodies of 3 MiB", 4 * time.Second

func attackTime() time.Duration {
	if seconds, err := strconv.Atoi(os.Getenv("ATTACK_SECONDS")); err == nil {
		return time.Duration(seconds) * time.Second
	}
	return shortTime
}

func attacked() string { return os.Getenv("ATTACKED") }

func TestMain(m *testing.M) {
	if ordered := os.Getenv(orders); ordered != "" {
		if err := obey(ordered); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var config controlplane.Config
	if config.APIServer.Off = true; attacked() == "" {
		config.APIServer.ComponentConfig = contained("server")
	} else if attacked() == "kube-apiserver" {
		config.KubeAPIServer = contained("kube-apiserver")
	}
	controlplane.Main(m, &cp, config, serve, permit, stock)
}

func serve(ctx context.Context, cp *controlplane.ControlPlane) (err error) {
	cp.AfterTests(func() (err error) {
		for _, program := range []*controlplane.Component{server, webhook} {
			if program != nil {
				err = errors.Join(err, program.Stop())
			}
		}
		for _, container := range containers {
			err = errors.Join(err, os.Remove(container.dir))
		}
		return err
	})
	if server = cp.APIServer; attacked() == "" {
		return nil
	}
	if webhook, err = framework.DefineRestaurant(ctx, cp, contained("webhook")); err != nil {
		return err
	}
	if server = cp.KubeAPIServer; attacked() == "kube-apiserver" {
		return nil
	}
	if server, err = framework.StartCRDServer(ctx, cp, contained("crd-apiserver"), restaurant.GroupName); err != nil {
		return err
	}
	return framework.RegisterCRDServer(ctx, cp, server, restaurant.GroupName)
}

// container is a host whose programs have a cgroup's memory together.
type container struct {
	controlplane.Host
	dir string
}

// contained returns the configuration of a program in a container.
func contained(name string) controlplane.ComponentConfig {
	config := controlplane.ComponentConfig{Env: []string{fmt.Sprintf("GOMEMLIMIT=%d", memoryLimit)}} // As in the manifests.
	parent, limit := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil { // Version 2.
		parent, limit = "/sys/fs/cgroup", "memory.max"
	}
	dir := filepath.Join(parent, fmt.Sprint(name, "-", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err == nil {
		containers = append(containers, container{controlplane.Local(), dir})
		config.Host = containers[len(containers)-1]
		err = os.WriteFile(filepath.Join(dir, limit), []byte(strconv.Itoa(memoryLimit)), 0o644)
		if err == nil {
			return config
		}
	}
	fmt.Printf("No cgroup can be made in %s, so that nothing ends %s if it takes too much memory.\n", parent, name)
	return config
}

// Command returns a command that enters the cgroup before it runs the program.
func (c container) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	const enter = `echo $$ >"$0" && exec "$@"`
	return c.Host.Command(ctx, "/bin/sh", append([]string{"-c", enter, filepath.Join(c.dir, "cgroup.procs"), name}, args...)...)
}

// permit makes the namespaces, and lets users do what is said of them.
func permit(ctx context.Context, cp *controlplane.ControlPlane) error {
	client, meta := framework.Kube(cp), metav1.ObjectMeta{Name: "pizzas"}
	_, err := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{restaurant.GroupName}, Resources: []string{"pizzas"}, Verbs: []string{"*"}}},
	}, metav1.CreateOptions{})
	for namespace, user := range map[string]string{menuNamespace: attacker, attackedNamespace: attacker, neighborNamespace: neighbor} {
		_, made := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		_, bound := client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}, metav1.CreateOptions{})
		err = errors.Join(err, made, bound)
	}
	return err
}

// stock creates the pizzas.
func stock(ctx context.Context, cp *controlplane.ControlPlane) error {
	client := restaurantClient(framework.Config(cp))
	if err := fixture.CreateToppings(ctx, client, "tomato"); err != nil {
		return err
	}
	var all errgroup.Group
	all.SetLimit(16)
	create := func(namespace, name string) {
		all.Go(func() error {
			_, err := client.RestaurantV1().Pizzas(namespace).Create(ctx, framework.Pizza(name), metav1.CreateOptions{})
			return err
		})
	}
	create(attackedNamespace, "target")
	create(neighborNamespace, "mine")
	for n := range menuPizzas {
		if n < 100 || attackTime() > shortTime {
			create(menuNamespace, fmt.Sprint("pizza-", n))
		}
	}
	return all.Wait()
}

// restaurantClient speaks JSON, as custom resources do.
func restaurantClient(config *rest.Config) versioned.Interface {
	config = rest.CopyConfig(config)
	config.ContentType, config.QPS = runtime.ContentTypeJSON, -1
	return versioned.NewForConfigOrDie(config)
}

// experience is what the neighbor had during an attack.
type experience struct {
	times []time.Duration
	// refused is how many answers were 429 with Retry-After.
	refused int
	failed  []error
}

func (e experience) String() string {
	return fmt.Sprintf("%d requests, %d refused, %d failed, median %s, max. %s",
		len(e.times), e.refused, len(e.failed), e.median().Round(time.Millisecond), slices.Max(e.times).Round(time.Millisecond))
}

func (e experience) median() time.Duration {
	return slices.Sorted(slices.Values(e.times))[len(e.times)/2]
}

// live gets, lists and creates a pizza every half second, until the context ends. Its client repeats nothing.
func live(ctx context.Context, config *rest.Config) (had experience) {
	config = rest.CopyConfig(config)
	config.Wrap(func(delegate http.RoundTripper) http.RoundTripper {
		return framework.RoundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := delegate.RoundTrip(request)
			if err == nil && response.StatusCode == http.StatusTooManyRequests && response.Header.Get("Retry-After") != "" {
				had.refused++
				response.Header.Del("Retry-After")
			}
			return response, err
		})
	})
	pizzas, another := restaurantClient(config).RestaurantV1().Pizzas(neighborNamespace), framework.Pizza("")
	another.GenerateName = "another-"
	for ctx.Err() == nil {
		for _, request := range []func(context.Context) error{
			func(ctx context.Context) error { _, err := pizzas.Get(ctx, "mine", metav1.GetOptions{}); return err },
			func(ctx context.Context) error { _, err := pizzas.List(ctx, metav1.ListOptions{}); return err },
			func(ctx context.Context) error {
				_, err := pizzas.Create(ctx, another, metav1.CreateOptions{})
				return err
			},
		} {
			began, refused := time.Now(), had.refused
			err := request(context.WithoutCancel(ctx)) // One that has begun may end.
			had.times = append(had.times, time.Since(began))
			if err != nil && had.refused == refused {
				had.failed = append(had.failed, err)
			}
		}
		framework.Pause(ctx, 500*time.Millisecond)
	}
	return had
}
