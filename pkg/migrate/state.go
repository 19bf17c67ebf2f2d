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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/client/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Phase is how far a migration is. A phase begins when the one before it has ended. A process that
// continues the migration begins the phase again.
type Phase string

const (
	// Copying copies the objects while they are used. Abort undoes it.
	Copying Phase = "Copying"
	// Freezing keeps clients from writing, copies what has changed since, and compares
	// all objects. Abort undoes it.
	Freezing Phase = "Freezing"
	// Switching makes kube-apiserver send requests to the server. The server answers reads from the
	// first of them on, while writes still wait.
	Switching Phase = "Switching"
	// Releasing lets clients write again, at the server.
	Releasing Phase = "Releasing"
	// Moved is the end: the server has the objects. The CustomResourceDefinitions still have
	// copies, but do not serve them.
	Moved Phase = "Moved"
	// Returned is the end of the way back: kube-apiserver has the objects, and the server still has
	// copies.
	Returned Phase = "Returned"
	// Aborting removes the objects from the server again.
	Aborting Phase = "Aborting"
)

// State is what is known of a migration.
type State struct {
	Group string `json:"group"`
	Phase Phase  `json:"phase"`
	// Started is when the migration began, and Changed when its state changed last.
	Started time.Time `json:"started"`
	Changed time.Time `json:"changed"`
	// Writer identifies the process that has changed it last.
	Writer types.UID `json:"writer,omitempty"`
	// Lease is a lease of the server's etcd that expires when that process has ended.
	Lease clientv3.LeaseID `json:"lease,omitempty"`
	// Definitions are those as the objects began to move, by name.
	Definitions map[string]Digest `json:"definitions,omitempty"`
	// Objects are the numbers of objects in the last comparison of all, by resource.
	Objects map[string]int `json:"objects,omitempty"`
	// Revisions are those of the last comparison that found all objects equal, by resource. They
	// are revisions of the etcd that the objects move from.
	Revisions map[string]string `json:"revisions,omitempty"`
	// Finalized are the objects, as resource/namespace/name, that had finalizers when
	// they moved: at most as many as an error can name.
	Finalized []string `json:"finalized,omitempty"`
	// Switched is when clients began to write to where the objects have moved to.
	Switched time.Time `json:"switched,omitzero"`
	// Returning is set while objects move back, and afterwards. The phases then mean the same with
	// kube-apiserver and the server exchanged, and Returned is the last.
	Returning bool `json:"returning,omitempty"`
	// NewUIDs are the objects, as resource/namespace/name, that have got another UID on the
	// way back: at most as many as an error can name.
	NewUIDs []string `json:"newUIDs,omitempty"`
	// Conversions are those of the definitions before they got BypassVersion, by their names.
	Conversions map[string]*apiextensionsv1.CustomResourceConversion `json:"conversions,omitempty"`
	// Registered are the specs of the APIServices from before the objects began to move back, by
	// name.
	Registered map[string]apiregistrationv1.APIServiceSpec `json:"registered,omitempty"`
	// Service is the namespace and the name of the server's Service that the objects have moved to.
	// Older releases did not record it.
	Service string `json:"service,omitempty"`
	// Prefixes are those of the copies in the server's etcd. Definitions of some may be gone by now.
	Prefixes []string `json:"prefixes,omitempty"`
	// Progress is how far the present pass over all objects is, and set by Status only.
	Progress *Progress `json:"progress,omitempty"`
}

// ErrNone says that there is no migration.
var ErrNone = errors.New("no migration of the group has begun")

// errSuperseded says that this process may no longer write.
var errSuperseded = errors.New("another process has continued or aborted this migration: see \"migrate status\"")

// writeTimeout bounds how long a write to the server's etcd is retried.
const writeTimeout = 10 * time.Second

// session may write until another process changes the state.
type session struct {
	*Migration
	state    State
	revision int64
	// meter measures the present pass over all objects.
	meter *meter
	// positions say how far this process has compared objects, by resource.
	positions map[string]*position
	stopTails func()
	// frozen is set when this process has made sure that clients can't write.
	frozen bool
	// held is when this process has made kube-apiserver hold writes.
	held time.Time
	// historyStart is the revision of the server's etcd where this process has made the history begin.
	historyStart int64
}

// Status returns the state, or ErrNone.
func (m *Migration) Status(ctx context.Context) (State, error) {
	state, revision, err := m.readState(ctx)
	if err == nil {
		state.Progress, err = m.readProgress(ctx, revision)
	}
	return state, err
}

func (m *Migration) readState(ctx context.Context) (state State, revision int64, err error) {
	response, err := m.config.Etcd.Get(ctx, m.config.StateKey)
	if err != nil {
		return state, 0, fmt.Errorf("reading the migration's state from the server's etcd: %w", err)
	}
	if len(response.Kvs) == 0 {
		return state, 0, ErrNone
	}
	if err := json.Unmarshal(response.Kvs[0].Value, &state); err != nil {
		return state, 0, fmt.Errorf("the migration's state, the key %s in the server's etcd, can't be read: %w", m.config.StateKey, err)
	}
	return state, response.Kvs[0].ModRevision, nil
}

// resume continues the migration, unless the check of its state fails. No other process can
// write any more.
func (m *Migration) resume(ctx context.Context, check func(State) error) (*session, error) {
	state, revision, err := m.readState(ctx)
	if err != nil {
		return nil, err
	}
	if err := check(state); err != nil {
		return nil, err
	}
	s := &session{Migration: m, state: state, revision: revision}
	err = s.claim(ctx)
	return s, err
}

// claim makes this process the one that may write, for as long as the context lasts.
func (s *session) claim(ctx context.Context) (err error) {
	s.state.Writer = uuid.NewUUID()
	if s.state.Lease, err = s.live(ctx); err != nil {
		return err
	}
	s.claimed = s
	return s.save(ctx)
}

// begin begins a migration of what these definitions define, in a phase.
func (m *Migration) begin(ctx context.Context, phase Phase, from ...definition) (*session, error) {
	s := &session{Migration: m, state: State{
		Group: m.config.Group, Phase: phase, Started: time.Now().UTC().Truncate(time.Second),
	}}
	var err error
	for _, store := range m.config.Stores {
		s.state.Prefixes = append(s.state.Prefixes, store.Prefix)
	}
	if len(from) > 0 {
		if s.state.Definitions, err = s.digests(from); err != nil {
			return nil, err
		}
	}
	err = s.claim(ctx)
	return s, err
}

// save writes the state, unless another process has.
func (s *session) save(ctx context.Context) error {
	s.state.Changed = time.Now().UTC().Truncate(time.Second)
	content, err := json.Marshal(s.state)
	if err != nil {
		return err
	}
	response, err := s.write(ctx, clientv3.OpPut(s.config.StateKey, string(content)))
	if errors.Is(err, errSuperseded) {
		// This process may have written it, and the answer was lost.
		if written := stateIn(response); written != nil && bytes.Equal(written.Value, content) {
			s.revision = written.ModRevision
			return nil
		}
	}
	if err != nil {
		return err
	}
	s.revision = response.Header.Revision
	return nil
}

// enter begins a phase.
func (s *session) enter(ctx context.Context, phase Phase) error {
	s.state.Phase = phase
	return s.save(ctx)
}

// write does operations in etcd, unless another process has changed the state. The response then
// has that state. write retries what fails, so that operations may be done twice.
func (s *session) write(ctx context.Context, operations ...clientv3.Op) (response *clientv3.TxnResponse, err error) {
	err = eventually(ctx, writeTimeout, func(ctx context.Context) (err error) {
		response, err = s.config.Etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(s.config.StateKey), "=", s.revision)).
			Then(operations...).Else(clientv3.OpGet(s.config.StateKey)).Commit()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("writing to the server's etcd: %w", err)
	}
	if !response.Succeeded {
		return response, errSuperseded
	}
	return response, nil
}

// stateIn returns the state in the response to a write that was not done, or nil.
func stateIn(response *clientv3.TxnResponse) *mvccpb.KeyValue {
	if kvs := response.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}
