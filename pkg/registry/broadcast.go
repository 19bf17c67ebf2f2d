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

package registry

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/klog/v2"
)

const (
	// queuedNews is how much news may wait for a follower. When there is more, the
	// follower misses the oldest: the newest has the state of the object.
	queuedNews = 16
	// resumePause is the pause before the next attempt to watch an object after an
	// interruption, such as a restart of etcd.
	resumePause = time.Second
)

// broadcaster sends the changes of an object to any number of followers, with one
// watch for all of them. A slow follower delays no other.
type broadcaster[O Object] struct {
	store    *genericregistry.Store
	describe func(O) (line string, last bool)

	mu     sync.Mutex
	topics map[types.NamespacedName]*topic
}

// topic is an object that has followers.
type topic struct {
	followers map[chan news]struct{}
	stop      context.CancelFunc
}

// news describes an object at a version. If the object does not exist, uid and line
// are empty.
type news struct {
	version uint64
	uid     types.UID
	line    string
	last    bool
}

func newBroadcaster[O Object](store *genericregistry.Store, describe func(O) (line string, last bool)) *broadcaster[O] {
	return &broadcaster[O]{store: store, describe: describe, topics: map[types.NamespacedName]*topic{}}
}

// read describes the current state of an object.
func (b *broadcaster[O]) read(ctx context.Context, name string) (news, error) {
	obj, err := b.store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return news{}, err
	}
	return b.news(obj)
}

func (b *broadcaster[O]) news(obj runtime.Object) (news, error) {
	// If there are many watchers, it comes from the watch cache in a wrapping that
	// all of them share.
	// Upstream fault 66.
	if shared, ok := obj.(runtime.CacheableObject); ok {
		obj = shared.GetObject()
	}
	version, err := b.store.Storage.Versioner().ObjectResourceVersion(obj)
	if err != nil {
		return news{}, err
	}
	o := obj.(O)
	line, last := b.describe(o)
	return news{version, o.GetUID(), line, last}, nil
}

// follow returns a channel for news about an object until leave is called. The first
// news may be older than the call.
func (b *broadcaster[O]) follow(namespace, name string) (_ <-chan news, leave func()) {
	key, follower := types.NamespacedName{Namespace: namespace, Name: name}, make(chan news, queuedNews)
	b.mu.Lock()
	defer b.mu.Unlock()
	followed, ok := b.topics[key]
	if !ok {
		ctx, stop := context.WithCancel(genericapirequest.WithNamespace(context.Background(), namespace))
		followed = &topic{map[chan news]struct{}{}, stop}
		b.topics[key] = followed
		go b.run(ctx, name, followed)
	}
	followed.followers[follower] = struct{}{}
	return follower, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if delete(followed.followers, follower); len(followed.followers) == 0 {
			delete(b.topics, key)
			followed.stop()
		}
	}
}

// run publishes all changes of an object while it has followers.
func (b *broadcaster[O]) run(ctx context.Context, name string, followed *topic) {
	for ctx.Err() == nil {
		if err := b.watch(ctx, name, followed); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Interrupted in following an object", "resource", b.store.DefaultQualifiedResource, "name", name, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(resumePause):
		}
	}
}

// watch publishes the current state of an object, then each change. It watches from
// the version of a list, since the version of an object may be too old for the watch
// cache.
func (b *broadcaster[O]) watch(ctx context.Context, name string, followed *topic) error {
	options := &metainternalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name)}
	obj, err := b.store.List(ctx, options)
	if err != nil {
		return err
	}
	list, err := meta.ListAccessor(obj)
	if err != nil {
		return err
	}
	options.ResourceVersion = list.GetResourceVersion()
	var now news
	if now.version, err = b.store.Storage.Versioner().ParseResourceVersion(options.ResourceVersion); err != nil {
		return err
	}
	if err := meta.EachListItem(obj, func(obj runtime.Object) (err error) {
		now, err = b.news(obj)
		return err
	}); err != nil {
		return err
	}
	b.publish(followed, now)

	changes, err := b.store.Watch(ctx, options)
	if err != nil {
		return err
	}
	defer changes.Stop()
	for event := range changes.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		now, err := b.news(event.Object)
		if err != nil {
			return err
		}
		if event.Type == watch.Deleted {
			now = news{version: now.version}
		}
		b.publish(followed, now)
	}
	return nil
}

func (b *broadcaster[O]) publish(followed *topic, now news) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for follower := range followed.followers {
		enqueue(follower, now)
	}
}

func enqueue(queue chan news, newest news) {
	for {
		select {
		case queue <- newest:
			return
		default:
		}
		select {
		case <-queue:
		default:
		}
	}
}
