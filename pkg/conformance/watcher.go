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

package conformance

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Watch is a watch that a check reads event by event.
type Watch struct {
	probe  *Probe
	answer Answer
	events chan Event
}

// Event is an event of a watch.
type Event struct {
	Type   string
	Object *unstructured.Unstructured
}

// Watch watches the check's objects. It ends the check if no watch begins, and the watch ends with
// the check.
func (p *Probe) Watch(options ...Option) *Watch {
	request := newRequest(http.MethodGet, p.Collection(), nil, append(options, Query("watch", "true"), p.Selector())...)
	answer := Answer{Request: request}
	began := time.Now()
	response, err := p.run.open(p.ctx, request)
	if err != nil {
		if time.Since(began) < requestTime {
			p.inTime()
		}
		p.Fail(answer, "no watch begins: %v", err)
	}
	answer.Code, answer.Header = response.StatusCode, response.Header
	body := bufio.NewReader(response.Body)
	var frames *json.Decoder
	switch answer.Code {
	case http.StatusOK:
		frames = json.NewDecoder(body)
	case http.StatusSwitchingProtocols:
		frames = json.NewDecoder(&messages{from: body})
	default:
		answer.Body, _ = io.ReadAll(body)
		response.Body.Close()
		p.OnlyIf(answer.Code != http.StatusUnprocessableEntity || !request.Query.Has("sendInitialEvents"), "lists can't be streamed: %s", statusOf(answer))
		p.Fail(answer, "a watch is expected")
	}
	w := &Watch{probe: p, answer: answer, events: make(chan Event)}
	go func() {
		defer close(w.events)
		defer response.Body.Close()
		for {
			var frame struct {
				Type   string
				Object json.RawMessage
			}
			if frames.Decode(&frame) != nil {
				return
			}
			object := &unstructured.Unstructured{}
			if utiljson.Unmarshal(frame.Object, &object.Object) != nil {
				return
			}
			select {
			case w.events <- Event{frame.Type, object}:
			case <-p.ctx.Done():
				return
			}
		}
	}()
	return w
}

// messages reads the content of a WebSocket's messages.
type messages struct {
	from *bufio.Reader
	left uint64
}

// Read reads from one message.
func (m *messages) Read(into []byte) (int, error) {
	for m.left == 0 {
		var head [2]byte
		if _, err := io.ReadFull(m.from, head[:]); err != nil {
			return 0, err
		}
		var length [8]byte
		size := map[byte]int{126: 2, 127: 8}[head[1]]
		if size == 0 {
			length[7] = head[1]
		}
		if _, err := io.ReadFull(m.from, length[8-size:]); err != nil {
			return 0, err
		}
		for _, digit := range length {
			m.left = m.left<<8 | uint64(digit)
		}
	}
	n, err := m.from.Read(into[:min(uint64(len(into)), m.left)])
	m.left -= uint64(n) //nolint:gosec // Not negative.
	return n, err
}

// Answer returns the header of the watch's answer, for findings.
func (w *Watch) Answer() Answer { return w.answer }

// Next waits for an event. Without one, ok is false: the watch has ended.
func (w *Watch) Next() (event Event, ok bool) {
	select {
	case event, ok = <-w.events:
		return event, ok
	case <-time.After(controllerPatience): // A deletion may wait for a controller.
		w.probe.Fail(w.answer, "no event has come within %v", controllerPatience)
	case <-w.probe.ctx.Done():
		w.probe.inTime()
	}
	return Event{}, false
}

// Expect waits for an event of that type and returns its object. It skips MODIFIED, since
// controllers may write any object. It also skips bookmarks, except the one that ends the initial
// events.
func (w *Watch) Expect(want string) *unstructured.Unstructured {
	for {
		event, ok := w.Next()
		w.probe.Require(w.answer, ok, "an event %s is expected; the watch has ended", want)
		progress := event.Type == "BOOKMARK" && !strings.Contains(inJSON(event.Object), metav1.InitialEventsAnnotationKey)
		if event.Type != want && (progress || event.Type == "MODIFIED") {
			continue
		}
		w.probe.Require(w.answer, event.Type == want, "an event %s is expected; %s came: %s", want, event.Type, inJSON(event.Object))
		return event.Object
	}
}

// ExpectBookmark waits for a bookmark of the kind that is not older than an object.
func (w *Watch) ExpectBookmark(since *unstructured.Unstructured) *unstructured.Unstructured {
	bookmark := w.Expect("BOOKMARK")
	w.probe.Equal(w.answer, "the bookmark's kind", w.probe.GroupVersionKind(), bookmark.GroupVersionKind())
	w.probe.Require(w.answer, w.probe.revision(w.answer, bookmark) >= w.probe.revision(w.answer, since), "a bookmark not before %s is expected", since.GetResourceVersion())
	return bookmark
}

// ExpectExisting waits for an event with an object that may have changed since.
func (w *Watch) ExpectExisting(want string, object *unstructured.Unstructured) {
	w.probe.Equal(w.answer, fmt.Sprintf("the UID in the event %s", want), object.GetUID(), w.Expect(want).GetUID())
}

// ExpectObject waits for an event with that object, and skips earlier events.
func (w *Watch) ExpectObject(want string, object *unstructured.Unstructured) {
	event, ok := w.Reach(object)
	w.probe.Require(w.answer, ok, "an event %s is expected; the watch has ended", want)
	w.probe.Equal(w.answer, "the event", []any{want, object.Object}, []any{event.Type, event.Object.Object})
}

// Reach waits for the first event that is not older than an object. Without one, ok is false.
func (w *Watch) Reach(object *unstructured.Unstructured) (event Event, ok bool) {
	for event, ok = w.Next(); ok; event, ok = w.Next() {
		if event.Type == "ERROR" || event.Type != "BOOKMARK" && w.probe.revision(w.answer, event.Object) >= w.probe.revision(w.answer, object) {
			break
		}
	}
	return event, ok
}
