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
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

// Objects are neither copied nor deleted if somebody has changed the APIServices meanwhile, so that clients write where
// the objects move to.
func TestAPIServicesChangedMeanwhile(t *testing.T) {
	const (
		early = "v1.example.com lead clients already to where the objects are only being copied, so that what they write there would be lost: "
		there = early + "delete the APIService: kube-apiserver creates it again for the definitions"
		back  = early + "make the APIServices lead to the server again"
	)
	etcd := newMigration(t).config.Etcd
	run := func(m *Migration) error { return m.Run(t.Context()) }
	goBack := func(m *Migration) error { return m.Back(t.Context()) }
	abort := func(m *Migration) error { return m.Abort(t.Context()) }
	for name, test := range map[string]struct {
		state      string
		registered bool
		do         func(*Migration) error
		want       string
	}{
		"run":                      {`"phase": "Copying"`, true, run, there},
		"abort":                    {`"phase": "Copying"`, true, abort, there},
		"abort, as the freeze was": {`"phase": "Freezing"`, true, abort, there},
		"abort, unchanged":         {`"phase": "Copying"`, false, abort, ""},
		"back":                     {`"phase": "Copying", "returning": true, "registered": {"v1.example.com": {}}`, false, goBack, back},
		"abort on the way back":    {`"phase": "Copying", "returning": true, "registered": {"v1.example.com": {}}`, false, abort, back},
		"abort on the way back, unchanged": {
			`"phase": "Copying", "returning": true, "registered": {"v1.example.com": {}}`, true, abort, "",
		},
		"back, although it is unregistered": {`"phase": "Moved"`, false, goBack, "no version of example.com leads to a server: there is nothing to move back"},
	} {
		t.Run(name, func(t *testing.T) {
			scene := usualScene()
			if scene.registered(); !test.registered {
				scene.apiService.Spec.Service = nil
				scene.apiService.Status.Conditions = []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, Reason: cluster.LocalReason}}
			}
			scene.etcd["/state"] = "{" + test.state + "}"
			scene.etcd["/registry/example.com/things/default/one"] = "{}"
			m := scene.migration(t, etcd)
			m.config.Cluster = &rest.Config{Transport: always(answered(http.StatusOK, nil, "{}"))}
			err := test.do(m)
			count, countErr := etcd.Get(t.Context(), "/registry/example.com/things/default/one")
			require.NoError(t, countErr)
			if test.want != "" {
				require.EqualError(t, err, test.want)
				require.Len(t, count.Kvs, 1, "The server's object is gone.")
				return
			}
			require.NoError(t, err)
		})
	}
}

// A group is not moved back if only some versions lead to the server: clients may have written in both places.
func TestPartlyRegistered(t *testing.T) {
	scene := usualScene()
	scene.registered()
	m := scene.migration(t, newMigration(t).config.Etcd)
	m.config.APIServices = append(m.config.APIServices, "v1beta1.example.com", "v1alpha1.example.com")
	_, err := m.aggregator.ApiregistrationV1().APIServices().Create(t.Context(), &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1beta1.example.com"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.EqualError(t, m.Back(t.Context()), "v1beta1.example.com lead to no server, so that clients of these versions use what kube-apiserver has, and what they have written there would be overwritten: "+
		"make these APIServices lead to the server, after what is missing there has been written through another version")
}

// A process that ends right after the way back has begun leaves nothing to abort. Only the server has the objects.
func TestEndedWhenBackHasBegun(t *testing.T) {
	scene := usualScene()
	scene.registered()
	delete(scene.etcd, "/state")
	scene.etcd["/registry/example.com/things/default/one"], scene.kubeEtcd, scene.revision = usualObject, true, "1000"
	m := scene.migration(t, newMigration(t).config.Etcd)
	client, ok := m.dynamic.(*dynamicfake.FakeDynamicClient)
	require.True(t, ok)
	ended := errors.New("ended")
	client.PrependReactor("list", "customresourcedefinitions", func(clienttesting.Action) (bool, runtime.Object, error) {
		_, err := m.Status(context.Background())
		return err == nil, nil, ended
	})
	require.ErrorIs(t, m.Back(t.Context()), ended)
	state, err := m.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, Moved, state.Phase)
	require.EqualError(t, m.Abort(t.Context()), "can't abort in the phase Moved: clients already write to the target")
}

// A server may take a version that is given back for a new one as long as another version leads to it.
func TestGiveAllBack(t *testing.T) {
	registered := func(name string) *apiregistrationv1.APIService {
		return &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Namespace: "server", Name: "server"}}}
	}
	client := aggregatorfake.NewClientset(registered("v1.example.com"), registered("v1beta1.example.com"))
	// So many deletions are followed by a registration of the other version.
	left := 2
	client.PrependReactor("delete", "apiservices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		deleted, ok := action.(clienttesting.DeleteAction)
		if !ok || left == 0 {
			return false, nil, nil
		}
		left--
		others := map[string]string{"v1.example.com": "v1beta1.example.com", "v1beta1.example.com": "v1.example.com"}
		return false, nil, client.Tracker().Add(registered(others[deleted.GetName()]))
	})
	m := &Migration{aggregator: client, config: Config{Group: "example.com", APIServices: []string{"v1.example.com", "v1beta1.example.com"}, Report: func(Progress) {}}}
	m.config.Cluster = &rest.Config{Transport: always(answered(http.StatusNotFound, nil, ""))}
	require.NoError(t, m.giveAllBack(t.Context()))
	still, err := m.registered(t.Context())
	require.NoError(t, err)
	require.Empty(t, still)
}

// A process that was suspended while another one has continued its migration changes nothing that was written since.
func TestFenceOfKubeEtcd(t *testing.T) {
	m := newMigration(t)
	m.config.KubeEtcd, m.config.KubePrefix = m.config.Etcd, "/registry"
	to, here := m.inKubeEtcd(), move{Objects: &things, from: thingsV1}
	data := func(n int) *wanted {
		return &wanted{data: fmt.Appendf(nil, `{"kind": "Thing", "apiVersion": "example.com/v1", "spec": %d}`, n)}
	}
	require.NoError(t, to.write(t.Context(), here, "default/one", nil, data(1)))
	all, err := to.all(t.Context(), here)
	require.NoError(t, err)
	read, err := to.one(t.Context(), here, "default/one")
	require.NoError(t, err)
	require.Equal(t, all["default/one"], *read)
	const refused = `another process has written the key /registry/example.com/things/default/one of kube-apiserver's etcd meanwhile: see "migrate status", and run this again`
	require.EqualError(t, to.write(t.Context(), here, "default/one", nil, data(2)), refused)
	require.NoError(t, to.write(t.Context(), here, "default/one", read, data(3)))
	for _, after := range []*wanted{data(4), nil} {
		require.EqualError(t, to.write(t.Context(), here, "default/one", read, after), refused)
	}
	read, err = to.one(t.Context(), here, "default/one")
	require.NoError(t, err)
	require.NoError(t, to.write(t.Context(), here, "default/one", read, nil))
	count, err := to.count(t.Context(), here)
	require.NoError(t, err)
	require.Zero(t, count)
}

// Nor does it create an object again that a client has deleted since.
func TestFenceOfDeletedObjects(t *testing.T) {
	m := newMigration(t)
	m.config.KubeEtcd, m.config.KubePrefix = m.config.Etcd, "/registry"
	require.NoError(t, m.begin(t.Context(), Copying))
	to, here := m.atKube(), move{Objects: &things, from: thingsV1}
	other := &Migration{config: m.config}
	require.NoError(t, other.resume(t.Context(), anyState))
	require.NoError(t, other.enter(t.Context(), Returned))
	wanted := &wanted{data: []byte(`{"kind": "Thing", "apiVersion": "example.com/v1"}`)}
	require.ErrorIs(t, to.write(t.Context(), here, "default/one", nil, wanted), errSuperseded)
	count, err := to.count(t.Context(), here)
	require.NoError(t, err)
	require.Zero(t, count)
}

// backFrom returns a migration of custom resources that have moved, in a state with these fields.
func backFrom(t *testing.T, scene *scene, state string) *Migration {
	t.Helper()
	scene.registered()
	scene.etcd["/state"] = `{"phase": "Moved", "switched": "2026-02-01T00:00:00Z", ` + state + `}`
	scene.defined = true
	m := scene.migration(t, newMigration(t).config.Etcd)
	m.config.RaiseRevision = true
	return m
}

// If "finish" fails after it has added its version, the way back still knows the conversion from before.
func TestConversionAfterFailedFinish(t *testing.T) {
	const webhook = `{"strategy": "Webhook"}`
	scene := usualScene()
	scene.inDefinition(`"versions": [`, `"versions": [{"name": "migrate", "served": true, "storage": false}, `)
	m := backFrom(t, scene, `"conversions": {"things.example.com": `+webhook+`}`)
	require.NoError(t, m.resumeReverse(t.Context()))
	require.True(t, byWebhook(m.state.Conversions["things.example.com"]))
}

// A definition that was deleted and applied again has none of the copies that keep UIDs.
func TestBackAfterDefinitionWasDeleted(t *testing.T) {
	for uid, want := range map[string]string{"1": "", "2": errAllNew.Error()} {
		scene := usualScene()
		scene.inDefinition(`"metadata": {`, `"metadata": {"uid": "`+uid+`", `)
		m := backFrom(t, scene, `"definitions": {"things.example.com": {"uid": "1"}}`)
		requireError(t, want, m.resumeReverse(t.Context()))
	}
}

// A process that was suspended while it copied has another lease once it freezes writes. Otherwise the server would end
// the freeze.
func TestLeaseLostWhileCopying(t *testing.T) {
	scene := usualScene()
	m := scene.migration(t, newMigration(t).config.Etcd)
	m.config.APIServices = nil
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	found, err := m.definitions(ctx)
	require.NoError(t, err)
	require.NoError(t, m.begin(ctx, Copying, found...))
	_, err = m.config.Etcd.Revoke(ctx, m.state.Lease)
	require.NoError(t, err)
	looked := errors.New("looked")
	err = m.through(ctx, direction{
		to: m.atServer(), last: Moved,
		moves: func(context.Context) ([]move, error) {
			if m.state.Phase != Freezing {
				return nil, nil
			}
			abandoned, err := Abandoned(ctx, m.config.Etcd, "/state")
			require.NoError(t, err)
			require.False(t, abandoned)
			return nil, looked
		},
		raise: func(context.Context) error { return nil },
	})
	require.ErrorIs(t, err, looked)
}

// An abort removes copies whose definition was deleted meanwhile.
func TestAbortAfterDefinitionWasDeleted(t *testing.T) {
	scene := usualScene()
	scene.defined = true
	m := scene.migration(t, newMigration(t).config.Etcd)
	require.NoError(t, m.begin(t.Context(), Copying))
	prefix := m.config.Stores[0].Prefix
	_, err := m.write(t.Context(), clientv3.OpPut(prefix+"default/one", usualObject))
	require.NoError(t, err)
	other := &Migration{config: m.config, dynamic: m.dynamic, kube: m.kube, aggregator: m.aggregator, metadata: m.metadata}
	other.config.Stores, other.config.APIServices = nil, nil
	require.NoError(t, other.Abort(t.Context()))
	response, err := m.config.Etcd.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	require.Zero(t, response.Count)
}

// An abort of nothing does not end the freeze of a migration that begins at the same time.
func TestAbortOfNothingIsFenced(t *testing.T) {
	config := newMigration(t).config
	other := &Migration{config: config}
	config.Cluster = &rest.Config{Transport: transportFunc(func(req *http.Request) (*http.Response, error) {
		assert.Equal(t, http.MethodGet, req.Method, "%s was sent", req.URL)
		// As if this process were suspended here.
		if err := other.begin(t.Context(), Copying); assert.NoError(t, err) {
			assert.NoError(t, other.enter(t.Context(), Freezing))
		}
		return answered(http.StatusOK, http.Header{"Content-Type": {"application/json"}}, `{"kind":"PriorityLevelConfiguration","apiVersion":"flowcontrol.apiserver.k8s.io/v1","metadata":{"name":"migrate.example.com"}}`)()
	})}
	m, err := New(config)
	require.NoError(t, err)
	err = m.Abort(t.Context())
	require.ErrorIs(t, err, ErrNone)
	require.ErrorContains(t, err, errSuperseded.Error())
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
