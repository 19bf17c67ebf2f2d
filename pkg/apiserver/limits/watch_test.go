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
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/testing/requests"
)

// encodedOnce is an object that the watch cache encodes for all watches.
type encodedOnce struct {
	runtime.CacheableObject
	runtime.Object
}

func (encodedOnce) DeepCopyObject() runtime.Object          { return nil }
func (encodedOnce) GetObjectKind() (kind schema.ObjectKind) { return kind }

func TestLargeEvents(t *testing.T) {
	const size = 64 << 10
	meta := func(annotation int) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": strings.Repeat("x", annotation)}}}
	}
	typed := meta(size)
	untyped := &unstructured.Unstructured{Object: map[string]any{"a": strings.Repeat("x", size)}}
	for name, test := range map[string]struct {
		object runtime.Object
		// writing and written are how many times the size is taken while the event is being
		// written, and afterwards.
		writing, written int64
	}{
		"a small object":         {object: meta(size / 4)},
		"a large object":         {object: typed, writing: eventFactor, written: keptFactor},
		"an object without type": {object: untyped, writing: eventFactor, written: keptFactor},
		"encoded for all":        {object: encodedOnce{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				budget := newBudget(1 << 30)
				reservation := budget.reserve(account{user: "anna"})
				inner := watch.NewFake()
				watched, err := new(LargestObject).Watch(context.WithValue(t.Context(), reservationKey{}, listReservation{reservation: reservation}), inner, 0)
				require.NoError(t, err)
				requireTaken := func(times int64) {
					t.Helper()
					synctest.Wait()
					bytes := LargeSize(typed)
					if test.object == untyped {
						bytes = LargeSize(untyped)
					}
					require.Equal(t, times*bytes, budget.used)
				}
				for range 2 {
					inner.Add(test.object)
					require.Equal(t, watch.Added, (<-watched.ResultChan()).Type)
					requireTaken(test.writing)
					reservation.watch.flushed()
					requireTaken(test.written)
				}
				watched.Stop()
				synctest.Wait()
				_, open := <-watched.ResultChan()
				require.False(t, open)
				reservation.release(false)
				require.False(t, reservation.takeList(1))
				require.Zero(t, budget.used)
			})
		})
	}
}

// The frames of a WebSocket tell when an event has been written. A large one once took its memory until the watch ended.
func TestLargeEventsOfWebSockets(t *testing.T) {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("x", largeObject)}}
	for name, length := range map[string]int{"short": 10, "with two bytes of length": 1000, "in two writes": 5000, "with eight bytes of length": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			bounds := DefaultBounds()
			encoded, goOn := make(chan *reservation), make(chan struct{})
			handler := WithResponseDeadlines(WithMemoryBounds(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				inner := watch.NewFake()
				watched, err := new(LargestObject).Watch(req.Context(), inner, 0)
				assert.NoError(t, err)
				websocket.Server{Handler: func(conn *websocket.Conn) {
					for range 2 {
						inner.Add(object)
						<-watched.ResultChan()
						encoded <- req.Context().Value(reservationKey{}).(listReservation).reservation
						<-goOn
						assert.NoError(t, websocket.Message.Send(conn, strings.Repeat("y", length)))
						<-goOn
					}
				}}.ServeHTTP(w, req)
			}), requests.NewCodecs(), requests.IsWatch, bounds, NewWatches(bounds), 1<<20, anyBody), bounds)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				handler.ServeHTTP(w, requests.WithInfo(req, "watch"))
			}))
			defer server.Close()
			client, err := websocket.Dial("ws"+strings.TrimPrefix(server.URL, "http"), "", server.URL)
			require.NoError(t, err)
			defer client.Close()
			go func() { _, _ = io.Copy(io.Discard, client) }()
			for range 2 {
				taken := <-encoded
				takes := func() int64 {
					taken.mu.Lock()
					defer taken.mu.Unlock()
					return taken.used
				}
				require.Equal(t, eventFactor*LargeSize(object), takes())
				goOn <- struct{}{}
				require.Eventually(t, func() bool { return takes() == keptFactor*LargeSize(object) }, time.Minute, time.Millisecond)
				goOn <- struct{}{}
			}
		})
	}
}

// Only the end of a frame with data is that of an event.
func TestEndsOfFrames(t *testing.T) {
	const more = "x"
	frame := func(kind byte, length int) string {
		return string([]byte{kind, byte(length)}) + strings.Repeat(more, length)
	}
	for name, test := range map[string]struct {
		writes []string
		want   string
	}{
		"the answer to the handshake": {[]string{"HTTP/1.1 101 Switching Protocols\r\n"}, "n"},
		"text":                        {[]string{frame(0x81, 3)}, "y"},
		"binary":                      {[]string{frame(0x82, 0)}, "y"},
		"an answer to a ping":         {[]string{frame(0x8a, 3), frame(0x81, 3)}, "ny"},
		"a part":                      {[]string{frame(0x81, 3)[:4], more, more}, "nyn"},
		"65535 bytes":                 {[]string{"\x81\x7e\xff\xff" + strings.Repeat(more, 65534), more}, "ny"},
		"65536 bytes":                 {[]string{"\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00", strings.Repeat(more, 65535), more}, "nny"},
	} {
		t.Run(name, func(t *testing.T) {
			var conn timedConn
			var got strings.Builder
			for _, write := range test.writes {
				if conn.endsEvent([]byte(write)) {
					got.WriteByte('y')
				} else {
					got.WriteByte('n')
				}
			}
			require.Equal(t, test.want, got.String())
		})
	}
}

func TestWatchesThatWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("x", largeObject)}}
		budget := newBudget(userPart*(eventFactor+keptFactor)*LargeSize(object)*8/7 + 8)
		begin := func() (*watch.FakeWatcher, watch.Interface, *reservation) {
			reservation, inner := budget.reserve(account{user: "anna"}), watch.NewFake()
			watched, err := new(LargestObject).Watch(context.WithValue(t.Context(), reservationKey{}, listReservation{reservation: reservation}), inner, 0)
			require.NoError(t, err)
			return inner, watched, reservation
		}
		first, firstWatched, reservation := begin()
		first.Add(object)
		<-firstWatched.ResultChan()

		second, secondWatched, _ := begin()
		second.Add(object)
		time.Sleep(eventPatience / 2)
		require.Empty(t, secondWatched.ResultChan(), "two have as much memory as one may")
		reservation.watch.flushed()
		require.Equal(t, watch.Added, (<-secondWatched.ResultChan()).Type)

		begun := time.Now()
		first.Add(object)
		_, open := <-firstWatched.ResultChan()
		require.False(t, open, "a watch waits for memory for ever")
		require.InDelta(t, eventPatience, time.Since(begun), float64(2*eventInterval))
		firstWatched.Stop()
		secondWatched.Stop()
	})
}

// TestBeginOfWatches counts what watch caches copy for watches that begin.
func TestBeginOfWatches(t *testing.T) {
	large := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("x", largeObject)}}
	small := &metav1.PartialObjectMetadata{}
	const cached = 10
	for name, test := range map[string]struct {
		largest runtime.Object
		average int64
		// event is the first one, and kept what the watch keeps of that.
		event      runtime.Object
		want, kept int64
	}{
		"of a large object":                   {large, 0, large, LargeSize(large) * eventFactor, LargeSize(large) * keptFactor},
		"of small objects":                    {nil, 1000, small, 1000 * (eventsAhead + cached), 0},
		"of a large object among small ones":  {large, 1000, small, LargeSize(large) * eventFactor, 0},
		"of objects that are nearly large":    {large, 30_000, small, 30_000 * (eventsAhead + cached), 0},
		"of large objects, counted by events": {nil, 1 << 20, small, largeObject * (eventsAhead + cached), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen LargestObject
				if test.largest != nil {
					seen.Observe(test.largest)
				}
				budget := newBudget(2 * userPart * test.want) // Less than twice as much is for an account.
				requireTaken := func(bytes int64) {
					t.Helper()
					synctest.Wait()
					require.Equal(t, bytes, budget.used)
				}
				begin := func() (*watch.FakeWatcher, *reservation, watch.Interface, error) {
					reservation, inner := budget.reserve(account{user: "first"}), watch.NewFakeWithChanSize(cached, false)
					watched, err := seen.Watch(context.WithValue(t.Context(), reservationKey{}, listReservation{reservation: reservation}), inner, test.average)
					return inner, reservation, watched, err
				}
				inner, reservation, watched, err := begin()
				require.NoError(t, err)
				requireTaken(test.want)
				asked := time.Now()
				refused, _, _, err := begin()
				require.True(t, apierrors.IsTooManyRequests(err), "%v", err)
				require.Zero(t, time.Since(asked), "a watch waits for memory while others wait for its seat")
				require.True(t, refused.IsStopped())

				for range 3 { // As long as objects come, there may be more that are ready.
					time.Sleep(eventInterval * 3 / 4)
					inner.Add(test.event)
					<-watched.ResultChan()
					reservation.watch.flushed()
					requireTaken(test.want)
				}
				for range 2 * eventsAhead { // The client reads one in a minute.
					inner.Add(small)
				}
				for range eventsAhead - 1 {
					time.Sleep(time.Minute)
					requireTaken(test.want)
					<-watched.ResultChan()
				}
				requireTaken(test.want)
				for range eventsAhead + 1 {
					<-watched.ResultChan()
				}
				time.Sleep(2 * eventInterval)
				requireTaken(test.kept)
				_, _, next, err := begin()
				require.NoError(t, err)
				watched.Stop()
				next.Stop()
			})
		})
	}
}

// Events that are encoded once for all watches are no sign that copies are ready.
func TestWatchesOfSharedEventsHaveBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := newBudget(1 << 30)
		inner := watch.NewFake()
		watched, err := new(LargestObject).Watch(context.WithValue(t.Context(), reservationKey{}, listReservation{reservation: budget.reserve(account{user: "first"})}), inner, 1000)
		require.NoError(t, err)
		for range 3 {
			time.Sleep(eventInterval * 3 / 4)
			inner.Add(encodedOnce{})
			<-watched.ResultChan()
		}
		synctest.Wait()
		require.Zero(t, budget.used)
		watched.Stop()
	})
}

// An object that is gone does not keep watches from beginning for ever.
func TestLargestObjectIsForgotten(t *testing.T) {
	large := func(size int) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("x", size)}}
	}
	const size = 16 * largeObject
	for name, test := range map[string]struct {
		after time.Duration
		// then is seen after that time, unless it is nil.
		then *metav1.PartialObjectMetadata
		want int64
	}{
		"at once":                {0, nil, LargeSize(large(size))},
		"after a while":          {largestHalfLife, nil, LargeSize(large(size)) / 2},
		"after a long time":      {5 * largestHalfLife, nil, 0},
		"after a very long time": {1000 * largestHalfLife, nil, 0},
		"seen again":             {5 * largestHalfLife, large(size), LargeSize(large(size))},
		"a smaller one at once":  {0, large(size / 2), LargeSize(large(size))},
		"a smaller one later":    {5 * largestHalfLife, large(size / 2), LargeSize(large(size / 2))},
		"a small one":            {5 * largestHalfLife, large(1), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen LargestObject
				require.True(t, seen.None())
				seen.Observe(large(size))
				time.Sleep(test.after)
				if test.then != nil {
					seen.Observe(test.then)
				}
				require.Equal(t, test.want, seen.Largest())
				require.False(t, seen.None())
			})
		})
	}
}

// Watches begin although there has been an object that would not leave memory for them.
func TestWatchesAfterALargeObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("x", largeObject)}}
		var large LargestObject
		large.Observe(object)
		budget := newBudget(userPart * LargeSize(object) * eventFactor)
		time.Sleep(time.Hour)
		for range 9 { // All before any of them is known to bring nothing.
			watched, err := large.Watch(context.WithValue(t.Context(), reservationKey{}, listReservation{reservation: budget.reserve(account{user: "anna"})}), watch.NewFake(), 0)
			require.NoError(t, err)
			defer watched.Stop()
		}
		require.Zero(t, budget.used)
	})
}

// Decoded JSON has the same size without reflection.
func TestSizeOfJSON(t *testing.T) {
	for _, text := range []string{`{}`, `{"a":{}}`, `{"a":"b","c":[1,2.5,true,null,"d",[],{"e":{"f":[{"g":"h"}]}}]}`} {
		object := &unstructured.Unstructured{}
		require.NoError(t, json.Unmarshal([]byte(text), &object.Object))
		require.Equal(t, sizeOf(reflect.ValueOf(object)), Size(object), text)
	}
	require.Zero(t, Size(&unstructured.Unstructured{}))
}

func BenchmarkLargeSize(b *testing.B) {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	for i := range 20 {
		object.Object[strconv.Itoa(i)] = map[string]any{"name": "a", "list": []any{"b", map[string]any{"c": int64(1)}}}
	}
	for b.Loop() {
		LargeSize(object)
	}
}

func TestSizeOf(t *testing.T) {
	text := strings.Repeat("x", 100)
	for name, test := range map[string]struct {
		value any
		want  int64
	}{
		"nothing":      {nil, 0},
		"a string":     {text, 100},
		"a number":     {1, 8},
		"a pointer":    {&text, 100},
		"a map":        {map[string]any{"abc": text, "nil": nil}, 300 + 100 + 2*(8+3)},
		"an empty map": {map[string]any{}, 48},
		"no map":       {map[string]any(nil), 0},
		"a list":       {[]string{text, text}, 216},
		"bytes":        {[]byte(text), 100},
		"a time":       {metav1.Now(), 8},
		"an object":    {&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(text)}}}}, sizeOf(reflect.ValueOf(metav1.PartialObjectMetadata{})) + 108},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, sizeOf(reflect.ValueOf(test.value)))
		})
	}
}

// An account may have as many watches as it leaves to others, until they end.
func TestWatchesOfAccounts(t *testing.T) {
	bounds := DefaultBounds()
	bounds.RequestMemory = 8*watchPart*watchBytes - 1
	const one, two, system = "system:serviceaccount:a:one", "system:serviceaccount:a:two", "system:kube-controller-manager"
	for name, test := range map[string]struct {
		before []string
		user   string
		want   int
	}{
		"the first":                       {nil, "anna", http.StatusOK},
		"a third":                         {[]string{"anna", "anna"}, "anna", http.StatusOK},
		"one too many":                    {[]string{"anna", "anna", "anna"}, "anna", http.StatusTooManyRequests},
		"beside one with many":            {[]string{"anna", "anna", "anna", "berta"}, "berta", http.StatusOK},
		"too many beside one with many":   {[]string{"anna", "anna", "anna", "berta", "berta"}, "berta", http.StatusTooManyRequests},
		"of ServiceAccounts of one place": {[]string{one, two, one}, two, http.StatusTooManyRequests},
		"of the cluster":                  {[]string{system, system, system, system, system, system, system, system}, system, http.StatusOK},
		"of others beside the cluster":    {[]string{system, system, system, system, system, system, system, system}, "anna", http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			watched, end := make(chan struct{}), make(chan struct{})
			handler := WithMemoryBounds(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				watched <- struct{}{}
				<-end
			}), requests.NewCodecs(), requests.IsWatch, bounds, NewWatches(bounds), 1<<20, anyBody)
			request := func(user string) *http.Request {
				return requests.WithInfo(requests.As(httptest.NewRequest(http.MethodGet, "/", nil), user), "watch")
			}
			var before sync.WaitGroup
			for _, user := range test.before {
				before.Go(func() { requests.Serve(handler, request(user)) })
				<-watched
			}
			last := make(chan *httptest.ResponseRecorder, 1)
			go func() { last <- requests.Serve(handler, request(test.user)) }()
			select {
			case <-watched:
				require.Equal(t, http.StatusOK, test.want, "It has begun.")
			case answer := <-last:
				requests.RequireStatus(t, answer, "this user has as many watches and streams in this server already as it leaves to others; more memory, or a higher --max-request-memory-bytes, allows more", test.want)
			}
			close(end)
			before.Wait()
			go func() { <-watched }()
			require.Equal(t, http.StatusOK, requests.Serve(handler, request(test.user)).Code, "after the others")
		})
	}
}
