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
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/client/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
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
	// Revisions are from the last comparison that found all objects equal, by resource. They
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
	// Conversions are what the definitions had before they got BypassVersion, by their names.
	Conversions map[string]*apiextensionsv1.CustomResourceConversion `json:"conversions,omitempty"`
	// Registered are the specs of the APIServices from before the objects began to move back, by
	// name.
	Registered map[string]apiregistrationv1.APIServiceSpec `json:"registered,omitempty"`
	// Service is the namespace and the name of the server's Service that the objects have moved to.
	Service string `json:"service,omitempty"`
	// Prefixes begin the keys of the copies in the server's etcd. Definitions of some may be gone by now.
	Prefixes []string `json:"prefixes,omitempty"`
}

// ErrNone says that there is no migration.
var ErrNone = errors.New("no migration of the group has begun")

// errSuperseded says that this process may no longer write.
var errSuperseded = errors.New("another process has continued or aborted this migration: see \"migrate status\"")

// writeTimeout bounds how long a write to the server's etcd is retried.
const writeTimeout = 10 * time.Second

// Status returns the state, or ErrNone.
func (m *Migration) Status(ctx context.Context) (State, error) {
	state, _, err := m.readState(ctx)
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
	err = json.Unmarshal(response.Kvs[0].Value, &state)
	if err == nil && !slices.ContainsFunc(steps(), func(step stepOf) bool { return step.phase == state.Phase }) {
		err = fmt.Errorf("the phase %q is unknown", state.Phase)
	}
	if err != nil {
		return state, 0, fmt.Errorf("the migration's state, the key %s in the server's etcd, can't be read: %w", m.config.StateKey, err)
	}
	return state, response.Kvs[0].ModRevision, nil
}

// resume continues the migration, unless the check of its state fails. No other process can
// write any more.
func (m *Migration) resume(ctx context.Context, check func(State) error) error {
	state, revision, err := m.readState(ctx)
	if err != nil {
		return err
	}
	if err := check(state); err != nil {
		return err
	}
	m.state, m.revision = state, revision
	return m.claim(ctx)
}

// claim makes this process the one that may write, for as long as the context lasts.
func (m *Migration) claim(ctx context.Context) (err error) {
	m.state.Writer = uuid.NewUUID()
	if m.state.Lease, err = m.live(ctx); err != nil {
		return err
	}
	m.claimed = true
	return m.save(ctx)
}

// begin begins a migration of what these definitions define, in a phase.
func (m *Migration) begin(ctx context.Context, phase Phase, from ...definition) (err error) {
	m.revision, m.state = 0, State{Group: m.config.Group, Phase: phase, Started: time.Now().UTC().Truncate(time.Second)}
	for _, store := range m.config.Stores {
		m.state.Prefixes = append(m.state.Prefixes, store.Prefix)
	}
	if m.state.Definitions, err = m.digests(from); err != nil {
		return err
	}
	return m.claim(ctx)
}

// save writes the state, unless another process has.
func (m *Migration) save(ctx context.Context) error {
	m.state.Changed = time.Now().UTC().Truncate(time.Second)
	content, err := json.Marshal(m.state)
	if err != nil {
		return err
	}
	response, err := m.write(ctx, clientv3.OpPut(m.config.StateKey, string(content)))
	if errors.Is(err, errSuperseded) {
		// This process may have written it, and the answer was lost.
		if written := stateIn(response); written != nil && bytes.Equal(written.Value, content) {
			m.revision = written.ModRevision
			return nil
		}
	}
	if err != nil {
		return err
	}
	m.revision = response.Header.Revision
	return nil
}

// enter begins a phase.
func (m *Migration) enter(ctx context.Context, phase Phase) error {
	m.state.Phase = phase
	return m.save(ctx)
}

// write does operations in etcd, unless another process has changed the state. The response then
// has that state. write retries what fails, so that operations may be done twice.
func (m *Migration) write(ctx context.Context, operations ...clientv3.Op) (response *clientv3.TxnResponse, err error) {
	err = eventually(ctx, writeTimeout, func(ctx context.Context) (err error) {
		response, err = m.config.Etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(m.config.StateKey), "=", m.revision)).
			Then(operations...).Else(clientv3.OpGet(m.config.StateKey)).Commit()
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

// leaseSeconds is how long a process may be silent before it counts as ended.
const leaseSeconds = 60

// live returns a lease of the server's etcd that this process keeps until the context ends.
func (m *Migration) live(ctx context.Context) (clientv3.LeaseID, error) {
	var lease *clientv3.LeaseGrantResponse
	err := eventually(ctx, writeTimeout, func(ctx context.Context) (err error) {
		lease, err = m.config.Etcd.Grant(ctx, leaseSeconds)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("getting a lease from the server's etcd: %w", err)
	}
	kept, err := m.config.Etcd.KeepAlive(ctx, lease.ID)
	if err != nil {
		return 0, fmt.Errorf("keeping a lease of the server's etcd: %w", err)
	}
	go func() {
		for range kept {
			continue // The client logs when nobody reads the answers.
		}
	}()
	return lease.ID, nil
}

// reportInterval is how often the progress of reading many objects is reported.
const reportInterval = time.Second

// Progress says how far a migration is.
type Progress struct {
	// Message is a sentence without a full stop, or the name of a phase that begins.
	Message string `json:"message"`
	// Objects of Total have been read, and copied if they differed, in the present pass. Bytes is
	// their size. All three are zero if the message is not about objects.
	Objects int   `json:"objects,omitempty"`
	Total   int   `json:"total,omitempty"`
	Bytes   int64 `json:"bytes,omitempty"`
	// SecondsLeft is how long the present pass is expected to last.
	SecondsLeft *int `json:"secondsLeft,omitempty"`
}

// progress reports a sentence.
func (m *Migration) progress(format string, args ...any) {
	m.config.Report(Progress{Message: fmt.Sprintf(format, args...)})
}

// meter measures a pass over all objects.
type meter struct {
	Progress
	started, reported time.Time
}

// add counts an object, and reports whether it is time to tell how far the pass is. There may be more objects than
// there were at first.
func (m *meter) add(size int) bool {
	m.Objects++
	m.Bytes += int64(size)
	m.Total = max(m.Total, m.Objects)
	if time.Since(m.reported) < reportInterval {
		return false
	}
	m.reported = time.Now()
	left := int((time.Since(m.started) * time.Duration(m.Total-m.Objects) / time.Duration(m.Objects)).Round(time.Second) / time.Second)
	m.SecondsLeft = &left
	m.Message = fmt.Sprintf("%d of %d objects, %.1f MB, %d s left", m.Objects, m.Total, float64(m.Bytes)/1e6, left)
	return true
}

// revisionKey returns the key whose writes raise the revision of the server's etcd.
func (m *Migration) revisionKey() string { return m.config.StateKey + ".revision" }

// forget deletes the state of a migration that has ended.
func (m *Migration) forget(ctx context.Context) error {
	response, err := m.write(ctx, clientv3.OpDelete(m.config.StateKey), clientv3.OpDelete(m.revisionKey()))
	if errors.Is(err, errSuperseded) && stateIn(response) == nil {
		return nil // This process has deleted it, if an answer was lost.
	}
	return err
}
