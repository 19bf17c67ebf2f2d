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
	"path"
	"slices"
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
	// maxPasses is how often all objects are copied if their changes can't be followed.
	maxPasses = 3
	// maxRounds is how often objects that were written under the freeze are compared again.
	maxRounds = 3
	// maxFollows is how often changes are copied before the freeze, so that few are left for it.
	maxFollows = 10
	// fewChanges is how many changes are few enough to copy the next under the freeze.
	fewChanges = 100
)

// keyOf returns the key of an object among those of its resource.
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

// revisionNow returns a revision with all acknowledged writes of a resource, and the number of its
// objects. The number is negative if the server does not say.
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

// follow copies changed and pending objects, and returns how many differed.
func (s *session) follow(ctx context.Context, move move, position *position, to target) (int, error) {
	now, _, err := s.revisionNow(ctx, move.from)
	if err != nil {
		return 0, err
	}
	changed, err := position.tail.until(ctx, now)
	if err != nil {
		return 0, err
	}
	position.revision, position.pending = now, position.pending.Union(changed)
	return s.copyPending(ctx, move, position, to)
}

// copyPending copies the pending objects, and returns how many differed. Those are pending again.
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

// copyWhileUsed copies all objects, and then changes until few are left.
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

// copyAllObjects makes two passes over all objects, and collects changes meanwhile. The first pass
// copies the objects, and the second compares their content.
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
			followed, err := s.tailOf(ctx, following, move, positions[move.Resource])
			if err != nil {
				return err
			}
			found, err := s.copy(ctx, move, to)
			if err != nil {
				return err
			}
			s.progress("%d %s: %d copied, %d deleted", found.objects, move.GroupResource, len(found.pending)-found.deleted, found.deleted)
			differed += len(found.pending)
			found.tail, positions[move.Resource] = followed, found
		}
		if differed == 0 {
			break
		}
	}
	s.positions = positions
	return nil
}

// tailOf returns the tail of a resource whose objects are all going to be read now.
func (s *session) tailOf(ctx, following context.Context, move move, before *position) (*tail, error) {
	if before != nil {
		_, _, err := before.tail.take(0)
		return before.tail, err
	}
	now, _, err := s.revisionNow(ctx, move.from)
	if err != nil {
		return nil, err
	}
	return s.tail(following, move.from, now)
}

// stopFollowing ends the watches, and forgets all positions.
func (s *session) stopFollowing() {
	if s.stopTails != nil {
		s.stopTails()
	}
	s.positions, s.stopTails = nil, nil
}

// catchUp copies changes until few are left.
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

// expired reports whether an error means that objects can't be followed any further.
func expired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, context.DeadlineExceeded)
}

// copyFrozen makes all objects equal while no client writes. It compares only the objects that have
// changed since the last comparison, and the number of objects. Another process does not know what
// was compared, and compares all objects.
func (s *session) copyFrozen(ctx context.Context, moves []move, to target) (map[string]*position, error) {
	positions := map[string]*position{}
	var lock sync.Mutex
	// All wait for their watches at the same time.
	group, following := errgroup.WithContext(ctx)
	for _, move := range moves {
		known := s.positions[move.Resource]
		if known == nil {
			continue
		}
		group.Go(func() error {
			err := s.followFrozen(following, move, known, to)
			if expired(err) || errors.Is(err, errDiffers) {
				s.progress("comparing all objects: %v", err)
				return nil
			}
			lock.Lock()
			defer lock.Unlock()
			positions[move.Resource] = known
			return err
		})
	}
	err := group.Wait()
	s.stopFollowing()
	others := slices.DeleteFunc(slices.Clone(moves), func(move move) bool { return positions[move.Resource] != nil })
	if err != nil || len(others) == 0 {
		return positions, err
	}
	if err := s.beginPass(ctx, others); err != nil {
		return nil, err
	}
	for _, move := range others {
		if _, err := s.copy(ctx, move, to); err != nil {
			return nil, err
		}
	}
	// Nothing may have changed since. A write that was admitted before the freeze may have come
	// after the first pass.
	if err := s.beginPass(ctx, others); err != nil {
		return nil, err
	}
	for _, move := range others {
		if positions[move.Resource], err = s.verify(ctx, move, to); err != nil {
			return nil, err
		}
	}
	return positions, nil
}

// followFrozen copies the last changes of a resource, or returns errDiffers if objects still
// differ.
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
	// followTimeout bounds the wait for a watch to reach a revision.
	followTimeout = 20 * time.Second
	// watchSeconds is how long a watch lasts. Servers send a bookmark two seconds before its end:
	// all changes up to then have been sent.
	watchSeconds = 3
)

// tail collects the changed objects of a resource until its context ends. Servers keep changes for
// less time than it takes to copy many objects.
type tail struct {
	client metadata.ResourceInterface
	from   schema.GroupVersionResource

	lock sync.Mutex
	// changed are the objects, as namespace/name, that have changed up to the revision reached.
	changed sets.Set[string]
	reached int64
	// err is the reason why nothing more is collected.
	err error
	// renew ends the present watch, since the next begins with a bookmark.
	renew context.CancelFunc
}

// tail begins to collect the objects that change after a revision.
func (m *Migration) tail(ctx context.Context, from schema.GroupVersionResource, after string) (*tail, error) {
	reached, err := revisionOf(after)
	if err != nil {
		return nil, err
	}
	t := &tail{client: m.metadata.Resource(from), from: from, changed: sets.New[string](), reached: reached, renew: func() {}}
	go t.run(ctx)
	return t, nil
}

func (t *tail) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := t.watch(ctx); err != nil {
			t.lock.Lock()
			defer t.lock.Unlock()
			t.err = fmt.Errorf("watching the %s: %w", t.from.GroupResource(), err)
			return
		}
		_ = wait(ctx, pollInterval) // A proxy may end each watch at once.
	}
}

// watch collects the events of one watch until it ends. It asks only for metadata.
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
	for event := range watcher.ResultChan() {
		if ctx.Err() != nil {
			return nil
		}
		if err := t.add(event); err != nil {
			return err
		}
	}
	return nil
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
	return nil
}

// take returns the objects that have changed since it last did, once a revision is reached.
func (t *tail) take(goal int64) (changed sets.Set[string], reached int64, err error) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.err == nil && t.reached >= goal {
		changed, t.changed = t.changed, sets.New[string]()
	}
	return changed, t.reached, t.err
}

// until returns the objects that have changed up to a revision or later, except those it returned
// before.
func (t *tail) until(ctx context.Context, revision string) (sets.Set[string], error) {
	goal, err := revisionOf(revision)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	for renewed := false; ; renewed = true {
		changed, reached, err := t.take(goal)
		if err != nil || reached >= goal {
			return changed, err
		}
		if !renewed {
			t.lock.Lock()
			t.renew()
			t.lock.Unlock()
		}
		if err := wait(ctx, pollInterval); err != nil {
			return nil, fmt.Errorf("a watch of the %s has come to the revision %d only, and not to %s: %w", t.from.GroupResource(), reached, revision, err)
		}
	}
}
