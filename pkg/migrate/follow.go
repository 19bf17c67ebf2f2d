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
	"math"
	"path"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
)

const (
	// maxPasses is how often all objects are copied again if it can't be known what has changed since.
	maxPasses = 3
	// maxRounds is how often what is written under the freeze is compared again.
	maxRounds = 3
	// maxFollows is how often changes are copied before writes are frozen, to leave little to be
	// copied then.
	maxFollows = 10
	// fewChanges is how many changes there may be for the next to be copied under the freeze.
	fewChanges = 100
)

// position is what is known of the objects of a resource that are followed. All objects were
// equal at the revision but those that are pending.
type position struct {
	revision string
	objects  int
	// since is up to which revision it is known what anybody has written to the target.
	since int64
	// pending are objects, as namespace/name, that have been written since they were compared.
	pending sets.Set[string]
	// notable are the objects that the state is to name.
	notable sets.Set[string]
	// tail knows what has been written.
	tail *tail
}

// keyOf is the key of an object among those of its resource.
func keyOf(object metav1.Object) string { return path.Join(object.GetNamespace(), object.GetName()) }

// objectAt returns a client for an object, and its name.
func objectAt(client dynamic.NamespaceableResourceInterface, key string) (dynamic.ResourceInterface, string) {
	namespace, name := path.Split(key)
	if namespace == "" {
		return client, name
	}
	return client.Namespace(path.Clean(namespace)), name
}

// get returns an object, or nil if there is none.
func (m *Migration) get(ctx context.Context, from schema.GroupVersionResource, key string) (*unstructured.Unstructured, error) {
	client, name := objectAt(m.dynamic.Resource(from), key)
	object, err := client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}

// revisionNow is one that all acknowledged writes of a resource have reached, and how many objects
// there are then; less than zero if the server does not say.
func (m *Migration) revisionNow(ctx context.Context, from schema.GroupVersionResource) (revision string, count int, err error) {
	list, err := m.dynamic.Resource(from).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", 0, fmt.Errorf("reading the %s: %w", from.GroupResource(), err)
	}
	count = len(list.Items)
	if list.GetContinue() != "" {
		more := list.GetRemainingItemCount()
		if more == nil {
			return list.GetResourceVersion(), -1, nil
		}
		count += int(*more)
	}
	return list.GetResourceVersion(), count, nil
}

// follow copies what has changed since, and what is pending, and returns how many objects differed.
func (s *session) follow(ctx context.Context, move move, position *position, to target) (int, error) {
	now, _, err := s.revisionNow(ctx, move.from)
	if err != nil {
		return 0, err
	}
	changed, err := position.tail.until(ctx, now)
	if err != nil {
		return 0, err
	}
	// Others may have written to what no client should use yet.
	written, since, err := to.written(ctx, move, position.since)
	if err != nil {
		return 0, err
	}
	position.revision, position.since = now, since
	position.pending = position.pending.Union(changed).Union(written)
	return s.copyPending(ctx, move, position, to)
}

// copyPending makes the objects equal that may differ. Those that did are pending afterwards.
func (s *session) copyPending(ctx context.Context, move move, position *position, to target) (int, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	var mu sync.Mutex
	written := sets.New[string]()
	for key := range position.pending {
		group.Go(func() error {
			differed, notable, err := s.copyOne(ctx, move, to, key)
			if err != nil {
				return fmt.Errorf("copying the object %s of %s: %w", key, move.GroupResource, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if differed {
				written.Insert(key)
			}
			position.notable.Delete(key)
			if notable {
				position.notable.Insert(key)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	position.pending = written
	return len(written), nil
}

func newPosition(revision string) *position {
	return &position{revision: revision, since: math.MaxInt64, pending: sets.New[string](), notable: sets.New[string]()}
}

// positionAfter is the one after a pass over all objects.
func positionAfter(found difference, tail *tail) *position {
	return &position{revision: found.revision, since: found.since, objects: found.objects, pending: found.keys, notable: found.notable, tail: tail}
}

// copyWhileUsed copies all objects, and then what changes, until that is little.
func (s *session) copyWhileUsed(ctx context.Context, moves []move, to target) error {
	for range maxPasses {
		err := s.copyAllObjects(ctx, moves, to)
		if err == nil {
			err = s.catchUp(ctx, moves, to)
		}
		if !expired(err) {
			return err
		}
		s.stopFollowing()
		s.progress("copying all objects again: %v", err)
	}
	return nil // All are compared under the freeze.
}

// copyAllObjects makes two passes over all objects, and collects what changes meanwhile: the first
// copies them, and the second compares all of them by their content.
func (s *session) copyAllObjects(ctx context.Context, moves []move, to target) error {
	s.stopFollowing()
	following, stop := context.WithCancel(ctx)
	s.stopTails = stop
	positions := map[string]*position{}
	for range 2 {
		if err := s.beginPass(ctx, moves); err != nil {
			return err
		}
		differed := 0
		for _, move := range moves {
			var followed *tail
			if before := positions[move.Resource]; before != nil {
				followed = before.tail
				followed.forget()
			} else {
				now, _, err := s.revisionNow(ctx, move.from)
				if err != nil {
					return err
				}
				if followed, err = s.tail(following, move.from, now); err != nil {
					return err
				}
			}
			found, err := s.copy(ctx, move, to)
			if err != nil {
				return err
			}
			s.progress("%d %s, of which %d were copied and %d deleted", found.objects, move.GroupResource, found.written, found.deleted)
			differed += found.changes()
			positions[move.Resource] = positionAfter(found, followed)
		}
		if differed == 0 {
			break
		}
	}
	s.positions = positions
	return nil
}

// stopFollowing forgets where objects have been compared.
func (s *session) stopFollowing() {
	if s.stopTails != nil {
		s.stopTails()
	}
	s.positions, s.stopTails = nil, nil
}

// catchUp copies what has changed, until that is little.
func (s *session) catchUp(ctx context.Context, moves []move, to target) error {
	for range maxFollows {
		differed := 0
		for _, move := range moves {
			position := s.positions[move.Resource]
			if position == nil {
				continue
			}
			count, err := s.follow(ctx, move, position, to)
			if err != nil {
				return err
			}
			s.progress("%d %s have changed since, and were copied", count, move.GroupResource)
			differed += count
		}
		if differed <= fewChanges {
			break
		}
	}
	return nil
}

// expired tells whether objects can't be followed any further.
func expired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, context.DeadlineExceeded)
}

// copyFrozen makes all objects equal for good, while nobody writes. What was compared before is not compared
// again: only what has changed since, and the number of objects. Another process does not know
// what was compared, and compares all objects.
func (s *session) copyFrozen(ctx context.Context, moves []move, to target) (map[string]*position, error) {
	positions := map[string]*position{}
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		others []move
		failed error
	)
	for _, move := range moves {
		known := s.positions[move.Resource]
		if known == nil {
			mu.Lock()
			others = append(others, move)
			mu.Unlock()
			continue
		}
		wg.Go(func() {
			err := s.followFrozen(ctx, move, known, to)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				positions[move.Resource] = known
			case expired(err) || errors.Is(err, errDiffers):
				s.progress("comparing all objects: %v", err)
				others = append(others, move)
			default:
				failed = err
			}
		})
	}
	wg.Wait()
	s.stopFollowing()
	if failed != nil {
		return nil, failed
	}
	if len(others) == 0 {
		return positions, nil
	}
	if err := s.beginPass(ctx, others); err != nil {
		return nil, err
	}
	for _, move := range others {
		if _, err := s.copy(ctx, move, to); err != nil {
			return nil, err
		}
	}
	// Nothing may have changed since: what was read before could be of a write that had
	// been admitted before the freeze.
	if err := s.beginPass(ctx, others); err != nil {
		return nil, err
	}
	for _, move := range others {
		found, err := s.verify(ctx, move, to)
		if err != nil {
			return nil, err
		}
		positions[move.Resource] = positionAfter(found, nil)
	}
	return positions, nil
}

// followFrozen makes the objects of a resource equal that may differ.
func (s *session) followFrozen(ctx context.Context, move move, position *position, to target) error {
	differed, err := s.follow(ctx, move, position, to)
	for round := 0; err == nil && differed > 0 && round < maxRounds; round++ {
		differed, err = s.copyPending(ctx, move, position, to)
	}
	if err != nil {
		return err
	}
	_, here, err := s.revisionNow(ctx, move.from)
	if err != nil {
		return err
	}
	there, err := to.count(ctx, move)
	if err != nil {
		return err
	}
	if differed > 0 || here != there {
		return fmt.Errorf("%w: there are %d and %d %s, and %d have just been written", errDiffers, here, there, move.GroupResource, differed)
	}
	position.objects = here
	return nil
}

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
		_ = wait(ctx, pause)
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
