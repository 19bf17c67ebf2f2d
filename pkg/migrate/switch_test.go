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

package migrate

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
)

func TestAnsweredByServer(t *testing.T) {
	t.Parallel()
	const name = "v1.example.com"
	const still = "kube-apiserver still sends requests for the APIService v1.example.com to bakery"
	bakery := http.Header{"Server": {"bakery"}}
	for what, test := range map[string]struct {
		code         int
		header       http.Header
		unregistered bool
		// server and kube are the errors if the one or the other is to answer.
		server, kube string
	}{
		"the server":                  {code: http.StatusOK, header: bakery, kube: still},
		"the server, with an error":   {code: http.StatusNotFound, header: bakery, kube: still},
		"kube-apiserver":              {code: http.StatusOK, server: "kube-apiserver still answers for the APIService v1.example.com itself"},
		"nobody yet":                  {code: http.StatusNotFound, server: "could not find the requested resource", kube: "could not find the requested resource"},
		"nobody, and nobody is to":    {code: http.StatusNotFound, unregistered: true},
		"kube-apiserver, as a bridge": {code: http.StatusServiceUnavailable, server: "unable to handle the request", kube: "unable to handle the request"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			registered := fake.NewSimpleClientset(&apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name}})
			if test.unregistered {
				registered = fake.NewSimpleClientset()
			}
			for wanted, want := range map[bool]string{true: test.server, false: test.kube} {
				server := &answers{left: []answer{answered(test.code, test.header, "")}}
				m := &Migration{config: Config{Cluster: &rest.Config{Transport: server}}, aggregator: registered}
				err := m.answeredByServer(t.Context(), name, wanted)
				requireError(t, want, err)
			}
		})
	}
}

// One of several kube-apiservers may reach the server while another still answers itself. Clients of the first may have
// read at the server, so that the version stays there until the migration goes on or is aborted.
func TestReachedByOneKubeAPIServer(t *testing.T) {
	scene := usualScene()
	scene.apiService.Status.Conditions = []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, Reason: "Passed"}}
	m := scene.migration(t, newMigration(t).config.Etcd)
	ctx, cancel := context.WithCancel(t.Context())
	m.config.Cluster = &rest.Config{Transport: always(func() (*http.Response, error) {
		defer cancel()
		return answered(http.StatusOK, nil, "")()
	})}
	found, err := m.definitions(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.begin(t.Context(), Switching, found...))
	require.ErrorContains(t, m.switchVersions(ctx), "kube-apiserver still answers")
	require.Equal(t, Switching, m.state.Phase)
	apiService, err := m.apiService(t.Context(), "v1.example.com")
	require.NoError(t, err)
	require.NotNil(t, apiService.Spec.Service)
}

// kube-apiserver may encrypt a resource without a copy that showed it. It then can't read objects that were written to
// its etcd, and clients stay at the server.
func TestCheckReadable(t *testing.T) {
	scene := usualScene()
	m := scene.migration(t, newMigration(t).config.Etcd)
	found, err := m.definitions(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.begin(t.Context(), Copying, found...))
	require.NoError(t, m.checkReturned(t.Context()))
	client, ok := m.dynamic.(*dynamicfake.FakeDynamicClient)
	require.True(t, ok)
	client.PrependReactor("list", local(thingsV1).Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no matching prefix found")
	})
	require.EqualError(t, m.checkReturned(t.Context()), "kube-apiserver can't read the things.example.com that were written to its etcd: reading the things.example.com: no matching prefix found: "+
		"if it encrypts them, add the provider identity to its --encryption-provider-config until all have been written again")
}
