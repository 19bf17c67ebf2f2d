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
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// Only a migration that keeps clients from writing, or has changed the definitions, is recovered, and only if
// etcd says that its process has ended.
func TestRecover(t *testing.T) {
	etcd := newMigration(t).config.Etcd
	granted, err := etcd.Grant(t.Context(), leaseSeconds)
	require.NoError(t, err)
	const (
		expired clientv3.LeaseID = 1
		gone    Phase            = "none"
		denied                   = "a migration of example.com has ended in the phase Freezing, in which clients can't write, and this server is no cluster administrator, so it can't end that: " +
			"run the same command of \"migrate\" again, or \"migrate abort\", or bind the ClusterRole cluster-admin to the server's user until the objects have moved"
		unchanged = "a migration of example.com has ended in the phase Copying, so that changes of its definitions may have no effect, and this server is no cluster administrator, so it can't end that: " +
			"run the same command of \"migrate\" again, or \"migrate abort\", or bind the ClusterRole cluster-admin to the server's user until the objects have moved"
	)
	for name, test := range map[string]struct {
		phase     Phase
		returning bool
		lease     clientv3.LeaseID
		forbidden bool
		want      Phase
		err       string
	}{
		"copying":                  {phase: Copying, lease: expired, want: Copying},
		"copying, back":            {phase: Copying, returning: true, lease: expired, want: Moved},
		"copying, back, alive":     {phase: Copying, returning: true, lease: granted.ID, want: Copying},
		"copying, back, forbidden": {phase: Copying, returning: true, lease: expired, forbidden: true, want: Copying, err: unchanged},
		"freezing":                 {phase: Freezing, lease: expired, want: Copying},
		"freezing, alive":          {phase: Freezing, lease: granted.ID, want: Freezing},
		"freezing, forbidden":      {phase: Freezing, lease: expired, forbidden: true, want: Freezing, err: denied},
		"freezing, back":           {phase: Freezing, returning: true, lease: expired, want: Copying},
		"switching":                {phase: Switching, lease: expired, want: gone},
		"switching, alive":         {phase: Switching, lease: granted.ID, want: Switching},
		"switching, back":          {phase: Switching, returning: true, lease: expired, want: Moved},
		"releasing":                {phase: Releasing, lease: expired, want: Moved},
		"releasing, alive":         {phase: Releasing, lease: granted.ID, want: Releasing},
		"releasing, back":          {phase: Releasing, returning: true, lease: expired, want: Returned},
		"aborting":                 {phase: Aborting, lease: expired, want: gone},
		"aborting, alive":          {phase: Aborting, lease: granted.ID, want: Aborting},
		"aborting, back":           {phase: Aborting, returning: true, lease: expired, want: Moved},
		"moved":                    {phase: Moved, lease: expired, want: Moved},
		"returned":                 {phase: Returned, returning: true, lease: expired, want: Returned},
		"no migration":             {want: gone},
	} {
		t.Run(name, func(t *testing.T) {
			scene := usualScene()
			scene.forbidden = test.forbidden
			if test.phase != "" {
				state := State{Phase: test.phase, Returning: test.returning, Lease: test.lease, Writer: "ended"}
				saved, err := json.Marshal(state)
				require.NoError(t, err)
				scene.etcd = map[string]string{"/state": string(saved)}
			}
			m := scene.migration(t, etcd)
			m.config.APIServices = nil
			abandoned, err := Abandoned(t.Context(), etcd, "/state")
			require.NoError(t, err)
			require.Equal(t, test.want != test.phase && test.phase != "" || test.forbidden, abandoned)
			err = m.Recover(t.Context())
			if test.err != "" {
				require.EqualError(t, err, test.err)
			} else {
				require.NoError(t, err)
			}
			state, err := m.Status(t.Context())
			if test.want == gone {
				require.ErrorIs(t, err, ErrNone)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, state.Phase)
			require.Equal(t, test.want == test.phase, state.Writer == "ended", "The state must not change unless something is done.")
		})
	}
}

// Once, the definitions kept BypassVersion and the annotation, so that the server ignored their changes.
func TestRecoverDefinitions(t *testing.T) {
	const conversion = `{"strategy": "Webhook"}`
	etcd := newMigration(t).config.Etcd
	for name, state := range map[string]State{
		"back":   {Phase: Copying, Returning: true},
		"finish": {Phase: Moved},
	} {
		t.Run(name, func(t *testing.T) {
			state.Lease, state.Writer, state.Conversions = 1, "ended", map[string]*apiextensionsv1.CustomResourceConversion{"things.example.com": {Strategy: "Webhook"}}
			saved, err := json.Marshal(state)
			require.NoError(t, err)
			scene := usualScene()
			scene.defined, scene.etcd = true, map[string]string{"/state": string(saved)}
			scene.inDefinition(`"metadata": {`, `"metadata": {"annotations": {"`+keys.CopyAnnotation+`": "`+keys.CopyKept+`"}, `)
			scene.inDefinition(`"storage": false}]`, `"storage": false}, {"name": "migrate", "served": true, "storage": false}]`)
			m := scene.migration(t, etcd)
			require.NoError(t, m.Recover(t.Context()))
			var got *unstructured.Unstructured
			for _, action := range m.dynamic.(*dynamicfake.FakeDynamicClient).Actions() {
				if update, ok := action.(clienttesting.UpdateAction); ok {
					got = update.GetObject().(*unstructured.Unstructured)
				}
			}
			require.NotNil(t, got)
			require.Empty(t, got.GetAnnotations())
			want := unmarshal(t, strings.Replace(usualDefinition, `{"strategy": "None"}`, conversion, 1))[0]
			require.Equal(t, want.Object["spec"], got.Object["spec"])
			now, err := m.Status(t.Context())
			require.NoError(t, err)
			require.Equal(t, Moved, now.Phase)
			_, err = etcd.Revoke(t.Context(), now.Lease)
			require.NoError(t, err)
			abandoned, err := Abandoned(t.Context(), etcd, "/state")
			require.NoError(t, err)
			require.False(t, abandoned, "It must not be recovered twice.")
		})
	}
}

// A migration that is being aborted can go on if the abort has not let clients write yet.
func TestGoOnInsteadOfAborting(t *testing.T) {
	const there, back = `"revisions": {"things": "5"}`, `"returning": true, "registered": {"v1.example.com": {}}, `
	etcd := newMigration(t).config.Etcd
	for name, test := range map[string]struct {
		// registered says that clients use the server.
		registered bool
		state      string
		run, back  error
	}{
		"at the server":              {true, there, nil, errAborting},
		"at the server, thawed":      {true, `"revisions": null`, errAborting, errAborting},
		"at kube-apiserver":          {false, there, errAborting, errAborting},
		"back, at kube-apiserver":    {false, back + there, errAborting, nil},
		"back, thawed":               {false, back + `"revisions": null`, errAborting, errAborting},
		"back, at the server, again": {true, back + there, errAborting, errAborting},
	} {
		t.Run(name, func(t *testing.T) {
			scene := usualScene()
			scene.registered()
			if !test.registered {
				scene.apiService.Spec.Service = nil
			}
			scene.etcd["/state"] = `{"phase": "Aborting", ` + test.state + `}`
			m := scene.migration(t, etcd)
			require.Equal(t, test.run, m.resumeForward(t.Context()))
			require.Equal(t, test.back, m.resumeReverse(t.Context()))
		})
	}
}

// A process that another one has superseded can't write to kube-apiserver any more.
func TestFence(t *testing.T) {
	config := newMigration(t).config
	usual := answered(http.StatusOK, http.Header{"Content-Type": {"application/json"}}, usualObject)
	server := &answers{left: []answer{usual, usual, usual}}
	config.Cluster = &rest.Config{Transport: server}
	m, err := New(config)
	require.NoError(t, err)
	patch := func(options metav1.PatchOptions) error {
		_, err := m.dynamic.Resource(thingsV1).Patch(t.Context(), "one", types.MergePatchType, []byte("{}"), options)
		return err
	}
	require.NoError(t, m.begin(t.Context(), Copying))
	require.NoError(t, patch(metav1.PatchOptions{}))
	other := &Migration{config: config}
	require.NoError(t, other.resume(t.Context(), anyState))
	require.ErrorIs(t, patch(metav1.PatchOptions{}), errSuperseded)
	require.Len(t, server.left, 2, "It must not have been sent.")
	require.NoError(t, patch(metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}))
	_, err = m.dynamic.Resource(thingsV1).Get(t.Context(), "one", metav1.GetOptions{})
	require.NoError(t, err)
}

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
			m.config.Cluster = &rest.Config{}
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
