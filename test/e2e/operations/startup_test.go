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

package operations

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// A server that starts while kube-apiserver is unavailable waits for it.
func TestServerStartsBeforeKubeAPIServer(t *testing.T) {
	framework.Long(t, "kube-apiserver is restarted")
	cp.KubeAPIServer.Kill()
	late := framework.NewServer(t, cp, framework.Flags())
	require.NoError(t, late.Launch())
	framework.WaitForLog(t, late, fmt.Sprintf(`"Waiting for the cluster" reason="kube-apiserver at %s can't be reached`, cp.KubeAPIServer.URL()))
	require.NoError(t, cp.KubeAPIServer.Start(t.Context()))
	require.NoError(t, late.WaitReady(t.Context()))
	require.NoError(t, cp.WaitAvailable(t.Context()))
}

// A server that says it is ready knows whom to trust: the front proxy, and users
// with certificates. It once read their certificate authorities only afterwards,
// and refused the first requests.
func TestReadyMeansReadyForRequests(t *testing.T) {
	framework.Long(t, "three servers are started one after the other")
	t.Parallel()
	for range 3 {
		server := framework.NewServer(t, cp, controlplane.ServerConfig{})
		require.NoError(t, server.Start(t.Context()))
		asProxy := framework.FrontProxy(t, cp, server, cp.PKI.FrontProxyCA, "somebody", "system:masters")
		for who, config := range map[string]*rest.Config{"the front proxy": asProxy, "a user": framework.AdminConfig(t, cp, server)} {
			list, err := versioned.NewForConfigOrDie(config).RestaurantV1().Toppings().List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err, who)
			require.Empty(t, list.Items, who)
		}
	}
}

// A server may be installed before its roles, and says which it is waiting for.
func TestRolesArriveLate(t *testing.T) {
	framework.Long(t, "a server waits for its roles")
	t.Parallel()
	const user = "newcomer"
	kubeconfig, err := cp.KubeconfigFor(user)
	require.NoError(t, err)
	server := framework.NewServer(t, cp, controlplane.ServerConfig{Kubeconfig: kubeconfig})
	require.NoError(t, server.Launch())

	framework.WaitForLog(t, server, "this server may not read the ConfigMap extension-apiserver-authentication")
	framework.Kubectl(t, cp, "create", "rolebinding", user, "--namespace=kube-system", "--role=extension-apiserver-authentication-reader", "--user="+user)
	framework.WaitForLog(t, server, "this server may not create tokenreviews.authentication.k8s.io")
	framework.Kubectl(t, cp, "create", "clusterrolebinding", user+":delegator", "--clusterrole=system:auth-delegator", "--user="+user)

	// Each of these would otherwise be an admission plugin that refuses all requests.
	const registration = ".admissionregistration.k8s.io"
	roles := kubernetes.NewForConfigOrDie(cp.RESTConfig()).RbacV1().ClusterRoles()
	role, err := roles.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}}, metav1.CreateOptions{})
	require.NoError(t, err)
	framework.Kubectl(t, cp, "create", "clusterrolebinding", user, "--clusterrole="+user, "--user="+user)
	for _, step := range []struct {
		missing string
		grant   []string
	}{
		{"namespaces", []string{"namespaces", "mutatingadmissionpolicies" + registration, "mutatingadmissionpolicybindings" + registration}},
		{"services", []string{"services", "mutatingwebhookconfigurations" + registration, "validatingadmissionpolicies" + registration, "validatingadmissionpolicybindings" + registration}},
		{"validatingwebhookconfigurations" + registration, []string{"validatingwebhookconfigurations" + registration}},
		{"resourcequotas", []string{"resourcequotas"}},
	} {
		framework.WaitForLog(t, server, "this server may not list "+step.missing)
		for _, resource := range step.grant {
			parsed := schema.ParseGroupResource(resource)
			role.Rules = append(role.Rules, rbacv1.PolicyRule{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{parsed.Group}, Resources: []string{parsed.Resource}})
		}
		role, err = roles.Update(t.Context(), role, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	// Without these, it is only less fair.
	require.NoError(t, server.WaitReady(t.Context()))
	framework.WaitForLog(t, server, `"Limiting requests by --max-requests-inflight and --max-mutating-requests-inflight, not by the cluster's FlowSchemas and PriorityLevelConfigurations; restart after granting list and watch on them" `+
		`reason="this server may not list flowschemas.flowcontrol.apiserver.k8s.io: bind a ClusterRole to its user that allows that, or use --enable-priority-and-fairness=false"`)

	log, err := os.ReadFile(server.LogFile())
	require.NoError(t, err)
	require.NotContains(t, string(log), "panic")
}

func TestStartupTimeout(t *testing.T) {
	framework.Long(t, "a server waits until it gives up")
	t.Parallel()
	dir := t.TempDir()
	stranger, err := cp.KubeconfigFor("stranger")
	require.NoError(t, err)
	content, err := os.ReadFile(stranger)
	require.NoError(t, err)
	wrongAddress := filepath.Join(dir, "kubeconfig")
	const nowhere = "https://127.0.0.1:1"
	require.NoError(t, os.WriteFile(wrongAddress, []byte(strings.Replace(string(content), cp.KubeAPIServer.URL(), nowhere, 1)), 0o600))
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no kube-apiserver": {[]string{"--kubeconfig=" + wrongAddress},
			"the cluster was not ready within --startup-timeout: kube-apiserver at " + nowhere},
		"no roles": {[]string{"--kubeconfig=" + stranger},
			"the cluster was not ready within --startup-timeout: this server may not read the ConfigMap"},
		"no etcd": {[]string{"--kubeconfig=" + cp.Kubeconfig(), "--etcd-servers=" + nowhere},
			"etcd was not ready within --startup-timeout: etcd at [" + nowhere},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, output := framework.Execute(t, cp, "apiserver", append(test.args, "--startup-timeout=1s", "--data-dir="+filepath.Join(dir, "data"))...)
			require.Equal(t, 1, code)
			require.Contains(t, output, `"command failed" err="`+test.want)
			require.NotContains(t, output, "panic")
		})
	}
}

func TestServerIsToldToStopWhileItWaits(t *testing.T) {
	framework.Long(t, "servers wait")
	t.Parallel()
	server := framework.NewServer(t, cp, controlplane.ServerConfig{ComponentConfig: framework.Flags("--startup-timeout=1h").ComponentConfig, Etcd: "never"})
	require.NoError(t, server.Launch())
	framework.WaitForLog(t, server, "Waiting for etcd")
	require.NoError(t, syscall.Kill(server.PID(), syscall.SIGTERM))
	require.Equal(t, "without an error", framework.WaitEnded(t, server))
}

// A server that would believe any user's certificate to be a front proxy's does
// not start.
func TestAuthoritiesOverlap(t *testing.T) {
	t.Parallel()
	authorities := []string{"--client-ca-file=" + cp.PKI.ClientCA.File, "--requestheader-client-ca-file=" + cp.PKI.ClientCA.File}
	code, output := framework.Execute(t, cp, "apiserver", append(authorities, "--kubeconfig="+cp.Kubeconfig(), "--data-dir="+t.TempDir())...)
	require.Equal(t, 1, code)
	require.Contains(t, output, `"command failed" err="the server refuses to start: the request-header CA and the client CA overlap in \"CN=client-ca`)

	server := framework.NewServer(t, cp, framework.Flags(append(authorities, "--requestheader-allowed-names=front-proxy-client")...))
	require.NoError(t, server.Start(t.Context()))
}

// The same, when it is the cluster that says so. A kube-apiserver of today would
// not, but a ConfigMap that one has published once stays.
func TestFrontProxyOfTheCluster(t *testing.T) {
	framework.Long(t, "kube-apiserver is restarted")
	t.Parallel()
	cp := controlplane.ForTest(t, controlplane.Config{
		KubeAPIServer:     controlplane.ComponentConfig{Flags: []string{"--requestheader-client-ca-file=", "--requestheader-allowed-names="}},
		ControllerManager: controlplane.ComponentConfig{Off: true},
		APIServer:         controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Off: true}},
	})
	require.NoError(t, cp.Install(t.Context()))
	server := framework.NewServer(t, cp, framework.Flags())
	publish := func(data map[string]string) {
		t.Helper()
		patch, err := json.Marshal(map[string]any{"data": data})
		require.NoError(t, err)
		framework.Kubectl(t, cp, "patch", "configmap", "extension-apiserver-authentication", "--namespace=kube-system", "--type=merge", "--patch="+string(patch))
	}

	require.NoError(t, server.Launch())
	framework.WaitForLog(t, server, "there is no request-header CA")

	publish(map[string]string{
		"requestheader-client-ca-file":       string(cp.PKI.ClientCA.CertPEM()),
		"requestheader-username-headers":     `["X-Remote-User"]`,
		"requestheader-group-headers":        `["X-Remote-Group"]`,
		"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	})
	require.Equal(t, "with exit status 1", framework.WaitEnded(t, server))
	framework.WaitForLog(t, server, "the server refuses to start: the request-header CA and the client CA overlap in ")

	publish(map[string]string{"requestheader-allowed-names": `["front-proxy-client"]`})
	require.NoError(t, server.Start(t.Context()))
}
