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

package crdserver

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	clients "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	libraryoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

const widgetsName = "widgets.example.com"

// replicas share an etcd. Each has seen some state of the definition.
type replicas struct {
	etcd *clientv3.Client
	// cluster is kube-apiserver.
	cluster *fake.Clientset
	config  *apiserver.Config
}

// newReplicas returns replicas of a cluster with a definition, unless it is nil.
func newReplicas(t *testing.T, definition *apiextensionsv1.CustomResourceDefinition) *replicas {
	t.Helper()
	config := etcd.Config{Dir: t.TempDir(), QuotaBytes: 64 << 20}
	server, err := config.Start(t.Context())
	require.NoError(t, err)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{config.Endpoint()}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, errors.Join(client.Close(), server.Close())) })
	options := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry", nil))
	options.StorageConfig.Transport.ServerList = []string{config.Endpoint()}
	options.EnableWatchCache = false
	r := &replicas{etcd: client, cluster: fake.NewClientset(), config: &apiserver.Config{Etcd: options, Generic: &genericapiserver.RecommendedConfig{}}}
	r.config.Generic.ClientConfig = &rest.Config{Host: "localhost"}
	r.set(t, definition)
	return r
}

// set writes the cluster's definition. Nil deletes it.
func (r *replicas) set(t *testing.T, definition *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	tracker, resource := r.cluster.Tracker(), apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	_ = tracker.Delete(resource, "", widgetsName)
	if definition != nil {
		require.NoError(t, tracker.Add(definition))
	}
}

// mirror returns the mirror of a replica whose informer has this definition, unless it is nil.
func (r *replicas) mirror(t *testing.T, sees *apiextensionsv1.CustomResourceDefinition, purge bool) *mirror {
	t.Helper()
	m, err := newMirror(&Options{Groups: []string{"example.com"}, PurgeDeleted: purge}, r.config, optionsOfCopies(r.config),
		libraryoptions.NewCRDRESTOptionsGetter(*r.config.Etcd, nil, nil))
	require.NoError(t, err)
	t.Cleanup(m.destroy)
	t.Cleanup(m.queue.ShutDown)
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if sees != nil {
		require.NoError(t, indexer.Add(sees))
	}
	m.definitions = listers.NewCustomResourceDefinitionLister(indexer)
	m.cluster = r.cluster.ApiextensionsV1().CustomResourceDefinitions()
	return m
}

// copied is the copy in etcd, or nil.
func (r *replicas) copied(t *testing.T) *apiextensions.CustomResourceDefinition {
	t.Helper()
	copied, err := r.mirror(t, nil, false).copyNamed(t.Context(), widgetsName)
	require.NoError(t, err)
	return copied
}

// widgetsOf is a definition with these versions that kube-apiserver has accepted.
func widgetsOf(uid string, versions ...string) *apiextensionsv1.CustomResourceDefinition {
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"}
	made := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: widgetsName},
		Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com", Scope: apiextensionsv1.NamespaceScoped, Names: names},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			AcceptedNames: names, StoredVersions: []string{versions[0]},
			Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}},
		},
	}
	made.UID = types.UID(uid)
	for i, version := range versions {
		made.Spec.Versions = append(made.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: version, Served: true, Storage: i == 0,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
		})
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&made.Spec)
	return made
}

func annotated(definition *apiextensionsv1.CustomResourceDefinition, value string) *apiextensionsv1.CustomResourceDefinition {
	definition.Annotations = map[string]string{keys.CopyAnnotation: value}
	return definition
}

// state has the relevant fields of a copy.
type state struct {
	uid      string
	versions []string
	purged   bool
}

func stateOf(copied *apiextensions.CustomResourceDefinition) *state {
	if copied == nil {
		return nil
	}
	s := &state{uid: string(copied.UID), purged: copied.DeletionTimestamp != nil}
	for _, version := range copied.Spec.Versions {
		s.versions = append(s.versions, version.Name)
	}
	return s
}

// One of two replicas has followed the definition, and the informer of the other one is behind.
// Once, the latter reverted the copy, or deleted it with all objects.
func TestReplicaThatIsBehind(t *testing.T) {
	deleted := (*apiextensionsv1.CustomResourceDefinition)(nil)
	for name, test := range map[string]struct {
		// now is the definition in the cluster, and seen the one that the late replica has seen.
		now, seen *apiextensionsv1.CustomResourceDefinition
		want      *state
	}{
		"a changed definition":               {widgetsOf("a", "v1", "v2"), widgetsOf("a", "v1"), &state{uid: "a", versions: []string{"v1", "v2"}}},
		"a definition that is back":          {widgetsOf("b", "v2"), widgetsOf("a", "v1"), &state{uid: "b", versions: []string{"v2"}}},
		"a definition that it does not know": {widgetsOf("a", "v1"), deleted, &state{uid: "a", versions: []string{"v1"}}},
		"a definition that has been deleted": {deleted, widgetsOf("a", "v1"), nil},
		"a copy that was to go":              {widgetsOf("a", "v1"), annotated(widgetsOf("a", "v1"), keys.CopyNone), &state{uid: "a", versions: []string{"v1"}}},
		"a copy that is gone":                {annotated(widgetsOf("a", "v1"), keys.CopyNone), widgetsOf("a", "v1"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplicas(t, test.now)
			require.NoError(t, r.mirror(t, test.now, true).sync(t.Context(), widgetsName))
			before := r.copied(t)
			require.Equal(t, test.want, stateOf(before))
			behind := r.mirror(t, test.seen, true)
			require.NoError(t, behind.sync(t.Context(), widgetsName))
			require.Equal(t, before, r.copied(t))
			require.NoError(t, behind.copyAll(t.Context()))
			require.Equal(t, before, r.copied(t))
		})
	}
}

// slowCluster answers the first request for a definition with its earlier state.
type slowCluster struct {
	clients.CustomResourceDefinitionInterface
	happen func()
}

func (c *slowCluster) Get(ctx context.Context, name string, options metav1.GetOptions) (*apiextensionsv1.CustomResourceDefinition, error) {
	definition, err := c.CustomResourceDefinitionInterface.Get(ctx, name, options)
	if c.happen != nil {
		c.happen()
		c.happen = nil
	}
	return definition, err
}

// Another replica follows the next change while this one writes its answer from kube-apiserver.
func TestReplicasWriteAtOnce(t *testing.T) {
	for name, next := range map[string]*apiextensionsv1.CustomResourceDefinition{
		"a change":   widgetsOf("a", "v1", "v2", "v3"),
		"a deletion": nil,
	} {
		t.Run(name, func(t *testing.T) {
			first, second := widgetsOf("a", "v1"), widgetsOf("a", "v1", "v2")
			r := newReplicas(t, first)
			require.NoError(t, r.mirror(t, first, false).sync(t.Context(), widgetsName))
			r.set(t, second)
			slow, fast := r.mirror(t, second, false), r.mirror(t, next, false)
			slow.cluster = &slowCluster{slow.cluster, func() {
				r.set(t, next)
				require.NoError(t, fast.sync(t.Context(), widgetsName))
			}}
			require.NoError(t, slow.sync(t.Context(), widgetsName))
			if next == nil {
				require.Nil(t, r.copied(t))
			} else {
				require.Equal(t, &state{uid: "a", versions: []string{"v1", "v2", "v3"}}, stateOf(r.copied(t)))
			}
		})
	}
}

// The copy of a definition that the cluster no longer has stays or goes depending on its objects.
func TestDeletedDefinition(t *testing.T) {
	for name, test := range map[string]struct {
		objects int
		purge   bool
		want    *state
	}{
		"no objects":                {0, false, nil},
		"no objects, to be deleted": {0, true, nil},
		"an object":                 {1, false, &state{uid: "a", versions: []string{"v1"}}},
		"an object, to be deleted":  {1, true, &state{uid: "a", versions: []string{"v1"}, purged: true}},
	} {
		t.Run(name, func(t *testing.T) {
			definition := widgetsOf("a", "v1")
			r := newReplicas(t, definition)
			require.NoError(t, r.mirror(t, definition, test.purge).sync(t.Context(), widgetsName))
			for range test.objects {
				_, err := r.etcd.Put(t.Context(), "/registry/example.com/widgets/default/one", "{}")
				require.NoError(t, err)
			}
			r.set(t, nil)
			m := r.mirror(t, nil, test.purge)
			for range 2 {
				require.NoError(t, m.sync(t.Context(), widgetsName))
				require.Equal(t, test.want, stateOf(r.copied(t)))
			}
		})
	}
}

// A definition that is deleted and created again at once keeps its objects, although a replica has seen the deletion.
func TestDefinitionIsBackAtOnce(t *testing.T) {
	for name, purge := range map[string]bool{"objects stay": false, "objects are deleted": true} {
		t.Run(name, func(t *testing.T) {
			first, second := widgetsOf("a", "v1"), widgetsOf("b", "v1")
			r := newReplicas(t, first)
			require.NoError(t, r.mirror(t, first, purge).sync(t.Context(), widgetsName))
			_, err := r.etcd.Put(t.Context(), "/registry/example.com/widgets/default/one", "{}")
			require.NoError(t, err)
			r.set(t, nil)
			slow, fast := r.mirror(t, nil, purge), r.mirror(t, second, purge)
			slow.cluster = &slowCluster{slow.cluster, func() {
				r.set(t, second)
				require.NoError(t, fast.sync(t.Context(), widgetsName))
			}}
			require.NoError(t, slow.sync(t.Context(), widgetsName))
			require.Equal(t, &state{uid: "b", versions: []string{"v1"}}, stateOf(r.copied(t)))
		})
	}
}

// An unchanged definition causes no requests to kube-apiserver.
func TestUnchangedDefinition(t *testing.T) {
	definition := widgetsOf("a", "v1")
	r := newReplicas(t, definition)
	m := r.mirror(t, definition, false)
	require.NoError(t, m.sync(t.Context(), widgetsName))
	before := r.copied(t)
	r.cluster.ClearActions()
	require.NoError(t, m.sync(t.Context(), widgetsName))
	require.Equal(t, before, r.copied(t))
	require.Empty(t, r.cluster.Actions())
}
