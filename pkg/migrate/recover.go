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
	"time"

	"go.etcd.io/etcd/client/v3"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
	go func() {
		for ctx.Err() == nil {
			if kept, err := m.config.Etcd.KeepAlive(ctx, lease.ID); err == nil {
				for range kept {
					continue // The client gives up when etcd has not answered for a minute.
				}
			}
			_ = wait(ctx, time.Second)
		}
	}()
	return lease.ID, nil
}

// Abandoned reports whether a migration keeps clients from writing, or has changed the definitions,
// although its process has ended. The key is that of the migration's state in the server's etcd.
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
	if !state.unsettled() {
		return state, false, nil
	}
	lease, err := m.config.Etcd.TimeToLive(ctx, state.Lease)
	if err != nil {
		return state, false, fmt.Errorf("reading the lease of the migration's process from the server's etcd: %w", err)
	}
	return state, lease.TTL < 0, nil
}

// unsettled reports whether clients can't write, or the definitions are not as they were.
func (s State) unsettled() bool {
	switch s.Phase {
	case Freezing, Switching, Releasing, Aborting:
		return true
	case Copying:
		return s.Returning
	case Moved:
		return len(s.Conversions) > 0
	default:
		return false
	}
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
	s, err := m.resume(ctx, func(now State) error {
		if now.Writer != state.Writer {
			return errSuperseded
		}
		return nil
	})
	if err == nil {
		err = s.recover(ctx)
	}
	if errors.Is(err, errSuperseded) || errors.Is(err, ErrNone) {
		return nil // The other process does it.
	}
	return err
}

func (s *session) recover(ctx context.Context) error {
	s.progress("the process of the migration has ended in the phase %s", s.state.Phase)
	switch s.state.Phase {
	case Freezing:
		return s.goBack(ctx, nil)
	case Releasing:
		return s.through(ctx, s.direction())
	case Moved:
		if err := s.removeBypass(ctx); err != nil {
			return err
		}
		s.state.Conversions = nil
		return s.save(ctx)
	default:
		return s.abort(ctx)
	}
}

// checkMayRecover returns an error unless this user is a cluster administrator. A process that
// could only begin to recover a migration would keep others from it.
func (m *Migration) checkMayRecover(ctx context.Context, phase Phase) error {
	const all = "*"
	review, err := m.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: all, Group: all, Resource: all}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("asking kube-apiserver what this server may do: %w", err)
	}
	if !review.Status.Allowed {
		consequence := "in which clients can't write"
		if phase == Copying || phase == Moved {
			consequence = "so that changes of its definitions may have no effect"
		}
		return &refusal{
			fmt.Sprintf("a migration of %s has ended in the phase %s, %s, and this server is no cluster administrator, so it can't end that", m.config.Group, phase, consequence),
			"run the same command of \"migrate\" again, or \"migrate abort\", or bind the ClusterRole cluster-admin to the server's user until the objects have moved",
		}
	}
	return nil
}
