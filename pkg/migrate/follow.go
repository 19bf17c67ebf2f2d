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
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

const (
	// followTimeout bounds the wait for a watch to come to a revision that has been reached.
	followTimeout = 20 * time.Second
	// watchSeconds is how long a watch lasts. Servers send a bookmark two seconds before its end,
	// which says that there are no changes up to then but those that were sent.
	watchSeconds = 3
	// maxRounds is how often what is written under the freeze is compared again.
	maxRounds = 3
)

// position is what is known of the objects of a resource that are followed. All objects were
// equal at the revision but those that are pending.
type position struct {
	revision string
	objects  int
	// pending are objects, as namespace/name, that have been written since they were compared.
	pending sets.Set[string]
	// finalized are those with finalizers, and newUIDs those that get another UID.
	finalized, newUIDs sets.Set[string]
}

// follower is a way to copy objects.
type follower struct {
	// pass makes all objects of a resource equal, and verify returns errDiffers if some are not.
	pass, verify func(context.Context, move) (difference, error)
	// one makes one object equal, and tells whether it was not.
	one func(ctx context.Context, move move, key string, position *position) (written bool, err error)
	// count is how many objects there are where they are copied to.
	count func(context.Context, move) (int, error)
}

// key is that of an object among those of its resource.
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

// changed returns which objects have changed after a revision, up to another one.
func (m *Migration) changed(ctx context.Context, from schema.GroupVersionResource, after, until string) (sets.Set[string], error) {
	changed := sets.New[string]()
	goal, err := revisionOf(until)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	for {
		reached, err := revisionOf(after)
		if err != nil || reached >= goal {
			return changed, err
		}
		seconds := int64(watchSeconds)
		watcher, err := m.dynamic.Resource(from).Watch(ctx, metav1.ListOptions{ResourceVersion: after, AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
		if err == nil {
			after, err = changes(watcher, changed, after, goal)
		}
		if err != nil {
			return nil, fmt.Errorf("watching the %s: %w", from.GroupResource(), err)
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("a watch of the %s has come to the revision %s only, and not to %s: %w", from.GroupResource(), after, until, context.Cause(ctx))
		}
	}
}

// changes collects what a watch says until it ends, or has come to the goal, and returns how far
// it has come.
func changes(watcher watch.Interface, changed sets.Set[string], after string, goal int64) (string, error) {
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if event.Type == watch.Error {
			return after, apierrors.FromObject(event.Object)
		}
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			return after, fmt.Errorf("got a %T", event.Object)
		}
		if event.Type != watch.Bookmark {
			changed.Insert(keyOf(object))
		}
		after = object.GetResourceVersion()
		if reached, err := revisionOf(after); err != nil || reached >= goal {
			return after, err
		}
	}
	return after, nil
}

// follow copies what has changed since, and what is pending, and returns how many objects differed.
func (c *claim) follow(ctx context.Context, move move, position *position, by follower) (int, error) {
	now, _, err := c.revisionNow(ctx, move.from)
	if err != nil {
		return 0, err
	}
	changed, err := c.changed(ctx, move.from, position.revision, now)
	if err != nil {
		return 0, err
	}
	position.revision, position.pending = now, position.pending.Union(changed)
	return c.copyPending(ctx, move, position, by)
}

// copyPending makes the objects equal that may differ. Those that did are pending afterwards.
func (c *claim) copyPending(ctx context.Context, move move, position *position, by follower) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		slots   = make(chan struct{}, writers)
		written = sets.New[string]()
	)
	for key := range position.pending {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			own := newPosition("")
			differed, err := by.one(ctx, move, key, own)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				cancel(fmt.Errorf("copying the object %s of %s: %w", key, move.GroupResource, err))
				return
			}
			if differed {
				written.Insert(key)
			}
			position.finalized = position.finalized.Delete(key).Union(own.finalized)
			position.newUIDs = position.newUIDs.Delete(key).Union(own.newUIDs)
		})
	}
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return 0, cause
	}
	position.pending = written
	return len(written), nil
}

func newPosition(revision string) *position {
	return &position{revision: revision, pending: sets.New[string](), finalized: sets.New[string](), newUIDs: sets.New[string]()}
}

// positionAfter is the one after a pass over all objects.
func positionAfter(found difference) *position {
	return &position{revision: found.revision, objects: found.objects, pending: found.keys, finalized: found.finalized, newUIDs: found.newUIDs}
}

// copyWhileUsed copies all objects, and then what changes, until that is little. There are two passes over
// all objects: the first copies them, and the second compares all of them by their content.
func (c *claim) copyWhileUsed(ctx context.Context, moves []move, by follower) error {
	c.positions = nil
	positions := map[string]*position{}
	for range 2 {
		if err := c.beginPass(ctx, moves); err != nil {
			return err
		}
		differed := 0
		for _, move := range moves {
			found, err := by.pass(ctx, move)
			if err != nil {
				return err
			}
			c.progress("%d %s, of which %d were copied and %d deleted", found.objects, move.GroupResource, found.written, found.deleted)
			differed += found.changes()
			positions[move.Resource] = positionAfter(found)
		}
		if differed == 0 {
			break
		}
	}
	for range maxFollows {
		differed := 0
		for _, move := range moves {
			count, err := c.follow(ctx, move, positions[move.Resource], by)
			if expired(err) {
				return nil // All objects are compared under the freeze.
			}
			if err != nil {
				return err
			}
			c.progress("%d %s have changed since, and were copied", count, move.GroupResource)
			differed += count
		}
		if differed <= fewChanges {
			break
		}
	}
	c.positions = positions
	return nil
}

// expired tells whether objects can't be followed any further.
func expired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, context.DeadlineExceeded)
}

// copyFrozen makes all objects equal for good, while nobody writes. What was compared before is not compared
// again: only what has changed since, and the number of objects. Another process does not know
// what was compared, and compares all objects.
func (c *claim) copyFrozen(ctx context.Context, moves []move, by follower) (map[string]*position, error) {
	positions := map[string]*position{}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	for _, move := range moves {
		known := c.positions[move.Resource]
		if known == nil {
			continue
		}
		wg.Go(func() {
			err := c.followFrozen(ctx, move, known, by)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			positions[move.Resource] = known
		})
	}
	wg.Wait()
	c.positions = nil
	for _, err := range errs {
		if !expired(err) && !errors.Is(err, errDiffers) {
			return nil, err
		}
		c.progress("comparing all objects: %v", err)
	}
	var others []move
	for _, move := range moves {
		if positions[move.Resource] == nil {
			others = append(others, move)
		}
	}
	if len(others) == 0 {
		return positions, nil
	}
	if err := c.beginPass(ctx, others); err != nil {
		return nil, err
	}
	for _, move := range others {
		if _, err := by.pass(ctx, move); err != nil {
			return nil, err
		}
	}
	// Nothing may have changed since: what was read before could be of a write that had
	// been admitted before the freeze.
	if err := c.beginPass(ctx, others); err != nil {
		return nil, err
	}
	for _, move := range others {
		found, err := by.verify(ctx, move)
		if err != nil {
			return nil, err
		}
		positions[move.Resource] = positionAfter(found)
	}
	return positions, nil
}

// followFrozen makes the objects of a resource equal that may differ.
func (c *claim) followFrozen(ctx context.Context, move move, position *position, by follower) error {
	differed, err := c.follow(ctx, move, position, by)
	for round := 0; err == nil && differed > 0 && round < maxRounds; round++ {
		differed, err = c.copyPending(ctx, move, position, by)
	}
	if err != nil {
		return err
	}
	_, here, err := c.revisionNow(ctx, move.from)
	if err != nil {
		return err
	}
	there, err := by.count(ctx, move)
	if err != nil {
		return err
	}
	if differed > 0 || here != there {
		return fmt.Errorf("%w: there are %d and %d %s, and %d have just been written", errDiffers, here, there, move.GroupResource, differed)
	}
	position.objects = here
	return nil
}
