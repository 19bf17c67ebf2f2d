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

// Package konnectivity tests networks in which neither kube-apiserver and the server
// nor the server and what it needs reach each other, but by Konnectivity.
package konnectivity

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
	"restaurant.programming-kubernetes.info/apiserver/test/network"
)

const (
	// guarded is the namespace in which a webhook is asked.
	guarded = "guarded"
)

// cluster is spread over four hosts, and only the hosts of the agents have a connection
// with more than one other.
type cluster struct {
	*controlplane.ControlPlane

	// control has kube-apiserver and all etcds, server the server, and webhook the webhook.
	control, server, webhook *network.Host
	// inward is the tunnel from kube-apiserver to the server, outward from the server to
	// all else.
	inward, outward *tunnel
	// spans is sent to when traces of the server arrive.
	spans  chan struct{}
	client versioned.Interface
}

// newCluster starts all of it.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{}
	c.control, c.server, c.webhook = network.ForTest(t, "10.0.0.1"), network.ForTest(t, "10.0.0.2"), network.ForTest(t, "10.0.0.3")
	inwardAgent, outwardAgent := network.ForTest(t, "10.0.0.4"), network.ForTest(t, "10.0.0.5")
	for _, agent := range []*network.Host{inwardAgent, outwardAgent} {
		require.NoError(t, network.Connect(c.control, agent))
		require.NoError(t, network.Connect(agent, c.server))
	}
	require.NoError(t, network.Connect(outwardAgent, c.webhook))

	c.ControlPlane = controlplane.ForTest(t, controlplane.Config{
		Host:              c.control,
		KubeAPIServer:     controlplane.ComponentConfig{Off: true},
		ControllerManager: controlplane.ComponentConfig{Off: true},
		APIServer:         controlplane.ServerConfig{Etcd: "storage", ComponentConfig: controlplane.ComponentConfig{Off: true, Host: c.server}},
	})
	c.inward = newTunnel(t, c.ControlPlane, "inward", c.control, inwardAgent)
	c.outward = newTunnel(t, c.ControlPlane, "outward", c.server, outwardAgent)
	// The server does not end well without its tunnel.
	t.Cleanup(func() { require.NoError(t, c.APIServer.Stop()) })
	c.KubeAPIServer.SetFlags(c.inward.egressFlag(t, "grpc.yaml"))
	c.APIServer.SetFlags(c.collectSpans(t), c.outward.egressFlag(t, "apiserver.yaml"))

	require.NoError(t, c.inward.start(t.Context()))
	require.NoError(t, c.outward.start(t.Context()))
	require.NoError(t, c.KubeAPIServer.Start(t.Context()))
	require.NoError(t, c.Component("storage").Start(t.Context()))
	require.NoError(t, c.Install(t.Context()))
	require.NoError(t, c.APIServer.Start(t.Context()))
	require.NoError(t, c.Register(t.Context(), c.APIServer))
	c.client = versioned.NewForConfigOrDie(c.RESTConfig())
	require.NoError(t, fixture.CreateToppings(t.Context(), c.client, "tomato"))
	return c
}

// TestEgress tests that each selection leads the server's connections through a tunnel. What the tunnel does with them
// is Konnectivity's and k8s.io/apiserver's.
func TestEgress(t *testing.T) {
	c := newCluster(t)
	t.Run("no other way", func(t *testing.T) {
		requireUnreachable(t, c.control, c.APIServer)
		requireUnreachable(t, c.server, c.KubeAPIServer)
		requireUnreachable(t, c.server, c.Component("storage"))
	})
	require.NotEmpty(t, c.inward.readSample(t, "http-connect.yaml").EgressSelections)
	t.Run("from the server", c.testOutward)
}

func requireUnreachable(t *testing.T, from *network.Host, component *controlplane.Component) {
	t.Helper()
	_, err := from.DialContext(t.Context(), "tcp", strings.TrimPrefix(component.URL(), "https://"))
	require.ErrorIs(t, err, syscall.ENETUNREACH)
}

// testOutward tests what the server itself connects to.
func (c *cluster) testOutward(t *testing.T) {
	c.guard(t)
	t.Run("webhook", func(t *testing.T) {
		err := c.order(t, c.APIServer)
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, `admission webhook "guard.example.com" denied the request: not here`)
	})
	for without, want := range map[string]string{
		"controlplane": `"Waiting for the cluster" reason="kube-apiserver at ` + c.KubeAPIServer.URL() + ` can't be reached: check that it runs, and the address in the file of --kubeconfig (Get \"` + c.KubeAPIServer.URL() + `/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication\": dial tcp ` + strings.TrimPrefix(c.KubeAPIServer.URL(), "https://") + `: connect: network is unreachable)"`,
		"etcd":         `"Waiting for etcd" reason="etcd at [` + c.Component("storage").URL() + `] does not answer`,
	} {
		t.Run("without "+without, func(t *testing.T) {
			server := c.addServerWithout(t, without)
			require.NoError(t, server.Launch())
			controlplane.Eventually(t, func() error {
				log, err := os.ReadFile(server.LogFile())
				require.NoError(t, err)
				return unless(strings.Contains(string(log), want), "the log does not say %s, but:\n%s", want, log)
			})
		})
	}
	t.Run("without cluster", func(t *testing.T) {
		server := c.addServerWithout(t, "cluster")
		require.NoError(t, server.Start(t.Context()))
		err := c.order(t, server)
		require.True(t, apierrors.IsInternalError(err), "%v", err)
		require.ErrorContains(t, err, `failed calling webhook "guard.example.com": failed to call webhook: Post "https://guard.default.svc:443/?timeout=10s": dial tcp `+c.webhook.Address()+`:443: connect: network is unreachable`)
	})
	t.Run("traces", func(t *testing.T) {
		select {
		case <-c.spans:
		case <-time.After(controlplane.Patience):
			require.Fail(t, "The server does not get through.")
		}
	})
}

// guard makes a webhook, in a Service, that denies every pizza in one namespace.
func (c *cluster) guard(t *testing.T) {
	t.Helper()
	kube := kubernetes.NewForConfigOrDie(c.RESTConfig())
	_, err := kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: guarded}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = kube.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "guard"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: c.webhook.Address()},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	listener, err := c.webhook.Listen("tcp", net.JoinHostPort(c.webhook.Address(), "443"))
	require.NoError(t, err)
	pair, err := c.PKI.ServingCA.Issue(controlplane.Certificate{Hosts: []string{"guard.default.svc"}})
	require.NoError(t, err)
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	require.NoError(t, err)
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		Handler: http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
			review := admissionv1.AdmissionReview{}
			if err := json.NewDecoder(in.Body).Decode(&review); err != nil || review.Request == nil {
				http.Error(out, "no AdmissionReview", http.StatusBadRequest)
				return
			}
			review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Code: http.StatusForbidden, Message: "not here"}}
			review.Request = nil
			out.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(out).Encode(review)
		}),
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { require.NoError(t, server.Close()) })

	_, err = kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "guard"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "guard.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				Service:  &admissionregistrationv1.ServiceReference{Namespace: "default", Name: "guard", Port: ptr.To[int32](443)},
				CABundle: c.PKI.ServingCA.CertPEM(),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{restaurantv1.SchemeGroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"pizzas"}},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: guarded}},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	controlplane.Eventually(t, func() error {
		return unless(c.order(t, c.APIServer) != nil, "the server does not know the webhook yet")
	})
}

// order orders a pizza that the webhook is asked about, at a server itself.
func (c *cluster) order(t *testing.T, at *controlplane.Component) error {
	t.Helper()
	_, err := versioned.NewForConfigOrDie(c.at(at)).RestaurantV1().Pizzas(guarded).Create(t.Context(), framework.Pizza("unwanted"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// at is an administrator's configuration, on the host of a server.
func (c *cluster) at(server *controlplane.Component) *rest.Config {
	config := c.RESTConfig()
	config.Host, config.Dial = server.URL(), c.server.DialContext
	return config
}

// addServer adds a server with these flags and variables.
func (c *cluster) addServer(t *testing.T, name string, flags []string, environment ...string) *controlplane.Component {
	t.Helper()
	server, err := c.NewAPIServer(name, controlplane.ServerConfig{
		Etcd:            "storage",
		ComponentConfig: controlplane.ComponentConfig{Host: c.server, Flags: flags, Env: environment},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	return server
}

// addServerWithout adds a server that lacks one of the selections.
func (c *cluster) addServerWithout(t *testing.T, selection string) *controlplane.Component {
	t.Helper()
	return c.addServer(t, "without-"+selection, []string{c.outward.egressFlag(t, "apiserver.yaml", selection)})
}

// unless is an error if the condition does not hold.
func unless(condition bool, format string, args ...any) error {
	if condition {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// collectSpans serves OTLP on the host of the webhook, as far as to see what is asked for. It returns the flag of a
// server that sends its spans there.
func (c *cluster) collectSpans(t *testing.T) (flag string) {
	t.Helper()
	c.spans = make(chan struct{}, 1)
	collector := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if method, _ := grpc.MethodFromServerStream(stream); method == "/opentelemetry.proto.collector.trace.v1.TraceService/Export" {
			select {
			case c.spans <- struct{}{}:
			default: // Once is enough.
			}
		}
		return status.Error(codes.Unimplemented, "not here")
	}))
	listener, err := c.webhook.Listen("tcp", net.JoinHostPort(c.webhook.Address(), "0"))
	require.NoError(t, err)
	go func() { _ = collector.Serve(listener) }()
	t.Cleanup(collector.Stop)
	config := filepath.Join(t.TempDir(), "tracing.yaml")
	writeFile(t, config, fmt.Appendf(nil, "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: %s\nsamplingRatePerMillion: 1000000\n", listener.Addr()))
	return "--tracing-config-file=" + config
}
