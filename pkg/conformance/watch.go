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
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

const detection = concepts + "#efficient-detection-of-changes"

// initialEvents sets the parameters of a client that lists by watching.
func initialEvents(r *Request) {
	r.Query.Set("sendInitialEvents", "true")
	r.Query.Set("resourceVersionMatch", "NotOlderThan")
	r.Query.Set("allowWatchBookmarks", "true")
}

func watchChecks() []Check {
	return []Check{
		basic("watch/order", detection, "create get list watch update delete",
			"A watch brings what happens to an object in order: ADDED, MODIFIED, DELETED, each with the object and a later version.", func(p *Probe) {
				w := p.Watch()
				created := p.Create("a")
				w.ExpectObject("ADDED", created)
				updated := p.Update(created.GetName(), func(object *unstructured.Unstructured) { annotate(object, "changed", "true") })
				w.ExpectObject("MODIFIED", updated)
				p.Delete(created.GetName(), nil)
				deleted := w.Expect("DELETED")
				p.Equal(w.Answer(), "the deleted object's UID", created.GetUID(), deleted.GetUID())
				p.Require(w.Answer(), p.revision(w.Answer(), deleted) > p.revision(w.Answer(), updated), "a version after %s is expected; DELETED has %s", updated.GetResourceVersion(), deleted.GetResourceVersion())
			}),
		basic("watch/resume", detection, "create get list watch patch delete",
			"A watch from any version that another has brought goes on after it, with all that follows.", func(p *Probe) {
				whole := p.Watch()
				for _, suffix := range []string{"a", "b", "c"} {
					p.Create(suffix)
					p.Object(p.Patch(p.Name(suffix), types.MergePatchType, `{"metadata":{"annotations":{"a":"b"}}}`), http.StatusOK)
					p.Delete(p.Name(suffix), nil)
				}
				var events []Event
				for deleted := 0; deleted < 3; {
					event, ok := whole.Next()
					p.Require(whole.Answer(), ok, "the watch has ended")
					if events = append(events, event); event.Type == "DELETED" {
						deleted++
					}
				}
				for i, seen := range events[:len(events)-1] {
					w := p.Watch(Query("resourceVersion", seen.Object.GetResourceVersion()))
					for _, want := range events[i+1:] {
						got, _ := w.Next()
						p.Equal(w.Answer(), "the next event", []any{want.Type, want.Object}, []any{got.Type, got.Object})
					}
				}
			}),
		basic("watch/start", concepts+"#semantics-for-watch", "create list watch",
			"A watch without a version, or from 0, begins with ADDED for what exists.", func(p *Probe) {
				created := p.Create("a")
				p.Watch().ExpectExisting("ADDED", created)
				p.Watch(Query("resourceVersion", "0")).ExpectExisting("ADDED", created)
			}),
		basic("watch/initial-events", concepts+"#streaming-lists", "create list watch",
			"A watch that asks for initial events brings what exists, then a bookmark that says so, then what happens.", func(p *Probe) {
				empty := p.Watch(initialEvents)
				empty.Expect("BOOKMARK")
				a := p.Create("a")
				empty.ExpectObject("ADDED", a)
				w := p.Watch(initialEvents)
				w.ExpectExisting("ADDED", a)
				end := w.ExpectBookmark(a)
				p.Equal(w.Answer(), "the bookmark's annotations", map[string]string{metav1.InitialEventsAnnotationKey: "true"}, end.GetAnnotations())
				w.ExpectObject("ADDED", p.Create("b"))
			}),
		basic("watch/selectors", detection, "create get list watch update",
			"An object that comes to match is ADDED to a watch; one that ceases to match is DELETED from it, as it was when it matched last.", func(p *Probe) {
				other := p.Create("b").GetName()
				byLabel := p.Watch(p.Selector("menu=yes"))
				byName := p.Watch(Query("fieldSelector", "metadata.name="+p.Name("a")))
				a := p.Create("a")
				byName.ExpectObject("ADDED", a)
				label := func(name, value string) *unstructured.Unstructured {
					return p.Update(name, labeled("menu", value))
				}
				label(other, "no")
				in := label(a.GetName(), "yes")
				byLabel.ExpectObject("ADDED", in)
				byName.ExpectObject("MODIFIED", in)
				label(a.GetName(), "no")
				p.Equal(byLabel.Answer(), "labels of what has ceased to match", in.GetLabels(), byLabel.Expect("DELETED").GetLabels())
			}),
		full("watch/bookmarks", concepts+"#watch-bookmarks", "create list watch",
			"A watch that allows bookmarks gets one before its time ends, from whose version another goes on.", func(p *Probe) {
				from := p.Items(p.List()).GetResourceVersion()
				w := p.Watch(Query("resourceVersion", from), Query("allowWatchBookmarks", "true"), Query("timeoutSeconds", "6"))
				created := p.Create("a")
				w.ExpectObject("ADDED", created)
				next := p.Watch(Query("resourceVersion", w.ExpectBookmark(created).GetResourceVersion()), Query("allowWatchBookmarks", "true"))
				next.ExpectObject("ADDED", p.Create("b"))
			}),
		full("watch/timeout", detection, "watch",
			"A watch ends without an error after the time that the client gave.", func(p *Probe) {
				began := time.Now()
				w := p.Watch(Query("timeoutSeconds", "2"))
				for event, ok := w.Next(); ok; event, ok = w.Next() {
					p.Require(w.Answer(), event.Type != "ERROR", "an end without an error is expected, %s came", inJSON(event.Object))
				}
				took := time.Since(began)
				p.Require(w.Answer(), took >= time.Second && took <= 10*time.Second, "an end after two seconds is expected, it took %v", took)
			}),
		basic("watch/expired", concepts+"#410-gone-responses", "create list watch",
			"A watch from a version that is no longer there is refused, or ends with ERROR: 410, Expired or Gone.", func(p *Probe) {
				p.Create("a")
				answer := p.Do(http.MethodGet, p.Collection(), nil, p.Selector(), Query("watch", "true"), Query("resourceVersion", "1"), Query("timeoutSeconds", "1"))
				if answer.Code != http.StatusOK {
					p.Refused(answer, http.StatusGone, "")
					return
				}
				var event struct {
					Type   string
					Object struct{ Code int }
				}
				err := json.NewDecoder(bytes.NewReader(answer.Body)).Decode(&event)
				p.OnlyIf(err != nil || event.Type != "ADDED", "the history still begins at version 1: a cluster forgets after some minutes")
				p.Equal(answer, "type and code of the event", []any{"ERROR", http.StatusGone}, []any{event.Type, event.Object.Code})
			}),
		basic("watch/refused", concepts+"#semantics-for-watch", "watch",
			"A watch is refused whose parameters contradict each other: 422 with the field.", func(p *Probe) {
				for _, query := range []string{"resourceVersion=1&resourceVersionMatch=NotOlderThan", "sendInitialEvents=true", "sendInitialEvents=true&resourceVersionMatch=Exact"} {
					p.refusedFor(p.Do(http.MethodGet, p.Collection()+"?watch=true&timeoutSeconds=1&"+query, nil), "resourceVersionMatch")
				}
			}),
		basic("watch/websocket", detection, "create list watch",
			"A watch comes as messages of a WebSocket if the client asks for one.", func(p *Probe) {
				created := p.Create("a")
				w := p.Watch(func(r *Request) {
					r.Header = http.Header{
						"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Origin": {"http://localhost"},
						"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
					}
				})
				p.Equal(w.Answer(), "the code", http.StatusSwitchingProtocols, w.Answer().Code)
				w.ExpectExisting("ADDED", created)
				w.ExpectObject("ADDED", p.Create("b"))
			}),
		basic("watch/versions", conventions+"#api-versioning", "create list watch delete versions",
			"A watch in one version brings, in that version, what is written in another.", func(p *Probe) {
				var watches []*Watch
				others := slices.DeleteFunc(slices.Clone(p.Versions), func(version string) bool { return version == p.Version })
				for _, version := range others {
					watches = append(watches, p.Watch(At(p.CollectionIn(p.Namespace, version))))
				}
				created := p.Create("a")
				p.Delete(created.GetName(), nil)
				for i, w := range watches {
					for _, want := range []string{"ADDED", "DELETED"} {
						event := w.Expect(want)
						p.Equal(w.Answer(), "version and UID", []any{others[i], created.GetUID()}, []any{event.GroupVersionKind().Version, event.GetUID()})
					}
				}
			}),
		full("watch/many", detection, "create list watch",
			"Each of many watches brings all that happens, in the same order.", func(p *Probe) {
				const many = 20
				var watches []*Watch
				for range many {
					watches = append(watches, p.Watch())
				}
				answers := p.AtOnce(many, func(i int) Request {
					return newRequest(http.MethodPost, p.Collection(), p.New(strconv.Itoa(i)).Object)
				})
				for _, answer := range answers {
					p.Object(answer, http.StatusCreated)
				}
				var first []string
				for i, w := range watches {
					var got []string
					for range many {
						got = append(got, w.Expect("ADDED").GetName())
					}
					if i == 0 {
						first = got
					}
					p.Equal(w.Answer(), "names in order", first, got)
				}
			}),
	}
}
