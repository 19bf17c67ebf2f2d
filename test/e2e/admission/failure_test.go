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
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// serveAs starts a server on loopback with a certificate of a certificate authority.
func (s *scope) serveAs(authority *controlplane.CA, certificate controlplane.Certificate, handler http.Handler) *httptest.Server {
	s.t.Helper()
	pair, err := authority.Issue(certificate)
	require.NoError(s.t, err)
	loaded, err := tls.X509KeyPair(pair.Cert, pair.Key)
	require.NoError(s.t, err)
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{loaded}, MinVersion: tls.VersionTLS12}
	// That clients do not trust it is nothing to log.
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	s.t.Cleanup(server.Close)
	return server
}

// answering answers with a code and a text.
func answering(code int, contentType, text string) http.HandlerFunc {
	return func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", contentType)
		out.WriteHeader(code)
		_, _ = io.WriteString(out, text)
	}
}

// closing reads the request, writes a text to the connection, and closes it.
func closing(text string) http.HandlerFunc {
	return func(out http.ResponseWriter, in *http.Request) {
		_, _ = io.Copy(io.Discard, in.Body)
		connection, _, err := http.NewResponseController(out).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(connection, text)
		_ = connection.Close()
	}
}

// TestFailurePolicies shows the ways in which a webhook can fail to answer. The user is
// told why, or the request goes on, as the failure policy says.
func TestFailurePolicies(t *testing.T) {
	s := newScopeWithReferences(t)
	allowing := s.webhook(allow).server
	stranger, err := controlplane.NewCA("stranger")
	require.NoError(t, err)
	with := func(certificate controlplane.Certificate) *httptest.Server {
		return s.serveAs(cp.PKI.ServingCA, certificate, allowing.Config.Handler)
	}
	local := []string{"127.0.0.1"}
	closed := s.serve(nil)
	closed.Close()
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no dough","reason":"Conflict","code":409}`
	untrusted := `Post "URL?timeout=10s": tls: failed to verify certificate: x509: `

	cases := map[string]struct {
		server *httptest.Server
		// want is empty for what is no failure.
		want string
	}{
		"a refused connection":          {closed, `Post "URL?timeout=10s": dial tcp ADDRESS: connect: connection refused`},
		"another certificate authority": {s.serveAs(stranger, controlplane.Certificate{Hosts: local}, allowing.Config.Handler), untrusted + "certificate signed by unknown authority"},
		"another host":                  {with(controlplane.Certificate{Hosts: []string{"example.com"}}), untrusted + "cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs"},
		"another address":               {with(controlplane.Certificate{Hosts: []string{"127.0.0.2"}}), untrusted + "certificate is valid for 127.0.0.2, not 127.0.0.1"},
		"an expired certificate":        {with(controlplane.Certificate{Hosts: local, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}), untrusted + "certificate has expired or is not yet valid: current time TIME is after TIME"},
		"a future certificate":          {with(controlplane.Certificate{Hosts: local, NotBefore: time.Now().Add(time.Hour)}), untrusted + "certificate has expired or is not yet valid: current time TIME is before TIME"},
		"a certificate for clients":     {with(controlplane.Certificate{User: "127.0.0.1"}), untrusted + "certificate relies on legacy Common Name field, use SANs instead"},
		"no certificate":                {httptest.NewServer(allowing.Config.Handler), `Post "URL?timeout=10s": http: server gave HTTP response to HTTPS client`},

		"no http":                    {s.serve(closing("pizza\n")), `Post "URL?timeout=10s": net/http: HTTP/1.x transport connection broken: malformed HTTP response "pizza"`},
		"closing at once":            {s.serve(closing("")), `Post "URL?timeout=10s": EOF`},
		"closing inside the headers": {s.serve(closing("HTTP/1.1 200 OK\r\nContent-Type: appl")), `Post "URL?timeout=10s": net/http: HTTP/1.x transport connection broken: unexpected EOF`},
		"closing inside the body":    {s.serve(closing("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")), "unexpected error when reading response body. Please retry. Original error: unexpected EOF"},
		"closing inside a chunk":     {s.serve(closing("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{")), "unexpected error when reading response body. Please retry. Original error: unexpected EOF"},

		"code 500":               {s.serve(answering(500, "text/plain", "no oven")), `an error on the server ("no oven") has prevented the request from succeeding`},
		"code 503":               {s.serve(answering(503, "text/plain", "no oven")), "the server is currently unable to handle the request"},
		"code 500 and json":      {s.serve(answering(500, "application/json", "{}")), `an error on the server ("unknown") has prevented the request from succeeding`},
		"code 409 and why":       {s.serve(answering(409, "application/json", status)), "no dough"},
		"code 200 and why":       {s.serve(answering(200, "application/json", status)), "converting (v1.Status) to (v1.AdmissionReview): unknown conversion"},
		"code 401":               {s.serve(answering(401, "text/plain", "who?")), "the server has asked for the client to provide credentials"},
		"code 404":               {s.serve(answering(404, "text/plain", "where?")), "the server could not find the requested resource"},
		"code 418":               {s.serve(answering(418, "text/plain", "short and stout")), "the server responded with the status code 418 but did not return more information"},
		"code 204":               {s.serve(answering(204, "application/json", "")), "0-length response with status code: 204 and content type: application/json"},
		"protobuf":               {s.serve(answering(200, "application/vnd.kubernetes.protobuf", "k8s\x00")), "empty body"},
		"html":                   {s.serve(answering(200, "text/html", "<h1>Pizza</h1>")), `couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }`},
		"redirect 302":           {s.serve(http.RedirectHandler(allowing.URL+"/webhook", http.StatusFound)), "the server rejected our request for an unknown reason"},
		"redirect 307":           {s.serve(http.RedirectHandler(allowing.URL+"/webhook", http.StatusTemporaryRedirect)), ""},
		"redirect 308 to itself": {s.serve(http.RedirectHandler("/", http.StatusPermanentRedirect)), `Post "/": stopped after 10 redirects`},
	}
	cases["no certificate"].server.URL = strings.Replace(cases["no certificate"].server.URL, "http:", "https:", 1)
	t.Cleanup(cases["no certificate"].server.Close)

	clients := map[string]admissionregistrationv1.WebhookClientConfig{}
	for name, test := range cases {
		clients[name] = clientConfig(test.server)
	}
	s.registerCases("CREATE", clients)
	for name, test := range cases {
		for _, v := range variants {
			t.Run(name+"/"+v.sort+"/"+string(v.failurePolicy), func(t *testing.T) {
				err := s.createForCase(t, v.of(name))
				if v.failurePolicy == admissionregistrationv1.Ignore || test.want == "" {
					require.NoError(t, err)
					return
				}
				status := framework.RequireStatus(t, err, http.StatusInternalServerError, metav1.StatusReasonInternalError)
				said := strings.NewReplacer(*clients[name].URL, "URL", test.server.Listener.Addr().String(), "ADDRESS").Replace(status.Message)
				require.Equal(t, `Internal error occurred: failed calling webhook "`+v.of(name)+`": failed to call webhook: `+test.want, withoutAccidents(said))
			})
		}
	}
}

// TestEndlessAnswers shows that a webhook can't fill the server's memory.
func TestEndlessAnswers(t *testing.T) {
	s := newScope(t)
	endless := s.serve(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		for text := make([]byte, 1<<20); ; {
			if _, err := out.Write(text); err != nil {
				return
			}
		}
	}))
	validating := s.webhook(allow).validating(rule(on("CREATE"), "pizzas"))
	validating.ClientConfig = clientConfig(endless)
	s.registerValidating("endless", validating)
	_, err := s.pizzas("v1").Create(t.Context(), s.pizza("v1", "refused"), metav1.CreateOptions{})
	status := framework.RequireStatus(t, err, http.StatusInternalServerError, metav1.StatusReasonInternalError)
	require.Equal(t, `Internal error occurred: failed calling webhook "validating.example.com": failed to call webhook: `+
		"unexpected error when reading response body. Please retry. Original error: the answer is longer than 16777216 bytes", status.Message)
}

// TestWebhookTimeouts shows that a server waits for a webhook as long as its
// configuration says, but no longer than the request has left. The webhook is told
// how long.
func TestWebhookTimeouts(t *testing.T) {
	s := newScope(t)
	webhook := s.webhook(allow)
	var mutating []admissionregistrationv1.MutatingWebhook
	var validating []admissionregistrationv1.ValidatingWebhook
	for name, seconds := range map[string]*int32{"default": nil, "shortest": ptr.To[int32](2), "longest": ptr.To[int32](30)} {
		m := webhook.mutating(rule(on("CREATE"), "pizzas"))
		m.Name, m.ClientConfig, m.TimeoutSeconds = name+".mutating.example.com", at(webhook.server, name), seconds
		v := webhook.validating(rule(on("CREATE"), "pizzas"))
		v.Name, v.ClientConfig, v.TimeoutSeconds = name+".validating.example.com", at(webhook.server, name), seconds
		mutating, validating = append(mutating, m), append(validating, v)
	}
	s.registerMutating("timeouts", mutating...)
	s.registerValidating("timeouts", validating...)
	for name, test := range map[string]struct {
		timeout, shortest, byDefault, longest time.Duration
	}{
		"a request without a timeout": {0, 2 * time.Second, 10 * time.Second, 30 * time.Second},
		"a request of 25 seconds":     {25 * time.Second, 2 * time.Second, 10 * time.Second, 25 * time.Second},
		"a request of 9 seconds":      {9 * time.Second, 2 * time.Second, 9 * time.Second, 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			content, err := json.Marshal(s.pizza("v1", slug(name)))
			require.NoError(t, err)
			post := framework.Restaurant(cp).RestaurantV1().RESTClient().Post().Namespace(s.Namespace).Resource("pizzas").Body(content)
			if test.timeout != 0 {
				post.Param("timeout", test.timeout.String())
			}
			// On a busy machine, the time may be over before the webhooks have answered.
			var before int
			controlplane.Eventually(t, func() error {
				before = len(webhook.received())
				return post.Do(t.Context()).Error()
			})
			calls := webhook.received()[before:]
			require.GreaterOrEqual(t, len(calls), 6)
			for _, call := range calls {
				told, err := time.ParseDuration(call.http.URL.Query().Get("timeout"))
				require.NoError(t, err)
				sort := strings.TrimPrefix(call.http.URL.Path, "/")
				want := map[string]time.Duration{"shortest": test.shortest, "default": test.byDefault, "longest": test.longest}[sort]
				require.LessOrEqual(t, told, want, sort)
				if want == test.timeout {
					// Some of the request's time is over, but it is not one of the others.
					require.Greater(t, told, test.shortest, sort)
					continue
				}
				require.Equal(t, want, told, sort)
			}
		})
	}
}

// TestWebhookTimeoutRange shows that no webhook can be waited for longer than half a
// minute.
func TestWebhookTimeoutRange(t *testing.T) {
	s := newScope(t)
	webhook := s.webhook(allow).validating(rule(on("CREATE"), "pizzas"))
	for _, seconds := range []int32{0, 31} {
		webhook.TimeoutSeconds = &seconds
		_, err := framework.Kube(cp).AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: s.ID},
			Webhooks:   []admissionregistrationv1.ValidatingWebhook{webhook},
		}, metav1.CreateOptions{})
		status := framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		require.Equal(t, []metav1.StatusCause{{
			Type: metav1.CauseTypeFieldValueInvalid, Field: "webhooks[0].timeoutSeconds",
			Message: fmt.Sprintf("Invalid value: %d: the timeout value must be between 1 and 30 seconds", seconds),
		}}, status.Details.Causes)
	}
}

// hang answers when the caller does not wait any longer.
func hang(_ http.ResponseWriter, in *http.Request) {
	_, _ = io.Copy(io.Discard, in.Body) // Only then is the end of the connection noticed.
	<-in.Context().Done()
}

// TestHangingWebhooks shows that a webhook that does not answer in time has failed.
// A request whose time is over is answered under each failure policy.
func TestHangingWebhooks(t *testing.T) {
	framework.Long(t, "timeouts are waited for")
	s := newScope(t)
	hanging := s.serve(http.HandlerFunc(hang))
	reached := s.webhook(allow)
	var webhooks []admissionregistrationv1.MutatingWebhook
	for _, name := range []string{"fail", "ignore", "budget"} {
		w := reached.mutating(rule(on("CREATE"), "pizzas"))
		w.Name, w.ClientConfig, w.TimeoutSeconds = name+".hanging.example.com", clientConfig(hanging), ptr.To[int32](1)
		w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{framework.Label: s.ID, caseLabel: name}}
		if name != "fail" {
			w.FailurePolicy = ptr.To(admissionregistrationv1.Ignore)
		}
		if name == "budget" {
			w.TimeoutSeconds = ptr.To[int32](30)
		}
		webhooks = append(webhooks, w)
	}
	next := reached.mutating(rule(on("CREATE"), "pizzas"))
	next.TimeoutSeconds = ptr.To[int32](30)
	s.registerMutating("hanging", append(webhooks, next)...)

	// kube-apiserver ends a request in time, too, which is not what is tested here.
	direct := framework.Config(cp)
	direct.Host = cp.APIServer.URL()
	create := func(name, timeout string) error {
		content, err := json.Marshal(forCase(s.pizza("v1", name), name))
		require.NoError(t, err)
		return versioned.NewForConfigOrDie(direct).RestaurantV1().RESTClient().Post().Namespace(s.Namespace).Resource("pizzas").
			Param("timeout", timeout).Body(content).Do(t.Context()).Error()
	}
	status := framework.RequireStatus(t, create("fail", "20s"), http.StatusInternalServerError, metav1.StatusReasonInternalError)
	require.Equal(t, fmt.Sprintf(`Internal error occurred: failed calling webhook "fail.hanging.example.com": failed to call webhook: Post "%s/webhook?timeout=1s": context deadline exceeded`, hanging.URL), status.Message)
	require.Empty(t, reached.received())

	require.NoError(t, create("ignore", "20s"))
	calls := reached.received()
	require.Len(t, calls, 1)
	left, err := time.ParseDuration(calls[0].http.URL.Query().Get("timeout"))
	require.NoError(t, err)
	require.LessOrEqual(t, left, 19*time.Second)

	// The library ends a request whose time is over, too. If it does while this one is being
	// answered, it resets the stream.
	controlplane.Eventually(t, func() error {
		err = create("budget", "1s")
		if answer := apierrors.APIStatus(nil); !errors.As(err, &answer) {
			return fmt.Errorf("there is no answer: %w", err)
		}
		return nil
	})
	framework.RequireStatus(t, err, http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
	require.Len(t, reached.received(), 1)
}

// TestValidatingWebhooksRunSideBySide shows that validating webhooks do not wait for
// each other, so that their time does not add up.
func TestValidatingWebhooksRunSideBySide(t *testing.T) {
	s := newScope(t)
	const count = 5
	var calls atomic.Int32
	allCalled := make(chan struct{})
	webhook := s.webhook(func(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if calls.Add(1) == count {
			close(allCalled)
		}
		select {
		case <-allCalled:
		case <-t.Context().Done(): // The test has failed.
		}
		return allow(request)
	})
	var webhooks []admissionregistrationv1.ValidatingWebhook
	for i := range count {
		w := webhook.validating(rule(on("CREATE"), "pizzas"))
		w.Name = fmt.Sprintf("%d.validating.example.com", i)
		webhooks = append(webhooks, w)
	}
	s.registerValidating("side-by-side", webhooks...)
	s.createPizza("v1", "created")
	require.Len(t, webhook.received(), count)
}

// TestWebhooksAreCalledAgain shows that a webhook can ask to be called later.
func TestWebhooksAreCalledAgain(t *testing.T) {
	s := newScope(t)
	webhook := s.webhook(allow)
	var calls atomic.Int32
	busy := s.serve(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		if calls.Add(1) == 1 {
			out.Header().Set("Retry-After", "1")
			out.WriteHeader(http.StatusTooManyRequests)
			return
		}
		webhook.server.Config.Handler.ServeHTTP(out, in)
	}))
	validating := webhook.validating(rule(on("CREATE"), "pizzas"))
	validating.ClientConfig = clientConfig(busy)
	s.registerValidating("busy", validating)
	s.createPizza("v1", "created")
	require.Equal(t, int32(2), calls.Load())
	require.Len(t, webhook.received(), 1)
}
