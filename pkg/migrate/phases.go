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
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/sets"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// Phase is how far a migration is. A phase begins when the one before it has ended. A process that
// continues the migration begins the phase again. On the way back, the phases mean the same with
// kube-apiserver and the server exchanged.
type Phase string

const (
	// Copying copies the objects while they are used.
	Copying Phase = "Copying"
	// Freezing keeps clients from writing, copies what has changed since, and compares
	// all objects.
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

// stepOf is what there is to know of a phase.
type stepOf struct {
	phase Phase
	// do does what the phase is for. The next phase follows.
	do func(*Migration, context.Context, direction) error
	// abort is the way back, which does not need the step that has failed. There is none once clients
	// write to the target.
	abort func(*Migration, context.Context) error
	// leaves reports whether a process that dies in the phase leaves clients that can't write, or
	// definitions that are not as they were. died is what the server does then.
	leaves func(State) bool
	died   func(*Migration, context.Context) error
}

// steps are the phases in their order. What they call is in the files below this one: plan, undo, finish; switch,
// freeze; copy, targets; definitions, revisions; state. None of these calls one of those before it.
func steps() []stepOf {
	always := func(State) bool { return true }
	return []stepOf{
		{
			phase: Copying, do: (*Migration).copyAll, abort: (*Migration).undo,
			// On the way back, the definitions have BypassVersion.
			leaves: func(state State) bool { return state.Returning }, died: (*Migration).undo,
		},
		{
			phase: Freezing, do: (*Migration).freezeAndCompare, abort: (*Migration).undo,
			leaves: always, died: func(m *Migration, ctx context.Context) error { return m.unfreeze(ctx, nil) },
		},
		{
			phase: Switching, do: (*Migration).switchOver, abort: (*Migration).undo,
			leaves: always, died: (*Migration).undo,
		},
		{
			phase: Releasing, do: (*Migration).release,
			leaves: always, died: (*Migration).proceed,
		},
		{
			// Of an abort that can't switch clients back, so that only the way forward is left.
			phase: Aborting, do: (*Migration).resumeSwitching, abort: (*Migration).undo,
			leaves: always, died: (*Migration).undo,
		},
		{
			// Finish may have died with BypassVersion in the definitions.
			phase: Moved, leaves: func(state State) bool { return len(state.Conversions) > 0 }, died: (*Migration).forgetBypass,
		},
		{phase: Returned, leaves: func(State) bool { return false }},
	}
}

// step returns what there is to know of a phase.
func step(phase Phase) stepOf {
	steps := steps()
	return steps[slices.IndexFunc(steps, func(step stepOf) bool { return step.phase == phase })]
}

// direction is one of the two ways that objects move. Both ways have the same phases, and differ in
// these fields.
type direction struct {
	to   target
	last Phase
	// moves returns the resources that move.
	moves func(context.Context) ([]move, error)
	// raise raises the revision of the target's etcd above the other one's.
	raise func(context.Context) error
	// switchTraffic makes clients use the objects of the target.
	switchTraffic func(context.Context) error
}

// forward returns the way to the server.
func (m *Migration) forward() direction {
	return direction{
		to: m.atServer(), last: Moved,
		moves:         m.moves,
		raise:         m.beginHistory,
		switchTraffic: m.switchToServer,
	}
}

// reverse returns the way back to kube-apiserver.
func (m *Migration) reverse() direction {
	return direction{
		to: m.atKube(), last: Returned,
		moves:         m.movesBack,
		raise:         func(ctx context.Context) error { return m.raiseKube(ctx, 0) },
		switchTraffic: m.switchToKube,
	}
}

// Run moves the objects to the server, or continues to. It returns when clients use the server. If
// it returns an error before the phase Switching, clients can write as before.
func (m *Migration) Run(ctx context.Context) error { return m.move(ctx, m.resumeForward) }

// Back moves the objects back into the CustomResourceDefinitions, or continues to. It returns when
// clients use these. If it returns an error before the phase Switching, clients can write to the
// server as before.
func (m *Migration) Back(ctx context.Context) error { return m.move(ctx, m.resumeReverse) }

func (m *Migration) move(ctx context.Context, resume func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := resume(ctx); err != nil {
		return err
	}
	return m.proceed(ctx)
}

// proceed goes through all phases up to the last.
func (m *Migration) proceed(ctx context.Context) error {
	if m.state.Returning {
		return m.through(ctx, m.reverse())
	}
	return m.through(ctx, m.forward())
}

func (m *Migration) through(ctx context.Context, d direction) error {
	defer m.stopFollowing()
	next := map[Phase]Phase{Copying: Freezing, Freezing: Switching, Switching: Releasing, Releasing: d.last, Aborting: Switching}
	for m.state.Phase != d.last {
		m.progress("%s", m.state.Phase)
		if err := step(m.state.Phase).do(m, ctx, d); err != nil {
			return err
		}
		if err := m.enter(ctx, next[m.state.Phase]); err != nil {
			return err
		}
	}
	m.progress("%s", m.state.Phase)
	return nil
}

// Abort undoes a migration that has not reached the phase Releasing. Until then no client has
// written where the objects move to. On the way to the server it removes the objects from there,
// and forgets the migration. On the way back the objects stay at the server, and the phase is Moved
// again.
//
// Abort works even if a step of the migration fails for good. It only has to change APIServices
// back that were changed. If that fails, Run or Back can go on instead.
func (m *Migration) Abort(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := m.resume(ctx, func(state State) error {
		switch {
		case step(state.Phase).abort != nil:
			return nil
		case state.Phase == Releasing:
			return fmt.Errorf("can't abort in the phase %s: clients already write to the target: run the same command again", state.Phase)
		}
		return fmt.Errorf("can't abort in the phase %s: clients already write to the target", state.Phase)
	})
	if errors.Is(err, ErrNone) {
		m.claimed = true // Until a migration begins.
		// The freeze may be of a process that was slower than the one that aborted the migration.
		return errors.Join(err, m.thaw(ctx, time.Time{}))
	}
	if err != nil {
		return err
	}
	return step(m.state.Phase).abort(m, ctx)
}

// resumeSwitching prepares to go on instead of an abort, which may have raised the other revision.
func (m *Migration) resumeSwitching(ctx context.Context, d direction) error { return d.raise(ctx) }

// Abandoned reports whether a migration keeps clients from writing, or has changed the definitions,
// although its process has ended. The key is where the migration's state is in the server's etcd.
func Abandoned(ctx context.Context, etcd *clientv3.Client, stateKey string) (bool, error) {
	_, abandoned, err := (&Migration{config: Config{Etcd: etcd, StateKey: stateKey}}).abandoned(ctx)
	return abandoned, err
}

func (m *Migration) abandoned(ctx context.Context) (state State, abandoned bool, err error) {
	state, _, err = m.readState(ctx)
	if errors.Is(err, ErrNone) {
		return state, false, nil
	}
	if err != nil {
		return state, false, err
	}
	if !step(state.Phase).leaves(state) {
		return state, false, nil
	}
	lease, err := m.config.Etcd.TimeToLive(ctx, state.Lease)
	if err != nil {
		return state, false, fmt.Errorf("reading the lease of the migration's process from the server's etcd: %w", err)
	}
	return state, lease.TTL < 0, nil
}

// Recover lets clients write again if the migration is Abandoned. After Freezing, the phase is
// Copying again. After Switching, and after Copying on the way back of definitions, it is aborted. In
// these cases the objects are where clients used them. After Releasing, the migration ends as it
// would have. After Moved, where Finish was interrupted, the definitions are as before. Recover needs
// no more of the Config than Abort. Several processes may call it at the same time.
func (m *Migration) Recover(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	state, abandoned, err := m.abandoned(ctx)
	if err != nil || !abandoned {
		return err
	}
	if err := m.checkMayRecover(ctx, state.Phase); err != nil {
		return err
	}
	err = m.resume(ctx, func(now State) error {
		if now.Writer != state.Writer {
			return errSuperseded
		}
		return nil
	})
	if err == nil {
		m.progress("the process of the migration has ended in the phase %s", m.state.Phase)
		err = step(m.state.Phase).died(m, ctx)
	}
	if errors.Is(err, errSuperseded) || errors.Is(err, ErrNone) {
		return nil // The other process does it.
	}
	return err
}

// errAllNew refuses to move objects back without kube-apiserver's etcd if kube-apiserver has no
// copies of them.
var errAllNew = errors.New("can't move back through the API, since kube-apiserver has no copies of the objects any more: their UIDs would change, and the garbage collector would delete what they own: give --kube-etcd-servers")

var errAborting = errors.New("the migration is being aborted: finish that with \"migrate abort\"")

// resumeForward continues the way to the server, or begins it.
func (m *Migration) resumeForward(ctx context.Context) error {
	err := m.resume(ctx, func(state State) error {
		if state.Phase == Aborting {
			return m.checkMayResume(ctx, state, false)
		}
		if state.Returning {
			return errors.New("the objects are moving, or have moved, back: continue with \"migrate back\", or finish that with \"migrate finish\"")
		}
		return nil
	})
	if !errors.Is(err, ErrNone) {
		return err
	}
	if _, err := m.checkRevision(ctx, false); err != nil {
		return err
	}
	plan, err := m.examine(ctx)
	if err != nil {
		return err
	}
	if err := Failures(plan.findings, "the objects from moving"); err != nil {
		return fmt.Errorf("%w: see \"migrate plan\"", err)
	}
	return m.begin(ctx, Copying, plan.found...)
}

// resumeReverse continues the way back, or begins it.
func (m *Migration) resumeReverse(ctx context.Context) error {
	if err := m.checkKubeEtcd(ctx); err != nil {
		return err
	}
	err := m.resume(ctx, func(state State) error {
		switch {
		case state.Phase == Aborting:
			return m.checkMayResume(ctx, state, true)
		case state.Returning:
			return nil
		}
		return m.checkReversible(ctx, state)
	})
	if errors.Is(err, ErrNone) {
		// The migration has been finished, or the server was installed before there were objects.
		if err = m.checkReversible(ctx, State{}); err == nil {
			err = m.begin(ctx, Moved)
		}
	}
	if err != nil || m.state.Phase != Moved {
		return err
	}
	return m.beginReverse(ctx)
}

// checkReversible returns an error unless the objects can begin to move back.
func (m *Migration) checkReversible(ctx context.Context, state State) error {
	p := &plan{Migration: m, state: state, back: true}
	return p.require(ctx, p.reversible()...)
}

func (m *Migration) beginReverse(ctx context.Context) error {
	found, err := m.definitions(ctx)
	if err != nil {
		return err
	}
	if m.config.KubeEtcd == nil && slices.ContainsFunc(found, definition.hidden) {
		// Only now kube-apiserver shows what was written past the server.
		err := m.addBypass(ctx)
		if err == nil {
			err = m.checkWritten(ctx, m.state)
		}
		if err != nil {
			return errors.Join(err, m.forgetBypass(ctx))
		}
	}
	m.state.Returning = true
	if m.state.Registered, err = m.registered(ctx); err != nil {
		return err
	}
	if m.state.Definitions, err = m.digests(found); err != nil {
		return err
	}
	return m.enter(ctx, Copying)
}

// checkMayResume returns an error unless a migration in the phase Aborting can go on in a direction.
// Clients can't write as long as an APIService leads to where the objects have moved.
func (m *Migration) checkMayResume(ctx context.Context, state State, back bool) error {
	resumed := *m
	resumed.state = state
	used, err := resumed.switched(ctx)
	if err == nil && (len(used) == 0 || state.Revisions == nil || state.Returning != back) {
		return errAborting
	}
	return err
}

// movable returns the resources that move, or an error if they can't move now.
func (m *Migration) movable(ctx context.Context, d direction) ([]move, error) {
	if err := m.checkUsed(ctx); err != nil {
		return nil, err
	}
	if err := m.unchanged(ctx); err != nil {
		return nil, err
	}
	if _, err := m.checkRevision(ctx, m.state.Returning); err != nil {
		return nil, err
	}
	if err := m.rehearse(ctx, m.state, m.state.Returning); err != nil {
		return nil, err
	}
	return d.moves(ctx)
}

// copyAll copies the objects while they change.
func (m *Migration) copyAll(ctx context.Context, d direction) error {
	moves, err := m.movable(ctx, d)
	if err != nil {
		return err
	}
	// This may take minutes, in which clients change objects.
	if err := d.raise(ctx); err != nil {
		return err
	}
	if err := m.copyWhileUsed(ctx, moves, d.to); err != nil {
		return err
	}
	// So does this, and raises the other revision.
	if _, err := m.checkRevision(ctx, m.state.Returning); err != nil {
		return err
	}
	if err := d.raise(ctx); err != nil {
		return err
	}
	if err := m.catchUp(ctx, moves, d.to); err != nil && !expired(err) {
		return err
	}
	// The lease has expired if this process was suspended while it copied.
	m.state.Lease, err = m.live(ctx)
	return err
}

// freezeAndCompare freezes writes, and then makes the target's objects equal. After an error
// clients can write again, and the migration is back in the phase Copying.
func (m *Migration) freezeAndCompare(ctx context.Context, d direction) (err error) {
	defer func() {
		if err != nil {
			err = m.unfreeze(ctx, err)
		}
	}()
	moves, err := m.movable(ctx, d)
	if err != nil {
		return err
	}
	if err := m.freeze(ctx); err != nil {
		return err
	}
	positions, err := m.copyFrozen(ctx, moves, d.to)
	if err != nil {
		return err
	}
	m.state.Objects, m.state.Revisions = map[string]int{}, map[string]string{}
	var finalized []string
	for _, move := range moves {
		position := positions[move.Resource]
		m.progress("%d %s are equal", position.objects, move.GroupResource)
		m.state.Objects[move.Resource], m.state.Revisions[move.Resource] = position.objects, position.revision
		for _, key := range sets.List(position.finalized) {
			finalized = append(finalized, move.Resource+"/"+key)
		}
	}
	if !m.state.Returning {
		// No controller removes the finalizers of the copies that stay behind.
		m.state.Finalized = finalized[:min(len(finalized), maxNamed)]
	}
	return d.raise(ctx)
}

// switchOver makes clients use the objects of the target. It does not repeat finished steps.
func (m *Migration) switchOver(ctx context.Context, d direction) error {
	// Another process may have begun the phase.
	if err := m.freeze(ctx); err != nil {
		return err
	}
	return d.switchTraffic(ctx)
}

// release lets clients write where the objects have moved to.
func (m *Migration) release(ctx context.Context, _ direction) error {
	m.state.Switched = time.Now().UTC().Truncate(time.Second)
	var until time.Time
	if !m.state.Returning {
		m.refuseCopies(ctx)
	} else {
		// The server also holds writes that had passed kube-apiserver by then, and would do them if
		// the freeze ended now. It answers them after a quarter of their time.
		if m.held.IsZero() {
			m.held = time.Now()
		}
		until = m.held.Add(m.config.RequestTimeout/4 + time.Second)
	}
	if err := m.thaw(ctx, until); err != nil || m.state.Returning {
		return err
	}
	// Clients use the server already, so an error can't stop the migration.
	m.optional("remove the annotation "+keys.CopyAnnotation+" from the definitions", m.annotate(ctx, ""))
	return nil
}
