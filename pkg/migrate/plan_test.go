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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// things are the objects that the server of the tests stores.
var things = keys.Objects{
	GroupResource: schema.GroupResource{Group: "example.com", Resource: "things"},
	Kind:          "Thing", Namespaced: true, Versions: []string{"v1", "v1beta1"}, Prefix: "/registry/example.com/things/",
}

func lines(findings []Finding) string {
	var lines []string
	for _, finding := range findings {
		lines = append(lines, string(finding.Status)+" "+finding.Cause+": "+finding.Fix)
	}
	return strings.Join(lines, "\n")
}

func TestCheckDefinitions(t *testing.T) {
	const usual = `{"metadata": {"name": "things.example.com"}, "spec": {"group": "example.com", "names": {"plural": "things", "kind": "Thing"}, "scope": "Namespaced",
		"versions": [{"name": "v1", "served": true, "storage": true}, {"name": "v1beta1", "served": false}]},
		"status": {"conditions": [{"type": "Established", "status": "True"}]}}`
	for name, test := range map[string]struct {
		definition, want string
	}{
		"as the server has it": {usual, ""},
		"being deleted": {strings.Replace(usual, `"metadata": {`, `"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", `, 1),
			"failure the CustomResourceDefinition things.example.com is being deleted: nothing can keep its objects from being deleted"},
		"of a resource that the server lacks": {strings.Replace(strings.Replace(usual, `"things"`, `"others"`, 1), "things.example.com", "others.example.com", 1),
			"failure the server does not store others.example.com: use a server that has it: a group moves as a whole"},
		"of another kind": {strings.Replace(usual, "Thing", "Other", 1),
			"failure the kind of things.example.com is Other, and at the server Thing: use a server with the same kinds"},
		"of another scope": {strings.Replace(usual, "Namespaced", "Cluster", 1),
			"failure the scope of things.example.com is Cluster, and at the server Namespaced: use a server with the same scope"},
		"with a version that the server lacks": {strings.Replace(usual, "v1beta1", "v2", 1),
			"failure the server does not serve things.example.com in the version v2: use a server that serves it, or remove the version from the definition"},
		"stored in a version that is not served": {strings.Replace(usual, `"v1", "served": true, "storage": true}, {"name": "v1beta1", "served": false`, `"v1", "storage": true}, {"name": "v1beta1", "served": true`, 1),
			"failure things.example.com is stored in the version v1, which is not served: set served in it: objects are read in this version"},
		"not served at all": {strings.Replace(usual, "true,", "false,", 1),
			"failure no version of things.example.com is served, so that its objects can't be read: set served in one of its versions\n" +
				"failure things.example.com is stored in the version v1, which is not served: set served in it: objects are read in this version"},
	} {
		t.Run(name, func(t *testing.T) {
			var d definition
			require.NoError(t, json.Unmarshal([]byte(test.definition), &d))
			p := &plan{Migration: &Migration{config: Config{Group: "example.com", Stores: []keys.Objects{things}}}}
			require.NoError(t, p.checkDefinitions(t.Context(), []definition{d}))
			assert.Equal(t, test.want, lines(p.findings))
		})
	}
	t.Run("none", func(t *testing.T) {
		p := &plan{Migration: &Migration{config: Config{Group: "example.com"}}}
		require.NoError(t, p.checkDefinitions(t.Context(), nil))
		const want = "failure no CustomResourceDefinition defines a resource of example.com: check the group: there is nothing to move"
		assert.Equal(t, want, lines(p.findings))
	})
}

func TestCheckAPIServices(t *testing.T) {
	const name = "v1.example.com"
	definition := map[string]string{cluster.ManagedLabel: "true"}
	for test, apiService := range map[string]struct {
		object *apiregistrationv1.APIService
		want   string
	}{
		"of a definition":               {&apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: definition}}, ""},
		"of no version of a definition": {&apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v2.example.com"}}, ""},
		"of a server": {&apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{}}},
			"failure the APIService v1.example.com leads to a server, so that clients do not see the custom resources: nothing if the objects have moved there already; otherwise delete the APIService: kube-apiserver creates it again for the definitions"},
		"without the label": {&apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name}},
			"failure the APIService v1.example.com has no label kube-aggregator.kubernetes.io/automanaged: delete the APIService: kube-apiserver creates it again with the label"},
	} {
		t.Run(test, func(t *testing.T) {
			p := &plan{Migration: &Migration{config: Config{APIServices: []string{name}}, aggregator: fake.NewClientset(apiService.object)}}
			require.NoError(t, p.checkAPIServices(t.Context(), nil))
			assert.Equal(t, apiService.want, lines(p.findings))
		})
	}
}
