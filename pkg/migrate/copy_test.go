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
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
)

var thingsV1 = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}

// event returns an event of a watch: of an object, or a bookmark if it has no name.
func event(name, revision string) watch.Event {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing"}}
	object.SetResourceVersion(revision)
	if name == "" {
		return watch.Event{Type: watch.Bookmark, Object: object}
	}
	object.SetNamespace("default")
	object.SetName(name)
	return watch.Event{Type: watch.Modified, Object: object}
}

func expiredEvent() watch.Event {
	status := apierrors.NewResourceExpired("too old").Status()
	return watch.Event{Type: watch.Error, Object: &status}
}

// following returns a source with objects and a history. Each watch brings at most so many events,
// and then ends.
func following(t *testing.T, revision string, objects, most int, history ...watch.Event) *Migration {
	t.Helper()
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{thingsV1: "ThingList"})
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	for i := range objects {
		list.Items = append(list.Items, unmarshal(t, usualObject)...)
		list.Items[i].SetName(fmt.Sprint(i))
	}
	list.SetResourceVersion(revision)
	client.PrependReactor("list", "things", func(clienttesting.Action) (bool, runtime.Object, error) { return true, list, nil })
	watches := metadatafake.NewSimpleMetadataClient(runtime.NewScheme())
	watches.PrependWatchReactor("things", func(action clienttesting.Action) (bool, watch.Interface, error) {
		after, err := revisionOf(action.(clienttesting.WatchActionImpl).ListOptions.ResourceVersion)
		require.NoError(t, err)
		watcher := watch.NewFakeWithChanSize(most, false)
		left := most
		for _, event := range history {
			object, ok := event.Object.(metav1.Object)
			if !ok {
				watcher.Action(event.Type, event.Object)
				break
			}
			if at, _ := revisionOf(object.GetResourceVersion()); at <= after {
				continue
			}
			watcher.Action(event.Type, event.Object)
			if left--; left == 0 {
				break
			}
		}
		watcher.Stop()
		return true, watcher, nil
	})
	return &Migration{config: Config{Report: func(Progress) {}}, dynamic: client, metadata: watches}
}

func TestTail(t *testing.T) {
	for name, test := range map[string]struct {
		history []watch.Event
		until   string
		want    []string
		expired bool
	}{
		"nothing later":            {[]watch.Event{event("a", "5")}, "5", []string{}, false},
		"a bookmark":               {[]watch.Event{event("a", "6"), event("b", "7"), event("a", "8"), event("", "9")}, "9", []string{"default/a", "default/b"}, false},
		"the last of all changes":  {[]watch.Event{event("a", "7")}, "7", []string{"default/a"}, false},
		"a bookmark that is later": {[]watch.Event{event("", "12")}, "7", []string{}, false},
		"a change that is later":   {[]watch.Event{event("", "8"), event("b", "10")}, "9", []string{"default/b"}, false},
		"a history that is over":   {[]watch.Event{event("a", "6"), expiredEvent()}, "9", nil, true},
	} {
		for _, most := range []int{1, 2, 10} {
			t.Run(fmt.Sprintf("%s, %d a watch", name, most), func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				tail, err := following(t, "", 0, most, test.history...).tail(ctx, thingsV1, "5")
				require.NoError(t, err)
				changed, err := tail.until(t.Context(), test.until)
				require.Equal(t, test.expired, expired(err), "got the error %v", err)
				if !test.expired {
					require.NoError(t, err)
					assert.Equal(t, test.want, sets.List(changed))
				}
				if test.expired {
					return
				}
				again, err := tail.until(t.Context(), test.until)
				require.NoError(t, err)
				assert.Empty(t, again)
			})
		}
	}
}

// A write at a kube-apiserver after the comparison gets to the server.
func TestCopyLate(t *testing.T) {
	store := things
	store.Codec, store.Transformer = unstructured.UnstructuredJSONScheme, identity.NewEncryptCheckTransformer()
	resource := local(thingsV1)
	scene := usualScene()
	scene.store = store
	m := scene.migration(t, newMigration(t).config.Etcd)
	late := unmarshal(t, usualObject)[0]
	late.SetName("late")
	late.SetResourceVersion("8")
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		resource: "ThingList", {Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}: "CustomResourceDefinitionList",
	})
	m.dynamic = client
	define(t, m, usualDefinition)
	client.PrependReactor("list", resource.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
		list.SetResourceVersion("9")
		return true, list, nil
	})
	client.PrependReactor("get", resource.Resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.(clienttesting.GetAction).GetName() != "late" {
			return true, nil, apierrors.NewNotFound(resource.GroupResource(), "gone")
		}
		return true, late.DeepCopy(), nil
	})
	watches := metadatafake.NewSimpleMetadataClient(runtime.NewScheme())
	m.metadata = watches
	watches.PrependWatchReactor(resource.Resource, func(clienttesting.Action) (bool, watch.Interface, error) {
		watcher := watch.NewFakeWithChanSize(3, false)
		for _, event := range []watch.Event{event("gone", "7"), event("late", "8"), event("", "9")} {
			watcher.Action(event.Type, event.Object)
		}
		return true, watcher, nil
	})
	require.NoError(t, m.begin(t.Context(), Copying))
	m.state.Revisions = map[string]string{"things": "6"}
	for _, name := range []string{"gone", "kept"} {
		_, err := m.config.Etcd.Put(t.Context(), store.Prefix+"default/"+name, usualObject)
		require.NoError(t, err)
	}
	require.NoError(t, m.copyLate(t.Context()))
	found, err := m.atServer().all(t.Context(), move{Objects: &store, from: thingsV1})
	require.NoError(t, err)
	assert.Equal(t, []string{"default/kept", "default/late"}, slices.Sorted(maps.Keys(found)))
}

// recorder is a target that has all objects, and records its calls.
type recorder struct {
	did    []string
	there  int
	differ map[string]int
	items  map[string]held
}

func (r *recorder) encode(_ move, object *unstructured.Unstructured) (wanted, error) {
	return wanted{content: contentOf([]byte(object.GetName()))}, nil
}

func (r *recorder) all(context.Context, move) (map[string]held, error) {
	r.did = append(r.did, "all")
	return maps.Clone(r.items), nil
}

// one returns an object that no longer exists, as long as it differs.
func (r *recorder) one(_ context.Context, _ move, key string) (*held, error) {
	r.did = append(r.did, key)
	if r.differ[key] == 0 {
		return nil, nil
	}
	r.differ[key]--
	return &held{}, nil
}

func (r *recorder) count(context.Context, move) (int, error) {
	r.did = append(r.did, "count")
	return r.there, nil
}

func (r *recorder) write(_ context.Context, _ move, key string, _ *held, after *wanted) error {
	if after != nil || !strings.HasPrefix(key, "default/") {
		return fmt.Errorf("%s was written", key)
	}
	return nil
}

// list returns the objects of a target that has all.
func list(t *testing.T, m *Migration) map[string]held {
	t.Helper()
	found := map[string]held{}
	_, err := m.list(t.Context(), thingsV1, func(object *unstructured.Unstructured) error {
		found[keyOf(object)] = held{content: contentOf([]byte(object.GetName()))}
		return nil
	})
	require.NoError(t, err)
	return found
}

// Under the freeze, objects are not compared again, unless their changes are unknown or something
// is wrong.
func TestCopyFrozen(t *testing.T) {
	known := func(pending ...string) map[string]*position {
		p := newPosition("5")
		p.pending.Insert(pending...)
		return map[string]*position{"things": p}
	}
	for name, test := range map[string]struct {
		positions map[string]*position
		history   []watch.Event
		// differ says how often an object still differs, and there how many objects the target has.
		differ map[string]int
		there  int
		want   []string
	}{
		"nothing has changed":             {known(), []watch.Event{event("", "9")}, nil, 2, []string{"count"}},
		"an object has changed":           {known(), []watch.Event{event("a", "9")}, map[string]int{"default/a": 1}, 2, []string{"default/a", "default/a", "count"}},
		"one was written before":          {known("default/b"), []watch.Event{event("", "9")}, nil, 2, []string{"default/b", "count"}},
		"it is another number of objects": {known(), []watch.Event{event("", "9")}, nil, 3, []string{"count", "all", "all"}},
		"an object does not become equal": {known(), []watch.Event{event("a", "9")}, map[string]int{"default/a": 9}, 2, []string{"default/a", "default/a", "default/a", "default/a", "count", "all", "all"}},
		"the history is over":             {known(), []watch.Event{expiredEvent()}, nil, 2, []string{"all", "all"}},
		"another process has copied them": {nil, nil, nil, 2, []string{"all", "all"}},
	} {
		t.Run(name, func(t *testing.T) {
			source := following(t, "9", 2, 10, test.history...)
			m := newMigration(t)
			m.dynamic, m.metadata = source.dynamic, source.metadata
			require.NoError(t, m.begin(t.Context(), Copying))
			m.positions = test.positions
			for _, position := range test.positions {
				tail, err := m.tail(t.Context(), thingsV1, position.revision)
				require.NoError(t, err)
				position.tail = tail
			}
			to := &recorder{there: test.there, differ: test.differ, items: list(t, m)}
			found, err := m.copyFrozen(t.Context(), []move{{Objects: &things, from: thingsV1}}, to)
			require.NoError(t, err)
			assert.NotNil(t, found["things"], "nothing is known of the things afterwards")
			assert.Empty(t, cmp.Diff(test.want, to.did))
		})
	}
}
