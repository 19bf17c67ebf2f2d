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
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/client/v3"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
)

// newMigration has an etcd of its own.
func newMigration(t *testing.T) *Migration {
	t.Helper()
	config := etcd.Config{Dir: filepath.Join(t.TempDir(), "data"), QuotaBytes: 64 << 20}
	member, err := config.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := member.Close(); err != nil {
			t.Error(err)
		}
	})
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{config.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return &Migration{config: Config{Group: "example.com", Etcd: client, StateKey: "/state", Report: func(progress Progress) { t.Log(progress.Message) }}}
}

// savedState has all fields of a state as they are in etcd. Those of a release never change.
const savedState = `{
	"group": "example.com",
	"phase": "Switching",
	"started": "2026-01-01T00:00:00Z",
	"changed": "2026-01-01T00:01:00Z",
	"definitions": {"things.example.com": {"metadata.uid": "1", "spec.scope": "abc"}},
	"objects": {"things": 3},
	"revisions": {"things": "41"},
	"finalized": ["things/default/a"],
	"switched": "2026-01-01T00:02:00Z",
	"returning": true,
	"newUIDs": ["things/default/b"],
	"served": {"things.example.com": ["v1", "v1beta1"]},
	"conversions": {"things.example.com": {"strategy": "None"}},
	"registered": {"v1.example.com": {"service": {"namespace": "server", "name": "server", "port": 443}, "group": "example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100}},
	"service": "server/server",
	"history": 77
}`

// A migration that another release has begun is continued: its state is read, and what is written
// has the same names.
func TestSavedState(t *testing.T) {
	m := newMigration(t)
	if _, err := m.config.Etcd.Put(t.Context(), m.config.StateKey, savedState); err != nil {
		t.Fatal(err)
	}
	at := func(minute int) time.Time { return time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC) }
	want := State{
		Group: "example.com", Phase: Switching, Started: at(0), Changed: at(1),
		Definitions: map[string]map[string]string{"things.example.com": {"metadata.uid": "1", "spec.scope": "abc"}},
		Objects:     map[string]int{"things": 3}, Revisions: map[string]string{"things": "41"}, Finalized: []string{"things/default/a"},
		Switched: at(2), Returning: true, NewUIDs: []string{"things/default/b"}, Served: map[string][]string{"things.example.com": {"v1", "v1beta1"}},
		Conversions: map[string]json.RawMessage{"things.example.com": json.RawMessage(`{"strategy": "None"}`)}, Service: "server/server", History: 77,
		Registered: map[string]apiregistrationv1.APIServiceSpec{"v1.example.com": {
			Service: &apiregistrationv1.ServiceReference{Namespace: "server", Name: "server", Port: new(int32(443))},
			Group:   "example.com", Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 100,
		}},
	}
	got, err := m.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Error(difference)
	}
	if _, err := m.resume(t.Context(), anyState); err != nil {
		t.Fatal(err)
	}
	response, err := m.config.Etcd.Get(t.Context(), m.config.StateKey)
	if err != nil {
		t.Fatal(err)
	}
	var before, after map[string]any
	if err := errors.Join(json.Unmarshal([]byte(savedState), &before), json.Unmarshal(response.Kvs[0].Value, &after)); err != nil {
		t.Fatal(err)
	}
	delete(before, "changed")
	delete(after, "changed")
	if difference := cmp.Diff(before, after); difference != "" {
		t.Error(difference)
	}
}

func anyState(State) error { return nil }

// Who continues a migration keeps all others from writing.
func TestClaim(t *testing.T) {
	m := newMigration(t)
	if _, err := m.Status(t.Context()); !errors.Is(err, ErrNone) {
		t.Errorf("got the error %v before the beginning, want %v", err, ErrNone)
	}
	if _, err := m.resume(t.Context(), anyState); !errors.Is(err, ErrNone) {
		t.Errorf("got the error %v before the beginning, want %v", err, ErrNone)
	}
	first, err := m.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.begin(t.Context()); !errors.Is(err, errSuperseded) {
		t.Errorf("got the error %v from a second beginning, want %v", err, errSuperseded)
	}
	if _, err := first.write(t.Context(), clientv3.OpPut("/key", "first")); err != nil {
		t.Error(err)
	}
	if err := first.enter(t.Context(), Freezing); err != nil {
		t.Error(err)
	}

	refusal := errors.New("refused")
	if _, err := m.resume(t.Context(), func(State) error { return refusal }); !errors.Is(err, refusal) {
		t.Errorf("got the error %v, want %v", err, refusal)
	}
	if _, err := first.write(t.Context(), clientv3.OpPut("/key", "still first")); err != nil {
		t.Errorf("a claim that is refused must not change anything: %v", err)
	}
	second, err := m.resume(t.Context(), anyState)
	if err != nil {
		t.Fatal(err)
	}
	if second.state.Phase != Freezing {
		t.Errorf("the phase is %s, want %s", second.state.Phase, Freezing)
	}
	if _, err := first.write(t.Context(), clientv3.OpPut("/key", "late")); !errors.Is(err, errSuperseded) {
		t.Errorf("got the error %v from the first process, want %v", err, errSuperseded)
	}
	if err := first.enter(t.Context(), Switching); !errors.Is(err, errSuperseded) {
		t.Errorf("got the error %v from the first process, want %v", err, errSuperseded)
	}
	got, err := m.config.Etcd.Get(t.Context(), "/key")
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Kvs[0].Value) != "still first" {
		t.Errorf("got the value %q of the process that may no longer write", got.Kvs[0].Value)
	}
}

// Other processes see how far the one is that moves the objects, until it goes on to something else.
func TestStatusOfAnother(t *testing.T) {
	m := newMigration(t)
	c, err := m.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	progress := func() *Progress {
		t.Helper()
		other := &Migration{config: m.config}
		state, err := other.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return state.Progress
	}
	if got := progress(); got != nil {
		t.Errorf("got the progress %+v before there is any", got)
	}
	left := 7
	want := Progress{Message: "500 of 1000 objects", Objects: 500, Total: 1000, Bytes: 4096, SecondsLeft: &left}
	c.saveProgress(t.Context(), want)
	if difference := cmp.Diff(&want, progress()); difference != "" {
		t.Error(difference)
	}
	if err := c.enter(t.Context(), Freezing); err != nil {
		t.Fatal(err)
	}
	if got := progress(); got != nil {
		t.Errorf("got the progress %+v of the phase before", got)
	}
	c.saveProgress(t.Context(), want)
	second, err := m.resume(t.Context(), anyState)
	if err != nil {
		t.Fatal(err)
	}
	late := want
	late.Objects = 999
	c.saveProgress(t.Context(), late)
	if got := progress(); got != nil {
		t.Errorf("got the progress %+v of a process that may no longer write", got)
	}
	if err := second.forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	response, err := m.config.Etcd.Get(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	if response.Count != 0 {
		t.Errorf("there are %d keys left of a migration that is over", response.Count)
	}
}
