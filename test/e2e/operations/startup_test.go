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
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

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
