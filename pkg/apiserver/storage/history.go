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

package storage

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

const (
	// historyInterval is the pause between two attempts to read from etcd.
	historyInterval = time.Second
	// presentTimeout bounds the wait for etcd's revision before a watch.
	presentTimeout = 2 * time.Second
)

// history knows the revisions of etcd at the end of the moves of groups to or from this etcd.
// Clients that remember an earlier revision have to list again, or would miss changes.
type history struct {
	// known is closed after the first complete read.
	known chan struct{}

	lock   sync.Mutex
	begins map[string]uint64
	// watches are all open watches of clients.
	watches map[*movedWatch]struct{}
}

func newHistory() *history {
	return &history{known: make(chan struct{}), begins: map[string]uint64{}, watches: map[*movedWatch]struct{}{}}
}

// follow reads the values under keys with a prefix, keys.HistoryKey, until the client is closed.
func (h *history) follow(client *clientv3.Client, prefix string) {
	ctx := client.Ctx()
	for ctx.Err() == nil {
		if err := h.read(ctx, client, prefix); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Whether objects were moved here can't be read from etcd; trying again")
		}
		select {
		case <-ctx.Done():
		case <-time.After(historyInterval):
		}
	}
}

// read follows the keys until they can't be read any longer.
func (h *history) read(ctx context.Context, client *clientv3.Client, prefix string) error {
	response, err := client.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	found := sets.New[string]()
	for _, kv := range response.Kvs {
		group := strings.TrimPrefix(string(kv.Key), prefix)
		found.Insert(group)
		h.set(group, string(kv.Value))
	}
	h.unset(func(group string) bool { return !found.Has(group) })
	select {
	case <-h.known:
	default:
		close(h.known)
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for changes := range client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(response.Header.Revision+1)) {
		for _, event := range changes.Events {
			group := strings.TrimPrefix(string(event.Kv.Key), prefix)
			if event.Type == clientv3.EventTypeDelete {
				h.unset(func(deleted string) bool { return deleted == group })
			} else {
				h.set(group, string(event.Kv.Value))
			}
		}
		if err := changes.Err(); err != nil {
			return err
		}
	}
	return nil
}

// unset lets watches of groups begin at any revision again, as after an aborted migration.
func (h *history) unset(which func(group string) bool) {
	h.lock.Lock()
	defer h.lock.Unlock()
	maps.DeleteFunc(h.begins, func(group string, _ uint64) bool { return which(group) })
}

// set remembers a revision. A revision that can't be read delays no watches.
func (h *history) set(group, revision string) {
	begins, err := strconv.ParseUint(revision, 10, 64)
	if err != nil {
		klog.ErrorS(err, "Since which revision the objects of a group are here can't be read from etcd; clients that remember one from before may miss changes", "group", group)
		return
	}
	h.lock.Lock()
	defer h.lock.Unlock()
	h.begins[group] = begins
	for w := range h.watches {
		if w.group == group && w.revision < begins {
			w.Stop()
		}
	}
}

// check returns an error if a watch can't go on from a revision.
func (h *history) check(group string, revision uint64) *apierrors.StatusError {
	if begins := h.begins[group]; revision > 0 && revision < begins {
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d): the objects have been moved to another etcd", revision, begins))
	}
	return nil
}

// fillTimeout bounds the wait for a new cache.
const fillTimeout = 15 * time.Second

// currentStorage delays lists and watches until a new cache is filled. All caches of a CustomResourceDefinition are new
// after each change of it. k8s.io/apiserver answers them with 429 until the cache has read the objects, and not every client
// tries again.
//
// It ends its watches when the objects turn out to have moved, and refuses watches that begin before the move, or at a
// revision of another etcd.
type currentStorage struct {
	storage.Interface
	// wait waits until the cache is filled, which it is expected to be at the time filled.
	wait    func(context.Context) error
	filled  time.Time
	history *history
	group   string
	// present is etcd's revision when it was last read.
	present atomic.Uint64
}

func (s *currentStorage) await(ctx context.Context) {
	if !time.Now().Before(s.filled) || s.ReadinessCheck() == nil {
		return
	}
	ctx, cancel := context.WithDeadline(ctx, s.filled)
	defer cancel()
	_ = s.wait(ctx) // If it is still not ready, k8s.io/apiserver says so.
}

// GetList lists objects.
func (s *currentStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	s.await(ctx)
	return s.Interface.GetList(ctx, key, opts, list)
}

// Watch begins a watch, or one that only returns an error if the revision is too old or too large.
func (s *currentStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	revision, err := strconv.ParseUint(opts.ResourceVersion, 10, 64)
	if err != nil || ptr.Deref(opts.SendInitialEvents, false) {
		revision = 0 // It begins with a list. If there is something else wrong with it, k8s.io/apiserver says so.
	}
	if revision > 0 {
		select {
		case <-s.history.known:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if !s.reached(ctx, revision) {
		return ended(apierrors.NewResourceExpired(fmt.Sprintf("too large resource version: %d (%d): it is of another etcd", revision, s.present.Load()))), nil
	}
	s.await(ctx)
	// k8s.io/apiserver does not stop a watch that it can't encode, but its context ends.
	ctx, cancel := context.WithCancel(ctx)
	inner, err := s.Interface.Watch(ctx, key, opts)
	if err != nil {
		cancel()
		return nil, err
	}
	w := &movedWatch{inner, cancel, s.group, revision}
	s.history.lock.Lock()
	defer s.history.lock.Unlock()
	if err := s.history.check(s.group, revision); err != nil {
		w.Stop()
		return ended(err), nil
	}
	s.history.watches[w] = struct{}{}
	context.AfterFunc(ctx, func() { s.history.forget(w) })
	return w, nil
}

// reached returns false if etcd has not reached a revision, so that a watch would wait for years.
// Another replica may have written since the last look, so etcd itself decides. If etcd does not
// answer, k8s.io/apiserver decides.
func (s *currentStorage) reached(ctx context.Context, revision uint64) bool {
	if revision <= s.present.Load() {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, presentTimeout)
	defer cancel()
	present, err := s.GetCurrentResourceVersion(ctx)
	if err != nil {
		return true
	}
	s.present.Store(present)
	return revision <= present
}

// ended returns a watch with an error only, as k8s.io/apiserver does.
func ended(err *apierrors.StatusError) watch.Interface {
	events := make(chan watch.Event, 1)
	events <- watch.Event{Type: watch.Error, Object: ptr.To(err.Status())}
	close(events)
	return watch.NewProxyWatcher(events)
}

// movedWatch is a watch that may have to end.
type movedWatch struct {
	watch.Interface
	cancel context.CancelFunc
	group  string
	// revision is the one that the client remembers, or 0.
	revision uint64
}

// Stop ends the watch.
func (w *movedWatch) Stop() {
	w.cancel()
	w.Interface.Stop()
}

func (h *history) forget(w *movedWatch) {
	h.lock.Lock()
	defer h.lock.Unlock()
	delete(h.watches, w)
}
