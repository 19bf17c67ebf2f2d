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
	"bufio"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// metrics are the values of the server's metrics, by name and labels as they are
// written in the text that Prometheus reads.
func metrics(t *testing.T) map[string]float64 {
	t.Helper()
	config := framework.Config(cp)
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	response, err := client.Get(cp.APIServer.URL() + "/metrics")
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	values := map[string]float64{}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		series, text, found := strings.Cut(lines.Text(), "} ")
		if !found || strings.HasPrefix(series, "#") {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		require.NoError(t, err, lines.Text())
		values[series+"}"] = value
	}
	require.NoError(t, lines.Err())
	return values
}

// TestWebhookMetrics shows how the calls of webhooks are counted, by their outcome.
func TestWebhookMetrics(t *testing.T) {
	s := newScopeWithReferences(t)
	closed := s.serve(nil)
	closed.Close()
	answers := map[string]string{
		"allowing": review(`"allowed":true`),
		"denying":  review(`"allowed":false,"status":{"code":451}`),
		"lying":    review(`"allowed":false,"status":{"code":999}`),
		"garbled":  patched(`[{"op":"remove","path":"/nothing"}]`),
	}
	server := s.respond(func(name string, _ *admissionv1.AdmissionRequest) string { return answers[name] })
	clients := map[string]admissionregistrationv1.WebhookClientConfig{s.Name("absent"): clientConfig(closed)}
	for name := range answers {
		clients[s.Name(name)] = at(server, name)
	}
	s.registerCases("CREATE", clients)
	counts := func() map[string]float64 {
		values := metrics(t)
		maps.DeleteFunc(values, func(series string, _ float64) bool {
			return !strings.Contains(series, s.ID) || strings.Contains(series, "_bucket{") || strings.Contains(series, "_sum{")
		})
		return values
	}
	require.Empty(t, counts())

	type outcome struct {
		code      int
		rejected  bool
		errorType string
	}
	allowed, failedOpen := outcome{code: 200}, outcome{code: 503}
	callError := outcome{503, true, "calling_webhook_error"}
	serverError := outcome{0, true, "apiserver_internal_error"}
	always := func(o outcome) map[variant]outcome {
		return map[variant]outcome{mutatingFail: o, mutatingIgnore: o, validatingFail: o, validatingIgnore: o}
	}
	want := map[string]float64{}
	for name, outcomes := range map[string]map[variant]outcome{
		"allowing": always(allowed),
		"denying":  always(outcome{451, true, "no_error"}),
		// Higher codes than this are not told apart.
		"lying":  always(outcome{600, true, "no_error"}),
		"absent": {mutatingFail: callError, mutatingIgnore: failedOpen, validatingFail: callError, validatingIgnore: failedOpen},
		// An error in applying a patch is the server's: no failure policy covers it.
		"garbled": {mutatingFail: serverError, mutatingIgnore: serverError, validatingFail: callError, validatingIgnore: failedOpen},
	} {
		for v, outcome := range outcomes {
			const times = 2
			webhook := v.of(s.Name(name))
			for range times {
				_, err := s.pizzas("v1").Create(t.Context(), forCase(s.pizza("v1", "dry"), webhook), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				require.Equal(t, outcome.rejected, err != nil, "%s: %v", webhook, err)
			}
			sort := map[string]string{"mutating": "admit", "validating": "validating"}[v.sort]
			want[fmt.Sprintf(`apiserver_admission_webhook_request_total{code="%d",name=%q,operation="CREATE",rejected="%t",type=%q}`, outcome.code, webhook, outcome.rejected, sort)] = times
			want[fmt.Sprintf(`apiserver_admission_webhook_admission_duration_seconds_count{name=%q,operation="CREATE",rejected="%t",type=%q}`, webhook, outcome.rejected, sort)] = times
			if outcome.rejected {
				want[fmt.Sprintf(`apiserver_admission_webhook_rejection_count{error_type=%q,name=%q,operation="CREATE",rejection_code="%d",type=%q}`, outcome.errorType, webhook, outcome.code, sort)] = times
			}
			if outcome == failedOpen {
				want[fmt.Sprintf(`apiserver_admission_webhook_fail_open_count{name=%q,type=%q}`, webhook, sort)] = times
			}
		}
	}
	require.Equal(t, want, counts())
}

// TestAdmissionMetrics shows that the duration of each step and of each plugin is
// measured. Tests run side by side, so that others may be counted, too.
func TestAdmissionMetrics(t *testing.T) {
	s := newScope(t)
	before := metrics(t)
	const times = 3
	for range times {
		_, err := s.pizzas("v1").Create(t.Context(), s.pizza("v1", "dry"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		require.NoError(t, err)
	}
	after := metrics(t)
	series := []string{
		`apiserver_admission_step_admission_duration_seconds_count{operation="CREATE",rejected="false",type="admit"}`,
		`apiserver_admission_step_admission_duration_seconds_count{operation="CREATE",rejected="false",type="validate"}`,
	}
	for plugin, steps := range map[string][]string{
		"NamespaceLifecycle":         {"admit"},
		"PizzaToppings":              {"admit", "validate"},
		"MutatingAdmissionPolicy":    {"admit"},
		"MutatingAdmissionWebhook":   {"admit"},
		"ValidatingAdmissionPolicy":  {"validate"},
		"ValidatingAdmissionWebhook": {"validate"},
		"ResourceQuota":              {"validate"},
	} {
		for _, step := range steps {
			series = append(series, fmt.Sprintf(`apiserver_admission_controller_admission_duration_seconds_count{name=%q,operation="CREATE",rejected="false",type=%q}`, plugin, step))
		}
	}
	for _, series := range series {
		require.GreaterOrEqual(t, after[series]-before[series], float64(times), series)
	}
}
