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
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
