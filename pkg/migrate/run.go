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
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// maxFollows is how often changes are copied before writes are frozen, to leave little to be
// copied then.
const maxFollows = 10

// fewChanges is how many changes there may be for the next to be copied under the freeze.
const fewChanges = 100

// Run moves the objects, or continues to, and returns when clients use the server. If it
// returns an error before the phase Switching, clients can write as before.
func (m *Migration) Run(ctx context.Context) error {
	// Before another process is kept from going on.
	f, err := m.listen()
	if err != nil {
		return err
	}
	defer m.leave(f)
	s, err := m.resume(ctx, func(state State) error {
		if state.Phase == Aborting {
			return errors.New("the migration is being aborted: finish that with \"migrate abort\"")
		}
		if state.Returning {
			return errors.New("the objects are moving, or have moved, back: continue with \"migrate back\", or finish that with \"migrate finish\"")
		}
		return nil
	})
	if errors.Is(err, ErrNone) {
		plan, found, planErr := m.examine(ctx)
		if planErr != nil {
			return planErr
		}
		if err := Failures(plan.findings); err != nil {
			return fmt.Errorf("%w: see \"migrate plan\"", err)
		}
		s, err = m.begin(ctx, found...)
	}
	if err != nil || s.state.Phase == Moved {
		return err
	}
	return s.through(ctx, Moved, map[Phase]step{
		Copying:   {Freezing, s.copyAll},
		Freezing:  {Switching, func(ctx context.Context) error { return s.freezeAndCompare(ctx, f) }},
		Switching: {Releasing, func(ctx context.Context) error { return s.switchAndStop(ctx, f) }},
		Releasing: {Moved, s.release},
	})
}

// step is what a phase does, and which phase is next.
type step struct {
	next Phase
	do   func(context.Context) error
}

// through goes through all phases up to the last.
func (s *session) through(ctx context.Context, last Phase, steps map[Phase]step) error {
	defer s.stopFollowing()
	for s.state.Phase != last {
		s.progress("%s", s.state.Phase)
		step, known := steps[s.state.Phase]
		if !known {
			return fmt.Errorf("a newer release has begun the phase %s: use that", s.state.Phase)
		}
		if err := step.do(ctx); err != nil {
			return err
		}
		if err := s.enter(ctx, step.next); err != nil {
			return err
		}
	}
	s.progress("%s", s.state.Phase)
	return nil
}

// release lets clients write, at the server.
func (s *session) release(ctx context.Context) error {
	s.state.Switched = time.Now().UTC().Truncate(time.Second)
	if err := s.thaw(ctx); err != nil {
		return err
	}
	if !s.config.Defined {
		return nil
	}
	return s.touch(ctx, false, "")
}

// copyAll copies the objects while they change.
func (s *session) copyAll(ctx context.Context) error {
	if err := s.unchanged(ctx); err != nil {
		return err
	}
	moves, err := s.moves(ctx)
	if err != nil {
		return err
	}
	if err := s.copyWhileUsed(ctx, moves, s.toServer()); err != nil {
		return err
	}
	if err := s.unchanged(ctx); err != nil {
		return err
	}
	if err := s.beginHistory(ctx); err != nil {
		return err
	}
	// That can take a while.
	if err := s.catchUp(ctx, moves, s.toServer()); err != nil && !expired(err) {
		return err
	}
	return nil
}

// freezeAndCompare makes the server's objects equal to kube-apiserver's for good. After an
// error clients can write again, and the migration is back in the phase Copying.
func (s *session) freezeAndCompare(ctx context.Context, f *freezer) (err error) {
	defer func() {
		if err != nil {
			err = s.goBack(ctx, err)
		}
	}()
	if err := s.unchanged(ctx); err != nil {
		return err
	}
	if err := s.freeze(ctx, f); err != nil {
		return err
	}
	moves, err := s.moves(ctx)
	if err != nil {
		return err
	}
	s.state.Objects, s.state.Revisions, s.state.Finalized = map[string]int{}, map[string]string{}, nil
	positions, err := s.copyFrozen(ctx, moves, s.toServer())
	if err != nil {
		return err
	}
	for _, move := range moves {
		position := positions[move.Resource]
		s.progress("%d %s are equal", position.objects, move.GroupResource)
		s.state.Objects[move.Resource], s.state.Revisions[move.Resource] = position.objects, position.revision
		for _, name := range sets.List(position.finalized) {
			if len(s.state.Finalized) < maxNamed {
				s.state.Finalized = append(s.state.Finalized, move.Resource+"/"+name)
			}
		}
	}
	return s.beginHistory(ctx)
}

// goBack lets clients write again at kube-apiserver, after an error.
func (s *session) goBack(ctx context.Context, err error) error {
	ctx = context.WithoutCancel(ctx)
	// Whoever has continued the migration decides about that.
	if saveErr := s.save(ctx); saveErr != nil {
		return errors.Join(err, saveErr)
	}
	return errors.Join(err, s.thaw(ctx), s.enter(ctx, Copying))
}

// revisionOf returns a resourceVersion as the revision of etcd that it is.
func revisionOf(resourceVersion string) (int64, error) {
	revision, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("kube-apiserver's resourceVersion %q is not a revision of etcd: %w", resourceVersion, err)
	}
	return revision, nil
}
