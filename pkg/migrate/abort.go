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

	"go.etcd.io/etcd/client/v3"
)

// Abort undoes a migration as long as no client uses what the objects move to: until the phase
// Switching. Clients never notice. On the way to the server it removes the objects from there,
// and forgets the migration; on the way back they stay at the server, which then is in the phase
// Moved again.
func (m *Migration) Abort(ctx context.Context) error {
	s, err := m.resume(ctx, func(state State) error {
		switch state.Phase {
		case Copying, Freezing, Aborting:
			return nil
		case Switching, Releasing:
			return fmt.Errorf("the migration is in the phase %s, in which clients use both, and writes wait: only running the same command again ends that", state.Phase)
		default:
			return fmt.Errorf("the migration is in the phase %s, in which clients use the server: what they write there would be lost", state.Phase)
		}
	})
	if errors.Is(err, ErrNone) {
		// Of a process that was slower than the one that has aborted the migration.
		return errors.Join(err, m.thaw(ctx))
	}
	if err != nil {
		return err
	}
	if err := s.enter(ctx, Aborting); err != nil {
		return err
	}
	if err := m.thaw(ctx); err != nil {
		return err
	}
	if s.state.Returning {
		return s.abortBack(ctx)
	}
	if err := s.removeCopies(ctx); err != nil {
		return err
	}
	return s.forget(ctx)
}

// abortBack leaves kube-apiserver's own objects as they are, which nobody sees.
func (s *session) abortBack(ctx context.Context) error {
	if err := s.removeBypass(ctx, ""); err != nil {
		return err
	}
	s.state.Returning, s.state.Conversions = false, nil
	return s.enter(ctx, Moved)
}

// removeCopies removes the objects from the server's etcd.
func (s *session) removeCopies(ctx context.Context) error {
	for _, store := range s.config.Stores {
		if _, err := s.write(ctx, clientv3.OpDelete(store.Prefix, clientv3.WithPrefix())); err != nil {
			return err
		}
		s.progress("the server has no %s", store.GroupResource)
	}
	_, err := s.write(ctx, clientv3.OpDelete(s.config.HistoryKey))
	return err
}
