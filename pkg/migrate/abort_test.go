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
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

// An aborted way back left out an APIService that kube-apiserver had not created again yet. Its clients then used
// kube-apiserver's copies.
func TestAbortRegistersAgain(t *testing.T) {
	etcd := newMigration(t).config.Etcd
	const name = "v1.example.com"
	led := apiregistrationv1.APIServiceSpec{Group: "example.com", Version: "v1", GroupPriorityMinimum: 1, VersionPriority: 1, Service: &apiregistrationv1.ServiceReference{Namespace: "server", Name: "server"}}
	for test, exists := range map[string]bool{"kube-apiserver's own": true, "deleted": false} {
		t.Run(test, func(t *testing.T) {
			state, err := json.Marshal(State{Phase: Switching, Returning: true, Registered: map[string]apiregistrationv1.APIServiceSpec{name: led}})
			require.NoError(t, err)
			scene := usualScene()
			scene.defined, scene.etcd = true, map[string]string{"/state": string(state)}
			m := scene.migration(t, etcd)
			m.config.HistoryKey, m.config.Cluster = "/history", &rest.Config{}
			m.config.Report = func(progress Progress) { t.Log(progress.Message) }
			apiServices := m.aggregator.ApiregistrationV1().APIServices()
			if !exists {
				require.NoError(t, apiServices.Delete(t.Context(), name, metav1.DeleteOptions{}))
			}
			// No server answers for it.
			ctx, cancel := context.WithCancel(t.Context())
			m.aggregator.(*aggregatorfake.Clientset).PrependReactor("create", "apiservices", func(clienttesting.Action) (bool, runtime.Object, error) {
				cancel()
				return false, nil, nil
			})
			require.ErrorContains(t, m.Abort(ctx), "the server does not answer for v1.example.com")
			apiService, err := apiServices.Get(t.Context(), name, metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, led, apiService.Spec)
			require.Equal(t, map[string]string{cluster.RegisteredLabel: "true"}, apiService.Labels)
		})
	}
}

// A group that had been registered once stayed read-only after kube-apiserver was to serve it again.
func TestNoPolicyStays(t *testing.T) {
	etcd := newMigration(t).config.Etcd
	for name, test := range map[string]struct {
		state string
		do    func(*Migration) error
	}{
		"abort":             {`{"phase": "Copying"}`, func(m *Migration) error { return m.Abort(t.Context()) }},
		"finish after back": {`{"phase": "Returned"}`, func(m *Migration) error { return m.Finish(t.Context()) }},
	} {
		t.Run(name, func(t *testing.T) {
			scene := usualScene()
			scene.defined, scene.etcd = true, map[string]string{"/state": test.state}
			scene.apiService.Status.Conditions = []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, Reason: cluster.LocalReason}}
			m := scene.migration(t, etcd)
			m.config.Report = func(progress Progress) { t.Log(progress.Message) }
			m.config.Cluster = &rest.Config{Transport: always(answered(http.StatusOK, nil, "{}"))}
			require.NoError(t, test.do(m))
			var deleted []string
			for _, action := range m.dynamic.(*dynamicfake.FakeDynamicClient).Actions() {
				if deletion, ok := action.(clienttesting.DeleteAction); ok && deletion.GetName() == cluster.CopiesPolicyName("example.com") {
					deleted = append(deleted, deletion.GetResource().Resource)
				}
			}
			require.Equal(t, []string{"mutatingadmissionpolicybindings", "mutatingadmissionpolicies", "validatingadmissionpolicybindings", "validatingadmissionpolicies"}, deleted)
		})
	}
}
