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

package api

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// A server with an audience of its own takes tokens for this audience only. Whom a server believes otherwise is
// tested in pkg/apiserver/testing.
func TestAudiences(t *testing.T) {
	framework.Long(t, "it has a server of its own")
	t.Parallel()
	accounts := framework.Kube(cp).CoreV1().ServiceAccounts(framework.Namespace(t, cp))
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "cook"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	server := framework.NewServer(t, cp, framework.Flags("--api-audiences=kitchen,pizzeria", "--run-controllers=false"))
	require.NoError(t, server.Start(t.Context()))
	for name, test := range map[string]struct {
		audiences []string
		server    *controlplane.Component
		want      int
	}{
		"a token for this server":                   {[]string{"pizzeria"}, server, http.StatusOK},
		"a token for kube-apiserver":                {nil, server, http.StatusUnauthorized},
		"a server without audiences, a default one": {nil, cp.APIServer, http.StatusOK},
	} {
		issued, err := accounts.CreateToken(t.Context(), "cook",
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: test.audiences}}, metav1.CreateOptions{})
		require.NoError(t, err)
		config := rest.AnonymousClientConfig(framework.AdminConfig(t, cp, test.server))
		config.BearerToken = issued.Status.Token
		code, body, err := framework.GetAs(t, config, "/apis")
		require.NoError(t, err)
		require.Equal(t, test.want, code, "%s: %s", name, body)
	}
}
