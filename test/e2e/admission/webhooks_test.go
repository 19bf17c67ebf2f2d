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

package admission

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// An answer is what a webhook says to a request.
type answer func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse

func allow(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

func deny(status metav1.Status) answer {
	return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &status}
	}
}

// patch answers with a JSON patch.
func patch(operations string) answer {
	return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(operations), PatchType: ptr.To(admissionv1.PatchTypeJSONPatch)}
	}
}

// A call is what a webhook has received: the path is /SORT/NAME.
type call struct {
	path, host string
	request    *admissionv1.AdmissionRequest
}

// endpoints are a server of webhooks, by HTTPS on loopback.
type endpoints struct {
	*httptest.Server

	mu    sync.Mutex
	calls []call
}

// serve starts a server that answers all requests alike until the test ends. Its certificate
// is also for the hosts.
func (s *scope) serve(answer answer, hosts ...string) *endpoints {
	s.t.Helper()
	e := &endpoints{}
	e.Server = s.serveHTTP(func(out http.ResponseWriter, in *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(in.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(out, fmt.Sprintf("this is no AdmissionReview of a request: %v", err), http.StatusBadRequest)
			return
		}
		e.mu.Lock()
		e.calls = append(e.calls, call{in.URL.Path, in.Host, review.Request})
		e.mu.Unlock()
		review.Response = answer(review.Request)
		review.Response.UID = review.Request.UID
		review.Request = nil
		out.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(out).Encode(review)
	}, hosts...)
	return e
}

func (s *scope) serveHTTP(handler http.HandlerFunc, hosts ...string) *httptest.Server {
	s.t.Helper()
	pair, err := cp.PKI.ServingCA.Issue(controlplane.Certificate{Hosts: append([]string{"127.0.0.1"}, hosts...)})
	require.NoError(s.t, err)
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	require.NoError(s.t, err)
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	s.t.Cleanup(server.Close)
	return server
}

// take returns the calls since it was called last, in their order.
func (e *endpoints) take() []call {
	e.mu.Lock()
	defer e.mu.Unlock()
	calls := e.calls
	e.calls = nil
	return calls
}

// A webhook is a mutating one, or a validating one, which has the same fields but for
// the policy of its reinvocation.
type webhook = admissionregistrationv1.MutatingWebhook

// webhook returns a webhook for the requests of the test's user.
func (s *scope) webhook(name string, server *httptest.Server, rules ...admissionregistrationv1.RuleWithOperations) webhook {
	return webhook{
		Name:                    name + ".example.com",
		ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: ptr.To(server.URL + "/SORT/" + name), CABundle: cp.PKI.ServingCA.CertPEM()},
		Rules:                   rules,
		MatchConditions:         []admissionregistrationv1.MatchCondition{{Name: "user", Expression: fmt.Sprintf("request.userInfo.username == '%s'", s.ID)}},
		SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"},
	}
}

// register registers webhooks of a sort, Mutating or Validating, until the test ends, and
// returns when they are in effect.
func (s *scope) register(sort string, webhooks ...webhook) {
	s.t.Helper()
	const inEffect = "the webhooks are in effect"
	name := strings.ToLower(sort)
	marker := s.webhook("marker", s.serve(deny(metav1.Status{Message: inEffect})).Server, rule("CREATE", "toppings"))
	marker.ObjectSelector = s.selected(name)
	webhooks = append(slices.Clone(webhooks), marker)
	for i := range webhooks {
		if url := webhooks[i].ClientConfig.URL; url != nil {
			webhooks[i].ClientConfig.URL = ptr.To(strings.Replace(*url, "SORT", name, 1))
		}
	}
	s.createRegistration(sort+"WebhookConfiguration", name, &admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: webhooks})
	s.awaitRefusal(name, inEffect)
}

// Webhooks are called for the requests that they select.
func TestSelection(t *testing.T) {
	s := newScope(t)
	beside := s.beside("x")
	pizzas := func(s *scope, version string) func() error {
		return func() error {
			_, err := s.pizzas(version).Create(t.Context(), s.pizza(version, version), metav1.CreateOptions{DryRun: dryRun})
			return err
		}
	}
	patched := func(content, subresource string) func() error {
		return func() error {
			_, err := s.pizzas("v1").Patch(t.Context(), s.Name("existing"), types.MergePatchType, []byte(content), metav1.PatchOptions{DryRun: dryRun}, subresource)
			return err
		}
	}
	s.createPizza("v1", "existing")
	beside.ID = s.ID // The same user.
	requests := []struct {
		name string
		send func() error
	}{
		{"v1", pizzas(s, "v1")},
		{"v1alpha1", pizzas(s, "v1alpha1")},
		{"beside", pizzas(beside, "v1")},
		{"status", patched(`{"status":{"replicas":1}}`, "status")},
		{"scale", patched(`{"spec":{"replicas":3}}`, "scale")},
		{"topping", func() error {
			_, err := s.toppings("v1").Create(t.Context(), s.object("Topping", "v1", "a"), metav1.CreateOptions{DryRun: dryRun})
			return err
		}},
	}
	all, created := rule("*", "*/*"), rule("CREATE", "pizzas")
	tests := map[string]struct {
		rule   admissionregistrationv1.RuleWithOperations
		change func(*webhook)
		want   []string
	}{
		"everything":          {all, nil, []string{"v1", "v1alpha1", "beside", "status", "scale", "topping"}},
		"an-operation":        {rule("UPDATE", "*/*"), nil, []string{"status", "scale"}},
		"a-subresource":       {rule("*", "pizzas/scale"), nil, []string{"scale"}},
		"a-version":           {of(created, "v1alpha1"), func(w *webhook) { w.MatchPolicy = ptr.To(admissionregistrationv1.Exact) }, []string{"v1alpha1"}},
		"equivalent-versions": {of(created, "v1alpha1"), nil, []string{"v1", "v1alpha1", "beside"}},
		"objects":             {all, func(w *webhook) { w.ObjectSelector = s.selected("v1alpha1") }, []string{"v1alpha1"}},
		// What is in no namespace is not excluded.
		"namespaces": {all, func(w *webhook) {
			w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: beside.Namespace}}
		}, []string{"beside", "topping"}},
		"a-condition": {all, func(w *webhook) {
			w.MatchConditions = append(w.MatchConditions, conditions("object.kind == 'Scale' && oldObject.spec.replicas == 1")...)
		}, []string{"scale"}},
		"what-the-user-may": {created, func(w *webhook) {
			w.MatchConditions = append(w.MatchConditions, conditions("authorizer.requestResource.check('eat').allowed()")...)
		}, []string{"v1", "v1alpha1", "beside"}},
		"what-others-may-not": {created, func(w *webhook) {
			w.MatchConditions = append(w.MatchConditions, conditions("authorizer.serviceAccount('default', 'nobody').group('"+restaurant.GroupName+"').resource('pizzas').check('eat').allowed()")...)
		}, nil},
	}
	server := s.serve(allow)
	var webhooks []webhook
	for name, test := range tests {
		w := s.webhook(name, server.Server, test.rule)
		if test.change != nil {
			test.change(&w)
		}
		webhooks = append(webhooks, w)
	}
	s.register("Mutating", webhooks...)
	s.register("Validating", webhooks...)
	got := map[string][]string{}
	for _, request := range requests {
		server.take()
		require.NoError(t, request.send(), request.name)
		for _, call := range server.take() {
			got[call.path] = append(got[call.path], request.name)
		}
	}
	for name, test := range tests {
		require.Equal(t, test.want, got["/mutating/"+name], name)
		require.Equal(t, test.want, got["/validating/"+name], name)
	}
}

// What webhooks change, in their own version, comes back in the version of the request. It is
// defaulted, completed by PizzaToppings, and validated, like a user's.
func TestMutations(t *testing.T) {
	s := newScope(t)
	const again = `[{"op":"add","path":"/metadata/labels/changed","value":"yes"}]`
	tests := map[string]struct {
		version, patch string
		// toppings are what a pizza with tomato gets, or want is the refusal.
		toppings []string
		want     string
	}{
		"v1alpha1": {"v1alpha1", `[{"op":"add","path":"/spec/toppings/-","value":"basil"},{"op":"add","path":"/spec/toppings/-","value":"basil"}]`, []string{"tomato", "basil×2"}, ""},
		"v1":       {"v1", `[{"op":"add","path":"/spec/toppings/-","value":{"name":"basil"}}]`, []string{"tomato", "basil"}, ""},
		"emptied":  {"v1beta1", `[{"op":"remove","path":"/spec"}]`, []string{"mozzarella", "tomato", "salami"}, ""},
		"unknown":  {"v1", `[{"op":"replace","path":"/spec/toppings/0/name","value":"tar"}]`, nil, `spec.toppings[tar]: Not found: "tar"`},
		"invalid":  {"v1", `[{"op":"replace","path":"/spec/replicas","value":1001}]`, nil, "spec.replicas: Invalid value: 1001: must be less than or equal to 1000"},
		"again":    {"v1", again, []string{"tomato"}, ""},
	}
	var webhooks []webhook
	seen := s.serve(patch(again))
	first := s.webhook("first", seen.Server, rule("CREATE", "pizzas"))
	first.ObjectSelector, first.ReinvocationPolicy = s.selected("again"), ptr.To(admissionregistrationv1.IfNeededReinvocationPolicy)
	webhooks = append(webhooks, first)
	for name, test := range tests {
		answer := patch(test.patch)
		if name == "again" {
			answer = patch(`[{"op":"add","path":"/metadata/annotations","value":{"changed":"later"}}]`)
		}
		w := s.webhook(name, s.serve(answer).Server, of(rule("CREATE", "pizzas"), test.version))
		w.ObjectSelector = s.selected(name)
		webhooks = append(webhooks, w)
	}
	s.register("Mutating", webhooks...)
	for name, test := range tests {
		for _, version := range framework.Versions() {
			t.Run(name+"/"+version, func(t *testing.T) {
				created, err := s.pizzas(version).Create(t.Context(), s.pizza(version, name), metav1.CreateOptions{DryRun: dryRun})
				if test.want != "" {
					status := framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
					require.Equal(t, fmt.Sprintf("Pizza.restaurant.programming-kubernetes.info %q is invalid: %s", s.Name(name), test.want), status.Message)
					return
				}
				require.NoError(t, err)
				require.Equal(t, framework.Toppings(version, test.toppings...), get(created, "spec", "toppings"))
				if name == "again" {
					// The first webhook sees what the later one has done.
					calls := seen.take()
					require.Len(t, calls, 2)
					var object metav1.PartialObjectMetadata
					require.NoError(t, json.Unmarshal(calls[1].request.Object.Raw, &object))
					require.Equal(t, map[string]string{"changed": "later"}, object.Annotations)
				}
			})
		}
	}
}

// A webhook that fails to answer refuses the request, or lets it go on, as its failurePolicy says.
func TestFailures(t *testing.T) {
	s := newScope(t)
	closed := s.serveHTTP(nil)
	closed.Close()
	hang := make(chan struct{})
	hanging := s.serveHTTP(func(http.ResponseWriter, *http.Request) { <-hang })
	t.Cleanup(func() { close(hang) })
	tests := map[string]struct {
		server *httptest.Server
		want   string
	}{
		"closed":  {closed, `Post "URL?timeout=10s": dial tcp ADDRESS: connect: connection refused`},
		"hanging": {hanging, `Post "URL?timeout=1s": context deadline exceeded`},
		"broken":  {s.serveHTTP(func(out http.ResponseWriter, _ *http.Request) { out.WriteHeader(http.StatusServiceUnavailable) }), "the server is currently unable to handle the request"},
		"endless": {s.serveHTTP(func(out http.ResponseWriter, _ *http.Request) {
			for text := make([]byte, 1<<20); ; {
				if _, err := out.Write(text); err != nil {
					return
				}
			}
		}), "unexpected error when reading response body. Please retry. Original error: the answer is longer than 16777216 bytes"},
	}
	policies := map[string]admissionregistrationv1.FailurePolicyType{"fail": admissionregistrationv1.Fail, "ignore": admissionregistrationv1.Ignore}
	for _, sort := range []string{"mutating", "validating"} {
		var webhooks []webhook
		for name, test := range tests {
			for suffix, policy := range policies {
				w := s.webhook(name+"-"+suffix, test.server, rule("CREATE", "pizzas"))
				w.ObjectSelector = s.selected(sort + "-" + name + "-" + suffix)
				w.FailurePolicy = &policy
				if name == "hanging" {
					w.TimeoutSeconds = ptr.To[int32](1)
				}
				webhooks = append(webhooks, w)
			}
		}
		s.register(strings.ToUpper(sort[:1])+sort[1:], webhooks...)
		for name, test := range tests {
			create := func(policy string) error {
				_, err := s.pizzas("v1").Create(t.Context(), s.pizza("v1", sort+"-"+name+"-"+policy), metav1.CreateOptions{})
				return err
			}
			status := framework.RequireStatus(t, create("fail"), http.StatusInternalServerError, metav1.StatusReasonInternalError)
			want := strings.NewReplacer("URL", test.server.URL+"/"+sort+"/"+name+"-fail", "ADDRESS", test.server.Listener.Addr().String()).Replace(test.want)
			require.Equal(t, fmt.Sprintf(`Internal error occurred: failed calling webhook "%s-fail.example.com": failed to call webhook: %s`, name, want), status.Message)
			require.NoError(t, create("ignore"), name)
		}
	}
}

// The Service of a webhook is reached as kube-apiserver reaches it, without the cluster's DNS.
func TestServices(t *testing.T) {
	s := newScope(t)
	host := func(service string) string { return service + "." + s.Namespace + ".svc" }
	server := s.serve(allow, host("external"), host("cluster-ip"))
	url := strings.Split(server.Listener.Addr().String(), ":")
	var port int32
	_, err := fmt.Sscan(url[1], &port)
	require.NoError(t, err)
	// A cluster IP that is an address of this machine. A new range may not be in use yet.
	cidrs := framework.Kube(cp).NetworkingV1().ServiceCIDRs()
	_, err = cidrs.Create(t.Context(), &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: s.ID}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"127.0.0.0/29"}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.Cleanup(func(ctx context.Context) error { return cidrs.Delete(ctx, s.ID, metav1.DeleteOptions{}) })
	external := corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}
	for name, spec := range map[string]corev1.ServiceSpec{
		"external": external, "misnamed": external,
		"cluster-ip": {ClusterIP: "127.0.0.1", Ports: []corev1.ServicePort{{Port: port}}},
	} {
		controlplane.Eventually(t, func() error {
			_, err := framework.Kube(cp).CoreV1().Services(s.Namespace).Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
			return err
		})
	}
	tests := map[string]struct {
		port int32
		// want is the end of the error.
		want string
	}{
		"external":   {port, ""},
		"cluster-ip": {port, ""},
		"misnamed":   {port, fmt.Sprintf("x509: certificate is valid for %s, %s, not %s", host("external"), host("cluster-ip"), host("misnamed"))},
		"missing":    {443, `service "missing" not found`},
		// It is the kube-apiserver that this server knows, with the credentials for it.
		"kubernetes": {443, `User "system:serviceaccount:restaurant-system:apiserver" cannot create resource "secrets" in API group "" in the namespace "default"`},
	}
	var webhooks []webhook
	for name, test := range tests {
		w := s.webhook(name, server.Server, rule("CREATE", "pizzas"))
		w.ClientConfig.URL = nil
		w.ClientConfig.Service = &admissionregistrationv1.ServiceReference{Namespace: s.Namespace, Name: name, Port: &test.port, Path: ptr.To("/api/v1/namespaces/default/secrets")}
		if name == "kubernetes" {
			w.ClientConfig.Service.Namespace, w.ClientConfig.CABundle = metav1.NamespaceDefault, nil
		}
		w.ObjectSelector = s.selected(name)
		webhooks = append(webhooks, w)
	}
	s.register("Validating", webhooks...)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := s.pizzas("v1").Create(t.Context(), s.pizza("v1", name), metav1.CreateOptions{})
			calls := server.take()
			if test.want != "" {
				status := framework.RequireStatus(t, err, http.StatusInternalServerError, metav1.StatusReasonInternalError)
				require.True(t, strings.HasSuffix(status.Message, test.want), status.Message)
				require.Empty(t, calls)
				return
			}
			require.NoError(t, err)
			require.Len(t, calls, 1)
			require.Equal(t, fmt.Sprintf("%s:%d/api/v1/namespaces/default/secrets", host(name), port), calls[0].host+calls[0].path)
		})
	}
}
