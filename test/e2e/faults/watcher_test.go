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

package faults

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	typed "restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/typed/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// span is a range of revisions that a watcher has seen without a gap. The watcher began
// with a list at the first, and knows of everything up to the last.
type span struct {
	first, last uint64
	// seen are the names of what changed, by revision.
	seen map[uint64]string
}

// watcher keeps a copy of all toppings, as an informer does. It lists and watches. When a
// watch ends, it goes on where it was, with any server, and lists again only when it must.
type watcher struct {
	servers []typed.ToppingInterface
	random  *rand.Rand

	mu       sync.Mutex
	spans    []*span
	values   map[string]int
	watches  int
	problems []string
}

// run watches until the context ends.
func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		if w.current() == nil {
			w.list(ctx)
		} else {
			w.watch(ctx)
		}
	}
}

// current returns the span that can go on, or nil if a list has to begin one.
func (w *watcher) current() *span {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.spans) == 0 {
		return nil
	}
	return w.spans[len(w.spans)-1]
}

func (w *watcher) server() typed.ToppingInterface { return w.servers[w.random.IntN(len(w.servers))] }

func (w *watcher) list(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := w.server().List(ctx, metav1.ListOptions{})
	if err != nil {
		framework.Pause(ctx, retryPause)
		return
	}
	revision, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	if err != nil {
		w.problem("a list has the revision %q", list.ResourceVersion)
		return
	}
	w.begin(revision, list.Items)
}

// begin starts a span with a list.
func (w *watcher) begin(revision uint64, items []restaurantv1.Topping) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.values = valuesOf(items)
	w.spans = append(w.spans, &span{first: revision, last: revision, seen: map[uint64]string{}})
}

// watch follows the current span until the watch ends. If it can't go on, the next list
// begins another.
func (w *watcher) watch(ctx context.Context) {
	current := w.current()
	timeout := int64(watchTimeout.Seconds())
	events, err := w.server().Watch(ctx, metav1.ListOptions{
		ResourceVersion: strconv.FormatUint(current.last, 10), AllowWatchBookmarks: true, TimeoutSeconds: &timeout,
	})
	if err != nil {
		w.ended(ctx, err)
		return
	}
	defer events.Stop()
	w.mu.Lock()
	w.watches++
	w.mu.Unlock()
	for event := range events.ResultChan() {
		if event.Type == watch.Error {
			w.ended(ctx, apierrors.FromObject(event.Object))
			return
		}
		w.event(current, event)
	}
}

// ended looks at why a watch ended: revisions that are gone make a list necessary.
func (w *watcher) ended(ctx context.Context, err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		w.list(ctx)
		return
	}
	framework.Pause(ctx, retryPause)
}

// event checks that revisions only grow, each seen once.
func (w *watcher) event(current *span, event watch.Event) {
	object, err := meta.Accessor(event.Object)
	if err != nil {
		w.problem("an event has no metadata: %v", err)
		return
	}
	revision, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		w.problem("%s %s has the revision %q", event.Type, object.GetName(), object.GetResourceVersion())
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if event.Type == watch.Bookmark {
		if revision < current.last {
			w.problems = append(w.problems, fmt.Sprintf("a bookmark has revision %d after %d", revision, current.last))
		}
		current.last = max(current.last, revision)
		return
	}
	if revision <= current.last {
		w.problems = append(w.problems, fmt.Sprintf("%s %s has revision %d after %d", event.Type, object.GetName(), revision, current.last))
	}
	current.last = max(current.last, revision)
	current.seen[revision] = object.GetName()
	if event.Type == watch.Deleted {
		delete(w.values, object.GetName())
	} else {
		w.values[object.GetName()] = valueOf(event.Object.(*restaurantv1.Topping))
	}
}

func (w *watcher) problem(format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, fmt.Sprintf(format, a...))
}

// holds compares what the watcher has seen with what there is.
func (w *watcher) holds(items []restaurantv1.Topping) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if values := valuesOf(items); !maps.Equal(w.values, values) {
		return fmt.Errorf("a watcher holds %v in place of %v", w.values, values)
	}
	return nil
}

func valuesOf(items []restaurantv1.Topping) map[string]int {
	values := map[string]int{}
	for i := range items {
		values[items[i].Name] = valueOf(&items[i])
	}
	return values
}

// check returns what was wrong with what the watcher saw: of the writes that were
// acknowledged, by revision, those that it missed.
func (w *watcher) check(acknowledged map[uint64]string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	problems := w.problems
	for revision, name := range acknowledged {
		for _, span := range w.spans {
			if span.first < revision && revision <= span.last && span.seen[revision] != name {
				problems = append(problems, fmt.Sprintf("revision %d of %s was not seen between %d and %d, but %q", revision, name, span.first, span.last, span.seen[revision]))
			}
		}
	}
	return problems
}
