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
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

var thingsV1 = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}

// event is one of a watch: of an object, or a bookmark if it has no name.
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

// following is a source with objects, each of whose watches has the next of some events, and ends.
func following(t *testing.T, revision string, objects int, watches ...[]watch.Event) (m *Migration, began *[]string) {
	t.Helper()
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{thingsV1: "ThingList"})
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	for range objects {
		list.Items = append(list.Items, unmarshal(t, usualObject)...)
	}
	list.SetResourceVersion(revision)
	client.PrependReactor("list", "things", func(clienttesting.Action) (bool, runtime.Object, error) { return true, list, nil })
	began = &[]string{}
	client.PrependWatchReactor("things", func(action clienttesting.Action) (bool, watch.Interface, error) {
		*began = append(*began, action.(clienttesting.WatchActionImpl).ListOptions.ResourceVersion)
		if len(watches) == 0 {
			t.Error("there are more watches than expected")
			return true, watch.NewEmptyWatch(), nil
		}
		events := watches[0]
		watches = watches[1:]
		watcher := watch.NewFakeWithChanSize(len(events), false)
		for _, event := range events {
			watcher.Action(event.Type, event.Object)
		}
		watcher.Stop()
		return true, watcher, nil
	})
	return &Migration{Config: Config{Report: func(Progress) {}}, dynamic: client}, began
}

func TestChanged(t *testing.T) {
	for name, test := range map[string]struct {
		until   string
		watches [][]watch.Event
		want    []string
		began   []string
		expired bool
	}{
		"nothing later":            {until: "5", began: []string{}},
		"a bookmark":               {"9", [][]watch.Event{{event("a", "6"), event("b", "7"), event("a", "8"), event("", "9")}}, []string{"default/a", "default/b"}, []string{"5"}, false},
		"the last of all changes":  {"7", [][]watch.Event{{event("a", "7")}}, []string{"default/a"}, []string{"5"}, false},
		"a bookmark that is later": {"7", [][]watch.Event{{event("", "12")}}, []string{}, []string{"5"}, false},
		"a watch that ends before": {"9", [][]watch.Event{{event("a", "6"), event("", "8")}, {event("b", "10")}}, []string{"default/a", "default/b"}, []string{"5", "8"}, false},
		"an empty watch":           {"6", [][]watch.Event{{}, {event("", "6")}}, []string{}, []string{"5", "5"}, false},
		"a history that is over":   {"9", [][]watch.Event{{event("a", "6"), expiredEvent()}}, nil, []string{"5"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			m, began := following(t, "", 0, test.watches...)
			changed, err := m.changed(t.Context(), thingsV1, "5", test.until)
			if expired(err) != test.expired || !test.expired && err != nil {
				t.Fatalf("got the error %v", err)
			}
			if !test.expired && !slices.Equal(sets.List(changed), test.want) {
				t.Errorf("got %v, want %v", sets.List(changed), test.want)
			}
			if difference := cmp.Diff(test.began, *began); difference != "" {
				t.Error(difference)
			}
		})
	}
}

// Under the freeze, what was compared before is not compared again, unless it can't be known what
// has changed since, or something is wrong.
func TestCopyFrozen(t *testing.T) {
	known := func(pending ...string) map[string]*position {
		p := newPosition("5")
		p.pending.Insert(pending...)
		return map[string]*position{"things": p}
	}
	for name, test := range map[string]struct {
		positions map[string]*position
		watches   [][]watch.Event
		// differ are how often an object still differs, and there how many there are.
		differ map[string]int
		there  int
		want   []string
	}{
		"nothing has changed":             {known(), [][]watch.Event{{event("", "9")}}, nil, 2, []string{"count"}},
		"an object has changed":           {known(), [][]watch.Event{{event("a", "9")}}, map[string]int{"default/a": 1}, 2, []string{"default/a", "default/a", "count"}},
		"one was written before":          {known("default/b"), [][]watch.Event{{event("", "9")}}, nil, 2, []string{"default/b", "count"}},
		"it is another number of objects": {known(), [][]watch.Event{{event("", "9")}}, nil, 3, []string{"count", "pass", "verify"}},
		"an object does not become equal": {known(), [][]watch.Event{{event("a", "9")}}, map[string]int{"default/a": 9}, 2, []string{"default/a", "default/a", "default/a", "default/a", "count", "pass", "verify"}},
		"the history is over":             {known(), [][]watch.Event{{expiredEvent()}}, nil, 2, []string{"pass", "verify"}},
		"another process has copied them": {nil, nil, nil, 2, []string{"pass", "verify"}},
	} {
		t.Run(name, func(t *testing.T) {
			source, _ := following(t, "9", 2, test.watches...)
			m := newMigration(t)
			m.dynamic = source.dynamic
			c, err := m.begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c.positions = test.positions
			var did []string
			by := follower{
				pass: func(context.Context, move) (difference, error) {
					did = append(did, "pass")
					return newDifference(), nil
				},
				verify: func(context.Context, move) (difference, error) {
					did = append(did, "verify")
					return newDifference(), nil
				},
				one: func(_ context.Context, _ move, key string, _ *position) (bool, error) {
					did = append(did, key)
					test.differ[key]--
					return test.differ[key] >= 0, nil
				},
				count: func(context.Context, move) (int, error) {
					did = append(did, "count")
					return test.there, nil
				},
			}
			if test.differ == nil {
				test.differ = map[string]int{}
			}
			found, err := c.copyFrozen(t.Context(), []move{{&things, thingsV1}}, by)
			if err != nil {
				t.Fatal(err)
			}
			if found["things"] == nil {
				t.Error("nothing is known of the things afterwards")
			}
			if difference := cmp.Diff(test.want, did); difference != "" {
				t.Error(difference)
			}
		})
	}
}
