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

package certificates

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
)

// TestPublish writes the bundle to the APIServices that lead to this server and verify it.
func TestPublish(t *testing.T) {
	for name, test := range map[string]struct {
		spec apiregistrationv1.APIServiceSpec
		want string
	}{
		"of this server":         {apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Namespace: "here"}}, "new"},
		"of another instance":    {apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Namespace: "elsewhere"}, CABundle: []byte("its own")}, "its own"},
		"of kube-apiserver":      {apiregistrationv1.APIServiceSpec{}, ""},
		"that verifies nothing":  {apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Namespace: "here"}, InsecureSkipTLSVerify: true}, ""},
		"that trusts it already": {apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Namespace: "here"}, CABundle: []byte("new")}, "new"},
	} {
		t.Run(name, func(t *testing.T) {
			const apiService = "v1.example.com"
			client := fake.NewClientset(&apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: apiService}, Spec: test.spec})
			m := &Manager{config: Config{Namespace: "here", APIServices: []string{apiService, "v2.example.com"}}, aggregator: client}
			m.authority.kube = kubefake.NewClientset()
			require.NoError(t, m.publish(t.Context(), []byte("new")))
			got, err := client.ApiregistrationV1().APIServices().Get(t.Context(), apiService, metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, test.want, string(got.Spec.CABundle))
		})
	}
}

// TestPublishBundle writes a ConfigMap that an operator has installed.
func TestPublishBundle(t *testing.T) {
	configMap := func(name string, data map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "here", Name: name}, Data: data}
	}
	kube := kubefake.NewClientset(configMap("empty", nil), configMap("old", map[string]string{"ca.crt": "old"}), configMap("denied", nil))
	kube.PrependReactor("update", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.(clienttesting.UpdateAction).GetObject().(*corev1.ConfigMap).Name == "denied" {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "denied", errors.New("no"))
		}
		return false, nil, nil
	})
	s := secrets{kube: kube, namespace: "here"}
	for range 2 {
		kube.ClearActions()
		for _, name := range []string{"empty", "old", "missing"} {
			require.NoError(t, s.publishBundle(t.Context(), name, []byte("new")))
		}
	}
	require.Len(t, kube.Actions(), 3, "There is nothing left to do.")
	for _, name := range []string{"empty", "old"} {
		got, err := kube.CoreV1().ConfigMaps("here").Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, map[string]string{"ca.crt": "new"}, got.Data)
	}
	require.EqualError(t, s.publishBundle(t.Context(), "denied", []byte("new")),
		`allow the user of this server to get and update the ConfigMap denied in here, where it publishes its certificate authority: configmaps "denied" is forbidden: no`)
}

func TestCABundle(t *testing.T) {
	kube := kubefake.NewClientset(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "here", Name: "kept"}, Data: map[string][]byte{"ca.crt": []byte("PEM")}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "here", Name: "installed"}},
	)
	for secret, want := range map[string]struct{ bundle, err string }{
		"kept":      {"PEM", ""},
		"installed": {"", "the Secret installed in here has no ca.crt yet: start the server, which writes it"},
		"none":      {"", `reading which certificate authority the server has: secrets "none" not found`},
	} {
		t.Run(secret, func(t *testing.T) {
			bundle, err := CABundle(t.Context(), kube, "here", secret)
			if want.err != "" {
				require.EqualError(t, err, want.err)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, want.bundle, string(bundle))
		})
	}
}
