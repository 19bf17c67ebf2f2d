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
	"net/http"
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

// Event is what a watch has brought.
type Event struct {
	Type   string
	Object *unstructured.Unstructured
}

// Watch watches the check's objects. It ends the check if no watch begins, and the watch ends with
// the check.
func (p *Probe) Watch(options ...Option) *Watch {
	request := newRequest(http.MethodGet, p.Collection(), nil, append(options, Query("watch", "true"), p.Selector())...)
	answer := Answer{Request: request}
	response, err := p.run.open(p.ctx, request)
	if err != nil {
		p.Fail(answer, "no watch begins: %v", err)
	}
	answer.Code, answer.Header = response.StatusCode, response.Header
	if answer.Code != http.StatusOK {
		p.Fail(answer, "%d is expected", http.StatusOK)
	}
	w := &Watch{probe: p, answer: answer, events: make(chan Event)}
	go func() {
		defer close(w.events)
		defer response.Body.Close()
		frames := json.NewDecoder(bufio.NewReader(response.Body))
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

// Answer is the header of what came, for findings.
func (w *Watch) Answer() Answer { return w.answer }

// Next waits for an event. Without one, ok is false: the watch has ended.
func (w *Watch) Next() (event Event, ok bool) {
	select {
	case event, ok = <-w.events:
		return event, ok
	case <-time.After(Patience):
		w.probe.Fail(w.answer, "no event has come within %v", Patience)
	case <-w.probe.ctx.Done():
		w.probe.Fail(w.answer, "no event has come within the check's time")
	}
	return Event{}, false
}

// Expect waits for an event of that type and returns its object. Bookmarks before it are passed
// over, but for the one that ends the initial events.
func (w *Watch) Expect(want string) *unstructured.Unstructured {
	for {
		event, ok := w.Next()
		if !ok {
			w.probe.Fail(w.answer, "an event %s is expected; the watch has ended", want)
		}
		if event.Type == "BOOKMARK" && want != "BOOKMARK" && event.Object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "" {
			continue
		}
		if event.Type != want {
			w.probe.Fail(w.answer, "an event %s is expected; %s came: %s", want, event.Type, inJSON(event.Object))
		}
		return event.Object
	}
}

// ExpectObject waits for an event with that object.
func (w *Watch) ExpectObject(want string, object *unstructured.Unstructured) {
	got := w.Expect(want)
	w.probe.Equal(w.answer, fmt.Sprintf("the object of the event %s", want), object.Object, got.Object)
}
