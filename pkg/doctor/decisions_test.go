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

package doctor

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/egressselector"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

// newAPIService returns an APIService of example.com that leads to a server.
func newAPIService(version string, group, priority int32) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: version + ".example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "example.com", Version: version, GroupPriorityMinimum: group, VersionPriority: priority,
			Service: &apiregistrationv1.ServiceReference{Namespace: "kitchen", Name: "server"},
		},
	}
}

// The messages are kube-apiserver's, with the command that goes with the fix.
func TestAnswerTo(t *testing.T) {
	t.Parallel()
	const get = `failing or missing response from https://10.0.0.1:443/apis/example.com/v1: Get "https://10.0.0.1:443/apis/example.com/v1": `
	for message, want := range map[string]string{
		"failing or missing response from https://10.0.0.1:443/x: bad status from https://10.0.0.1:443/x: 401":     "restart the server",
		"failing or missing response from https://10.0.0.1:443/x: bad status from https://10.0.0.1:443/x: 403":     "see the log of the server for why it refuses",
		"failing or missing response from https://10.0.0.1:443/x: bad status from https://10.0.0.1:443/x: 404":     "the server behind the Service does not have this version",
		"failing or missing response from https://10.0.0.1:443/x: bad status from https://10.0.0.1:443/x: 302":     "an API server never redirects",
		"failing or missing response from https://10.0.0.1:443/x: bad status from https://10.0.0.1:443/x: 503":     "see the log of the server",
		get + "dial tcp 10.0.0.1:443: connect: connection refused":                                                 "see whether the server listens",
		get + "dial tcp: lookup nothing.invalid on 10.0.0.10:53: no such host":                                     "correct the externalName",
		`unsupported service type "ExternalName"`:                                                                  "with --enable-aggregator-routing, kube-apiserver needs a Service with a cluster IP",
		`cannot route to service with ClusterIP "None"`:                                                            "have the APIService lead to a Service with a cluster IP",
		get + "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time": "renew the certificate",
		get + "tls: failed to verify certificate: x509: certificate is valid for other, not server.kitchen.svc":    "issue a certificate for the name of the Service",
		get + "tls: failed to verify certificate: x509: certificate signed by unknown authority":                   "put the certificate authority",
		get + "remote error: tls: certificate required":                                                            "the server, or the proxy of a service mesh in front of it, refuses the client certificate",
		get + "remote error: tls: unknown certificate authority":                                                   "the server, or the proxy of a service mesh in front of it, refuses the client certificate",
		get + "remote error: tls: bad certificate":                                                                 "the server, or the proxy of a service mesh in front of it, refuses the client certificate",
		get + "remote error: tls: handshake failure":                                                               "the server, or the proxy of a service mesh in front of it, refuses the client certificate",
		get + "remote error: tls: protocol version not supported":                                                  "have the Service lead to the port at which the server speaks TLS",
		get + "http: server gave HTTP response to HTTPS client":                                                    "have the Service lead to the port at which the server speaks TLS",
		get + "tls: first record does not look like a TLS handshake":                                               "have the Service lead to the port at which the server speaks TLS",
		get + "EOF": "the server, or a proxy in front of it such as that of a service mesh, closes connections",
		get + "read tcp 10.0.0.2:38770->10.0.0.1:443: read: connection reset by peer":                                    "the server, or a proxy in front of it such as that of a service mesh, closes connections",
		get + "stream error: stream ID 1; INTERNAL_ERROR; received from peer":                                            "the server, or a proxy in front of it such as that of a service mesh, closes connections",
		get + "context deadline exceeded":                                                                                "the server does not answer within five seconds",
		get + "dial tcp 10.0.0.1:443: i/o timeout":                                                                       "let connections from the control plane",
		get + "net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)": "let connections from the control plane",
		"timed out waiting for https://10.0.0.1:443/apis/example.com/v1":                                                 "let connections from the control plane",
		get + "net/http: request canceled (Client.Timeout exceeded while awaiting headers)":                              "the server accepts the connection, and does not answer",
		get + "context deadline exceeded (Client.Timeout exceeded while awaiting headers)":                               "the server accepts the connection, and does not answer",
		"kube-apiserver has not looked at it yet":                                                                        "see the log of kube-apiserver",
		"something new": "see the log of the server, and what is between the two",
	} {
		require.True(t, strings.HasPrefix(answerTo(message).fix, want), "%s: %s", message, answerTo(message).fix)
	}
}

// Commands for several findings can be run in any order, and none undoes another.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	builtIn := func(group string, priority int32) apiregistrationv1.APIService {
		return apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: "v1." + group, Labels: map[string]string{cluster.ManagedLabel: "onstart"}},
			Spec:       apiregistrationv1.APIServiceSpec{Group: group, Version: "v1", GroupPriorityMinimum: priority, VersionPriority: 1},
		}
	}
	all := []apiregistrationv1.APIService{builtIn("apps", 17800), builtIn("batch", 17400), builtIn("policy", 17000)}
	group := func(name, resource, short string) apidiscoveryv2.APIGroupDiscovery {
		return apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}, Versions: []apidiscoveryv2.APIVersionDiscovery{{
			Version: "v1", Resources: []apidiscoveryv2.APIResourceDiscovery{{Resource: resource, ShortNames: []string{short}}},
		}}}
	}
	groups := []apidiscoveryv2.APIGroupDiscovery{group("apps", "deployments", "deploy"), group("batch", "jobs", "j"), group("policy", "budgets", "pdb")}
	set := func(name, field string, value int) string {
		return fmt.Sprintf(`kubectl patch apiservice %s.example.com --type=merge --patch='{"spec":{%q:%d}}'`, name, field, value)
	}
	for name, test := range map[string]struct {
		own    []*apiregistrationv1.APIService
		served apidiscoveryv2.APIGroupDiscovery
		want   []string
	}{
		"names of its own":       {[]*apiregistrationv1.APIService{newAPIService("v1", 20000, 10)}, group("example.com", "things", "t"), nil},
		"the same names, later":  {[]*apiregistrationv1.APIService{newAPIService("v1", 1000, 10)}, group("example.com", "deployments", "t"), nil},
		"the same names, before": {[]*apiregistrationv1.APIService{newAPIService("v1", 17800, 10)}, group("example.com", "deployments", "t"), []string{set("v1", "groupPriorityMinimum", 17799)}},
		"names of two groups": {
			[]*apiregistrationv1.APIService{newAPIService("v1", 20000, 10), newAPIService("v2", 1000, 11)}, group("example.com", "jobs", "deploy"),
			[]string{set("v1", "groupPriorityMinimum", 17399)},
		},
		"a stable version first": {[]*apiregistrationv1.APIService{newAPIService("v1", 1000, 10), newAPIService("v2alpha1", 1000, 10)}, group("example.com", "things", "t"), nil},
		"unstable versions first": {
			[]*apiregistrationv1.APIService{newAPIService("v1beta1", 1000, 300), newAPIService("v1alpha1", 1000, 200), newAPIService("v1", 1000, 100), newAPIService("v2", 1000, 250)}, group("example.com", "things", "t"),
			[]string{set("v1beta1", "versionPriority", 100), set("v1alpha1", "versionPriority", 100)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, found := range precedence(test.own, all, append(groups, test.served)) {
				got = append(got, found.Command)
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestIsNeeded(t *testing.T) {
	t.Parallel()
	create, update := admissionregistrationv1.Create, admissionregistrationv1.Update
	for name, test := range map[string]struct {
		operation       admissionregistrationv1.OperationType
		group, resource string
		want            bool
	}{
		"pods":                    {create, "", "pods", true},
		"all operations":          {admissionregistrationv1.OperationAll, "", "pods", true},
		"updates of pods":         {update, "", "pods", false},
		"replicasets":             {create, "apps", "replicasets", true},
		"everything":              {create, "*", "*", true},
		"everything, and parts":   {create, "*", "*/*", true},
		"deployments":             {create, "apps", "deployments", false},
		"a subresource":           {create, "", "pods/exec", false},
		"pods of another group":   {create, "metrics.k8s.io", "pods", false},
		"reviews, which are none": {create, "authorization.k8s.io", "subjectaccessreviews", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule := admissionregistrationv1.Rule{APIGroups: []string{test.group}, Resources: []string{test.resource}}
			require.Equal(t, test.want, isNeeded(admissionregistrationv1.RuleWithOperations{Operations: []admissionregistrationv1.OperationType{test.operation}, Rule: rule}))
		})
	}
}

// A server's names are in no path that is requested as this user, and in no command.
func TestNamesOfServers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"x'; touch /tmp/x; echo '", "../../../../api/v1/namespaces/kube-system/secrets", "", ".", "..", "a//b", "a/../b", "a b", "a\x1b[2Jb", "a\nb", "%2e%2e", "a?b", "-x"} {
		require.False(t, isName(name), "%q", name)
		encoded, err := json.Marshal(name)
		require.NoError(t, err)
		var mu sync.Mutex
		var paths []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			paths = append(paths, r.URL.Path)
			mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			switch r.URL.Path {
			case "/apis":
				fmt.Fprintf(w, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{"name":"example.com"},"versions":[{"version":"v1","resources":[{"resource":%s}]}]}]}`, encoded)
			case "/apis/example.com/v1":
				fmt.Fprintf(w, `{"kind":"APIResourceList","groupVersion":"example.com/v1","resources":[{"name":%s,"verbs":["list"]}]}`, encoded)
			default:
				w.WriteHeader(http.StatusNotFound)
			}
		}))
		e, err := newExamination(t.Context(), Config{Cluster: &rest.Config{Host: server.URL}})
		require.NoError(t, err)
		e.apiServices = []*apiregistrationv1.APIService{newAPIService("v1", 1000, 10)}
		found := e.checkDiscovery(t.Context())
		require.Len(t, found, 1)
		require.Equal(t, Failure, found[0].Status)
		require.Contains(t, found[0].Cause, "which is no name of a resource")
		require.Equal(t, "kubectl get --raw=/apis/example.com/v1", found[0].Command)
		e.checkLists(t.Context())
		for _, path := range paths {
			require.Contains(t, []string{"/apis", "/apis/example.com/v1", "/api/v1/namespaces/kitchen/services"}, path)
		}
		server.Close()
	}
	for _, name := range []string{"pods", "pods/status", "deployments.apps/http_requests:rate5m", "Queue_Length"} {
		require.True(t, isName(name), name)
	}
}

// The server connects to the address that it finds in a Service, so that only that address, or a range of it, is an
// exception.
func TestCheckProxy(t *testing.T) {
	t.Parallel()
	service := func(namespace, name, ip, external string, selector map[string]string) *corev1.Service {
		kind := corev1.ServiceTypeClusterIP
		if external != "" {
			kind = corev1.ServiceTypeExternalName
		}
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{Type: kind, ClusterIP: ip, ExternalName: external, Selector: selector}}
	}
	hook := func(name, group string) admissionregistrationv1.ValidatingWebhook {
		return admissionregistrationv1.ValidatingWebhook{
			Name: name, ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: name}},
			Rules: []admissionregistrationv1.RuleWithOperations{{Rule: admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{"*"}}}},
		}
	}
	const through = "by the environment of the pod server-0, requests to "
	for name, test := range map[string]struct {
		env  []corev1.EnvVar
		from []corev1.EnvFromSource
		want Finding
	}{
		"no proxy": {want: ok("no proxy is between the server and the cluster")},
		"nothing": {
			env: []corev1.EnvVar{{Name: "https_proxy", Value: "http://192.0.2.9:3128"}},
			want: warning(through+"kube-apiserver (10.96.0.1:443), the webhooks of the Service default/hook (10.96.0.50:443), the webhooks of the Service default/outside (hooks.example.com:443) go through the proxy of HTTPS_PROXY",
				"add 10.96.0.1,10.96.0.50,hooks.example.com to NO_PROXY"),
		},
		"the range only": {
			env:  []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://192.0.2.9:3128"}, {Name: "NO_PROXY", Value: "10.96.0.0/16,.svc"}, {Name: "no_proxy", Value: "*"}},
			want: warning(through+"the webhooks of the Service default/outside (hooks.example.com:443) go through the proxy of HTTPS_PROXY", "add hooks.example.com to NO_PROXY"),
		},
		"all of them":                  {env: []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://192.0.2.9:3128"}, {Name: "NO_PROXY", Value: "10.96.0.0/16,hooks.example.com"}}, want: ok("no proxy is between the server and the cluster")},
		"a variable from elsewhere":    {env: []corev1.EnvVar{{Name: "HTTPS_PROXY", ValueFrom: &corev1.EnvVarSource{}}}, want: Finding{Status: Skipped, Cause: "the environment of the pod server-0 is not all in its manifest", Fix: "run this in it"}},
		"all variables from elsewhere": {from: []corev1.EnvFromSource{{}}, want: Finding{Status: Skipped, Cause: "the environment of the pod server-0 is not all in its manifest", Fix: "run this in it"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			labels := map[string]string{"app": "server"}
			e := &examination{
				Config: Config{Egress: func(egressselector.NetworkContext) (utilnet.DialFunc, error) { return nil, nil }},
				kube: kubefake.NewClientset(
					service("default", "kubernetes", "10.96.0.1", "", nil), service("default", "hook", "10.96.0.50", "", nil), service("default", "outside", "", "hooks.example.com", nil),
					service("default", "headless", "None", "", nil), service("default", "others", "10.96.0.51", "", nil), service("kitchen", "server", "10.96.0.52", "", labels),
					&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "hooks"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{
						hook("hook", "example.com"), hook("outside", "*"), hook("headless", "example.com"), hook("others", "apps"),
					}},
					&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kitchen", Name: "server-0", Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Env: test.env, EnvFrom: test.from}}}},
				),
				registration: registration{apiServices: []*apiregistrationv1.APIService{newAPIService("v1", 1000, 10)}, resources: map[string][]string{"example.com": {"things"}}},
			}
			got := e.checkProxy(t.Context())
			require.Equal(t, []Finding{test.want}, got)
		})
	}
}

func TestCheckCertificate(t *testing.T) {
	t.Parallel()
	const host = "server.kitchen.svc"
	serve := func(certificate *tls.Certificate) string {
		server := httptest.NewUnstartedServer(http.NotFoundHandler())
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		if certificate == nil {
			server.Start()
		} else {
			server.TLS = &tls.Config{Certificates: []tls.Certificate{*certificate}}
			server.StartTLS()
		}
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	trusted, other := selfSigned(t, host), selfSigned(t, "localhost")
	leaf, err := x509.ParseCertificate(trusted.Certificate[0])
	require.NoError(t, err)
	bundle := func(certificate tls.Certificate) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
	}
	for name, test := range map[string]struct {
		address string
		bundle  []byte
		want    Finding
	}{
		"that expires soon":     {serve(&trusted), bundle(trusted), warning(`the certificate "" that ADDRESS serves, or one above it, expires on `+date(leaf.NotAfter), "renew it")},
		"of another authority":  {serve(&trusted), bundle(other), failure(`the certificate "" that ADDRESS serves can't be trusted (x509: certificate signed by unknown authority)`, "put the certificate authority that issued it into caBundle of v1.example.com")},
		"for another host":      {serve(&other), bundle(other), failure(`the certificate "" that ADDRESS serves can't be trusted (x509: certificate is valid for localhost, not server.kitchen.svc)`, "issue one for server.kitchen.svc")},
		"without TLS":           {serve(nil), bundle(trusted), failure("ADDRESS does not speak TLS (tls: first record does not look like a TLS handshake)", "see what listens there")},
		"of nobody":             {"127.0.0.1:1", bundle(trusted), failure("nobody listens at ADDRESS", "see whether the server runs, and the log of one that does not")},
		"of no authority":       {"127.0.0.1:1", []byte("none"), failure("there is no certificate in caBundle of v1.example.com", "put the server's certificate authority into it, in PEM format")},
		"that is not looked at": {"127.0.0.1:1", nil, warning("v1.example.com trusts any server, since insecureSkipTLSVerify is set", "set caBundle instead").by("kubectl get apiservice v1.example.com --output=yaml")},
		"that can't be reached": {"255.255.255.255:6443", bundle(trusted), Finding{Status: Skipped, Cause: "ADDRESS can't be reached from here", Fix: "run this in a pod of the cluster, or name by --server-address where a forwarded port leads to it"}},
	} {
		apiService := newAPIService("v1", 1000, 10)
		apiService.Spec.CABundle, apiService.Spec.InsecureSkipTLSVerify = test.bundle, test.bundle == nil
		e := &examination{Config: Config{Address: test.address}, registration: registration{apiServices: []*apiregistrationv1.APIService{apiService}}}
		got := e.checkCertificate(t.Context())
		require.Len(t, got, 1, name)
		if got[0].Status == Skipped { // The reason is the operating system's.
			got[0].Cause, _, _ = strings.Cut(got[0].Cause, " (")
		}
		if cause, _, hint := strings.Cut(got[0].Cause, " (possibly because of "); hint { // Both authorities have no name.
			got[0].Cause = cause + ")"
		}
		test.want.Cause = strings.ReplaceAll(test.want.Cause, "ADDRESS", test.address)
		require.Equal(t, test.want, got[0], name)
	}
}
