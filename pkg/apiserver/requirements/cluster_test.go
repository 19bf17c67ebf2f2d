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

package requirements

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	certutil "k8s.io/client-go/util/cert"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/authentication"
)

// newCA returns the certificate of a new certificate authority.
func newCA(t *testing.T) string {
	t.Helper()
	certificate, _, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	require.NoError(t, err)
	return string(certificate)
}

// TestCheck is about everything of the cluster that a server waits for, and the advice in the errors.
func TestCheck(t *testing.T) {
	const (
		configMap = authentication.ConfigMap
		host      = "kube-apiserver at https://kubernetes"
		delegator = ": bind the ClusterRole system:auth-delegator to its user with a ClusterRoleBinding"
	)
	users, proxies := newCA(t), newCA(t)
	published := map[string]string{"client-ca-file": users, "requestheader-client-ca-file": proxies}
	for name, test := range map[string]struct {
		// published is the content of the ConfigMap, if there is one, and err the answer to a request for it.
		published map[string]string
		err       error
		// clientCA is the value of --client-ca-file.
		clientCA string
		// forbidden is a permission that the server does not have, and reviewErr the answer to a question about any.
		forbidden string
		reviewErr error
		// want begins the error.
		want          string
		unprioritized bool
	}{
		"all is there":                    {published: published},
		"kube-apiserver has just started": {want: host + " has not published the ConfigMap " + configMap + " in kube-system yet"},
		"kube-apiserver fails": {err: apierrors.NewInternalError(errors.New("down")),
			want: host + " can't be reached: check that it runs, and the address in the file of --kubeconfig (Internal error occurred: down)"},
		"no credentials": {err: apierrors.NewUnauthorized("who?"),
			want: host + " does not accept the credentials of this server: check the file of --kubeconfig, or the token of the service account (who?)"},
		"no role binding": {err: apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, configMap, nil),
			want: "this server may not read the ConfigMap " + configMap + ": bind the Role extension-apiserver-authentication-reader in kube-system to its user with a RoleBinding ("},
		"no request-header CA": {published: map[string]string{"client-ca-file": users},
			want: "there is no request-header CA, so no front proxy can assert an identity: start kube-apiserver with --requestheader-client-ca-file, which it publishes in the ConfigMap " + configMap + ", or this server with a flag of the same name"},
		"a CA that is none": {published: map[string]string{"requestheader-client-ca-file": "none"},
			want: "requestheader-client-ca-file in the ConfigMap " + configMap + " holds no certificates; see the file of this flag of kube-apiserver: "},
		"names that are not a list": {published: map[string]string{"requestheader-client-ca-file": proxies, "requestheader-allowed-names": "me"},
			want: "requestheader-allowed-names in the ConfigMap " + configMap + " is not a JSON list: "},
		"one CA for users and front proxies": {published: map[string]string{"client-ca-file": users, "requestheader-client-ca-file": users},
			want: "the server refuses to start: the request-header CA and the client CA overlap in "},
		"one CA, and names": {published: map[string]string{"client-ca-file": users, "requestheader-client-ca-file": users, "requestheader-allowed-names": `["me"]`}},
		"a file that does not exist": {published: published, clientCA: "missing.crt",
			want: "the server refuses to start: --client-ca-file can't be used: "},
		"reviews can't be asked for": {published: published, reviewErr: errors.New("down"),
			want: host + " does not say whether this server may create tokenreviews.authentication.k8s.io: down"},
		"no tokens may be reviewed": {published: published, forbidden: "create tokenreviews",
			want: "this server may not create tokenreviews.authentication.k8s.io" + delegator},
		"no access may be reviewed": {published: published, forbidden: "create subjectaccessreviews",
			want: "this server may not create subjectaccessreviews.authorization.k8s.io" + delegator},
		"objects can't be read":    {published: published, forbidden: "list services", want: "this server may not list services: grant it"},
		"priorities can't be read": {published: published, forbidden: "watch prioritylevelconfigurations", unprioritized: true},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []runtime.Object
			if test.published != nil {
				objects = append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: configMap}, Data: test.published})
			}
			kube := kubefake.NewClientset(objects...)
			kube.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return test.err != nil, nil, test.err })
			kube.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
				review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
				asked := review.Spec.ResourceAttributes
				review.Status.Allowed = asked.Verb+" "+asked.Resource != test.forbidden
				return true, review, test.reviewErr
			})
			options := genericoptions.NewDelegatingAuthenticationOptions()
			options.ClientCert.ClientCA = test.clientCA
			server := &Server{Authentication: options, Prioritizes: true, Reads: []schema.GroupResource{{Resource: "services"}}, ReadsFix: "grant it"}
			asks := &client{kube, &rest.Config{Host: "https://kubernetes"}}
			extended := &extendedCluster{Server: server, clients: clients{asks, asks, asks}}

			err := extended.check(t.Context())
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.Error(t, err)
				require.True(t, strings.HasPrefix(err.Error(), test.want), "got  %v\nwant %s", err, test.want)
			}
			require.Equal(t, test.unprioritized, extended.unprioritized != nil, "%v", extended.unprioritized)
		})
	}
}
