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

package apiserver

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
)

// recorder keeps events.
type recorder struct {
	audit.Backend
	events []*auditinternal.Event
}

func (r *recorder) ProcessEvents(events ...*auditinternal.Event) bool {
	r.events = append(r.events, events...)
	return true
}

// Events can be encoded, and say what clients were told.
func TestRecordedEvents(t *testing.T) {
	patch := func(raw string) auditinternal.Event {
		return auditinternal.Event{Verb: "patch", RequestObject: &runtime.Unknown{Raw: []byte(raw), ContentType: runtime.ContentTypeJSON}}
	}
	answer := func(code int32, reason string) auditinternal.Event {
		return auditinternal.Event{ResponseStatus: &metav1.Status{Code: code}, Annotations: map[string]string{"authorization.k8s.io/reason": reason}}
	}
	for name, test := range map[string]struct{ event, want auditinternal.Event }{
		"nothing":             {auditinternal.Event{Verb: "patch"}, auditinternal.Event{Verb: "patch"}},
		"JSON stays as it is": {patch(`{"b": 1, "a": 1e0}`), patch(`{"b": 1, "a": 1e0}`)},
		"YAML in flow style":  {patch(`{a: [b]} # c`), patch(`{"a":["b"]}`)},
		"neither":             {patch(`{a: b`), patch(`"{a: b"`)},
		"a failure":           {answer(http.StatusInternalServerError, ""), answer(http.StatusInternalServerError, "")},
		"a long query": {
			auditinternal.Event{RequestURI: "/?" + strings.Repeat("a", 2*maxAuditURI)}, auditinternal.Event{RequestURI: "/?" + strings.Repeat("a", maxAuditURI-2)},
		},
		"undecided permissions": {answer(http.StatusInternalServerError, "internal error"), answer(http.StatusServiceUnavailable, "internal error")},
	} {
		t.Run(name, func(t *testing.T) {
			var recorded recorder
			if !(auditBackend{&recorded}).ProcessEvents(&test.event) {
				t.Error("the event was not passed on")
			}
			if diff := cmp.Diff([]*auditinternal.Event{&test.want}, recorded.events); diff != "" {
				t.Error(diff)
			}
		})
	}
}
