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
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// errAllNew refuses to move objects back without kube-apiserver's etcd if kube-apiserver has no
// copies of them.
var errAllNew = errors.New("kube-apiserver has no copies of the objects any more, so that it would give a new UID to all of them, and the garbage collector would delete what they own: give --kube-etcd-servers")

var errAborting = errors.New("the migration is being aborted: finish that with \"migrate abort\"")

// direction is one of the two ways that objects move. Both ways have the same phases, and differ in
// these fields.
type direction struct {
	to   target
	last Phase
	// moves returns the resources that move.
	moves func(context.Context) ([]move, error)
	// prepare does steps that take too long to follow changes meanwhile.
	prepare func(context.Context) error
	// overtake raises the revision of the target's etcd above the other one's while clients write.
	// It is done if the revision was high enough already. raise does the same while writes are
	// frozen.
	overtake, raise func(context.Context) (done bool, err error)
	// record sets the notable objects in the state.
	record func(names []string)
	// turn makes clients use the objects of the target.
	turn func(context.Context) error
}

// there returns the way to the server.
func (s *session) there() direction {
	return direction{
		to: s.atServer(), last: Moved,
		moves:    s.moves,
		prepare:  func(context.Context) error { return nil },
		overtake: s.beginHistory,
		raise:    s.beginHistory,
		record:   func(names []string) { s.state.Finalized = names[:min(len(names), maxNamed)] },
		turn:     s.switchToServer,
	}
}

// back returns the way back to kube-apiserver.
func (s *session) back() direction {
	raise := func(ctx context.Context) (bool, error) { return s.raiseKube(ctx, 0) }
	return direction{
		to: s.atKube(), last: Returned,
		moves: s.movesBack,
		prepare: func(ctx context.Context) error {
			_, err := raise(ctx)
			return err
		},
		overtake: raise,
		raise:    raise,
		record:   func(names []string) { s.state.NewUIDs = names[:min(len(names), maxNamed)] },
		turn:     s.switchToKube,
	}
}

// Run moves the objects to the server, or continues to. It returns when clients use the server. If
// it returns an error before the phase Switching, clients can write as before.
func (m *Migration) Run(ctx context.Context) error { return m.move(ctx, m.resumeThere) }

// Back moves the objects back into the CustomResourceDefinitions, or continues to. It returns when
// clients use these. If it returns an error before the phase Switching, clients can write to the
// server as before.
func (m *Migration) Back(ctx context.Context) error { return m.move(ctx, m.resumeBack) }

func (m *Migration) move(ctx context.Context, resume func(context.Context) (*session, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := resume(ctx)
	if err != nil {
		return err
	}
	return s.through(ctx, s.direction())
}

func (s *session) direction() direction {
	if s.state.Returning {
		return s.back()
	}
	return s.there()
}

// resumeThere continues the way to the server, or begins it.
func (m *Migration) resumeThere(ctx context.Context) (*session, error) {
	s, err := m.resume(ctx, func(state State) error {
		if state.Phase == Aborting {
			return m.checkGoesOn(ctx, state, false)
		}
		if state.Returning {
			return errors.New("the objects are moving, or have moved, back: continue with \"migrate back\", or finish that with \"migrate finish\"")
		}
		return nil
	})
	if !errors.Is(err, ErrNone) {
		return s, err
	}
	if _, err := m.checkRevision(ctx, false); err != nil {
		return nil, err
	}
	plan, found, err := m.examine(ctx)
	if err != nil {
		return nil, err
	}
	if err := Failures(plan.findings, "the objects from moving"); err != nil {
		return nil, fmt.Errorf("%w: see \"migrate plan\"", err)
	}
	return m.begin(ctx, Copying, found...)
}

// resumeBack continues the way back, or begins it.
func (m *Migration) resumeBack(ctx context.Context) (*session, error) {
	if err := m.checkKubeEtcd(ctx); err != nil {
		return nil, err
	}
	s, err := m.resume(ctx, func(state State) error {
		if state.Phase == Moved {
			for _, check := range []func(context.Context) error{m.checkRegistered, m.checkUndefined} {
				if err := check(ctx); err != nil {
					return err
				}
			}
			if err := errors.Join(m.checkCopies(ctx, state), m.checkWritten(ctx, state)); err != nil {
				return err
			}
			_, err := m.checkRevision(ctx, true)
			return err
		}
		if state.Phase == Aborting {
			return m.checkGoesOn(ctx, state, true)
		}
		if state.Returning {
			return nil
		}
		return fmt.Errorf("the migration is in the phase %s: objects can move back when it is in the phase %s; until then, \"migrate abort\" undoes it", state.Phase, Moved)
	})
	if errors.Is(err, ErrNone) {
		// The migration has been finished, or the server was installed before there were objects.
		if err := m.checkRegistered(ctx); err != nil {
			return nil, err
		}
		if err := m.checkUndefined(ctx); err != nil {
			return nil, err
		}
		if m.config.KubeEtcd == nil {
			return nil, errAllNew
		}
		if err := m.checkWritten(ctx, State{}); err != nil {
			return nil, err
		}
		if _, err := m.checkRevision(ctx, true); err != nil {
			return nil, err
		}
		s, err = m.begin(ctx, Moved)
	}
	if err != nil || s.state.Phase != Moved {
		return s, err
	}
	found, err := m.definitions(ctx)
	if err != nil {
		return nil, err
	}
	if m.config.KubeEtcd == nil && slices.ContainsFunc(found, definition.hidden) {
		// Only now kube-apiserver shows what was written past the server.
		err := s.addBypass(ctx)
		if err == nil {
			err = m.checkWritten(ctx, s.state)
		}
		if err != nil {
			removeErr := s.removeBypass(ctx)
			if removeErr == nil {
				s.state.Conversions = nil
				removeErr = s.save(ctx)
			}
			return nil, errors.Join(err, removeErr)
		}
	}
	s.state.Returning, s.state.NewUIDs = true, nil
	if s.state.Registered, err = m.registered(ctx); err != nil {
		return nil, err
	}
	if found, err = m.definitions(ctx); err != nil {
		return nil, err
	}
	if s.state.Definitions, err = s.digests(found); err != nil {
		return nil, err
	}
	err = s.enter(ctx, Copying)
	return s, err
}

// checkGoesOn returns an error unless a migration in the phase Aborting can go on in a direction.
// Clients can't write as long as an APIService leads to where the objects have moved.
func (m *Migration) checkGoesOn(ctx context.Context, state State, back bool) error {
	used, err := (&session{Migration: m, state: state}).switched(ctx)
	if err == nil && (len(used) == 0 || state.Revisions == nil || state.Returning != back) {
		return errAborting
	}
	return err
}

// switched returns the APIServices that lead clients to where the objects move.
func (s *session) switched(ctx context.Context) ([]string, error) {
	if s.state.Returning {
		return s.givenBack(ctx)
	}
	registered, err := s.registered(ctx)
	return slices.Sorted(maps.Keys(registered)), err
}

// checkUsed returns an error unless clients use what is copied. APIServices may have been changed meanwhile.
func (s *session) checkUsed(ctx context.Context) error {
	switched, err := s.switched(ctx)
	if err != nil || len(switched) == 0 {
		return err
	}
	fix := s.fixUnregister()
	if s.state.Returning {
		fix = "make the APIServices lead to the server again"
	}
	return &refusal{fmt.Sprintf("%s lead clients already to where the objects are only being copied, so that what they write there would be lost", strings.Join(switched, ", ")), fix}
}

// registered returns the specs of the APIServices that lead to a server, by name.
func (m *Migration) registered(ctx context.Context) (map[string]apiregistrationv1.APIServiceSpec, error) {
	found := map[string]apiregistrationv1.APIServiceSpec{}
	for _, name := range m.config.APIServices {
		apiService, err := m.apiService(ctx, name)
		if err != nil {
			return nil, err
		}
		if apiService != nil && apiService.Spec.Service != nil {
			found[name] = apiService.Spec
		}
	}
	return found, nil
}

// through goes through all phases up to the last.
func (s *session) through(ctx context.Context, d direction) error {
	if s.state.Phase == d.last {
		return nil
	}
	defer s.stopFollowing()
	if s.state.Phase == Aborting {
		// Aborting may have raised the other revision.
		if _, err := d.raise(ctx); err != nil {
			return err
		}
		if err := s.enter(ctx, Switching); err != nil {
			return err
		}
	}
	for s.state.Phase != d.last {
		s.progress("%s", s.state.Phase)
		var (
			next Phase
			err  error
		)
		switch s.state.Phase {
		case Copying:
			next, err = Freezing, s.copyAll(ctx, d)
		case Freezing:
			next, err = Switching, s.freezeAndCompare(ctx, d)
		case Switching:
			next, err = Releasing, s.switchOver(ctx, d)
		case Releasing:
			next, err = d.last, s.release(ctx)
		default:
			err = fmt.Errorf("a newer release has begun the phase %s: use that", s.state.Phase)
		}
		if err != nil {
			return err
		}
		if next == Freezing {
			// The lease has expired if this process was suspended while it copied.
			if s.state.Lease, err = s.live(ctx); err != nil {
				return err
			}
		}
		if err := s.enter(ctx, next); err != nil {
			return err
		}
	}
	s.progress("%s", s.state.Phase)
	return nil
}

// movable returns the resources that move, or an error if they can't move now.
func (s *session) movable(ctx context.Context, d direction) ([]move, error) {
	if err := s.checkUsed(ctx); err != nil {
		return nil, err
	}
	if err := s.unchanged(ctx); err != nil {
		return nil, err
	}
	if _, err := s.checkRevision(ctx, s.state.Returning); err != nil {
		return nil, err
	}
	if err := s.rehearse(ctx, s.state, s.state.Returning); err != nil {
		return nil, err
	}
	return d.moves(ctx)
}

// copyAll copies the objects while they change.
func (s *session) copyAll(ctx context.Context, d direction) error {
	moves, err := s.movable(ctx, d)
	if err != nil {
		return err
	}
	if err := d.prepare(ctx); err != nil {
		return err
	}
	if err := s.copyWhileUsed(ctx, moves, d.to); err != nil {
		return err
	}
	for range maxPasses {
		if _, err := s.checkRevision(ctx, s.state.Returning); err != nil {
			return err
		}
		done, err := d.overtake(ctx)
		if done || err != nil {
			return err
		}
		// Clients may have written a lot meanwhile.
		if err := s.catchUp(ctx, moves, d.to); err != nil && !expired(err) {
			return err
		}
	}
	return nil
}

// freezeAndCompare freezes writes, and then makes the target's objects equal. After an error
// clients can write again, and the migration is back in the phase Copying.
func (s *session) freezeAndCompare(ctx context.Context, d direction) (err error) {
	defer func() {
		if err != nil {
			err = s.goBack(ctx, err)
		}
	}()
	moves, err := s.movable(ctx, d)
	if err != nil {
		return err
	}
	if err := s.freeze(ctx); err != nil {
		return err
	}
	positions, err := s.copyFrozen(ctx, moves, d.to)
	if err != nil {
		return err
	}
	s.state.Objects, s.state.Revisions = map[string]int{}, map[string]string{}
	var notable []string
	for _, move := range moves {
		position := positions[move.Resource]
		s.progress("%d %s are equal", position.objects, move.GroupResource)
		s.state.Objects[move.Resource], s.state.Revisions[move.Resource] = position.objects, position.revision
		for _, key := range sets.List(position.notable) {
			notable = append(notable, move.Resource+"/"+key)
		}
	}
	d.record(notable)
	_, err = d.raise(ctx)
	return err
}

// switchOver makes clients use the objects of the target. It does not repeat finished steps.
func (s *session) switchOver(ctx context.Context, d direction) error {
	// Another process may have begun the phase.
	if err := s.freeze(ctx); err != nil {
		return err
	}
	return d.turn(ctx)
}

// release lets clients write where the objects have moved to.
func (s *session) release(ctx context.Context) error {
	s.state.Switched = time.Now().UTC().Truncate(time.Second)
	var until time.Time
	if !s.state.Returning {
		s.refuseCopies(ctx)
	} else {
		// The server also holds writes that had passed kube-apiserver by then, and would do them if
		// the freeze ended now. It answers them after a quarter of their time.
		if s.held.IsZero() {
			s.held = time.Now()
		}
		until = s.held.Add(s.config.RequestTimeout/4 + time.Second)
	}
	if err := s.thaw(ctx, until); err != nil || s.state.Returning || !s.config.Defined {
		return err
	}
	// Clients use the server already, so an error can't stop the migration.
	s.optional("remove the annotation "+keys.CopyAnnotation+" from the definitions", s.annotate(ctx, ""))
	return nil
}

// goBack lets clients write again where they did before the freeze.
func (s *session) goBack(ctx context.Context, err error) error {
	ctx = context.WithoutCancel(ctx)
	// If another process has continued the migration, that one decides about the freeze. Once
	// clients write, all objects have to be compared again.
	if saveErr := s.enter(ctx, Freezing); saveErr != nil {
		return errors.Join(err, saveErr)
	}
	s.frozen = false
	if s.state.Returning {
		s.refuseCopies(ctx)
		s.optional("a kube-apiserver that starts may answer for the objects", s.hide(ctx, keys.CopyKept))
	}
	if thawErr := s.thaw(ctx, time.Time{}); thawErr != nil {
		return errors.Join(err, thawErr)
	}
	return errors.Join(err, s.enter(ctx, Copying))
}

// revisionOf parses a resourceVersion as a revision of etcd.
func revisionOf(resourceVersion string) (int64, error) {
	revision, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("kube-apiserver's resourceVersion %q is not a revision of etcd: %w", resourceVersion, err)
	}
	return revision, nil
}
