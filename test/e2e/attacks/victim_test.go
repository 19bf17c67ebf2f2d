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
package attacks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// stock creates the pizzas.
func stock(ctx context.Context, cp *controlplane.ControlPlane) error {
	client := restaurantClient(framework.Config(cp)).RestaurantV1()
	create := func(namespace, name string, bytes int) error {
		pizza := framework.Pizza(name)
		pizza.Labels = map[string]string{"name": name}
		pizza.Annotations = map[string]string{"recipe": strings.Repeat("a", bytes)}
		_, err := client.Pizzas(namespace).Create(ctx, pizza, metav1.CreateOptions{})
		return err
	}
	var all sync.WaitGroup
	const clients = 8
	errs := make([]error, clients)
	for c := range clients {
		all.Go(func() {
			for i := c; i < pizzas && errs[c] == nil; i += clients {
				errs[c] = create(menuNamespace, fmt.Sprintf("pizza-%d", i), pizzaBytes)
			}
		})
	}
	all.Wait()
	return errors.Join(errors.Join(errs...), create(attackedNamespace, "target", 0), create(bystanderNamespace, "mine", 0))
}

// memory is what the process of the server has of it.
type memory struct{ peak int64 }

// watchMemory looks at the memory of the server until the context ends.
func watchMemory(ctx context.Context, pid int) <-chan memory {
	result := make(chan memory, 1)
	go func() {
		var seen memory
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				result <- seen
				return
			case <-tick.C:
				if now, err := residentBytes(pid); err == nil {
					seen.peak = max(seen.peak, now)
				}
			}
		}
	}()
	return result
}

// residentBytes is the memory that a container could not take back from a process: that of
// files, such as etcd's database, it could.
func residentBytes(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	match := regexp.MustCompile(`RssAnon:\s+(\d+) kB`).FindSubmatch(status)
	if match == nil {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	kilobytes, err := strconv.ParseInt(string(match[1]), 10, 64)
	return kilobytes << 10, err
}

// experience is what a user of the server had during an attack.
type experience struct {
	requests int
	// refused is how often the answer was 429 or 503, which clients repeat.
	refused int
	slowest time.Duration
	times   []time.Duration
	// failures are answers that blame the server, and connections that broke.
	failures []string
}

func (e experience) String() string {
	return fmt.Sprintf("%d, %d refused, %d failed, median %s, max. %s", e.requests, e.refused, len(e.failures), e.median().Round(time.Millisecond), e.slowest.Round(time.Millisecond))
}

func (e experience) median() time.Duration {
	sorted := slices.Sorted(slices.Values(e.times))
	return sorted[len(sorted)/2]
}

// use makes requests, one after the other, until the context ends.
func use(ctx context.Context, requests ...func() error) <-chan experience {
	result := make(chan experience, 1)
	go func() {
		var had experience
		for ctx.Err() == nil {
			for _, request := range requests {
				start := time.Now()
				err := request()
				had.requests++
				took := time.Since(start)
				had.slowest, had.times = max(had.slowest, took), append(had.times, took)
				switch status := (*apierrors.StatusError)(nil); {
				case err == nil, apierrors.IsConflict(err):
				case apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err):
					had.refused++
				case !errors.As(err, &status) || status.ErrStatus.Code >= http.StatusInternalServerError:
					had.failures = append(had.failures, err.Error())
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
		result <- had
	}()
	return result
}

// lookReady asks whether the server is ready, as the readiness probe of
// artifacts/deploy/server does: without credentials and each time over a new connection, from the node's address.
func lookReady(t *testing.T, config *rest.Config) func() error {
	t.Helper()
	config = rest.AnonymousClientConfig(config)
	config.Dial = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, nodeAddress)}}).DialContext
	transport, err := rest.TransportFor(config)
	require.NoError(t, err)
	client := &http.Client{Transport: transport}
	return func() error {
		defer client.CloseIdleConnections()
		response, err := client.Get(config.Host + "/readyz?exclude=etcd&exclude=etcd-readiness")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if response.StatusCode != http.StatusOK {
			return errors.Join(fmt.Errorf("/readyz answers %s: %s", response.Status, body), err)
		}
		return err
	}
}

// lookAvailable asks kube-apiserver whether it finds the group available. If it does not, nobody can
// use the group, and no namespace of the cluster can be deleted.
func lookAvailable(ctx context.Context, cp *controlplane.ControlPlane) func() error {
	services := aggregator.NewForConfigOrDie(framework.Config(cp)).ApiregistrationV1().APIServices()
	return func() error {
		service, err := services.Get(ctx, "v1."+restaurant.GroupName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if available := helper.GetAPIServiceConditionByType(service, apiregistrationv1.Available); available == nil || available.Status != apiregistrationv1.ConditionTrue {
			return fmt.Errorf("the APIService is not available: %+v", available)
		}
		return nil
	}
}

// readAndWrite reads, lists and writes the pizza of the bystander, whose client repeats nothing.
func readAndWrite(ctx context.Context, t *testing.T, config *rest.Config) []func() error {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.Wrap(func(delegate http.RoundTripper) http.RoundTripper { return unrepeated{delegate} })
	pizzas := restaurantClient(config).RestaurantV1().Pizzas(bystanderNamespace)
	mine := framework.Pizza("mine")
	return []func() error{
		func() error {
			pizza, err := pizzas.Get(ctx, mine.Name, metav1.GetOptions{})
			if err == nil {
				mine = pizza
			}
			return err
		},
		func() error { _, err := pizzas.List(ctx, metav1.ListOptions{}); return err },
		func() error {
			mine.Labels = map[string]string{"at": strconv.FormatInt(time.Now().UnixNano(), 10)}
			_, err := pizzas.Update(ctx, mine, metav1.UpdateOptions{})
			return err
		},
	}
}

// unrepeated takes from answers what makes clients repeat a request.
type unrepeated struct{ http.RoundTripper }

func (u unrepeated) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := u.RoundTripper.RoundTrip(req)
	if err == nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// big is a pizza nearly as large as etcd stores one.
func big(name string, size int) []byte {
	pizza := framework.Pizza(name)
	pizza.SetGroupVersionKind(restaurantv1.SchemeGroupVersion.WithKind("Pizza"))
	content, _ := json.Marshal(pizza)
	owner := fmt.Sprintf(`"ownerReferences":[{"apiVersion":"v1","kind":"A","name":"a","uid":%q}],"name"`, strings.Repeat("x", size))
	return bytes.Replace(content, []byte(`"name"`), []byte(owner), 1)
}
