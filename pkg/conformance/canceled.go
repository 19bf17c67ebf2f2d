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
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

func canceledChecks() []Check {
	return []Check{
		basic("canceled/half-body", "https://www.rfc-editor.org/rfc/rfc9112#section-8", "create get",
			"A request whose body has not come to its end has no effect.", func(p *Probe) {
				object, err := p.New("half").MarshalJSON()
				p.Require(Answer{}, err == nil, "the example can't be encoded: %v", err)
				// Only the last byte is missing, so that a server could take the object for complete.
				request := newRequest(http.MethodPost, p.Collection(), object)
				request.cut = true
				p.ledger.note(p.ID, Request{Method: http.MethodPut, Path: p.Collection(p.Name("half"))})
				if response, err := p.run.open(p.ctx, request); err == nil {
					response.Body.Close()
				}
				p.Refused(p.Get(p.Name("half")), http.StatusNotFound, metav1.StatusReasonNotFound)
			}),
		full("canceled/survived", conventions+"#http-status-codes", "create get",
			"Clients that go away at any moment of a request do not keep others from their answers.", func(p *Probe) {
				object := p.Create("gone")
				p.cancel(
					newRequest(http.MethodGet, p.Collection(object.GetName()), nil),
					newRequest(http.MethodGet, p.Collection(), nil, Query("limit", "500")),
					newRequest(http.MethodGet, p.Collection(), nil, Query("resourceVersion", "999999999999999")),
					newRequest(http.MethodGet, p.Collection(), nil, Query("watch", "true"), p.Selector()),
					newRequest(http.MethodPost, p.Collection(), p.New("canceled").Object, Query("dryRun", "All")),
					newRequest(http.MethodPut, p.Collection(object.GetName()), object.Object, Query("dryRun", "All")),
				)
				for i := range 10 {
					p.Object(p.Post(p.New(fmt.Sprintf("gone-%d", i)), Query("dryRun", "All")), http.StatusCreated)
					p.Object(p.Get(object.GetName()), http.StatusOK)
				}
				p.unchanged(object)
			}),
		full("canceled/slow-reader", concepts+"#efficient-detection-of-changes", "create get list watch patch",
			"A watch that is not read holds up nobody, and brings each event in order until it ends.", func(p *Probe) {
				const changes = 40
				slow, fast := p.Watch(Query("allowWatchBookmarks", "false")), p.Watch()
				var written []*unstructured.Unstructured
				changed := func(object *unstructured.Unstructured) {
					written = append(written, object)
					event, ok := fast.Reach(object)
					p.Require(fast.Answer(), ok, "the watch of a client that reads is expected to go on")
					p.Equal(fast.Answer(), "the resourceVersion of an event", object.GetResourceVersion(), event.Object.GetResourceVersion())
				}
				object := p.Create("slow")
				changed(object)
				padding := strings.Repeat("x", 200<<10)
				for i := range changes {
					patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"padding": fmt.Sprintf("%d%s", i, padding)}}}
					changed(p.Object(p.Patch(object.GetName(), types.MergePatchType, patch), http.StatusOK))
				}
				for _, object := range written {
					event, ok := slow.Reach(object)
					if !ok {
						return // The watch may end early, but must leave nothing out before.
					}
					p.Equal(slow.Answer(), "the resourceVersion of an event of the slow watch", object.GetResourceVersion(), event.Object.GetResourceVersion())
				}
			}),
	}
}

// cancel sends requests and cancels them, after a longer time in each of 20 rounds.
func (p *Probe) cancel(requests ...Request) {
	for round := range 20 {
		ctx, cancel := context.WithTimeout(p.ctx, time.Duration(round)*500*time.Microsecond)
		for _, request := range requests {
			go func() { _, _ = p.send(ctx, request) }()
		}
		<-ctx.Done()
		cancel()
	}
}
