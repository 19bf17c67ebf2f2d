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

// Package remote tests the server's own way to the cluster through an HTTP proxy.
package remote

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
	"restaurant.programming-kubernetes.info/apiserver/test/network"
)

// TestHTTPProxy puts an HTTP proxy between everybody. "make nightly SUITE=remote" runs tests of test/e2e/api through SSH.
//
//	client ─── proxy ─── cluster        kube-apiserver
//	           │   │        └─ server   is connected to, but has no way back
//	      outside  └───────────┘  │
//	                              └─ a webhook behind a Service's cluster IP
func TestHTTPProxy(t *testing.T) {
	tinyproxy, err := exec.LookPath("tinyproxy")
	if err != nil {
		t.Skip(err, "- install Debian's package tinyproxy")
	}
	const clusterIP = "10.96.0.50"
	host := func(address string) *network.Host { return network.ForTest(t, address) }
	client, proxy, cluster, server, outside, inside := host("10.0.0.1"), host("10.0.0.2"), host("10.0.0.3"), host("10.0.0.4"), host("10.0.0.5"), host(clusterIP)
	// The server sees kube-apiserver come from an address at which it does not listen.
	front, err := cluster.At("10.0.0.6")
	require.NoError(t, err)
	for _, cable := range [][2]*network.Host{{client, proxy}, {cluster, proxy}, {server, proxy}, {outside, proxy}, {front, server}, {server, inside}} {
		require.NoError(t, network.Connect(cable[0], cable[1]))
	}

	const proxyURL = "http://user:secret@10.0.0.2:8888"
	config := controlplane.Config{Host: cluster, Client: controlplane.ClientConfig{Host: client, ProxyURL: proxyURL}}
	config.APIServer.Off = true
	config.ControllerManager.Off = true
	cp := controlplane.ForTest(t, config)
	kubeAPIServer := net.JoinHostPort(cluster.Address(), strconv.Itoa(cp.KubeAPIServer.Port()))
	proxyProgram := runProxy(t, cp, tinyproxy, proxy, cp.KubeAPIServer.Port(), cp.Etcd.Port(), 443)
	require.NoError(t, cp.Install(t.Context()))

	// A name is what one would expect to be enough for webhooks with a Service.
	trapped := newProxiedServer(t, cp, server, "trapped", "", "HTTPS_PROXY="+proxyURL, "NO_PROXY=.svc,.cluster.local")

	t.Run("there is no other way", func(t *testing.T) {
		for _, from := range []*network.Host{client, server} {
			_, err := from.DialContext(t.Context(), "tcp", kubeAPIServer)
			require.ErrorContains(t, err, "network is unreachable")
		}
	})
	t.Run("for the server, to kube-apiserver", func(t *testing.T) {
		// That it is ready shows that it got through.
		log, err := os.ReadFile(proxyProgram.LogFile())
		require.NoError(t, err)
		require.Regexp(t, `Connect \(file descriptor \d+\): 10\.0\.0\.4\n`, string(log))
		require.NotContains(t, string(log), "CONNECT 10.0.0.4:", "The server uses the proxy for itself.")
	})

	registerWebhook := func(t *testing.T, name, clientConfig string) {
		t.Helper()
		ca, err := json.Marshal(cp.PKI.ServingCA.CertPEM())
		require.NoError(t, err)
		kubectl(t, cp, fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":%[1]q},
			"webhooks":[{"name":"%[1]s.example.com","clientConfig":{%[2]s,"caBundle":%[3]s},"sideEffects":"None","admissionReviewVersions":["v1"],
			"rules":[{"apiGroups":["restaurant.programming-kubernetes.info"],"apiVersions":["*"],"operations":["CREATE"],"resources":["pizzas"]}],
			"objectSelector":{"matchLabels":{"webhook":%[1]q}}}]}`, name, clientConfig, ca))
	}
	// ask creates a pizza until the server knows of the webhook.
	ask := func(t *testing.T, name, want string) {
		t.Helper()
		controlplane.Eventually(t, func() error {
			cmd := cp.Kubectl(t.Context(), "create", "--dry-run=server", "--filename=-")
			cmd.Stdin = strings.NewReader(`{"apiVersion":"restaurant.programming-kubernetes.info/v1","kind":"Pizza","metadata":{"name":"` + name + `","labels":{"webhook":"` + name + `"}},"spec":{"toppings":[{"name":"tomato"}]}}`)
			if output, _ := cmd.CombinedOutput(); !strings.Contains(string(output), want) {
				return fmt.Errorf("kubectl says %s", output)
			}
			return nil
		})
	}
	serveWebhook(t, cp, outside, outside.Address())
	registerWebhook(t, "outside", `"url":"https://10.0.0.5/"`)
	serveWebhook(t, cp, inside, "hook.default.svc")
	kubectl(t, cp, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"hook","namespace":"default"},"spec":{"clusterIP":"`+clusterIP+`","ports":[{"port":443}]}}`)
	kubectl(t, cp, `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"hook","namespace":"default","labels":{"kubernetes.io/service-name":"hook"}},
		"addressType":"IPv4","endpoints":[{"addresses":["`+clusterIP+`"]}],"ports":[{"port":443}]}`)
	registerWebhook(t, "inside", `"service":{"namespace":"default","name":"hook"}`)
	const outsideReached = `admission webhook "outside.example.com" denied the request: from 10.0.0.2`

	t.Run("for the server, to a webhook outside the cluster", func(t *testing.T) { ask(t, "outside", outsideReached) })
	t.Run("for the server, to a webhook inside the cluster, without its address in NO_PROXY", func(t *testing.T) {
		ask(t, "inside", `failed calling webhook "inside.example.com": failed to call webhook: Post "https://hook.default.svc:443/?timeout=10s": Unable to connect`)
		require.Equal(t, "warning: by the environment of this command, requests to kube-apiserver (10.96.0.1:443), the webhooks of the Service default/hook ("+clusterIP+":443)"+
			" go through the proxy of HTTPS_PROXY: add 10.96.0.1,"+clusterIP+" to NO_PROXY", diagnosis(t, cp, server, "proxy", "HTTPS_PROXY="+proxyURL, "NO_PROXY=.svc,.cluster.local"))
	})
	require.NoError(t, trapped.Stop())

	t.Run("for the server, with the range of Services in NO_PROXY", func(t *testing.T) {
		environment := []string{"HTTPS_PROXY=" + proxyURL, "NO_PROXY=.svc,.cluster.local,10.96.0.0/16"}
		newProxiedServer(t, cp, server, "excepted", "etcd", environment...)
		ask(t, "inside", `admission webhook "inside.example.com" denied the request: from 10.0.0.4`)
		ask(t, "outside", outsideReached)
		require.Equal(t, "ok: no proxy is between the server and the cluster", diagnosis(t, cp, server, "proxy", environment...))
		// The doctor connects without a proxy.
		require.Contains(t, diagnosis(t, cp, server, "webhooks", environment...), "skipped: the webhook outside.example.com of the ValidatingWebhookConfiguration outside is not looked at: its address can't be reached from here")
	})
	t.Run("for the server, to etcd", func(t *testing.T) {
		log, err := os.ReadFile(proxyProgram.LogFile())
		require.NoError(t, err)
		require.Contains(t, string(log), fmt.Sprintf("CONNECT 10.0.0.3:%d ", cp.Etcd.Port()))
	})
}

// kubectl creates what the input says.
func kubectl(t *testing.T, cp *controlplane.ControlPlane, input string) {
	t.Helper()
	cmd := cp.Kubectl(t.Context(), "create", "--filename=-")
	cmd.Stdin = strings.NewReader(input)
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)
}

// runProxy starts tinyproxy, which connects to these ports only, for clients with a
// password.
func runProxy(t *testing.T, cp *controlplane.ControlPlane, tinyproxy string, host *network.Host, ports ...int) *controlplane.Component {
	t.Helper()
	lines := []string{"Port 8888", "Listen " + host.Address(), "LogLevel Connect", "BasicAuth user secret"}
	for _, port := range ports {
		lines = append(lines, fmt.Sprintf("ConnectPort %d", port))
	}
	path := filepath.Join(t.TempDir(), "tinyproxy.conf")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	proxy, err := cp.NewProgram("tinyproxy", controlplane.Program{
		Binary: tinyproxy, Args: []string{"-d", "-c", path}, Host: host,
		Check: func(ctx context.Context) error {
			conn, err := host.DialContext(ctx, "tcp", net.JoinHostPort(host.Address(), "8888"))
			if err != nil {
				return err
			}
			return conn.Close()
		},
	})
	require.NoError(t, err)
	require.NoError(t, proxy.Start(t.Context()))
	return proxy
}

// newProxiedServer starts a server with an etcd, see controlplane.ServerConfig, and these
// variables, and has kube-apiserver use it.
func newProxiedServer(t *testing.T, cp *controlplane.ControlPlane, host *network.Host, name, etcd string, environment ...string) *controlplane.Component {
	t.Helper()
	server, err := cp.NewAPIServer(name, controlplane.ServerConfig{Etcd: etcd, ComponentConfig: controlplane.ComponentConfig{
		Host: host, Env: environment, Flags: []string{"--run-controllers=false"},
	}})
	require.NoError(t, err)
	require.NoError(t, server.Start(t.Context()))
	require.NoError(t, cp.Register(t.Context(), server))
	require.NoError(t, fixture.CreateToppings(t.Context(), versioned.NewForConfigOrDie(cp.RESTConfig()), "tomato"))
	return server
}

// serveWebhook serves a webhook on port 443 that denies everything and says from where
// it was asked.
func serveWebhook(t *testing.T, cp *controlplane.ControlPlane, host *network.Host, name string) {
	t.Helper()
	issued, err := cp.PKI.ServingCA.Issue(controlplane.Certificate{User: "webhook", Hosts: []string{name}})
	require.NoError(t, err)
	certificate, err := tls.X509KeyPair(issued.Cert, issued.Key)
	require.NoError(t, err)
	listener, err := host.Listen("tcp", net.JoinHostPort(host.Address(), "443"))
	require.NoError(t, err)
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
		Handler: http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
			var review admissionv1.AdmissionReview
			if err := json.NewDecoder(in.Body).Decode(&review); err != nil || review.Request == nil {
				http.Error(out, fmt.Sprint("no AdmissionReview: ", err), http.StatusBadRequest)
				return
			}
			from, _, _ := net.SplitHostPort(in.RemoteAddr)
			review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "from " + from}}
			_ = json.NewEncoder(out).Encode(review)
		}),
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close() })
}

// diagnosis is what a check of "apiserver doctor" finds in an environment.
func diagnosis(t *testing.T, cp *controlplane.ControlPlane, host *network.Host, check string, environment ...string) string {
	t.Helper()
	cmd := host.Command(t.Context(), framework.Program(t, cp, "apiserver"), "doctor", "--kubeconfig="+cp.Kubeconfig(), "--output=json")
	cmd.Env = slices.Concat(cp.Kubectl(t.Context()).Env, environment)
	output, err := cmd.Output()
	var findings struct {
		Results []struct{ Check, Status, Cause, Fix string }
	}
	require.NoError(t, json.Unmarshal(output, &findings), "%v: %s", err, output)
	for _, finding := range findings.Results {
		if finding.Check == check {
			return strings.TrimSuffix(finding.Status+": "+finding.Cause+": "+finding.Fix, ": ")
		}
	}
	require.Failf(t, "no finding", "about %s: %s", check, output)
	return ""
}
