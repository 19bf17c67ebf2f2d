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
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

const otherDefinition = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "others.example.com"},
	"spec": {"group": "example.com", "names": {"plural": "others", "kind": "Other"}, "versions": [{"name": "v1", "served": true, "storage": true}]}}`

// define replaces the definitions of the cluster.
func define(t *testing.T, m *Migration, definitions ...string) {
	t.Helper()
	client, ok := m.dynamic.(*dynamicfake.FakeDynamicClient)
	require.True(t, ok, "the client is a %T", m.dynamic)
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	for _, text := range definitions {
		list.Items = append(list.Items, unmarshal(t, text)...)
	}
	client.PrependReactor("list", "customresourcedefinitions", func(clienttesting.Action) (bool, runtime.Object, error) { return true, list, nil })
}

// A definition that changes before the switch keeps the objects from moving, and clients go on.
func TestChangedDefinitions(t *testing.T) {
	etcd := newMigration(t).config.Etcd
	const webhook = `"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"caBundle": "YQ==", "url": "https://a"}}}`
	converted := strings.Replace(usualDefinition, `"conversion": {"strategy": "None"}`, webhook, 1)
	in := func(definition, before, after string) string {
		changed := strings.Replace(definition, before, after, 1)
		require.NotEqual(t, definition, changed, "%q is not in the definition", before)
		return changed
	}
	for name, test := range map[string]struct {
		before string
		after  []string
		want   string
	}{
		"nothing":            {usualDefinition, []string{usualDefinition}, ""},
		"labels":             {usualDefinition, []string{in(usualDefinition, `"metadata": {`, `"metadata": {"labels": {"a": "b"}, `)}, ""},
		"status":             {usualDefinition, []string{in(usualDefinition, `["v1"]`, `["v1", "v1beta1"]`)}, ""},
		"a certificate":      {converted, []string{in(converted, `YQ==`, `Yg==`)}, ""},
		"a conversion":       {converted, []string{in(converted, `https://a`, `https://b`)}, "things.example.com has another spec"},
		"a schema":           {usualDefinition, []string{in(usualDefinition, `"name": "v1", `, `"name": "v1", "schema": {}, `)}, "things.example.com has another spec"},
		"another definition": {usualDefinition, []string{usualDefinition, otherDefinition}, "others.example.com is new"},
		"no definition":      {usualDefinition, nil, "things.example.com is gone"},
		"made again":         {usualDefinition, []string{in(usualDefinition, `"metadata": {`, `"metadata": {"uid": "2", `)}, "things.example.com was deleted and created again"},
		"a deletion":         {usualDefinition, []string{in(usualDefinition, `"metadata": {`, `"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", `)}, "things.example.com is being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			scene := usualScene()
			scene.definition = test.before
			m := scene.migration(t, etcd)
			found, err := m.definitions(t.Context())
			require.NoError(t, err)
			err = m.begin(t.Context(), Copying, found...)
			require.NoError(t, err)
			define(t, m, test.after...)
			err = m.resume(t.Context(), anyState) // By another process.
			require.NoError(t, err)
			if test.want == "" {
				assert.NoError(t, m.unchanged(t.Context()))
				return
			}
			want := "the CustomResourceDefinitions of example.com have changed since the migration began: " + test.want + "; clients use them as before: " +
				"change them back and run this again, or run \"migrate abort\", and then plan and run a migration of what they define now"
			for phase, step := range map[Phase]func(context.Context) error{
				Copying:   func(ctx context.Context) error { return m.copyAll(ctx, m.forward()) },
				Freezing:  func(ctx context.Context) error { return m.freezeAndCompare(ctx, m.forward()) },
				Switching: func(ctx context.Context) error { return m.switchVersions(ctx) },
			} {
				m.state.Phase = phase
				kube := m.kube.(*kubefake.Clientset)
				kube.ClearActions()
				require.EqualError(t, step(t.Context()), want, phase)
				assert.Equal(t, Copying, m.state.Phase, "after %s", phase)
				thawed := slices.ContainsFunc(kube.Actions(), func(action clienttesting.Action) bool {
					return action.Matches("get", "prioritylevelconfigurations")
				})
				assert.Equal(t, phase != Copying, thawed, "a freeze is ended after %s", phase)
				apiService, err := m.aggregator.ApiregistrationV1().APIServices().Get(t.Context(), "v1.example.com", metav1.GetOptions{})
				require.NoError(t, err)
				assert.Nil(t, apiService.Spec.Service, "the APIService leads to the server after %s", phase)
			}
			response, err := etcd.Get(t.Context(), scene.store.Prefix+"default/one")
			require.NoError(t, err)
			assert.Zero(t, response.Count, "an object was copied")
		})
	}
}

// This program's own changes to definitions while objects move back do not count as changes.
func TestOwnChanges(t *testing.T) {
	scene := usualScene()
	const webhook = `"conversion": {"strategy": "Webhook"}`
	scene.inDefinition(`"conversion": {"strategy": "None"}`, webhook)
	scene.inDefinition(`"name": "v1", `, `"name": "v1", "schema": {"openAPIV3Schema": {"description": "A thing."}}, `)
	m := scene.migration(t, newMigration(t).config.Etcd)
	found, err := m.definitions(t.Context())
	require.NoError(t, err)
	err = m.begin(t.Context(), Copying, found...)
	require.NoError(t, err)
	m.state.Conversions = map[string]*apiextensionsv1.CustomResourceConversion{"things.example.com": found[0].Spec.Conversion}
	for name, change := range map[string][]string{
		"a version more": {`"versions": [`, `"versions": [{"name": "migrate", "served": true, "storage": false}, `, webhook, `"conversion": {"strategy": "None"}`},
		"hidden":         {`"served": true`, `"served": false`, `"metadata": {`, `"metadata": {"annotations": {"crd-apiserver/served": "v1"}, `},
	} {
		t.Run(name, func(t *testing.T) {
			define(t, m, strings.NewReplacer(change...).Replace(scene.definition))
			assert.NoError(t, m.unchanged(t.Context()))
		})
	}
}

func TestLocalPath(t *testing.T) {
	for group, want := range map[string]string{
		"argoproj.io":                            "/apis/io/v1/workflows.argoproj",
		"restaurant.programming-kubernetes.info": "/apis/info/v1/workflows.restaurant.programming-kubernetes",
		// Both groups may have moved.
		"acme.cert-manager.io": "/apis/io/v1/workflows.acme.cert-manager",
	} {
		resource := local(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "workflows"})
		assert.Equal(t, want, path.Join("/apis", resource.Group, resource.Version, resource.Resource))
	}
}
