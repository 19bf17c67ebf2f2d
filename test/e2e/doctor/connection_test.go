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
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

func testDoctorOnPermissions(t *testing.T) {
	framework.Long(t, "permissions are taken and given back")
	const user = `system:serviceaccount:` + serverNamespace + `:apiserver`
	const mayNot = `failure permissions: ` + user + ` may not `
	for name, test := range map[string]struct {
		kind, namespace, name string
		want                  string
	}{
		"to ask who users are and what they may do": {"clusterrolebinding", "", "restaurant-apiserver:system:auth-delegator",
			mayNot + `create tokenreviews\.authentication\.k8s\.io, create subjectaccessreviews\.authorization\.k8s\.io: bind the ClusterRole system:auth-delegator to its user with a ClusterRoleBinding`},
		"to read the certificate authorities": {"rolebinding", "kube-system", "restaurant-apiserver:extension-apiserver-authentication-reader",
			mayNot + `get configmaps "extension-apiserver-authentication" in kube-system, list configmaps .*, watch configmaps .*: bind the Role extension-apiserver-authentication-reader in kube-system to its user with a RoleBinding`},
		"to elect a leader": {"rolebinding", serverNamespace, "restaurant-apiserver:leader-election",
			mayNot + `create leases\.coordination\.k8s\.io in restaurant-system, get leases\.coordination\.k8s\.io "apiserver-controllers" in restaurant-system, update leases\.coordination\.k8s\.io "apiserver-controllers" in restaurant-system: bind a Role in restaurant-system to its user that allows that, since its controllers run where they are elected`},
		"to tell of events": {"clusterrolebinding", "", "restaurant-apiserver:events",
			mayNot + `create events\.events\.k8s\.io: bind a ClusterRole to its user that allows that, since its controllers tell users what they do by events`},
		"to pass with reviews": {"flowschema", "", "restaurant-apiserver-reviews",
			`warning priority: subjectaccessreviews\.authorization\.k8s\.io that ` + user + ` creates wait in kube-apiserver behind the requests that wait for them, so that many of these can fail at once: install a FlowSchema that lets them pass, as the manifests of this server do`},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := []string{}
			if test.namespace != "" {
				namespace = append(namespace, "--namespace="+test.namespace)
			}
			backup, err := cp.Kubectl(t.Context(), append([]string{"get", test.kind, test.name, "--output=yaml"}, namespace...)...).Output()
			require.NoError(t, err)
			t.Cleanup(func() {
				cmd := cp.Kubectl(context.Background(), "create", "--filename=-")
				cmd.Stdin = strings.NewReader(regexp.MustCompile(`(?m)^ {2}(resourceVersion|uid):.*\n`).ReplaceAllString(string(backup), ""))
				output, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s", output)
			})
			framework.Kubectl(t, cp, append([]string{"delete", test.kind, test.name}, namespace...)...)
			// kube-apiserver learns of it a moment later.
			controlplane.Eventually(t, func() error {
				_, findings := doctor(t, cp)
				if len(symptoms(findings)) == 0 {
					return fmt.Errorf("nothing is found")
				}
				return nil
			})
			requireSymptom(t, test.want)
		})
	}
	t.Run("for everything", func(t *testing.T) {
		apply(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: "restaurant-apiserver:migrate"},
			roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{kind: ServiceAccount, namespace: restaurant-system, name: apiserver}]}`)
		controlplane.Eventually(t, func() error { // The binding is not in force at once.
			if _, findings := doctor(t, cp); len(symptoms(findings)) == 0 {
				return fmt.Errorf("nothing is found")
			}
			return nil
		})
		requireSymptom(t, `warning permissions: `+user+` may do everything in the cluster, and so may any intruder into the server: unless objects are being moved, delete the ClusterRoleBinding that allows it, which of servers of this module is that of the component migrate`)
	})
	t.Run("of another service account", func(t *testing.T) {
		_, without := doctor(t, cp, "--service-account=other")
		require.Contains(t, symptoms(without), "failure permissions: there is no service account other in the namespace restaurant-system: create it, or name the one of the server's pods by --namespace and --service-account")
		apply(t, `{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: restaurant-system, name: other}}`)
		_, findings := doctor(t, cp, "--service-account=other", "--serving-ca-secret=authority")
		found := symptoms(findings)
		require.Len(t, found, 10, "%v", findings)
		require.Contains(t, found[2], "system:serviceaccount:restaurant-system:other may not list namespaces, watch namespaces, ")
		require.Contains(t, found, "warning permissions: system:serviceaccount:restaurant-system:other may not list flowschemas.flowcontrol.apiserver.k8s.io, watch flowschemas.flowcontrol.apiserver.k8s.io, "+
			"list prioritylevelconfigurations.flowcontrol.apiserver.k8s.io, watch prioritylevelconfigurations.flowcontrol.apiserver.k8s.io, patch flowschemas/status.flowcontrol.apiserver.k8s.io: "+
			"bind a ClusterRole to its user that allows that, or use --enable-priority-and-fairness=false")
		require.Contains(t, strings.Join(found, "\n"), `get secrets "authority" in restaurant-system, update secrets "authority" in restaurant-system: bind a Role in restaurant-system to its user that allows that, since it keeps its certificate authority there, by --serving-ca-secret`)
	})
}

func testDoctorOnService(t *testing.T) {
	framework.Long(t, "Services are broken and repaired")
	const selected = `
apiVersion: v1
kind: Service
metadata: {namespace: restaurant-system, name: apiserver}
spec: {type: ClusterIP, clusterIP: None, externalName: null, selector: {app: doctor}, ports: [{name: https, port: %s, targetPort: https}]}
`
	port := fmt.Sprint(cp.APIServer.Port())
	for name, test := range map[string]struct {
		manifests, want string
	}{
		"without pods":                {fmt.Sprintf(selected, port), `failure service: no pod matches the selector app=doctor of the Service restaurant-system/apiserver: check the labels of the pods, and the Deployment that is to create them`},
		"without a pod that is ready": {fmt.Sprintf(selected, port) + podWith(`ports: [{name: https, containerPort: 6443}]`), `failure service: none of the 1 pods of the Service restaurant-system/apiserver is ready: see their events and logs`},
		"without the target port":     {fmt.Sprintf(selected, port) + podWith(`ports: [{name: http, containerPort: 6443}]`), `failure service: the target port "https" of the Service restaurant-system/apiserver is not a port of its pod doctor: give a port of the container that name, or the Service another targetPort`},
		"without the port":            {fmt.Sprintf(selected, "444"), `failure service: the Service restaurant-system/apiserver has no port ` + port + `: name a port of the Service where it leads to the Service, or add the port to the Service`},
		"without a selector": {`
apiVersion: v1
kind: Service
metadata: {namespace: restaurant-system, name: apiserver}
spec: {type: ClusterIP, clusterIP: None, externalName: null, selector: null, ports: [{name: https, port: ` + port + `}]}
`, `failure service: the Service restaurant-system/apiserver has no selector, and no endpoint that is ready: give it a selector of the server's pods`},
	} {
		t.Run(name, func(t *testing.T) {
			framework.RegisterAtEnd(t, cp)
			apply(t, test.manifests)
			requireSymptom(t, test.want)
		})
	}
	t.Run("that does not exist", func(t *testing.T) {
		framework.RegisterAtEnd(t, cp)
		framework.Kubectl(t, cp, "delete", "service", "apiserver", "--namespace="+serverNamespace)
		requireSymptom(t, `failure service: the Service restaurant-system/apiserver does not exist: install the server again, of which the Service is a part; if it is gone for good, delete what leads to it`)
	})
	t.Run("that leads elsewhere", func(t *testing.T) {
		framework.RegisterAtEnd(t, cp)
		apply(t, fmt.Sprintf(selected, port)+podWith(`ports: [{name: https, containerPort: 6443}]`)+`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: restaurant-system, name: doctor, labels: {kubernetes.io/service-name: apiserver}}
addressType: IPv4
ports: [{name: https, port: 6443}]
endpoints: [{addresses: [255.255.255.255], conditions: {ready: true}}, {addresses: [240.0.0.1], conditions: {ready: false}}]
`)
		_, findings := doctor(t, cp)
		for _, finding := range findings {
			switch finding.Check {
			case "service":
				require.Equal(t, "ok service: the Service restaurant-system/apiserver leads to 255.255.255.255:6443: ", finding.String())
			case "certificate":
				require.Regexp(t, `^skipped certificate: 255\.255\.255\.255:6443 can't be reached from here \(.*\): run this in a pod of the cluster, or name by --server-address where a forwarded port leads to it$`, finding.String())
			}
		}
		// A port that is forwarded leads to the server all the same.
		_, findings = doctor(t, cp, "--server-address=127.0.0.1:"+port)
		require.Equal(t, "ok", statuses(findings)["certificate"], "%v", findings)
	})
}

// podWith is the manifest of a pod behind the Service, which no node runs.
func podWith(container string) string {
	return `---
apiVersion: v1
kind: Pod
metadata: {namespace: restaurant-system, name: doctor, labels: {app: doctor}}
spec:
  serviceAccountName: apiserver
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: apiserver
      image: apiserver
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      ` + container + "\n"
}

func testDoctorOnCertificate(t *testing.T) {
	framework.Long(t, "certificates are broken and repaired")
	stranger, err := controlplane.NewCA("stranger")
	require.NoError(t, err)
	hosts := []string{serverHost}
	now := time.Now()
	for name, test := range map[string]struct {
		issuer      *controlplane.CA
		certificate controlplane.Certificate
		want        string
	}{
		"of another certificate authority": {stranger, controlplane.Certificate{User: "server", Hosts: hosts},
			`failure certificate: the certificate "CN=server" that 127\.0\.0\.1:\d+ serves can't be trusted \(x509: certificate signed by unknown authority.*\): put the certificate authority that issued it into caBundle of v1\.\S+, v1beta1\.\S+, v1alpha1\.\S+`},
		"for another host": {cp.PKI.ServingCA, controlplane.Certificate{User: "server", Hosts: []string{"localhost"}},
			`failure certificate: the certificate "CN=server" that 127\.0\.0\.1:\d+ serves can't be trusted \(x509: certificate is valid for localhost, not ` + regexp.QuoteMeta(serverHost) + `\): issue one for ` + regexp.QuoteMeta(serverHost)},
		"that has expired": {cp.PKI.ServingCA, controlplane.Certificate{User: "server", Hosts: hosts, NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(-24 * time.Hour)},
			`failure certificate: the certificate "CN=server" that 127\.0\.0\.1:\d+ serves can't be trusted \(x509: certificate has expired or is not yet valid: .*\): renew it, or the clock of this machine is wrong`},
		"that is about to expire": {cp.PKI.ServingCA, controlplane.Certificate{User: "server", Hosts: hosts, NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(time.Hour)},
			`warning certificate: the certificate "CN=server" that 127\.0\.0\.1:\d+ serves, or one above it, expires on ` + regexp.QuoteMeta(now.Add(time.Hour).UTC().Format("2006-01-02T15:04")) + `:\d\dZ: renew it`},
	} {
		t.Run(name, func(t *testing.T) {
			requireSymptom(t, test.want, "--server-address=127.0.0.1:"+listen(t, test.issuer, test.certificate))
		})
	}
	t.Run("that nobody serves", func(t *testing.T) {
		requireSymptom(t, `failure certificate: nobody listens at 127\.0\.0\.1:1: see whether the server runs, and the log of one that does not`, "--server-address=127.0.0.1:1")
	})
	t.Run("of what is not a server", func(t *testing.T) {
		plain := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(plain.Close)
		requireSymptom(t, `failure certificate: 127\.0\.0\.1:\d+ does not speak TLS \(.*\): see what listens there`, "--server-address="+plain.Listener.Addr().String())
	})
	t.Run("that is not looked at", func(t *testing.T) {
		changeAPIServices(t, func(spec *apiregistrationv1.APIServiceSpec) { spec.CABundle, spec.InsecureSkipTLSVerify = nil, true })
		requireSymptom(t, `warning certificate: v1\.\S+, v1beta1\.\S+, v1alpha1\.\S+ trusts any server, since insecureSkipTLSVerify is set: set caBundle instead`)
	})
	t.Run("that the APIServices do not trust", func(t *testing.T) {
		changeAPIServices(t, func(spec *apiregistrationv1.APIServiceSpec) { spec.CABundle = stranger.CertPEM() })
		requireSymptom(t, `failure certificate: the certificate "CN=apiserver" that 127\.0\.0\.1:\d+ serves can't be trusted \(x509: certificate signed by unknown authority.*\): put the certificate authority that issued it into caBundle of v1\.\S+, v1beta1\.\S+, v1alpha1\.\S+`)
	})
}
