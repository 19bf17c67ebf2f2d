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
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

const (
	// writers is how many objects are written at once: etcd commits them together.
	writers = 32
	// maxNamed is how many objects a finding, an error or the state names.
	maxNamed = 10
)

// content identifies an object by the hash and the size of what a target would store before
// encryption.
type content struct {
	hash [sha256.Size]byte
	size int
}

func contentOf(data []byte) content { return content{sha256.Sum256(data), len(data)} }

// encode returns an object, given in any version, as the server would store it before encryption.
func encode(codec runtime.Codec, data []byte) ([]byte, error) {
	object, err := runtime.Decode(codec, data)
	if err != nil {
		return nil, err
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	accessor.SetResourceVersion("")
	accessor.SetSelfLink("")
	return runtime.Encode(codec, object)
}

// copyOne makes an object of the target equal to the one that clients use.
func (m *Migration) copyOne(ctx context.Context, move move, to target, key string) (written, finalized bool, err error) {
	object, err := m.get(ctx, move.from, key)
	if err != nil {
		return false, false, err
	}
	before, err := to.one(ctx, move, key)
	if err != nil {
		return false, false, err
	}
	if object == nil {
		if before == nil {
			return false, false, nil
		}
		return true, false, to.write(ctx, move, key, before, nil)
	}
	finalized = len(object.GetFinalizers()) > 0
	after, err := to.encode(move, object)
	if err != nil || before != nil && before.content == after.content {
		return false, finalized, err
	}
	return true, finalized, to.write(ctx, move, key, before, &after)
}

// position says how far the objects of a resource have been compared. At its revision, all objects
// were equal but the pending ones.
type position struct {
	revision string
	objects  int
	// pending are objects, as namespace/name, that have been written since they were compared.
	pending sets.Set[string]
	// finalized are the objects with finalizers.
	finalized sets.Set[string]
	// tail collects the objects that clients change.
	tail *tail
}

func newPosition(revision string) *position {
	return &position{revision: revision, pending: sets.New[string](), finalized: sets.New[string]()}
}

// copy makes the objects of a target equal to those that clients use.
func (m *Migration) copy(ctx context.Context, move move, to target) (*position, error) {
	// A process must not write after another one has continued the migration.
	if err := m.save(ctx); err != nil {
		return nil, err
	}
	there, err := to.all(ctx, move)
	if err != nil {
		return nil, err
	}
	found := newPosition("")
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	write := func(key string, before *held, after *wanted) error {
		found.pending.Insert(key)
		group.Go(func() error {
			if err := to.write(ctx, move, key, before, after); err != nil {
				return fmt.Errorf("writing %s %s: %w", move.GroupResource, key, err)
			}
			return nil
		})
		return context.Cause(ctx)
	}
	found.revision, err = m.list(ctx, move.from, func(object *unstructured.Unstructured) error {
		found.objects++
		key := keyOf(object)
		var before *held
		if known, exists := there[key]; exists {
			before = &known
			delete(there, key)
		}
		if len(object.GetFinalizers()) > 0 {
			found.finalized.Insert(key)
		}
		after, err := to.encode(move, object)
		if err != nil {
			return fmt.Errorf("the object %s: %w", key, err)
		}
		if m.meter.add(after.size) {
			m.config.Report(m.meter.Progress)
		}
		if before != nil && before.content == after.content {
			return nil
		}
		return write(key, before, &after)
	})
	if err == nil {
		for key, before := range there {
			if err = write(key, &before, nil); err != nil {
				break
			}
		}
	}
	// The first failure has canceled the rest.
	if failed := group.Wait(); failed != nil {
		return nil, failed
	}
	return found, err
}

// copyPass makes one pass over all objects of resources, and returns how many differed.
func (m *Migration) copyPass(ctx context.Context, moves []move, to target) (positions map[string]*position, differed int, err error) {
	m.meter = meter{started: time.Now(), reported: time.Now()}
	for _, move := range moves {
		_, count, err := m.revisionNow(ctx, move.from)
		if err != nil {
			return nil, 0, err
		}
		m.meter.Total += max(count, 0)
	}
	positions = map[string]*position{}
	for _, move := range moves {
		found, err := m.copy(ctx, move, to)
		if err != nil {
			return nil, 0, err
		}
		m.progress("%d %s: %d differed, and were copied or deleted", found.objects, move.GroupResource, len(found.pending))
		positions[move.Resource] = found
		differed += len(found.pending)
	}
	return positions, differed, nil
}

// errDiffers says that a target's objects differ from those that clients use.
var errDiffers = errors.New("the server's objects differ from kube-apiserver's")

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

// keyOf returns the key of an object among the objects of its resource.
func keyOf(object metav1.Object) string { return cache.MetaObjectToName(object).String() }

// clientOf returns a client for an object, and its name.
func (m *Migration) clientOf(resource schema.GroupVersionResource, key string) (client dynamic.ResourceInterface, name string) {
	namespace, name, _ := cache.SplitMetaNamespaceKey(key)
	return m.dynamic.Resource(resource).Namespace(namespace), name
}

// get returns an object, or nil if there is none.
func (m *Migration) get(ctx context.Context, from schema.GroupVersionResource, key string) (*unstructured.Unstructured, error) {
	client, name := m.clientOf(from, key)
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
func (m *Migration) follow(ctx context.Context, move move, position *position, to target) (int, error) {
	now, _, err := m.revisionNow(ctx, move.from)
	if err != nil {
		return 0, err
	}
	changed, err := position.tail.until(ctx, now)
	if err != nil {
		return 0, err
	}
	position.revision, position.pending = now, position.pending.Union(changed)
	return m.copyPending(ctx, move, position, to)
}

// copyPending copies the pending objects, and returns how many differed. Those are pending again.
func (m *Migration) copyPending(ctx context.Context, move move, position *position, to target) (int, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	var mu sync.Mutex
	written := sets.New[string]()
	for key := range position.pending {
		group.Go(func() error {
			differed, finalized, err := m.copyOne(ctx, move, to, key)
			if err != nil {
				return fmt.Errorf("copying the object %s of %s: %w", key, move.GroupResource, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if differed {
				written.Insert(key)
			}
			position.finalized.Delete(key)
			if finalized {
				position.finalized.Insert(key)
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
func (m *Migration) copyWhileUsed(ctx context.Context, moves []move, to target) error {
	for range maxPasses {
		err := m.copyAllObjects(ctx, moves, to)
		if err == nil {
			err = m.catchUp(ctx, moves, to)
		}
		if !expired(err) {
			return err
		}
		m.stopFollowing()
		m.progress("copying all objects again: %v", err)
	}
	return nil // All are compared under the freeze.
}

// copyAllObjects makes two passes over all objects, and collects changes meanwhile. The first pass
// copies the objects, and the second compares their content.
func (m *Migration) copyAllObjects(ctx context.Context, moves []move, to target) error {
	m.stopFollowing()
	following, stop := context.WithCancel(ctx)
	m.stopTails = stop
	tails := map[string]*tail{}
	for _, move := range moves {
		now, _, err := m.revisionNow(ctx, move.from)
		if err != nil {
			return err
		}
		if tails[move.Resource], err = m.tail(following, move.from, now); err != nil {
			return err
		}
	}
	for range 2 {
		for _, tail := range tails {
			// What has changed so far is read now.
			if _, _, err := tail.take(0); err != nil {
				return err
			}
		}
		positions, differed, err := m.copyPass(ctx, moves, to)
		if err != nil {
			return err
		}
		if m.positions = positions; differed == 0 {
			break
		}
	}
	for resource, position := range m.positions {
		position.tail = tails[resource]
	}
	return nil
}

// stopFollowing ends the watches, and forgets all positions.
func (m *Migration) stopFollowing() {
	if m.stopTails != nil {
		m.stopTails()
	}
	m.positions, m.stopTails = nil, nil
}

// catchUp copies changes until few are left.
func (m *Migration) catchUp(ctx context.Context, moves []move, to target) error {
	for range maxFollows {
		differed := 0
		for _, move := range moves {
			position := m.positions[move.Resource]
			if position == nil {
				continue
			}
			count, err := m.follow(ctx, move, position, to)
			if err != nil {
				return err
			}
			m.progress("%d %s have changed since, and were copied", count, move.GroupResource)
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
func (m *Migration) copyFrozen(ctx context.Context, moves []move, to target) (map[string]*position, error) {
	positions := map[string]*position{}
	var lock sync.Mutex
	// All wait for their watches at the same time.
	group, following := errgroup.WithContext(ctx)
	for _, move := range moves {
		known := m.positions[move.Resource]
		if known == nil {
			continue
		}
		group.Go(func() error {
			err := m.followFrozen(following, move, known, to)
			if expired(err) || errors.Is(err, errDiffers) {
				m.progress("comparing all objects: %v", err)
				return nil
			}
			lock.Lock()
			defer lock.Unlock()
			positions[move.Resource] = known
			return err
		})
	}
	err := group.Wait()
	m.stopFollowing()
	others := slices.DeleteFunc(slices.Clone(moves), func(move move) bool { return positions[move.Resource] != nil })
	if err != nil || len(others) == 0 {
		return positions, err
	}
	// A write that was admitted before the freeze may come after the first pass. After that, nothing may differ.
	var compared map[string]*position
	for range 2 {
		if compared, _, err = m.copyPass(ctx, others, to); err != nil {
			return nil, err
		}
	}
	for _, move := range others {
		if differ := sets.List(compared[move.Resource].pending); len(differ) > 0 {
			hint := ""
			if m.state.Returning {
				hint = "; a webhook or a policy may change or refuse what is written"
			}
			return nil, fmt.Errorf("%w: %d of %s, such as %v%s", errDiffers, len(differ), move.GroupResource, differ[:min(len(differ), maxNamed)], hint)
		}
	}
	maps.Copy(positions, compared)
	return positions, nil
}

// followFrozen copies the last changes of a resource, or returns errDiffers if objects still
// differ.
func (m *Migration) followFrozen(ctx context.Context, move move, position *position, to target) error {
	differed, err := m.follow(ctx, move, position, to)
	for round := 0; err == nil && differed > 0 && round < maxRounds; round++ {
		differed, err = m.copyPending(ctx, move, position, to)
	}
	if err != nil {
		return err
	}
	_, here, err := m.revisionNow(ctx, move.from)
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
			t.err = fmt.Errorf("watching the %s: %w", t.from.GroupResource(), err)
			t.lock.Unlock()
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
