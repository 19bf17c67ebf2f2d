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
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
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
	served := State{Phase: Moved, Served: map[string][]string{"things.example.com": {"v1", "v1beta1"}}, Service: "server/server"}
	both := []runtime.Object{registered("v1.example.com", "server"), registered("v1beta1.example.com", "server")}
	unavailable := registered("v1beta1.example.com", "server")
	unavailable.Status.Conditions[0].Status, unavailable.Status.Conditions[0].Message = apiregistrationv1.ConditionFalse, "no endpoints"
	returned := State{Phase: Returned}
	older := served
	older.Service = ""
	const twoVersions = `"v1beta1", "served": true`
	for name, test := range map[string]struct {
		state       State
		defined     bool
		service     string
		apiServices []runtime.Object
		want        string
	}{
		"all versions":                    {served, false, "", both, ""},
		"of an older release":             {older, false, "", both, ""},
		"a server that needs definitions": {State{Phase: Moved}, true, "", both, ""},
		"a Service that was named":        {served, false, "server", both, ""},
		"kube-apiserver, after they were": {returned, false, "", nil, ""},
		"a version is gone": {served, false, "", both[:1],
			`there is no APIService v1beta1.example.com, so that clients of this version do not reach the objects at the server: apply the server's APIServices`},
		"a version of a definition is gone": {State{Phase: Moved}, true, "", both[1:],
			`there is no APIService v1.example.com, so that clients of this version do not reach the objects at the server: apply the server's APIServices`},
		"none": {State{Phase: Moved}, false, "", nil,
			`no APIService of example.com leads to a server: apply the server's APIServices`},
		"not available": {served, false, "", []runtime.Object{both[0], unavailable},
			`the server does not serve the objects: the APIService v1beta1.example.com is not available: Passed: no endpoints`},
		"another server": {served, false, "", []runtime.Object{both[0], registered("v1beta1.example.com", "other")},
			`the APIService v1beta1.example.com leads to the Service other/server, and the objects were moved to server/server: make it lead there, or, if that is the same server, name its Service by --service-namespace and --service-name`},
		"another server than is named": {served, false, "other", both,
			`the APIService v1.example.com leads to the Service server/server, and the objects were moved to other/server: make it lead there, or, if that is the same server, name its Service by --service-namespace and --service-name`},
		"the server, after they were moved back": {returned, false, "", both[:1],
			`the APIService v1.example.com leads to a server, so that clients use what would be deleted: delete the APIService: kube-apiserver creates it again for the definitions`},
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
			m.config.Defined, m.config.Report = test.defined, func(Progress) {}
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

// Writes at kube-apiserver since the objects moved are not deleted as copies, unless the server has them, too, or has
// been told otherwise.
func TestCheckWritten(t *testing.T) {
	m := newMigration(t)
	const want = "1 objects were written at kube-apiserver after they had moved, and the server does not have that: things/default/one: read them at /apis/com/v1/things.example, and create or change them at the server"
	other := strings.Replace(usualObject, `"uid"`, `"annotations": {"a": "b"}, "uid"`, 1)
	for name, test := range map[string]struct {
		state    string
		metadata string
		// atServer is what the server has, and since that it was written there since.
		atServer string
		since    bool
		kubeEtcd bool
		want     string
	}{
		"written before":                {state: `"revisions": {"things": "6"}`, metadata: `"resourceVersion": "6"`},
		"written since":                 {state: `"revisions": {"things": "5"}`, metadata: `"resourceVersion": "6"`, want: want},
		"at the server, too":            {state: `"revisions": {"things": "5"}`, metadata: `"resourceVersion": "6"`, atServer: usualObject},
		"another one at the server":     {state: `"revisions": {"things": "5"}`, metadata: `"resourceVersion": "6"`, atServer: other, want: want},
		"changed at both":               {state: `"revisions": {"things": "5"}`, metadata: `"resourceVersion": "6"`, atServer: other, since: true},
		"defined later":                 {state: `"revisions": {"others": "7"}`, metadata: `"resourceVersion": "6"`, want: want},
		"deleted by an earlier process": {state: `"revisions": {"things": "5"}`, metadata: `"resourceVersion": "6", "deletionTimestamp": "2026-01-01T00:00:00Z"`},
		"moved back and forth":          {state: `"objects": {}`, metadata: `"resourceVersion": "6"`},
		"in its etcd":                   {state: `"revisions": {"things": "1"}`, metadata: `"generation": 1`, kubeEtcd: true, want: want},
		"deleted, in its etcd":          {state: `"revisions": {"things": "1"}`, metadata: `"deletionTimestamp": "2026-01-01T00:00:00Z"`, kubeEtcd: true},
	} {
		t.Run(name, func(t *testing.T) {
			scene := usualScene()
			scene.etcd = map[string]string{"/state": `{"phase": "Moved", ` + test.state + `}`, "/history": "1000000"}
			if test.since {
				scene.etcd["/history"] = "1"
			}
			scene.defined, scene.kubeEtcd = true, test.kubeEtcd
			scene.store.Transformer = identity.NewEncryptCheckTransformer()
			scene.atKube = strings.Replace(usualObject, `"uid"`, test.metadata+`, "uid"`, 1)
			scene.etcd["/kube/example.com/things/default/one"] = scene.atKube
			if test.atServer != "" {
				scene.etcd["/registry/example.com/things/default/one"] = test.atServer
			}
			planned := scene.migration(t, m.config.Etcd)
			planned.config.KubePrefix = "/kube"
			state, err := planned.Status(t.Context())
			require.NoError(t, err)
			err = planned.checkWritten(t.Context(), state)
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.want)
			}
		})
	}
}
