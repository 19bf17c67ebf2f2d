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

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission/plugin/restaurant/pizzatoppings"
	"restaurant.programming-kubernetes.info/apiserver/pkg/admission/plugin/restaurant/toppinginuse"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

const (
	// warmUp is how many requests of each sort are sent before any is measured.
	warmUp = 200
	// webhookPatience is how long a server may take to learn of the webhook.
	webhookPatience = time.Minute

	namespace = "default"
	topping   = "mozzarella"
)

// webhookLabels are those of the pizzas that the webhook is asked about.
var webhookLabels = map[string]string{"bench": "webhook"}

// A sort of requests.
type sort struct {
	what string
	// prepare, if set, comes before the request that is measured, the nth.
	prepare, send func(ctx context.Context, n int) error
}

// measureAdmission returns how long one client waits for answers of three servers.
// One is without the restaurant's admission plugins, one has them, and one has a
// webhook on this machine besides.
func measureAdmission(ctx context.Context, cp *controlplane.ControlPlane, config controlplane.ServerConfig, requests int) (_ []figure, err error) {
	// Controllers would go on working after the answer.
	config.Flags = append(slices.Clone(config.Flags), "--run-controllers=false")
	full, err := startServer(ctx, cp, "bench-plugins", config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, full.Stop()) }()
	config.Flags = append(slices.Clone(config.Flags), "--disable-admission-plugins="+pizzatoppings.PluginName+","+toppinginuse.PluginName)
	bare, err := startServer(ctx, cp, "bench-no-plugins", config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bare.Stop()) }()

	var asked atomic.Int64
	webhook, err := serveWebhook(cp, &asked)
	if err != nil {
		return nil, err
	}
	defer webhook.Close()
	if err := register(ctx, cp, webhook, &asked, bare.client, full.client); err != nil {
		return nil, err
	}

	// Both servers get equally many requests, as one that has more to do is faster.
	creations := []sort{
		{what: "create a pizza, without the restaurant's plugins", send: bare.createPizza("plain", nil)},
		{what: "create a pizza, with them", send: full.createPizza("plain", nil)},
		{what: "create a pizza, without them, with a webhook", send: bare.createPizza("webhook", webhookLabels)},
		{what: "create a pizza, with both", send: full.createPizza("webhook", webhookLabels)},
	}
	before := asked.Load()
	figures, durations, err := compare(ctx, creations, requests)
	if err != nil {
		return nil, err
	}
	if calls, pizzas := asked.Load()-before, 2*(warmUp+requests); calls != int64(pizzas) {
		return nil, fmt.Errorf("the webhook was asked %d times for %d pizzas", calls, pizzas)
	}
	figures = append(figures,
		figure{what: "create a pizza, added by the plugins", value: added(durations[1], durations[0])},
		figure{what: "create a pizza, added by the webhook", value: added(durations[3], durations[1])})

	deletions := []sort{
		{what: "delete a topping, without the restaurant's plugins", prepare: bare.createTopping, send: bare.deleteTopping},
		{what: fmt.Sprintf("delete a topping, with them and %d pizzas", 2*(warmUp+requests)), prepare: full.createTopping, send: full.deleteTopping},
	}
	more, durations, err := compare(ctx, deletions, max(requests/10, 1))
	if err != nil {
		return nil, err
	}
	return append(append(figures, more...), figure{what: "delete a topping, added by the plugins", value: added(durations[1], durations[0])}), nil
}

// A server with a client that talks to it directly.
type server struct {
	*controlplane.Component
	client versioned.Interface
}

func startServer(ctx context.Context, cp *controlplane.ControlPlane, name string, config controlplane.ServerConfig) (server, error) {
	component, err := cp.NewAPIServer(name, config)
	if err != nil {
		return server{}, err
	}
	if err := component.Start(ctx); err != nil {
		return server{}, err
	}
	direct := cp.RESTConfig()
	direct.Host = component.URL()
	client, err := versioned.NewForConfig(direct)
	if err != nil {
		return server{}, errors.Join(err, component.Stop())
	}
	if err := fixture.CreateToppings(ctx, client, topping); err != nil {
		return server{}, errors.Join(err, component.Stop())
	}
	return server{component, client}, nil
}

func (s server) createPizza(name string, labels map[string]string) func(context.Context, int) error {
	return func(ctx context.Context, n int) error {
		_, err := s.client.RestaurantV1().Pizzas(namespace).Create(ctx, &restaurantv1.Pizza{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, n), Labels: labels},
			Spec:       restaurantv1.PizzaSpec{Toppings: []restaurantv1.PizzaTopping{{Name: topping}}},
		}, metav1.CreateOptions{})
		return err
	}
}

func (s server) createTopping(ctx context.Context, n int) error {
	return fixture.CreateToppings(ctx, s.client, fmt.Sprintf("topping-%d", n))
}

func (s server) deleteTopping(ctx context.Context, n int) error {
	return s.client.RestaurantV1().Toppings().Delete(ctx, fmt.Sprintf("topping-%d", n), metav1.DeleteOptions{})
}

// serveWebhook starts a webhook that allows everything, and counts.
func serveWebhook(cp *controlplane.ControlPlane, asked *atomic.Int64) (*httptest.Server, error) {
	pair, err := cp.PKI.ServingCA.Issue(controlplane.Certificate{Hosts: []string{"127.0.0.1"}})
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, err
	}
	webhook := httptest.NewUnstartedServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(in.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(out, "this is no AdmissionReview", http.StatusBadRequest)
			return
		}
		asked.Add(1)
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		review.Request = nil
		out.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(out).Encode(review)
	}))
	webhook.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	webhook.StartTLS()
	return webhook, nil
}

// register makes the webhook known and waits until the servers of the clients ask it.
func register(ctx context.Context, cp *controlplane.ControlPlane, webhook *httptest.Server, asked *atomic.Int64, clients ...versioned.Interface) error {
	cluster, err := kubernetes.NewForConfig(cp.RESTConfig())
	if err != nil {
		return err
	}
	_, err = cluster.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "bench"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:         "bench.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &webhook.URL, CABundle: cp.PKI.ServingCA.CertPEM()},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{restaurant.GroupName}, APIVersions: []string{"*"}, Resources: []string{"pizzas"},
				},
			}},
			ObjectSelector:          &metav1.LabelSelector{MatchLabels: webhookLabels},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, webhookPatience, errors.New("a server does not ask the webhook"))
	defer cancel()
	probe := &restaurantv1.Pizza{ObjectMeta: metav1.ObjectMeta{Name: "probe", Labels: webhookLabels}, Spec: restaurantv1.PizzaSpec{Toppings: []restaurantv1.PizzaTopping{{Name: topping}}}}
	for _, client := range clients {
		for before := asked.Load(); asked.Load() == before; {
			if _, err := client.RestaurantV1().Pizzas(namespace).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				return errors.Join(context.Cause(ctx), err)
			}
		}
	}
	return nil
}

// compare sends requests of all sorts in turn, so that other work of this machine
// concerns all alike, and returns how long each took.
func compare(ctx context.Context, sorts []sort, requests int) ([]figure, [][]time.Duration, error) {
	durations := make([][]time.Duration, len(sorts))
	for n := range warmUp + requests {
		for i := range sorts {
			// Each sort comes after each other one equally often.
			i = (i + n) % len(sorts)
			if prepare := sorts[i].prepare; prepare != nil {
				if err := prepare(ctx, n); err != nil {
					return nil, nil, err
				}
			}
			began := time.Now()
			if err := sorts[i].send(ctx, n); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", sorts[i].what, err)
			}
			if n >= warmUp {
				durations[i] = append(durations[i], time.Since(began))
			}
		}
	}
	var figures []figure
	for i, sort := range sorts {
		figures = append(figures, figure{what: sort.what, value: quantiles(durations[i])})
	}
	return figures, durations, nil
}

// quantile returns the smallest duration that is not exceeded by so many percent of
// all, which must be sorted.
func quantile(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+99)/100-1]
}

// added formats by how much quantiles differ.
func added(with, without []time.Duration) string {
	return fmt.Sprintf("p50 %+.2f ms, p99 %+.2f ms", milliseconds(quantile(with, 50)-quantile(without, 50)), milliseconds(quantile(with, 99)-quantile(without, 99)))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
