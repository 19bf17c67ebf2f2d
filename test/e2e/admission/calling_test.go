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
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// port returns the port of a server.
func port(server *httptest.Server) int32 {
	return int32(server.Listener.Addr().(*net.TCPAddr).Port)
}

// createService creates a Service in the test's namespace. A range of cluster IPs that
// was created a moment ago may not be in use yet.
func (s *scope) createService(name string, spec corev1.ServiceSpec) {
	s.t.Helper()
	controlplane.Eventually(s.t, func() error {
		_, err := framework.Kube(cp).CoreV1().Services(s.Namespace).Create(s.t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
		return err
	})
}

// serviceClient is the client configuration for a Service in the test's namespace.
func (s *scope) serviceClient(name, path string, port *int32) admissionregistrationv1.WebhookClientConfig {
	client := admissionregistrationv1.WebhookClientConfig{
		Service:  &admissionregistrationv1.ServiceReference{Namespace: s.Namespace, Name: name, Port: port},
		CABundle: cp.PKI.ServingCA.CertPEM(),
	}
	if path != "" {
		client.Service.Path = &path
	}
	return client
}

// TestServices shows how the Service of a webhook is reached: as kube-apiserver
// reaches it, without the cluster's DNS.
func TestServices(t *testing.T) {
	s := newScopeWithReferences(t)
	webhook := s.webhook(allow)
	host := func(service string) string { return service + "." + s.Namespace + ".svc" }
	server := s.serveAs(cp.PKI.ServingCA, controlplane.Certificate{Hosts: []string{host("external"), host("cluster-ip")}}, webhook.server.Config.Handler)
	there := ptr.To(port(server))
	s.createService("external", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"})
	s.createService("misnamed", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"})
	s.createService("headless", corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: *there}}})
	// A cluster IP that is an address of this machine.
	cidrs := framework.Kube(cp).NetworkingV1().ServiceCIDRs()
	_, err := cidrs.Create(t.Context(), &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: s.ID}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"127.0.0.0/29"}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.Cleanup(func(ctx context.Context) error { return cidrs.Delete(ctx, s.ID, metav1.DeleteOptions{}) })
	s.createService("cluster-ip", corev1.ServiceSpec{ClusterIP: "127.0.0.1", Ports: []corev1.ServicePort{{Port: *there, TargetPort: intstr.FromInt32(1)}}})

	cases := map[string]struct {
		client admissionregistrationv1.WebhookClientConfig
		// path is what is called, or else want is the error.
		path, want string
	}{
		"an external name":            {client: s.serviceClient("external", "/a/path", there), path: "/a/path"},
		"an external name and a root": {client: s.serviceClient("external", "", there), path: "/"},
		"a cluster ip":                {client: s.serviceClient("cluster-ip", "/a/path", there), path: "/a/path"},
		"another name in the certificate": {
			client: s.serviceClient("misnamed", "", there),
			want:   fmt.Sprintf("tls: failed to verify certificate: x509: certificate is valid for %s, %s, not %s", host("external"), host("cluster-ip"), host("misnamed")),
		},
		"a port it does not have":      {client: s.serviceClient("cluster-ip", "", ptr.To[int32](1)), want: `no service port 1 found for service "cluster-ip"`},
		"the default port":             {client: s.serviceClient("cluster-ip", "", nil), want: `no service port 443 found for service "cluster-ip"`},
		"a service without an address": {client: s.serviceClient("headless", "", there), want: `cannot route to service with ClusterIP "None"`},
		"a service that is not there":  {client: s.serviceClient("missing", "/a/path", nil), want: `service "missing" not found`},
	}
	clients := map[string]admissionregistrationv1.WebhookClientConfig{}
	for name, test := range cases {
		clients[name] = test.client
	}
	s.registerCases("CREATE", clients)
	for name, test := range cases {
		for _, v := range []variant{mutatingFail, validatingFail} {
			t.Run(name+"/"+v.sort, func(t *testing.T) {
				service := test.client.Service
				address := fmt.Sprintf("%s:%d", host(service.Name), ptr.Deref(service.Port, 443))
				before := len(webhook.received())
				err := s.createForCase(t, v.of(name))
				if test.want != "" {
					status := framework.RequireStatus(t, err, http.StatusInternalServerError, metav1.StatusReasonInternalError)
					require.Equal(t, fmt.Sprintf(`Internal error occurred: failed calling webhook %q: failed to call webhook: Post "https://%s%s?timeout=10s": %s`,
						v.of(name), address, ptr.Deref(service.Path, "/"), test.want), status.Message)
					return
				}
				require.NoError(t, err)
				calls := webhook.received()[before:]
				require.Len(t, calls, 2) // The second one is kube-apiserver's.
				for _, call := range calls {
					require.Equal(t, test.path, call.http.URL.Path)
					require.Equal(t, address, call.http.Host)
					require.Equal(t, host(service.Name), call.http.TLS.ServerName)
					require.Empty(t, identity(call.http))
				}
			})
		}
	}
}

// TestServicesChange shows that a Service is looked up for each call.
func TestServicesChange(t *testing.T) {
	s := newScope(t)
	webhook := s.webhook(allow)
	server := s.serve(webhook.server.Config.Handler, "changing."+s.Namespace+".svc")
	validating := webhook.validating(rule(on("CREATE"), "pizzas"))
	validating.ClientConfig = s.serviceClient("changing", "", ptr.To(port(server)))
	s.registerValidating("changing", validating)
	create := func() error {
		_, err := s.pizzas("v1").Create(t.Context(), s.pizza("v1", "a"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	const missing = `service "changing" not found`
	require.ErrorContains(t, create(), missing)

	s.createService("changing", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"})
	controlplane.Eventually(t, create)

	services := framework.Kube(cp).CoreV1().Services(s.Namespace)
	_, err := services.Patch(t.Context(), "changing", types.MergePatchType, []byte(`{"spec":{"type":"ClusterIP","clusterIP":"None","externalName":null,"ports":[{"port":443}]}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	s.eventuallyContains(create, `cannot route to service with ClusterIP "None"`)

	require.NoError(t, services.Delete(t.Context(), "changing", metav1.DeleteOptions{}))
	s.eventuallyContains(create, missing)
}

// eventuallyContains waits for an error.
func (s *scope) eventuallyContains(try func() error, want string) {
	s.t.Helper()
	controlplane.Eventually(s.t, func() error {
		if err := try(); err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("instead of %q: %w", want, err)
		}
		return nil
	})
}

// TestAuthoritiesChange shows that another caBundle is in effect without a restart.
func TestAuthoritiesChange(t *testing.T) {
	s := newScope(t)
	webhook := s.webhook(allow)
	next, err := controlplane.NewCA("the next certificate authority")
	require.NoError(t, err)
	server := s.serveAs(next, controlplane.Certificate{Hosts: []string{"127.0.0.1"}}, webhook.server.Config.Handler)
	validating := webhook.validating(rule(on("CREATE"), "pizzas"))
	validating.ClientConfig = clientConfig(server)
	validating.ClientConfig.CABundle = nil
	s.registerValidating("authorities", validating)
	create := func() error {
		_, err := s.pizzas("v1").Create(t.Context(), s.pizza("v1", "a"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	require.ErrorContains(t, create(), "certificate signed by unknown authority")

	patch, err := json.Marshal([]any{map[string]any{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": append(cp.PKI.ServingCA.CertPEM(), next.CertPEM()...)}})
	require.NoError(t, err)
	_, err = framework.Kube(cp).AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(t.Context(), s.Name("authorities"), types.JSONPatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	controlplane.Eventually(t, create)
}

// tunnel starts a proxy on loopback that leads to the server, whatever host a client
// asks it for.
func (s *scope) tunnel(to *httptest.Server) *httptest.Server {
	s.t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		there, err := net.Dial("tcp", to.Listener.Addr().String())
		if in.Method != http.MethodConnect || err != nil {
			http.Error(out, "this is a proxy for HTTPS", http.StatusBadGateway)
			return
		}
		defer there.Close()
		here, buffered, err := http.NewResponseController(out).Hijack()
		if err != nil {
			return
		}
		defer here.Close()
		_, _ = io.WriteString(here, "HTTP/1.1 200 Connected\r\n\r\n")
		go func() { _, _ = io.Copy(there, buffered) }()
		_, _ = io.Copy(here, there)
	}))
	s.t.Cleanup(proxy.Close)
	return proxy
}

// newServer starts a server with an admission configuration file, which is not the
// one that kube-apiserver knows.
func (s *scope) newServer(name, admissionConfig string, env ...string) *controlplane.Component {
	s.t.Helper()
	server, err := cp.NewAPIServer(names.SimpleNameGenerator.GenerateName(name+"-"), controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{
		Flags: []string{"--run-controllers=false", "--admission-control-config-file=" + admissionConfig}, Env: env,
	}})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, server.Stop()) })
	require.NoError(s.t, server.Launch())
	return server
}

// writeFile writes a file in a directory of the test and returns its path.
func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// pluginConfig is the configuration of a webhook plugin.
func pluginConfig(kubeconfig string) string {
	return fmt.Sprintf(`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"WebhookAdmissionConfiguration","kubeConfigFile":%q}`, kubeconfig)
}

// identity names the user that called a webhook.
func identity(in *http.Request) string {
	if certificates := in.TLS.PeerCertificates; len(certificates) > 0 {
		return "the certificate of " + certificates[0].Subject.CommonName
	}
	if user, password, ok := in.BasicAuth(); ok {
		return fmt.Sprintf("the user %s with the password %s", user, password)
	}
	return in.Header.Get("Authorization")
}

// TestCredentials shows which user a server calls webhooks as: that of the
// kubeconfig in its admission configuration whose name fits the webhook's host best.
// Webhooks without a caBundle are trusted if the system trusts them.
func TestCredentials(t *testing.T) {
	s := newScope(t)
	webhook := s.webhook(allow)
	service := "credentials." + s.Namespace + ".svc"
	pair, err := cp.PKI.ServingCA.Issue(controlplane.Certificate{Hosts: []string{
		"exact.example.com", "host.example.com", "other.example.com", "other.deep.example.com", "example.net", service,
	}})
	require.NoError(t, err)
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(webhook.server.Config.Handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	s.createService("credentials", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"})

	client, err := cp.PKI.ClientCA.Issue(controlplane.Certificate{User: "exact"})
	require.NoError(t, err)
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.AuthInfos = map[string]*clientcmdapi.AuthInfo{
		"exact.example.com:8443":                   {ClientCertificateData: client.Cert, ClientKeyData: client.Key},
		"host.example.com":                         {Token: "host"},
		"*.example.com":                            {Token: "wildcard"},
		"*.example.com:8443":                       {Username: "wildcard", Password: "secret"},
		service + fmt.Sprintf(":%d", port(server)): {Token: "service"},
		"*": {Token: "anybody"},
	}
	content, err := clientcmd.Write(*kubeconfig)
	require.NoError(t, err)
	plugin := pluginConfig(writeFile(t, "kubeconfig", string(content)))

	cases := map[string]struct{ url, want string }{
		"exact":         {"https://exact.example.com:8443", "the certificate of exact"},
		"host":          {"https://host.example.com", "Bearer host"},
		"wildcard":      {"https://other.example.com", "Bearer wildcard"},
		"deep":          {"https://other.deep.example.com:443", "Bearer wildcard"},
		"wildcard-port": {"https://other.example.com:8443", "the user wildcard with the password secret"},
		"host-port":     {"https://host.example.com:8443", "the user wildcard with the password secret"},
		"anybody":       {"https://example.net", "Bearer anybody"},
		"service":       {"", "Bearer service"},
	}
	var mutating []admissionregistrationv1.MutatingWebhook
	var validating []admissionregistrationv1.ValidatingWebhook
	want := map[string]string{}
	for name, test := range cases {
		m, v := webhook.mutating(rule(on("CREATE"), "pizzas")), webhook.validating(rule(on("CREATE"), "pizzas"))
		m.Name, v.Name = name+".mutating.example.com", name+".validating.example.com"
		for sort, client := range map[string]*admissionregistrationv1.WebhookClientConfig{"mutating": &m.ClientConfig, "validating": &v.ClientConfig} {
			path := "/" + name + "/" + sort
			*client = admissionregistrationv1.WebhookClientConfig{URL: ptr.To(test.url + path)}
			if test.url == "" {
				*client = s.serviceClient("credentials", path, ptr.To(port(server)))
				client.CABundle = nil
			}
			want[path] = test.want
		}
		mutating, validating = append(mutating, m), append(validating, v)
	}
	s.registerMutating("credentials", mutating...)
	s.registerValidating("credentials", validating...)

	own := s.newServer("credentials", writeFile(t, "admission.json", fmt.Sprintf(`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AdmissionConfiguration","plugins":[`+
		`{"name":"MutatingAdmissionWebhook","configuration":%s},{"name":"ValidatingAdmissionWebhook","path":%q}]}`, plugin, writeFile(t, "plugin.json", plugin))),
		"SSL_CERT_FILE="+cp.PKI.ServingCA.File, "HTTPS_PROXY="+s.tunnel(server).URL)
	require.NoError(t, own.WaitReady(t.Context()))
	direct := framework.Config(cp)
	direct.Host = own.URL()
	clients := versioned.NewForConfigOrDie(direct)
	require.NoError(t, fixture.CreateToppings(t.Context(), clients, "mozzarella", "tomato", "salami"))
	_, err = clients.RestaurantV1().Pizzas(s.Namespace).Create(t.Context(), &restaurantv1.Pizza{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: s.Labels()}}, metav1.CreateOptions{})
	require.NoError(t, err)
	got := map[string]string{}
	for _, call := range webhook.received() {
		got[call.http.URL.Path] = identity(call.http)
	}
	require.Equal(t, want, got)
}

// TestBadCredentials shows that a server does not start with credentials for
// webhooks that it can't read, and says which flag and which file are wrong.
func TestBadCredentials(t *testing.T) {
	framework.Long(t, "a server is started for each case")
	s := newScope(t)
	missing := filepath.Join(t.TempDir(), "missing")
	text := writeFile(t, "text", "pizza")
	for name, test := range map[string]struct{ plugin, want string }{
		"missing":  {pluginConfig(missing), "stat " + missing + ": no such file or directory"},
		"relative": {pluginConfig("missing"), `kubeConfigFile: Invalid value: \"missing\": must be an absolute file path`},
		"text":     {pluginConfig(text), `error loading config file \"` + text + `\": couldn't get version/kind; json parse error: `},
		"field":    {`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"WebhookAdmissionConfiguration","kubeconfig":"a"}`, `strict decoding error: unknown field \"kubeconfig\"`},
	} {
		t.Run(name, func(t *testing.T) {
			file := writeFile(t, "admission.json", `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AdmissionConfiguration","plugins":[{"name":"ValidatingAdmissionWebhook","configuration":`+test.plugin+`}]}`)
			server := s.newServer("bad-"+name, file)
			err := server.WaitReady(t.Context())
			require.ErrorContains(t, err, "ended by itself, with exit status 1")
			log := strings.Split(err.Error(), "\n")
			require.Contains(t, log[len(log)-1], `err="--admission-control-config-file, or another flag of admission: couldn't init admission plugin \"ValidatingAdmissionWebhook\": `+test.want)
		})
	}
}

// TestServiceOfKubeAPIServer shows that the Service kubernetes is the kube-apiserver
// that this server knows, with the credentials for it.
func TestServiceOfKubeAPIServer(t *testing.T) {
	s := newScope(t)
	validating := s.webhook(allow).validating(rule(on("CREATE"), "pizzas"))
	validating.ClientConfig.URL, validating.ClientConfig.CABundle = nil, nil
	validating.ClientConfig.Service = &admissionregistrationv1.ServiceReference{
		Namespace: metav1.NamespaceDefault, Name: "kubernetes",
		Path: ptr.To("/api/v1/namespaces/default/secrets"),
	}
	s.registerValidating("kubernetes", validating)
	_, err := s.pizzas("v1").Create(t.Context(), s.pizza("v1", "refused"), metav1.CreateOptions{})
	status := framework.RequireStatus(t, err, http.StatusInternalServerError, metav1.StatusReasonInternalError)
	require.Equal(t, `Internal error occurred: failed calling webhook "validating.example.com": failed to call webhook: secrets is forbidden: `+
		`User "system:serviceaccount:restaurant-system:apiserver" cannot create resource "secrets" in API group "" in the namespace "default"`, status.Message)
}
