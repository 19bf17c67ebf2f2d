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

package crd

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// A caller has a certificate, or a token that kube-apiserver has issued and reviews.
func TestCallers(t *testing.T) {
	t.Parallel()
	kube := framework.Kube(cp)
	_, err := kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "webhook-reviews-tokens"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "restaurant-system", Name: "webhook"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	namespace := framework.Namespace(t, cp)
	allowed := "system:serviceaccount:" + namespace + ":allowed"
	server := startWebhook(t, "webhook-callers", "--client-ca-file="+cp.PKI.ClientCA.File, "--client-tokens", "--client-allowed-names=caller,"+allowed)

	for name, test := range map[string]struct {
		certificate, token string
		want               int
	}{
		"a certificate":           {certificate: "caller", want: http.StatusBadRequest}, // as the review has no request
		"another's certificate":   {certificate: "somebody", want: http.StatusForbidden},
		"a token":                 {token: serviceAccountToken(t, namespace, "allowed"), want: http.StatusBadRequest},
		"another's token":         {token: serviceAccountToken(t, namespace, "other"), want: http.StatusForbidden},
		"a token of nobody":       {token: "forged", want: http.StatusUnauthorized},
		"nothing to prove a name": {want: http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			controlplane.Eventually(t, func() error { // The binding is not in force at once.
				code, answer := callValidate(t, server, test.certificate, test.token)
				if code != test.want {
					return apierrors.NewGenericServerResponse(code, "post", corev1.Resource("reviews"), "", answer, 0, true)
				}
				return nil
			})
		})
	}
}

func serviceAccountToken(t *testing.T, namespace, name string) string {
	t.Helper()
	accounts := framework.Kube(cp).CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	request, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	return request.Status.Token
}

// callValidate sends a review without a request.
func callValidate(t *testing.T, server *controlplane.Component, certificate, token string) (code int, answer string) {
	t.Helper()
	config := &tls.Config{RootCAs: cp.PKI.ServingCA.Pool()}
	if certificate != "" {
		issued, err := cp.PKI.ClientCA.Issue(controlplane.Certificate{User: certificate})
		require.NoError(t, err)
		pair, err := tls.X509KeyPair(issued.Cert, issued.Key)
		require.NoError(t, err)
		config.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL()+"/validate",
		bytes.NewReader([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`)))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}
