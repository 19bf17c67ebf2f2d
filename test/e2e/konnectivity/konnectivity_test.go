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
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/informers/externalversions"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
	"restaurant.programming-kubernetes.info/apiserver/test/network"
)

const (
	// guarded is the namespace in which a webhook is asked.
	guarded = "guarded"
)

// cluster is spread over four hosts, and only those of the agents have a connection
// with more than one other.
type cluster struct {
	*controlplane.ControlPlane

	// control has kube-apiserver and all etcds, server the server, and webhook the webhook.
	control, server, webhook *network.Host
	// inward is the tunnel from kube-apiserver to the server, outward from the server to
	// all else.
	inward, outward *tunnel
	client          versioned.Interface
}

// newCluster starts all of it, with proxy servers of that mode.
func newCluster(t *testing.T, mode string) *cluster {
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
	c.inward = newTunnel(t, c.ControlPlane, "inward", mode, c.control, inwardAgent)
	c.outward = newTunnel(t, c.ControlPlane, "outward", mode, c.server, outwardAgent)
	// The server does not end well without its tunnel.
	t.Cleanup(func() { require.NoError(t, c.APIServer.Stop()) })
	c.KubeAPIServer.SetFlags(c.inward.egressFlag(t, mode+".yaml"))
	c.APIServer.SetFlags(c.outward.egressFlag(t, "apiserver.yaml"))

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

func TestGRPC(t *testing.T) {
	c := newCluster(t, "grpc")
	c.testInward(t)
	t.Run("from the server", c.testOutward)
}

func TestHTTPConnect(t *testing.T) {
	framework.Long(t, "TestGRPC is the short one")
	c := newCluster(t, "http-connect")
	c.testInward(t)
	t.Run("from the server", c.testOutward)
	// They are told when they read, as the handshake is over for them before.
	for to, address := range map[string]string{
		"as kube-apiserver": fmt.Sprintf("127.0.0.1:%d", serverPort),
		"as an agent":       fmt.Sprintf("%s:%d", c.control.Address(), agentPort),
	} {
		t.Run("not for strangers "+to, func(t *testing.T) {
			authority, err := os.ReadFile(filepath.Join(c.inward.dir, "ca.crt"))
			require.NoError(t, err)
			roots := x509.NewCertPool()
			require.True(t, roots.AppendCertsFromPEM(authority))
			raw, err := c.control.DialContext(t.Context(), "tcp", address)
			require.NoError(t, err)
			host, _, err := net.SplitHostPort(address)
			require.NoError(t, err)
			conn := tls.Client(raw, &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"}})
			defer conn.Close()
			require.NoError(t, conn.SetDeadline(time.Now().Add(controlplane.Patience)))
			require.NoError(t, conn.HandshakeContext(t.Context()))
			_, err = conn.Read(make([]byte, 1))
			require.ErrorContains(t, err, "tls: certificate required")
		})
	}
}

// testInward tests what comes to the server from kube-apiserver.
func (c *cluster) testInward(t *testing.T) {
	t.Run("no other way", func(t *testing.T) {
		requireUnreachable(t, c.control, c.APIServer)
		requireUnreachable(t, c.server, c.KubeAPIServer)
		requireUnreachable(t, c.server, c.Component("storage"))
	})
	t.Run("requests", c.testRequests)
	t.Run("track", c.testTrack)
	t.Run("kubectl", c.testKubectl)
	t.Run("an agent that returns", c.testInwardRecovery)
}

func requireUnreachable(t *testing.T, from *network.Host, component *controlplane.Component) {
	t.Helper()
	_, err := from.DialContext(t.Context(), "tcp", strings.TrimPrefix(component.URL(), "https://"))
	require.ErrorIs(t, err, syscall.ENETUNREACH)
}

// testRequests writes and sees each write in a watch before the next.
func (c *cluster) testRequests(t *testing.T) {
	const name = "basil"
	toppings := c.client.RestaurantV1().Toppings()
	events, err := toppings.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name, TimeoutSeconds: ptr.To(int64(controlplane.Patience.Seconds()))})
	require.NoError(t, err)
	defer events.Stop()
	requireEvent := func(kind watch.EventType, want *restaurantv1.Topping) {
		t.Helper()
		event, ok := <-events.ResultChan()
		require.True(t, ok, "The watch has ended.")
		require.Equal(t, kind, event.Type)
		if got := event.Object.(*restaurantv1.Topping); want != nil {
			require.Equal(t, want.ResourceVersion, got.ResourceVersion)
			require.Equal(t, want.Spec, got.Spec)
		}
	}

	created, err := toppings.Create(t.Context(), &restaurantv1.Topping{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       restaurantv1.ToppingSpec{Cost: ptr.To(resource.MustParse("1"))},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	requireEvent(watch.Added, created)
	patched, err := toppings.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"cost":"2"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Equal(t, "2", patched.Spec.Cost.String())
	requireEvent(watch.Modified, patched)
	got, err := toppings.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, patched, got)
	list, err := toppings.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	require.NoError(t, err)
	require.Equal(t, []restaurantv1.Topping{*got}, list.Items)
	require.NoError(t, toppings.Delete(t.Context(), name, metav1.DeleteOptions{}))
	requireEvent(watch.Deleted, nil)
	_, err = toppings.Get(t.Context(), name, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

// testTrack bakes one pizza after the other, each when the last is reported.
func (c *cluster) testTrack(t *testing.T) {
	pizzas := c.client.RestaurantV1().Pizzas("default")
	_, err := pizzas.Create(t.Context(), pizza("tracked", 2), metav1.CreateOptions{})
	require.NoError(t, err)
	client, err := rest.HTTPClientFor(c.RESTConfig())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.KubeAPIServer.URL()+
		"/apis/restaurant.programming-kubernetes.info/v1/namespaces/default/pizzas/tracked/track?follow=true", http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	lines := bufio.NewScanner(response.Body)
	for baked, want := range []string{"0 of 2 baked", "1 of 2 baked", "2 of 2 baked: ready"} {
		if baked > 0 {
			_, err := pizzas.Bake(t.Context(), "tracked", &restaurantv1.Bake{}, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		require.True(t, lines.Scan(), "The stream has ended: %v", lines.Err())
		require.Equal(t, want, lines.Text())
	}
	require.False(t, lines.Scan(), "There is more: %q", lines.Text())
	require.NoError(t, lines.Err(), "The stream was cut off.")
}

func (c *cluster) testKubectl(t *testing.T) {
	const topping = `{apiVersion: restaurant.programming-kubernetes.info/v1, kind: Topping, metadata: {name: rocket}, spec: {cost: "1"}}`
	for _, step := range []struct{ verb, want string }{
		{"apply", "topping.restaurant.programming-kubernetes.info/rocket created\n"},
		{"apply", "topping.restaurant.programming-kubernetes.info/rocket unchanged\n"},
		{"delete", "topping.restaurant.programming-kubernetes.info \"rocket\" deleted\n"},
	} {
		kubectl := c.Kubectl(t.Context(), step.verb, "--filename=-")
		kubectl.Stdin = strings.NewReader(topping)
		output, err := kubectl.CombinedOutput()
		require.NoError(t, err, "%s", output)
		require.Equal(t, step.want, string(output))
	}
}

// testInwardRecovery takes the only way to the server away, and gives it back.
// Watches go on.
func (c *cluster) testInwardRecovery(t *testing.T) {
	informers := externalversions.NewSharedInformerFactory(c.client, 0)
	known := informers.Restaurant().V1().Toppings()
	synced := known.Informer().HasSynced
	ctx, cancel := context.WithCancel(t.Context())
	defer informers.Shutdown()
	defer cancel()
	informers.Start(ctx.Done())
	controlplane.Eventually(t, func() error { return unless(synced(), "the informer has not synced") })
	running := []*controlplane.Component{c.KubeAPIServer, c.APIServer, c.inward.server}
	var before []int
	for _, component := range running {
		before = append(before, component.PID())
	}

	c.inward.agent.Kill()
	controlplane.Eventually(t, func() error {
		_, err := c.client.RestaurantV1().Toppings().Get(t.Context(), "tomato", metav1.GetOptions{})
		return unless(apierrors.IsServiceUnavailable(err), "the error is %v", err)
	})
	require.NoError(t, c.inward.agent.Start(t.Context()))
	controlplane.Eventually(t, func() error { return fixture.CreateToppings(t.Context(), c.client, "oregano") })
	controlplane.Eventually(t, func() error {
		_, err := known.Lister().Get("oregano")
		return err
	})
	for i, component := range running {
		require.Equal(t, before[i], component.PID(), "%s was started again.", component.Name())
	}
}

// testOutward tests what the server itself connects to.
func (c *cluster) testOutward(t *testing.T) {
	c.guard(t)
	t.Run("reviews", c.testReviews)
	t.Run("controllers", c.testControllers)
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
	t.Run("audit", c.testAudit)
	t.Run("with HTTPS_PROXY", c.testProxyVariable)
	t.Run("doctor", c.testDoctor)
	t.Run("an agent that returns", c.testOutwardRecovery)
}

// testAudit is of the webhook that gets audit events.
func (c *cluster) testAudit(t *testing.T) {
	events := c.collectEvents(t)
	server := c.addServer(t, "audited", append(events.flags, c.outward.egressFlag(t, "apiserver.yaml")))
	require.NoError(t, server.Start(t.Context()))
	events.requireCalled(t)
}

// testProxyVariable is of a server with HTTPS_PROXY in its environment. Calls that
// heed it go to that proxy by the selection; nobody is there.
func (c *cluster) testProxyVariable(t *testing.T) {
	spans := c.collectSpans(t)
	environment := []string{"HTTPS_PROXY=http://10.0.0.9:3128", "NO_PROXY=" + strings.TrimPrefix(c.KubeAPIServer.URL(), "https://")}
	server := c.addServer(t, "proxied", append(spans.flags, c.outward.egressFlag(t, "apiserver.yaml")), environment...)
	// For etcd and the collector, it is not heeded.
	require.NoError(t, server.Start(t.Context()))
	spans.requireCalled(t)
	err := c.order(t, server)
	require.True(t, apierrors.IsInternalError(err), "%v", err)
	require.ErrorContains(t, err, `failed to call webhook: Post "https://guard.default.svc:443/?timeout=10s": proxyconnect tcp: by the egress selection "cluster" of --egress-selector-config-file: `)
	require.Regexp(t, `(?m)^warning +proxy +by the environment of this command, requests to kube-apiserver \(10\.96\.0\.1:443\), the webhooks of the Service default/guard \(10\.0\.0\.3:443\) go through the proxy of HTTPS_PROXY fix: add 10\.96\.0\.1,10\.0\.0\.3 to NO_PROXY$`,
		c.doctor(t, environment...))
}

// testDoctor examines the cluster from where the server is.
func (c *cluster) testDoctor(t *testing.T) {
	output := c.doctor(t)
	for _, want := range []string{
		`ok +kube-apiserver +kube-apiserver at ` + c.KubeAPIServer.URL() + ` is v`,
		`ok +webhooks +all webhooks that are asked about the groups answer \(1\)\n`,
		// A busy machine makes it slow.
		`(ok|warning) +etcd +etcd at ` + c.Component("storage").URL() + ` `,
	} {
		require.Regexp(t, `(?m)^`+want, output)
	}
}

// doctor is what the doctor says on the host of the server.
func (c *cluster) doctor(t *testing.T, environment ...string) string {
	t.Helper()
	kubeconfig, err := c.KubeconfigFor("admin", "system:masters")
	require.NoError(t, err)
	pair, err := c.PKI.EtcdCA.Issue(controlplane.Certificate{User: "doctor"})
	require.NoError(t, err)
	cert, key := filepath.Join(t.TempDir(), "etcd.crt"), filepath.Join(t.TempDir(), "etcd.key")
	writeFile(t, cert, pair.Cert)
	writeFile(t, key, pair.Key)
	doctor := c.server.Command(t.Context(), "../../../_output/bin/apiserver", "doctor",
		"--kubeconfig="+kubeconfig, "--namespace=restaurant-system", c.outward.egressFlag(t, "apiserver.yaml"),
		"--etcd-servers="+c.Component("storage").URL(), "--etcd-cafile="+c.PKI.ServingCA.File, "--etcd-certfile="+cert, "--etcd-keyfile="+key)
	doctor.Env = slices.Concat(c.Kubectl(t.Context()).Env, environment)
	output, err := doctor.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return framework.Unwrap(string(output))
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
	_, err := versioned.NewForConfigOrDie(c.at(at)).RestaurantV1().Pizzas(guarded).Create(t.Context(), pizza("unwanted", 1), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// at is an administrator's configuration, on the host of a server.
func (c *cluster) at(server *controlplane.Component) *rest.Config {
	config := c.RESTConfig()
	config.Host, config.Dial = server.URL(), c.server.DialContext
	return config
}

// testReviews is of a user that kube-apiserver has to authenticate and to authorize.
func (c *cluster) testReviews(t *testing.T) {
	kube := kubernetes.NewForConfigOrDie(c.RESTConfig())
	_, err := kube.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	token, err := kube.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "stranger", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	config := rest.AnonymousClientConfig(c.at(c.APIServer))
	config.BearerToken = token.Status.Token
	_, err = versioned.NewForConfigOrDie(config).RestaurantV1().Toppings().List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, `User "system:serviceaccount:default:stranger" cannot list resource "toppings"`)
}

// testControllers is of the lease of the elected server, and of informers.
func (c *cluster) testControllers(t *testing.T) {
	pizzas := c.client.RestaurantV1().Pizzas("default")
	_, err := pizzas.Create(t.Context(), pizza("priced", 1), metav1.CreateOptions{})
	require.NoError(t, err)
	controlplane.Eventually(t, func() error {
		priced, err := pizzas.Get(t.Context(), "priced", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return unless(priced.Status.Cost != nil && priced.Status.Cost.String() == "1", "the pizza costs %v", priced.Status.Cost)
	})
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

// testOutwardRecovery takes kube-apiserver and etcd away from the server, and gives
// them back.
func (c *cluster) testOutwardRecovery(t *testing.T) {
	pid := c.APIServer.PID()
	client, err := rest.HTTPClientFor(c.at(c.APIServer))
	require.NoError(t, err)
	c.outward.agent.Kill()
	controlplane.Eventually(t, func() error {
		response, err := client.Get(c.APIServer.URL() + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		return unless(response.StatusCode == http.StatusInternalServerError, "/readyz answers %s", strconv.Itoa(response.StatusCode))
	})
	require.NoError(t, c.outward.agent.Start(t.Context()))
	require.NoError(t, c.APIServer.WaitReady(t.Context()))
	controlplane.Eventually(t, func() error { return fixture.CreateToppings(t.Context(), c.client, "thyme") })
	controlplane.Eventually(t, func() error {
		err := c.order(t, c.APIServer)
		return unless(apierrors.IsForbidden(err), "the error is %v", err)
	})
	require.Equal(t, pid, c.APIServer.PID())
}

func pizza(name string, replicas int32) *restaurantv1.Pizza {
	return &restaurantv1.Pizza{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       restaurantv1.PizzaSpec{Toppings: []restaurantv1.PizzaTopping{{Name: "tomato"}}, Replicas: &replicas},
	}
}

// unless is an error if the condition does not hold.
func unless(condition bool, format string, args ...any) error {
	if condition {
		return nil
	}
	return fmt.Errorf(format, args...)
}
