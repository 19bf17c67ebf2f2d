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
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const (
	serverNamespace = "restaurant-system"
	groupName       = "restaurant.programming-kubernetes.info"
)

// finding is a line of the doctor's.
type finding struct {
	Check, Status, Cause, Fix string
}

func (f finding) String() string { return f.Status + " " + f.Check + ": " + f.Cause + ": " + f.Fix }

// doctor runs the doctor as an administrator and returns what it finds.
func doctor(t *testing.T, cp *controlplane.ControlPlane, args ...string) (code int, findings []finding) {
	t.Helper()
	args = append([]string{"doctor", "--kubeconfig=" + cp.Kubeconfig(), "--output=json"}, args...)
	code, stdout, stderr := framework.Tool(t, cp, nil, args...)
	var output struct{ Results []finding }
	require.NoError(t, json.Unmarshal([]byte(stdout), &output), "%s%s", stdout, stderr)
	require.NotEmpty(t, output.Results)
	return code, output.Results
}

// symptoms are what is neither as it should be nor left out.
func symptoms(findings []finding) []string {
	var symptoms []string
	for _, finding := range findings {
		if finding.Status != "ok" && finding.Status != "skipped" {
			symptoms = append(symptoms, finding.String())
		}
	}
	return symptoms
}

// statuses are by check; a check with several findings has the last one's.
func statuses(findings []finding) map[string]string {
	statuses := map[string]string{}
	for _, finding := range findings {
		statuses[finding.Check] = finding.Status
	}
	return statuses
}

// requireSymptom requires that the doctor finds one thing, and says that it is a
// failure if it is one.
func requireSymptom(t *testing.T, want string, args ...string) {
	t.Helper()
	code, findings := doctor(t, cp, args...)
	found := symptoms(findings)
	require.Len(t, found, 1, "%v", findings)
	require.Regexp(t, "^"+want+"$", found[0])
	require.Equal(t, strings.HasPrefix(found[0], "failure "), code == 1)
}

// apply creates or changes objects until the test ends.
func apply(t *testing.T, manifests string) {
	t.Helper()
	run := func(ctx context.Context, args ...string) {
		cmd := cp.Kubectl(ctx, append(args, "--filename=-")...)
		cmd.Stdin = strings.NewReader(manifests)
		output, err := cmd.CombinedOutput()
		require.NoError(t, err, "kubectl %s: %s", strings.Join(args, " "), output)
	}
	run(t.Context(), "apply", "--server-side", "--force-conflicts")
	t.Cleanup(func() { run(context.Background(), "delete", "--ignore-not-found", "--grace-period=0", "--force") })
}

func apiServices() interface {
	Get(context.Context, string, metav1.GetOptions) (*apiregistrationv1.APIService, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
} {
	return aggregator.NewForConfigOrDie(cp.RESTConfig()).ApiregistrationV1().APIServices()
}

// listen serves TLS with a certificate, until the test ends.
func listen(t *testing.T, issuer *controlplane.CA, certificate controlplane.Certificate) (port string) {
	t.Helper()
	issued, err := issuer.Issue(certificate)
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(issued.Cert, issued.Key)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
	server.StartTLS()
	t.Cleanup(server.Close)
	_, port, err = net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	return port
}

// The tests of the doctor break one thing at a time in what all share, and repair it.
func TestDoctor(t *testing.T) {
	t.Run("healthy", func(t *testing.T) {
		// On a busy machine, etcd may be found to be slow for a while.
		controlplane.Eventually(t, func() error {
			code, findings := doctor(t, cp, framework.EtcdFlags(t, cp, "storage", "")...)
			for _, finding := range findings {
				if code != 0 || finding.Status != "ok" {
					return fmt.Errorf("%s", finding)
				}
			}
			return nil
		})
		code, stdout, stderr := framework.Tool(t, cp, nil, "doctor", "--kubeconfig="+cp.Kubeconfig())
		require.Equal(t, 0, code, stderr)
		require.Empty(t, stderr)
		require.Regexp(t, fmt.Sprintf(`^ok       kube-apiserver   kube-apiserver at https://127\.0\.0\.1:\d+ is v1\.%d\.\d+, this server is made for 1\.37\n`, framework.Minor()), stdout)
		require.Regexp(t, `\nskipped  etcd             the embedded etcd can't be looked at from here`, stdout)
		require.Regexp(t, `\n\n0 failures, 0 warnings, 2 skipped, 17 ok\n$`, stdout)
		code, stdout, stderr = framework.Tool(t, cp, nil, "doctor", "--quiet", "--kubeconfig="+cp.Kubeconfig())
		require.Equal(t, 0, code, stderr)
		require.Equal(t, "\n0 failures, 0 warnings, 2 skipped, 17 ok\n", stdout)
	})

	// A user that may only read, and ask what others may do, finds the same.
	t.Run("as a reader", func(t *testing.T) {
		apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: doctor}
rules:
  - apiGroups: ["", admissionregistration.k8s.io, apiextensions.k8s.io, apiregistration.k8s.io, apps, discovery.k8s.io, `+groupName+`]
    resources: [configmaps, customresourcedefinitions, deployments, endpointslices, namespaces, pizzas, pods, serviceaccounts, services, apiservices, mutatingadmissionpolicies, mutatingadmissionpolicybindings, mutatingwebhookconfigurations, validatingadmissionpolicies, validatingadmissionpolicybindings, validatingwebhookconfigurations]
    verbs: [get, list]
  - apiGroups: [flowcontrol.apiserver.k8s.io]
    resources: [flowschemas]
    verbs: [list]
  - apiGroups: [authorization.k8s.io]
    resources: [subjectaccessreviews]
    verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: doctor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: doctor}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: doctor}]
`)
		reader, err := cp.KubeconfigFor("doctor")
		require.NoError(t, err)
		_, want := doctor(t, cp)
		_, findings := doctor(t, cp, "--kubeconfig="+reader)
		require.Equal(t, statuses(want), statuses(findings), "%v", findings)
	})

	// The server itself may look at less, and finds nothing wrong with that.
	t.Run("as the server", func(t *testing.T) {
		code, findings := doctor(t, cp, "--kubeconfig="+serverKubeconfig(t))
		require.Equal(t, 0, code, "%v", findings)
		require.Empty(t, symptoms(findings))
		got := statuses(findings)
		for check, want := range map[string]string{
			"kube-apiserver": "ok", "request-headers": "ok", "permissions": "ok", "priority": "ok", "service": "ok", "certificate": "ok", "webhooks": "ok", "policies": "ok", "leftovers": "skipped",
		} {
			require.Equal(t, want, got[check], "%s in %v", check, findings)
		}
	})

	t.Run("as nobody", func(t *testing.T) {
		nobody, err := cp.KubeconfigFor("nobody")
		require.NoError(t, err)
		code, findings := doctor(t, cp, "--kubeconfig="+nobody, "--namespace="+serverNamespace)
		require.Equal(t, 0, code, "%v", findings)
		require.Empty(t, symptoms(findings))
	})

	t.Run("kube-apiserver", testDoctorOnKubeAPIServer)
	t.Run("apiservices", testDoctorOnAPIServices)
	t.Run("permissions", testDoctorOnPermissions)
	t.Run("webhooks", testDoctorOnWebhooks)
	t.Run("etcd", testDoctorOnEtcd)
}

func serverKubeconfig(t *testing.T) string {
	t.Helper()
	kubeconfig, err := cp.KubeconfigFor("system:serviceaccount:"+serverNamespace+":apiserver", "system:serviceaccounts", "system:serviceaccounts:"+serverNamespace)
	require.NoError(t, err)
	return kubeconfig
}

func testDoctorOnKubeAPIServer(t *testing.T) {
	content, err := os.ReadFile(cp.Kubeconfig())
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(content), cp.KubeAPIServer.URL(), "https://127.0.0.1:1")), 0o600))
	requireSymptom(t, `failure kube-apiserver: kube-apiserver at https://127\.0\.0\.1:1 can't be reached \(.*connection refused\): check that it runs, and the address in the file of --kubeconfig`,
		"--kubeconfig="+file)
}

func testDoctorOnAPIServices(t *testing.T) {
	t.Run("one is missing", func(t *testing.T) {
		framework.RegisterAtEnd(t, cp)
		require.NoError(t, apiServices().Delete(t.Context(), "v1alpha1."+groupName, metav1.DeleteOptions{}))
		requireSymptom(t, `warning apiservices: v1alpha1\.`+regexp.QuoteMeta(groupName)+` is not registered, so that its clients find nothing: apply the APIServices of this release, unless it is left out on purpose`)
	})
	t.Run("one is served from a CustomResourceDefinition", func(t *testing.T) {
		const name = "v1alpha1." + groupName
		framework.RegisterAtEnd(t, cp)
		require.NoError(t, apiServices().Delete(t.Context(), name, metav1.DeleteOptions{}))
		apply(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: pizzas.`+groupName+`
  annotations: {api-approved.kubernetes.io: unapproved}
spec:
  group: `+groupName+`
  names: {plural: pizzas, singular: pizza, kind: Pizza, listKind: PizzaList}
  scope: Namespaced
  versions:
    - {name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`)
		waitLocal(t, name)
		requireSymptom(t, `failure apiservices: kube-apiserver serves v1alpha1\.\S+ itself, from CustomResourceDefinitions: `+
			`move the objects by "migrate plan" and "migrate run"; until then, keep the CustomResourceDefinitions, since deleting them deletes their objects and whatever those own, `+
			`and do not apply the APIServices, since kube-apiserver resets them`)
		framework.DeleteDefinition(t, cp, "pizzas."+groupName)
	})
	t.Run("one has lost its server", func(t *testing.T) {
		for name, want := range map[string]string{
			"v1.other.example.com": `warning leftovers: no server answers for v1\.other\.example\.com, a version of another server, so that no namespace can be deleted \(ServiceNotFound: .*\): see what is wrong with it by --apiservice=v1\.other\.example\.com; if its server is gone for good, delete the APIService`,
			"v2." + groupName:      `failure leftovers: no server answers for v2\.\S+, a version of a release that is not this one, so that no namespace can be deleted \(ServiceNotFound: .*\): see what is wrong with it by --apiservice=v2\.\S+; if its server is gone for good, delete the APIService`,
		} {
			t.Run(name, func(t *testing.T) {
				version, group, _ := strings.Cut(name, ".")
				apply(t, `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: `+name+`}
spec: {group: `+group+`, version: `+version+`, groupPriorityMinimum: 1, versionPriority: 1, service: {namespace: default, name: gone}}
`)
				waitUnavailable(t, name)
				requireSymptom(t, want)
			})
		}
	})
	t.Run("one is local again", func(t *testing.T) {
		const name = "v1.returned.example.com"
		apply(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.returned.example.com}
spec:
  group: returned.example.com
  names: {kind: Thing, plural: things}
  scope: Cluster
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`)
		controlplane.Eventually(t, func() error {
			_, err := apiServices().Get(t.Context(), name, metav1.GetOptions{})
			return err
		})
		framework.Kubectl(t, cp, "patch", "apiservice", name, "--type=merge", `--patch={"metadata":{"labels":{"`+cluster.ManagedLabel+`":null}},"spec":{"service":{"namespace":"default","name":"gone"}}}`)
		waitUnavailable(t, name)
		framework.Kubectl(t, cp, "label", "apiservice", name, cluster.ManagedLabel+"=true")
		waitLocal(t, name)
		requireSymptom(t, `failure leftovers: kube-apiserver serves v1\.returned\.example\.com itself, and still asks the server that it led to for its discovery, so that no namespace can be deleted: restart kube-apiserver, or delete the APIService, which kube-apiserver creates again at once`)
		framework.Kubectl(t, cp, "delete", "apiservice", name)
		_, findings := doctor(t, cp)
		require.Equal(t, "ok", statuses(findings)["leftovers"], "%v", findings)
	})
}

// waitLocal waits until kube-apiserver serves a version itself.
func waitLocal(t *testing.T, name string) {
	t.Helper()
	controlplane.Eventually(t, func() error {
		apiService, err := apiServices().Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && apiService.Spec.Service != nil {
			err = fmt.Errorf("%s still leads to a server", name)
		}
		return err
	})
}

// waitUnavailable waits until kube-apiserver has found out that a version is not served.
func waitUnavailable(t *testing.T, name string) {
	t.Helper()
	controlplane.Eventually(t, func() error {
		apiService, err := apiServices().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range apiService.Status.Conditions {
			if condition.Type == apiregistrationv1.Available && condition.Status == apiregistrationv1.ConditionFalse {
				return nil
			}
		}
		return fmt.Errorf("%s is still available", name)
	})
}

// Before anything is installed, the doctor finds what would keep a server from
// working.
func TestDoctorBeforeInstalling(t *testing.T) {
	t.Parallel()
	cp := controlplane.ForTest(t, controlplane.Config{
		KubeAPIServer:     controlplane.ComponentConfig{Flags: []string{"--requestheader-client-ca-file=", "--requestheader-allowed-names="}},
		ControllerManager: controlplane.ComponentConfig{Off: true},
		APIServer:         controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Off: true}},
	})
	const absent = "warning apiservices: no version is registered, so that kube-apiserver knows nothing of this server: install it by its manifests, which have the APIServices"
	publish := func(ca *controlplane.CA, names string) {
		t.Helper()
		patch, err := json.Marshal(map[string]any{"data": map[string]string{"requestheader-client-ca-file": string(ca.CertPEM()), "requestheader-allowed-names": names}})
		require.NoError(t, err)
		framework.Kubectl(t, cp, "patch", "configmap", "extension-apiserver-authentication", "--namespace=kube-system", "--type=merge", "--patch="+string(patch))
	}

	code, findings := doctor(t, cp, "--namespace="+serverNamespace)
	require.Equal(t, 1, code)
	found := symptoms(findings)
	require.Len(t, found, 2)
	require.Contains(t, found[0], "failure request-headers: there is no request-header CA")
	require.Equal(t, absent, found[1])

	publish(cp.PKI.ClientCA, "")
	_, findings = doctor(t, cp, "--namespace="+serverNamespace)
	found = symptoms(findings)
	require.Len(t, found, 2)
	require.Contains(t, found[0], "failure request-headers: the request-header CA is a client CA")

	publish(cp.PKI.FrontProxyCA, `["front-proxy-client"]`)
	code, findings = doctor(t, cp, "--namespace="+serverNamespace)
	require.Equal(t, 0, code)
	require.Equal(t, []string{absent}, symptoms(findings))
	require.Equal(t, map[string]string{
		"definitions": "skipped", "discovery": "skipped", "precedence": "skipped", "lists": "skipped",
		"kube-apiserver": "ok", "request-headers": "ok", "apiservices": "warning", "permissions": "skipped", "priority": "skipped", "service": "skipped", "storage": "skipped", "certificate": "skipped",
		"availability": "skipped", "admission": "ok", "webhooks": "ok", "policies": "ok", "etcd": "skipped", "proxy": "ok", "leftovers": "ok",
	}, statuses(findings))
	_, findings = doctor(t, cp)
	require.Contains(t, findings, finding{Check: "permissions", Status: "skipped", Cause: "it is not known in which namespace the server is going to be: name it by --namespace"})
	// The objects that are installed first can be looked at already.
	require.NoError(t, cp.Install(t.Context()))
	_, findings = doctor(t, cp, "--namespace="+serverNamespace)
	require.Equal(t, "ok", statuses(findings)["permissions"], "%v", findings)
	require.Equal(t, []string{absent}, symptoms(findings))
}
