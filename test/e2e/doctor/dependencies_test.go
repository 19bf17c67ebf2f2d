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
	"encoding/json"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

func testDoctorOnWebhooks(t *testing.T) {
	framework.Long(t, "webhooks are broken and repaired")
	good := listen(t, cp.PKI.ServingCA, controlplane.Certificate{User: "webhook", Hosts: []string{"localhost", "hook.default.svc"}})
	stranger, err := controlplane.NewCA("stranger")
	require.NoError(t, err)
	const configuration = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: doctor}
webhooks:
  - name: hook.example.com
    clientConfig: %s
    rules: [{apiGroups: [%q], apiVersions: ["*"], operations: [CREATE], resources: [%q]}]
    failurePolicy: %s
    sideEffects: None
    admissionReviewVersions: [v1]
`
	service := `{service: {namespace: default, name: hook, port: ` + good + `}, caBundle: ` + encoded(cp.PKI.ServingCA) + `}`
	at := func(port string, ca *controlplane.CA) string {
		return `{url: "https://localhost:` + port + `/x", caBundle: ` + encoded(ca) + `}`
	}
	const hook = `the webhook hook\.example\.com of the ValidatingWebhookConfiguration doctor does not answer, and what it is asked about `
	for name, test := range map[string]struct {
		client, group, resource, policy string
		want                            string
	}{
		"that nobody serves":                  {at("1", cp.PKI.ServingCA), groupName, "pizzas", "Fail", `failure webhooks: ` + hook + `is refused: nobody listens at localhost:1: see whether the server runs, and the log of one that does not`},
		"that nobody serves and is optional":  {at("1", cp.PKI.ServingCA), "*", "*/*", "Ignore", `warning webhooks: ` + hook + `passes without it: nobody listens at localhost:1: see whether the server runs, and the log of one that does not`},
		"whose certificate can't be trusted":  {at(good, stranger), groupName, "pizzas/status", "Fail", `failure webhooks: ` + hook + `is refused: the certificate "CN=webhook" that localhost:\d+ serves can't be trusted \(.*\): put the certificate authority that issued it into its caBundle`},
		"whose Service does not exist":        {service, groupName, "toppings", "Fail", `failure webhooks: ` + hook + `is refused: the Service default/hook does not exist: install the server again, of which the Service is a part; if it is gone for good, delete what leads to it`},
		"that answers":                        {at(good, cp.PKI.ServingCA), groupName, "*", "Fail", ""},
		"that is not asked about the group":   {at("1", cp.PKI.ServingCA), "apps", "*", "Fail", ""},
		"that is asked about another kind":    {at("1", cp.PKI.ServingCA), "*", "deployments", "Fail", ""},
		"that can't be reached from anywhere": {`{url: "https://255.255.255.255/x"}`, groupName, "pizzas", "Fail", ""},
	} {
		t.Run(name, func(t *testing.T) {
			apply(t, fmt.Sprintf(configuration, test.client, test.group, test.resource, test.policy))
			if test.want != "" {
				requireSymptom(t, test.want)
				return
			}
			_, findings := doctor(t, cp)
			require.Empty(t, symptoms(findings))
		})
	}
	t.Run("behind a Service", func(t *testing.T) {
		apply(t, `
apiVersion: v1
kind: Service
metadata: {namespace: default, name: hook}
spec: {type: ExternalName, externalName: localhost}
---`+fmt.Sprintf(configuration, service, groupName, "pizzas", "Fail"))
		_, findings := doctor(t, cp)
		require.Empty(t, symptoms(findings))
		for _, finding := range findings {
			if finding.Check == "webhooks" {
				require.Equal(t, "ok webhooks: all webhooks that are asked about the groups answer (1): ", finding.String())
			}
		}
	})
}

func encoded(ca *controlplane.CA) string {
	content, _ := json.Marshal(ca.CertPEM())
	return string(content)
}

func testDoctorOnPolicies(t *testing.T) {
	framework.Long(t, "policies are broken and repaired")
	const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: doctor}
spec:
  failurePolicy: %s
  paramKind: {apiVersion: %s, kind: %s}
  matchConstraints: {resourceRules: [{apiGroups: [%q], apiVersions: ["*"], operations: [CREATE], resources: ["*"]}]}
  validations: [{expression: "true"}]
`
	// It is for no object, so that other tests do not depend on the policy.
	const binding = `
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: doctor}
spec:
  policyName: doctor
  paramRef: {name: doctor, namespace: default, parameterNotFoundAction: Allow}
  matchResources: {objectSelector: {matchLabels: {doctor: nobody}}}
  validationActions: [Deny]
`
	const name = `the ValidatingAdmissionPolicy doctor can't be evaluated, and what it is for `
	const denied = `system:serviceaccount:restaurant-system:apiserver may not list configmaps, which are its parameters: bind a ClusterRole to that user that allows get, list and watch`
	for title, test := range map[string]struct {
		failurePolicy, version, kind, group string
		want                                string
	}{
		"with parameters that can't be read":               {"Fail", "v1", "ConfigMap", groupName, `failure policies: ` + name + `is refused: ` + denied},
		"with parameters that can't be read, and optional": {"Ignore", "v1", "ConfigMap", "*", `warning policies: ` + name + `passes without it: ` + denied},
		"with parameters of no kind":                       {"Fail", "example.com/v1", "Nothing", groupName, `failure policies: ` + name + `is refused: its parameters are of the kind Nothing of example\.com/v1, which the cluster does not have: correct its paramKind, or install what has that kind`},
		"of another group":                                 {"Fail", "v1", "ConfigMap", "apps", ""},
		"with parameters of the server":                    {"Fail", groupName + "/v1", "Topping", "apps", `warning policies: the parameters of the ValidatingAdmissionPolicy doctor are of ` + regexp.QuoteMeta(groupName) + `/v1, which a server behind kube-apiserver has, and it is for other groups, too: after a restart of kube-apiserver, all of that is refused until the server answers: use parameters that kube-apiserver has itself, such as ConfigMaps, or the failurePolicy Ignore`},
		"with parameters that can be read":                 {"Fail", "v1", "Namespace", groupName, ""},
	} {
		t.Run(title, func(t *testing.T) {
			apply(t, fmt.Sprintf(policy, test.failurePolicy, test.version, test.kind, test.group)+binding)
			if test.want != "" {
				requireSymptom(t, test.want)
				return
			}
			_, findings := doctor(t, cp)
			require.Empty(t, symptoms(findings))
		})
	}
	t.Run("that is not bound", func(t *testing.T) {
		apply(t, fmt.Sprintf(policy, "Fail", "v1", "ConfigMap", groupName))
		_, findings := doctor(t, cp)
		require.Empty(t, symptoms(findings))
	})
}

func testDoctorOnEtcd(t *testing.T) {
	framework.Long(t, "etcd is broken and repaired")
	t.Run("that is unavailable", func(t *testing.T) {
		requireSymptom(t, `failure etcd: etcd at https://127\.0\.0\.1:1 does not answer \(.*connect: connection refused.*\): check that it runs, its address in --etcd-servers, and --etcd-cafile, --etcd-certfile and --etcd-keyfile`,
			framework.EtcdFlags(t, cp, "", "https://127.0.0.1:1")...)
	})
	t.Run("that nobody vouches for", func(t *testing.T) {
		requireSymptom(t, `failure etcd: etcd at \S+ does not answer \(.*certificate signed by unknown authority.*\): check that it runs, .*`,
			append(framework.EtcdFlags(t, cp, "storage", ""), "--etcd-cafile="+cp.PKI.ClientCA.File)...)
	})
	t.Run("that is slow", func(t *testing.T) {
		requireSymptom(t, `warning etcd: etcd at https://127\.0\.0\.1:\d+ takes \d+ms for an answer: give it a faster disk, or a shorter way to it`,
			framework.EtcdFlags(t, cp, "", "https://"+slowed(t, cp.Component("storage"), 150*time.Millisecond))...)
	})
	t.Run("that is nearly full, and full", func(t *testing.T) {
		// A server that is not started, for its etcd.
		framework.NewServer(t, cp, controlplane.ServerConfig{Etcd: "small"})
		small := cp.Component("small")
		small.SetFlags("--quota-backend-bytes=1")
		require.NoError(t, small.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, small.Stop()) })
		flags := framework.EtcdFlags(t, cp, "small", "")
		requireSymptom(t, `warning etcd: etcd at \S+ has used \d+ % of its quota of 0\.0 MiB: delete objects, defragment it, or raise its quota: above it, nothing can be written`, flags...)

		_, err := framework.EtcdClient(t, cp, small).Put(t.Context(), "key", "value")
		require.ErrorContains(t, err, "database space exceeded")
		require.NoError(t, small.Stop())
		small.SetFlags()
		require.NoError(t, small.Start(t.Context()))
		requireSymptom(t, `failure etcd: the member [0-9a-f]+ of etcd has reached its quota, and takes no writes: delete objects, compact and defragment it or raise its quota, and disarm the alarm`, flags...)
	})
	t.Run("that is embedded", func(t *testing.T) {
		server := framework.NewServer(t, cp, framework.Flags())
		require.NoError(t, server.Start(t.Context()))
		dir := "--data-dir=" + framework.DataDir(server)
		_, findings := doctor(t, cp, dir)
		require.Empty(t, symptoms(findings))
		require.Equal(t, "ok", statuses(findings)["etcd"], "%v", findings)
		server.Kill()
		requireSymptom(t, `failure etcd: etcd at unix://\S+/etcd\.sock does not answer \(.*\): check that it runs, .*`, dir)
	})
}

// slowed is an address of a component at which all takes longer.
func slowed(t *testing.T, component *controlplane.Component, delay time.Duration) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", strings.TrimPrefix(component.URL(), "https://"))
			if err != nil {
				client.Close()
				return
			}
			go func() {
				defer server.Close()
				_, _ = io.Copy(server, client)
			}()
			go func() {
				defer client.Close()
				buffer := make([]byte, 64<<10)
				for {
					n, err := server.Read(buffer)
					time.Sleep(delay)
					if _, writeErr := client.Write(buffer[:n]); err != nil || writeErr != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}

func testDoctorOnProxy(t *testing.T) {
	framework.Long(t, "the server is moved behind a proxy")
	apply(t, `
apiVersion: v1
kind: Service
metadata: {namespace: default, name: hook}
spec: {clusterIP: 10.96.0.50, ports: [{port: 8443}]}
---
apiVersion: v1
kind: Service
# With a dot, it is not one of the names that are never asked of a proxy.
metadata: {namespace: default, name: outside}
spec: {type: ExternalName, externalName: localhost.}
---
apiVersion: v1
kind: Service
metadata: {namespace: default, name: headless}
spec: {clusterIP: None, ports: [{port: 443}]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: doctor}
webhooks:
`+proxiedWebhook("headless", "headless", groupName)+proxiedWebhook("first", "hook, port: 8443", groupName)+proxiedWebhook("second", "hook, port: 8443", groupName)+
		proxiedWebhook("third", "outside", "*")+proxiedWebhook("other", "kubernetes, port: 1", "apps"))
	const (
		kubernetes = `kube-apiserver \(10\.96\.0\.1:443\)`
		outside    = `the webhooks of the Service default/outside \(localhost\.:443\)`
		inside     = `the webhooks of the Service default/hook \(10\.96\.0\.50:8443\)`
	)
	for name, test := range map[string]struct {
		noProxy  string
		requests []string
		fix      string
	}{
		"nothing":        {"", []string{kubernetes, inside, outside}, `10\.96\.0\.1,10\.96\.0\.50,localhost\.`},
		"the range only": {"10.96.0.0/16,.cluster.local", []string{outside}, `localhost\.`},
		// The server connects to the address that it finds in the Service.
		"names only": {".svc,.cluster.local,localhost.", []string{kubernetes, inside}, `10\.96\.0\.1,10\.96\.0\.50`},
		"both":       {"10.96.0.0/12,localhost.", nil, ""},
	} {
		t.Run("without exceptions but "+name, func(t *testing.T) {
			t.Setenv("HTTPS_PROXY", "http://192.0.2.9:3128")
			t.Setenv("NO_PROXY", test.noProxy)
			_, findings := doctor(t, cp)
			want := "ok proxy: no proxy is between the server and the cluster: "
			if len(test.requests) > 0 {
				want = "warning proxy: by the environment of this command, requests to " + strings.Join(test.requests, ", ") + " go through the proxy of HTTPS_PROXY: add " + test.fix + " to NO_PROXY"
			}
			require.Equal(t, 1, countOf(findings, "^"+want+"$"), "%v", findings)
		})
	}
	t.Run("as the server itself", func(t *testing.T) {
		t.Setenv("HTTPS_PROXY", "http://192.0.2.9:3128")
		t.Setenv("NO_PROXY", "10.96.0.1,localhost.")
		_, findings := doctor(t, cp, "--kubeconfig="+serverKubeconfig(t))
		require.Equal(t, 1, countOf(findings, "^warning proxy: by the environment of this command, requests to "+inside), "%v", findings)
	})
	for name, test := range map[string]struct{ container, want string }{
		"of the server's pod": {
			`env: [{name: https_proxy, value: "http://192.0.2.9:3128"}, {name: NO_PROXY, value: 10.96.0.1}, {name: no_proxy, value: "*"}]`,
			"warning proxy: by the environment of the pod doctor, requests to the webhooks of the Service default/hook (10.96.0.50:8443), the webhooks of the Service default/outside (localhost.:443) go through the proxy of HTTPS_PROXY: add 10.96.0.50,localhost. to NO_PROXY",
		},
		"of the server's pod, with a variable from elsewhere": {
			`env: [{name: HTTPS_PROXY, valueFrom: {configMapKeyRef: {name: proxy, key: url}}}]`,
			"skipped proxy: the environment of the pod doctor is not all in its manifest: run this in it",
		},
		"of the server's pod, with variables from elsewhere": {
			`envFrom: [{secretRef: {name: proxy}}]`,
			"skipped proxy: the environment of the pod doctor is not all in its manifest: run this in it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			framework.RegisterAtEnd(t, cp)
			// No node runs the pod: only its environment is looked at.
			apply(t, `
apiVersion: v1
kind: Service
metadata: {namespace: restaurant-system, name: apiserver}
spec: {type: ClusterIP, clusterIP: None, externalName: null, selector: {app: doctor}, ports: [{name: https, port: `+fmt.Sprint(cp.APIServer.Port())+`}]}
`+podWith(test.container))
			_, findings := doctor(t, cp)
			require.Equal(t, 1, countOf(findings, "^"+regexp.QuoteMeta(test.want)+"$"), "%v", findings)
		})
	}
}

// proxiedWebhook is an entry of a ValidatingWebhookConfiguration.
func proxiedWebhook(name, service, group string) string {
	return fmt.Sprintf(`
  - name: %s.example.com
    clientConfig: {service: {namespace: default, name: %s}}
    rules: [{apiGroups: [%q], apiVersions: ["*"], operations: [CREATE], resources: ["*"]}]
    failurePolicy: Ignore
    sideEffects: None
    admissionReviewVersions: [v1]
`, name, service, group)
}

// countOf counts the findings that match.
func countOf(findings []finding, pattern string) int {
	count := 0
	for _, finding := range findings {
		if regexp.MustCompile(pattern).MatchString(finding.String()) {
			count++
		}
	}
	return count
}
