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
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
)

const (
	// followTimeout bounds the wait for a watch to come to a revision that has been reached.
	followTimeout = 20 * time.Second
	// watchSeconds is how long a watch lasts. Servers send a bookmark two seconds before its end,
	// which says that there are no changes up to then but those that were sent.
	watchSeconds = 3
	// minPause and maxPause are how long to wait before the next watch after one that brought nothing:
	// a proxy may end each at once.
	minPause, maxPause = 10 * time.Millisecond, time.Second
)

// tail collects which objects of a resource change, for as long as its context lasts: longer than
// servers keep what was changed.
type tail struct {
	client metadata.ResourceInterface
	from   schema.GroupVersionResource

	lock sync.Mutex
	// changed are objects, as namespace/name, that have changed up to a revision.
	changed sets.Set[string]
	reached int64
	// err is why nothing more is collected.
	err error
	// news is closed, and made again, when there is more.
	news chan struct{}
	// renew ends the present watch, since the next begins with a bookmark.
	renew context.CancelFunc
}

// tail begins to collect what changes after a revision.
func (m *Migration) tail(ctx context.Context, from schema.GroupVersionResource, after string) (*tail, error) {
	reached, err := revisionOf(after)
	if err != nil {
		return nil, err
	}
	t := &tail{client: m.metadata.Resource(from), from: from, changed: sets.New[string](), reached: reached, news: make(chan struct{}), renew: func() {}}
	go t.run(ctx)
	return t, nil
}

func (t *tail) run(ctx context.Context) {
	var err error
	for pause := minPause; err == nil && ctx.Err() == nil; {
		began, before := time.Now(), t.position()
		if err = t.watch(ctx); err != nil {
			break
		}
		if t.position() > before || time.Since(began) > maxPause {
			pause = minPause
			continue
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, maxPause)
	}
	if err == nil {
		return
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	t.err = fmt.Errorf("watching the %s: %w", t.from.GroupResource(), err)
	t.tell()
}

func (t *tail) position() int64 {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.reached
}

// watch collects what one watch says until it ends. No more is asked for than the metadata.
func (t *tail) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.lock.Lock()
	t.renew = cancel
	after := fmt.Sprint(t.reached)
	t.lock.Unlock()
	seconds := int64(watchSeconds)
	watcher, err := t.client.Watch(ctx, metav1.ListOptions{ResourceVersion: after, AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer watcher.Stop()
	for {
		select {
		case event, ok := <-watcher.ResultChan():
			if !ok || ctx.Err() != nil {
				return nil
			}
			if err := t.add(event); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (t *tail) add(event watch.Event) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	object, err := meta.Accessor(event.Object)
	if err != nil {
		return err
	}
	reached, err := revisionOf(object.GetResourceVersion())
	if err != nil {
		return err
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	if event.Type != watch.Bookmark {
		t.changed.Insert(keyOf(object))
	}
	t.reached = reached
	t.tell()
	return nil
}

// tell says that there is news.
func (t *tail) tell() {
	close(t.news)
	t.news = make(chan struct{})
}

// forget forgets which objects have changed so far, since all are going to be read.
func (t *tail) forget() {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.changed = sets.New[string]()
}

// until returns which objects have changed up to a revision, or later, and were not returned before.
func (t *tail) until(ctx context.Context, revision string) (sets.Set[string], error) {
	goal, err := revisionOf(revision)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	for renewed := false; ; {
		t.lock.Lock()
		changed, reached, err, news := t.changed, t.reached, t.err, t.news
		if err == nil && reached >= goal {
			t.changed = sets.New[string]()
		} else if !renewed {
			t.renew()
			renewed = true
		}
		t.lock.Unlock()
		if err != nil {
			return nil, err
		}
		if reached >= goal {
			return changed, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, fmt.Errorf("a watch of the %s has come to the revision %d only, and not to %s: %w", t.from.GroupResource(), reached, revision, context.Cause(ctx))
		}
	}
}
