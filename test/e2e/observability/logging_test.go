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

package observability

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// logLine is what all lines of a log in JSON have.
type logLine struct {
	Time    float64 `json:"ts"`
	Caller  string  `json:"caller"`
	Message string  `json:"msg"`
	Logger  string  `json:"logger"`
	Error   string  `json:"err"`
}

// parseLog fails unless every line is one.
func parseLog(t *testing.T, log []byte) []logLine {
	t.Helper()
	var lines []logLine
	for raw := range bytes.Lines(log) {
		var line logLine
		require.NoError(t, json.Unmarshal(raw, &line), "%s", raw)
		require.Greater(t, line.Time, 1e12, "%s", raw)
		require.Regexp(t, `^[^ ]+\.go:\d+$`, line.Caller, "%s", raw)
		require.NotEmpty(t, line.Message, "%s", raw)
		lines = append(lines, line)
	}
	return lines
}

// A server prints nothing but JSON in its life, its libraries included.
func TestLogsInJSON(t *testing.T) {
	framework.Long(t, "a server is started and stopped")
	t.Parallel()
	// A webhook that nobody answers, for the pizzas of this test.
	webhooks := kubernetes.NewForConfigOrDie(cp.RESTConfig()).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := webhooks.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "absent"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "absent.example.com",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")},
			ObjectSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{"logged": "json"}},
			FailurePolicy:           ptr.To(admissionregistrationv1.Ignore),
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{restaurant.GroupName}, APIVersions: []string{"*"}, Resources: []string{"pizzas"}},
			}},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, webhooks.Delete(context.Background(), "absent", metav1.DeleteOptions{})) // The test's own context has ended.
	})

	server := framework.NewServer(t, cp, framework.Flags("--logging-format=json", "-v=5"))
	require.NoError(t, server.Start(t.Context()))
	framework.Stock(t, cp, server)
	require.NoError(t, server.Stop())
	// The embedded etcd has something to say about this.
	require.NoError(t, os.WriteFile(filepath.Join(framework.DataDir(server), "etcd", "member", "wal", "notes.txt"), nil, 0o600))
	require.NoError(t, server.Start(t.Context()))
	controlplane.Eventually(t, func() error { // The server learns of webhooks in its own time.
		watched := framework.Pizza("")
		watched.GenerateName = "watched-"
		watched.Labels = map[string]string{"logged": "json"}
		if _, err := framework.ClientAt(t, cp, server).RestaurantV1().Pizzas("default").Create(t.Context(), watched, metav1.CreateOptions{}); err != nil {
			return err
		}
		log, err := os.ReadFile(server.LogFile())
		if err == nil && !bytes.Contains(log, []byte("absent.example.com")) {
			err = errors.New("no failure of the webhook has been logged")
		}
		return err
	})
	// The HTTP server of Go prints by itself.
	connection, err := net.Dial("tcp", strings.TrimPrefix(server.URL(), "https://"))
	require.NoError(t, err)
	_, err = connection.Write([]byte("this is no TLS at all"))
	require.NoError(t, err)
	framework.WaitForLog(t, server, "TLS handshake error")
	require.NoError(t, connection.Close())
	require.NoError(t, server.Stop())

	log, err := os.ReadFile(server.LogFile())
	require.NoError(t, err)
	lines := parseLog(t, log)
	for what, is := range map[string]func(logLine) bool{
		"the start":               func(l logLine) bool { return l.Message == "Starting" },
		"a request":               func(l logLine) bool { return l.Message == "HTTP" },
		"the embedded etcd":       func(l logLine) bool { return l.Logger == "etcd" && l.Message == "ignored file in WAL directory" },
		"the webhook":             func(l logLine) bool { return strings.Contains(l.Message, "absent.example.com") },
		"a connection":            func(l logLine) bool { return strings.Contains(l.Message, "TLS handshake error") },
		"the end of the listener": func(l logLine) bool { return strings.HasPrefix(l.Message, "Stopped listening on ") },
	} {
		found := false
		for _, line := range lines {
			found = found || is(line)
		}
		require.True(t, found, "There is nothing about %s.", what)
	}
	for _, line := range lines {
		require.False(t, line.Logger == "etcd" && line.Message == "setting up serving from embedded etcd failed.", "An orderly end is reported as a failure.")
	}
}

func TestFailureToStartInJSON(t *testing.T) {
	t.Parallel()
	code, output := framework.Execute(t, cp, "apiserver", "--logging-format=json", "--kubeconfig="+cp.Kubeconfig(), "--data-dir=")
	require.Equal(t, 1, code)
	lines := parseLog(t, []byte(output))
	last := lines[len(lines)-1]
	require.Equal(t, "command failed", last.Message)
	require.Contains(t, last.Error, "--data-dir")
}

// A client that gives its requests up is no failure of the server: nothing counts or audits
// one. Alerts once fired for such a client.
func TestRequestsThatAreGivenUp(t *testing.T) {
	t.Parallel()
	const each = 40
	policy := framework.File(t, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, omitStages: [RequestReceived]}]\n")
	server := framework.NewServer(t, cp, framework.Flags("--audit-policy-file="+policy, "--audit-log-path=audit.log", "--run-controllers=false"))
	require.NoError(t, server.Start(t.Context()))
	framework.Stock(t, cp, server)
	admin := framework.AdminConfig(t, cp, server)
	client := framework.HTTPClient(t, admin)
	const one = framework.PizzasPath + "/margherita"
	pizza := `{"apiVersion":"restaurant.programming-kubernetes.info/v1","kind":"Pizza","metadata":{"name":"margherita"},"spec":{"toppings":[{"name":"tomato"}]}}`
	code, err := codeOf(admin, http.MethodPost, framework.PizzasPath, pizza)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, code)

	var all sync.WaitGroup
	for name, request := range map[string]struct{ method, path, contentType, body string }{
		"get":               {http.MethodGet, one, "", ""},
		"list":              {http.MethodGet, framework.PizzasPath, "", ""},
		"list from etcd":    {http.MethodGet, framework.PizzasPath + "?limit=1", "", ""},
		"watch":             {http.MethodGet, framework.PizzasPath + "?watch=true", "", ""},
		"patch":             {http.MethodPatch, one, "application/merge-patch+json", `{"metadata":{"labels":{"a":"b"}}}`},
		"apply":             {http.MethodPatch, one + "?fieldManager=a&force=true", "application/apply-patch+yaml", pizza},
		"bake":              {http.MethodPost, one + "/bake", "application/json", `{"spec":{"count":1}}`},
		"dry run":           {http.MethodPost, framework.PizzasPath + "?dryRun=All", "application/json", strings.ReplaceAll(pizza, "margherita", "other")},
		"delete":            {http.MethodDelete, framework.PizzasPath + "/other", "", ""},
		"delete collection": {http.MethodDelete, framework.PizzasPath + "?labelSelector=none=none", "", ""},
	} {
		all.Go(func() {
			for i := range each {
				ctx, leave := context.WithTimeout(t.Context(), time.Duration(i)*200*time.Microsecond)
				req, err := http.NewRequestWithContext(ctx, request.method, admin.Host+request.path, strings.NewReader(request.body))
				if err != nil {
					assert.Fail(t, err.Error(), name)
					leave()
					return
				}
				req.Header.Set("Content-Type", request.contentType)
				if response, err := client.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, response.Body) // It is given up.
					_ = response.Body.Close()
				}
				leave()
			}
		})
	}
	all.Wait()
	_, metrics := framework.Get(t, cp, server, "/metrics")
	require.NoError(t, server.Stop())
	require.Empty(t, regexp.MustCompile(`apiserver_request_total\{code="5[^}]*resource="pizzas".*`).FindAllString(metrics, -1))
	codes := map[int32]int{}
	for _, event := range framework.AuditEvents(t, filepath.Join(server.Dir(), "audit.log"), framework.PizzasPath) {
		codes[event.ResponseStatus.Code]++
		assert.Less(t, event.ResponseStatus.Code, int32(http.StatusInternalServerError), event.RequestURI)
	}
	t.Log(codes)
}
