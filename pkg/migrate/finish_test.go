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
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
)

// Definitions and copies are only deleted while the server answers for all versions that moved.
func TestFinishServed(t *testing.T) {
	etcd := newMigration(t).config.Etcd
	registered := func(name, namespace string) *apiregistrationv1.APIService {
		apiService := &apiregistrationv1.APIService{Spec: apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Namespace: namespace, Name: "server"}}}
		apiService.Name = name
		apiService.Status.Conditions = []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, Reason: "Passed"}}
		return apiService
	}
	served := State{Phase: Moved, Service: "server/server"}
	both := []runtime.Object{registered("v1.example.com", "server"), registered("v1beta1.example.com", "server")}
	unavailable := registered("v1beta1.example.com", "server")
	unavailable.Status.Conditions[0].Status, unavailable.Status.Conditions[0].Message = apiregistrationv1.ConditionFalse, "no endpoints"
	returned := State{Phase: Returned}
	const twoVersions = `"v1beta1", "served": true`
	for name, test := range map[string]struct {
		state       State
		defined     bool
		service     string
		apiServices []runtime.Object
		want        string
	}{
		"all versions":                    {served, false, "", both, ""},
		"a server that needs definitions": {State{Phase: Moved}, true, "", both, ""},
		"a Service that was named":        {served, false, "server", both, ""},
		"kube-apiserver, after they were": {returned, false, "", nil, ""},
		"a version is gone": {served, false, "", both[:1],
			`there is no APIService v1beta1.example.com, so that clients of this version do not reach the objects at the server: apply the server's APIServices`},
		"a version of a definition is gone": {State{Phase: Moved}, true, "", both[1:],
			`there is no APIService v1.example.com, so that clients of this version do not reach the objects at the server: register the group with "crd-apiserver register"`},
		"none": {State{Phase: Moved}, false, "", nil,
			`there is no APIService v1.example.com, so that clients of this version do not reach the objects at the server: apply the server's APIServices`},
		"not available": {served, false, "", []runtime.Object{both[0], unavailable},
			`the server does not serve the objects: the APIService v1beta1.example.com is not available: Passed: no endpoints`},
		"another server": {served, false, "", []runtime.Object{both[0], registered("v1beta1.example.com", "other")},
			`the APIService v1beta1.example.com leads to the Service other/server, and the objects were moved to server/server: make it lead there, or, if that is the same server, name its Service by --service-namespace and --service-name`},
		"another server than is named": {served, false, "other", both,
			`the APIService v1.example.com leads to the Service server/server, and the objects were moved to other/server: make it lead there, or, if that is the same server, name its Service by --service-namespace and --service-name`},
		"the server, after they were moved back": {returned, false, "", both[:1],
			`the APIService v1.example.com leads to a server, so that clients use what would be deleted: delete the APIService: kube-apiserver creates it again for the definitions`},
		"crd-apiserver, after they were moved back": {returned, true, "", both[:1],
			`the APIService v1.example.com leads to a server, so that clients use what would be deleted: run "crd-apiserver unregister --groups=example.com"`},
	} {
		t.Run(name, func(t *testing.T) {
			scene := usualScene()
			scene.inDefinition(`"v1beta1", "served": false`, twoVersions)
			test.state.Group, test.state.Switched = "example.com", time.Unix(0, 0)
			saved, err := json.Marshal(test.state)
			require.NoError(t, err)
			scene.etcd = map[string]string{"/state": string(saved)}
			m := scene.migration(t, etcd)
			m.aggregator = aggregatorfake.NewClientset(test.apiServices...)
			m.config.APIServices = []string{"v1.example.com", "v1beta1.example.com"}
			m.config.Defined = test.defined
			m.config.Service = apiregistrationv1.ServiceReference{}
			if test.service != "" {
				m.config.Service = apiregistrationv1.ServiceReference{Namespace: test.service, Name: "server"}
			}
			before, err := m.serverRevision(t.Context())
			require.NoError(t, err)

			findings, err := m.PlanFinish(t.Context())
			require.NoError(t, err)
			failures := 0
			for _, finding := range findings {
				if finding.Status == Failure {
					failures++
				}
			}
			if test.want == "" {
				require.Zero(t, failures, "%v", findings)
				require.NoError(t, m.finishable(t.Context(), test.state))
			} else {
				require.Equal(t, 1, failures, "%v", findings)
				require.EqualError(t, m.Finish(t.Context()), test.want)
			}
			// Neither the dry run nor what is refused changes anything.
			after, err := m.serverRevision(t.Context())
			require.NoError(t, err)
			require.Equal(t, before, after)
			client, ok := m.dynamic.(*dynamicfake.FakeDynamicClient)
			require.True(t, ok)
			for _, action := range client.Actions() {
				require.Equal(t, "list", action.GetVerb())
			}
		})
	}
}

// Writes at kube-apiserver since the objects moved are neither deleted nor overwritten as copies, unless the server has
// them, too.
func TestCheckWritten(t *testing.T) {
	m := newMigration(t)
	const (
		want  = "1 objects were written at kube-apiserver past the server, which does not have them like that: things/default/one: read them at /apis/com/v1/things.example, and create or change them at the server; --discard-written gives up what is still missing then"
		moved = `"phase": "Moved", "revisions": {"things": "5"}`
	)
	with := func(metadata string) string { return strings.Replace(usualObject, `"uid"`, metadata+`, "uid"`, 1) }
	other := with(`"annotations": {"a": "b"}`)
	for name, test := range map[string]struct {
		state    string
		metadata string
		atServer string
		kubeEtcd bool
		discard  bool
		want     string
	}{
		"written before":                {state: moved, metadata: `"resourceVersion": "5"`},
		"written since":                 {state: moved, metadata: `"resourceVersion": "6"`, want: want},
		"given up":                      {state: moved, metadata: `"resourceVersion": "6"`, discard: true},
		"at the server, too":            {state: moved, metadata: `"resourceVersion": "6"`, atServer: usualObject},
		"by another write":              {state: moved, metadata: `"resourceVersion": "6", "generation": 2`, atServer: with(`"generation": 3, "managedFields": [{"manager": "a"}]`)},
		"another one at the server":     {state: moved, metadata: `"resourceVersion": "6"`, atServer: other, want: want},
		"defined later":                 {state: `"phase": "Moved", "revisions": {"others": "7"}`, metadata: `"resourceVersion": "6"`, want: want},
		"deleted by an earlier process": {state: moved, metadata: `"resourceVersion": "6", "deletionTimestamp": "2026-01-01T00:00:00Z"`},
		"moved back and forth":          {state: `"phase": "Moved", "objects": {}`, metadata: `"resourceVersion": "6"`},
		"moving back":                   {state: `"phase": "Copying", "returning": true, "revisions": {"things": "5"}`, metadata: `"resourceVersion": "6"`},
		"in its etcd":                   {state: `"phase": "Moved", "revisions": {"things": "1"}`, metadata: `"generation": 1`, kubeEtcd: true, want: want},
		"deleted, in its etcd":          {state: `"phase": "Moved", "revisions": {"things": "1"}`, metadata: `"deletionTimestamp": "2026-01-01T00:00:00Z"`, kubeEtcd: true},
		"without a migration":           {metadata: `"generation": 1`, kubeEtcd: true, want: want},
	} {
		t.Run(name, func(t *testing.T) {
			scene := usualScene()
			scene.etcd = map[string]string{"/history": "1000000"}
			scene.defined, scene.kubeEtcd = true, test.kubeEtcd
			scene.atKube = with(test.metadata)
			scene.etcd["/kube/example.com/things/default/one"] = scene.atKube
			if test.atServer != "" {
				scene.etcd["/registry/example.com/things/default/one"] = test.atServer
			}
			planned := scene.migration(t, m.config.Etcd)
			planned.config.KubePrefix, planned.config.DiscardWritten = "/kube", test.discard
			var state State
			require.NoError(t, json.Unmarshal([]byte("{"+test.state+"}"), &state))
			err := planned.checkWritten(t.Context(), state)
			requireError(t, test.want, err)
		})
	}
}

// The way back would overwrite what was written past the server, and delete what only kube-apiserver has.
func TestBackOverwritesNothing(t *testing.T) {
	etcd := newMigration(t).config.Etcd
	for name, state := range map[string]string{"moved": `{"phase": "Moved", "revisions": {"things": "1"}}`, "without a migration": ""} {
		t.Run(name, func(t *testing.T) {
			scene := usualScene()
			scene.registered()
			scene.defined, scene.kubeEtcd, scene.revision = true, true, "1000"
			scene.store.Prefix = "/server/example.com/things/"
			scene.etcd["/registry/example.com/things/default/one"] = usualObject
			if scene.etcd["/state"] = state; state == "" {
				delete(scene.etcd, "/state")
			}
			m := scene.migration(t, etcd)
			const want = "1 objects were written at kube-apiserver past the server, which does not have them like that: things/default/one"
			require.ErrorContains(t, m.Back(t.Context()), want)
			findings, err := m.PlanBack(t.Context())
			require.NoError(t, err)
			require.Equal(t, []string{"failure " + want}, causes(findings, CopiesWritten), "%+v", findings)
		})
	}
}
