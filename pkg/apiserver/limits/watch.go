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

package limits

import (
	"context"
	"net/http"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// largeObject is the size from which single objects take memory of the budget. A smaller one takes
	// less than a connection. Those of watch caches, which keep many, do from pastObject on.
	largeObject, pastObject = 32 << 10, 4 << 10
	// watchBytes is what a watch takes, without its events. All take a part of RequestMemory.
	watchBytes, watchPart = 96 << 10, 2
	// eventFactor is how many times its size an object takes while an event is made of it and
	// written. keptFactor is how many times its size the buffers of the library take afterwards,
	// which it keeps until the watch ends.
	eventFactor, keptFactor = 10, 2
	// eventPatience is how long a watch waits for memory. Then it ends, and its client may begin
	// another where it was.
	eventPatience = 10 * time.Second
	eventInterval = 50 * time.Millisecond
	// largestHalfLife is how long it takes until the largest object that has been seen counts half.
	// Each watch sees those that there are again.
	largestHalfLife = time.Minute
	// eventsAhead is how many events may wait for the library, which flushes when there are none.
	eventsAhead = 4
)

// leastWatches is how many an account may have even if others have all. Otherwise, a dozen accounts would keep watches
// from everybody else for as long as they like.
const leastWatches = 8

// Watches bound how many watches and streams there are at once. Accounts of the cluster itself may have any number.
type Watches struct{ shares *Shares }

// NewWatches returns the Watches of a server.
func NewWatches(bounds Bounds) Watches {
	total := max(2, bounds.RequestMemory/watchPart/watchBytes)
	return Watches{NewShares(total).WithLeast(min(leastWatches, total/16))}
}

// Follow counts another stream until end is called, or tells that the account has as many as it leaves to others. A
// stream takes as much as two watches.
func (w Watches) Follow(req *http.Request) (end func(), ok bool) { return w.take(accountOf(req), 2) }

func (w Watches) take(of account, part int64) (end func(), ok bool) {
	if of.system {
		return func() {}, true
	}
	return func() { w.shares.Give(of.user, part) }, w.shares.Take(of.user, part)
}

// ErrTooManyWatches tells a user why it gets no further watch or stream.
func ErrTooManyWatches() error {
	return apierrors.NewTooManyRequests("this user has as many watches and streams in this server already as it leaves to others; more memory, or a higher --max-request-memory-bytes, allows more", budgetRetrySeconds)
}

// watchReservation is what the budget has to know of the request for a watch.
type watchReservation struct {
	// flushed is called when an event has been written.
	flushed func()
	// initialized gives back the watch's seat of priority and fairness.
	initialized func()
}

// LargestObject is the size of the largest object of a resource of late. The zero value has seen none.
type LargestObject struct {
	mu sync.Mutex
	// largest is the size of an object that was the largest one when it was seen.
	largest int64
	seen    time.Time
}

// Observe returns the size of an object that is stored, or 0 if it is not a large one.
func (l *LargestObject) Observe(object runtime.Object) int64 {
	size := LargeSize(object)
	if size == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if size >= l.recent() {
		l.largest, l.seen = size, time.Now()
	}
	return size
}

// None tells whether none has ever been seen.
func (l *LargestObject) None() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.largest == 0
}

// Largest returns the size of the largest object of late, or 0 if there was no large one.
func (l *LargestObject) Largest() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.recent()
}

// recent is for callers that hold the lock.
func (l *LargestObject) recent() int64 {
	size := l.largest >> (time.Since(l.seen) / largestHalfLife)
	if size < largeObject {
		return 0
	}
	return size
}

// Watch returns a watch whose large events take memory from the budget of the request whose context this is. It
// begins with copies of objects that the watch cache has ready, as many as its channel holds. They are counted as
// the largest there is, or by the average size of one in memory, until no more come. Events that the watch cache
// encodes once for all watches take none.
func (l *LargestObject) Watch(ctx context.Context, inner watch.Interface, average int64) (watch.Interface, error) {
	reservation, ok := ctx.Value(reservationKey{}).(listReservation)
	if !ok {
		return inner, nil
	}
	copies := min(average, largeObject) * int64(eventsAhead+cap(inner.ResultChan()))
	w := &boundedWatch{
		Interface: inner, large: l, reservation: reservation.reservation, ahead: max(l.Largest()*eventFactor, copies),
		events: make(chan watch.Event, eventsAhead), flushed: make(chan struct{}, 1),
	}
	// Until it has begun, a watch holds a seat of priority and fairness that others wait for.
	if w.ahead > 0 && !w.reservation.raiseList(w.ahead) {
		inner.Stop()
		return nil, errTooMuchMemory("watches that begin")
	}
	reservation.watch.flushed = func() {
		if len(w.events) == 0 {
			offer(w.flushed)
		}
	}
	ctx, w.cancel = context.WithCancel(ctx)
	go w.run(ctx)
	return w, nil
}

type boundedWatch struct {
	watch.Interface
	large       *LargestObject
	reservation *reservation
	// ahead is what the events that are ready may take while the watch begins.
	ahead   int64
	events  chan watch.Event
	flushed chan struct{}
	cancel  func()
}

// ResultChan returns the channel of the events.
func (w *boundedWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop ends the watch.
func (w *boundedWatch) Stop() {
	w.cancel()
	w.Interface.Stop()
}

func (w *boundedWatch) run(ctx context.Context) {
	defer close(w.events)
	// kept is what the watch keeps when nothing is on its way.
	var kept int64
	ahead, begun := w.ahead, time.NewTimer(eventInterval)
	defer begun.Stop()
	for {
		var event watch.Event
		var ok bool
		select {
		case event, ok = <-w.Interface.ResultChan():
			if !ok {
				return
			}
		case <-begun.C:
			if len(w.Interface.ResultChan()) > 0 { // The client has let this watch wait.
				begun.Reset(eventInterval)
				continue
			}
			ahead = 0
			w.reservation.takeList(kept)
			continue
		}
		size, copied := eventSize(event.Object)
		if copied && ahead > 0 {
			begun.Reset(eventInterval)
		}
		if size > 0 {
			w.large.Observe(event.Object)
			if !w.take(ctx, size*eventFactor) {
				return
			}
		}
		drain(w.flushed)
		select {
		case w.events <- event:
		case <-ctx.Done():
			return
		}
		if size == 0 {
			continue
		}
		select {
		case <-w.flushed:
		case <-ctx.Done():
			return
		}
		kept = max(kept, size*keptFactor)
		w.reservation.takeList(max(kept, ahead))
	}
}

// take waits for memory, and tells whether there was enough.
func (w *boundedWatch) take(ctx context.Context, bytes int64) bool {
	return wait.PollUntilContextTimeout(ctx, eventInterval, eventPatience, true, func(context.Context) (bool, error) {
		return w.reservation.raiseList(bytes), nil
	}) == nil
}

func offer(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func drain(c <-chan struct{}) {
	select {
	case <-c:
	default:
	}
}

// eventSize returns the LargeSize of an object that an event is made of, unless all watches share that.
func eventSize(object runtime.Object) (size int64, copied bool) {
	if _, shared := object.(runtime.CacheableObject); shared {
		return 0, false
	}
	return LargeSize(object), true
}

// LargeSize is about how many bytes an object has, or 0 if these are less than 32 KiB.
func LargeSize(object runtime.Object) int64 {
	if size := Size(object); size >= largeObject {
		return size
	}
	return 0
}

// Size is about how many bytes an object has in memory.
func Size(object runtime.Object) int64 {
	if untyped, ok := object.(*unstructured.Unstructured); ok {
		return sizeOfJSON(untyped.Object)
	}
	return sizeOf(reflect.ValueOf(object))
}

// scalar is the size of a number. emptyMap is that of a map, and smallMap that of one with the places for eight entries
// that Go makes at once.
const scalar, emptyMap, smallMap = 8, 48, 300

// sizeOfJSON is sizeOf for decoded JSON, in a fourth of the time. A list of custom resources has a hundred
// thousand maps.
func sizeOfJSON(value any) (size int64) {
	switch value := value.(type) {
	case nil:
		return 0
	case string:
		return int64(len(value))
	case map[string]any:
		switch {
		case value == nil:
			return 0
		case len(value) == 0:
			return emptyMap
		}
		size = smallMap
		for key, value := range value {
			size += scalar + int64(len(key)) + sizeOfJSON(value)
		}
		return size
	case []any:
		for _, value := range value {
			size += scalar + sizeOfJSON(value)
		}
		return size
	default:
		return scalar
	}
}

// sizeOf is about how much memory a value takes: as much as in JSON without its names, and that of its maps.
func sizeOf(value reflect.Value) (size int64) {
	switch value.Kind() {
	case reflect.String:
		return int64(value.Len())
	case reflect.Pointer, reflect.Interface:
		return sizeOf(value.Elem())
	case reflect.Map:
		if value.IsNil() {
			return 0
		}
		size = emptyMap
		if value.Len() > 0 {
			size = smallMap
		}
		for entries := value.MapRange(); entries.Next(); {
			size += scalar + sizeOf(entries.Key()) + sizeOf(entries.Value())
		}
		return size
	case reflect.Slice, reflect.Array:
		if value.Type().Elem().Kind() == reflect.Uint8 {
			return int64(value.Len())
		}
		for i := range value.Len() {
			size += scalar + sizeOf(value.Index(i))
		}
		return size
	case reflect.Struct:
		if value.Type() == reflect.TypeFor[time.Time]() {
			return scalar
		}
		for i := range value.NumField() {
			size += sizeOf(value.Field(i))
		}
		return size
	case reflect.Invalid: // Nil.
		return 0
	default:
		return scalar
	}
}
