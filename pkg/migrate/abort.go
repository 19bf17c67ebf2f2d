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
	c, err := m.claim(ctx, func(state State) error {
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
	if err := c.enter(ctx, Aborting); err != nil {
		return err
	}
	if err := m.thaw(ctx); err != nil {
		return err
	}
	if c.Returning {
		return c.abortBack(ctx)
	}
	if err := c.removeCopies(ctx); err != nil {
		return err
	}
	return c.forget(ctx)
}

// abortBack leaves kube-apiserver's own objects as they are, which nobody sees.
func (c *claim) abortBack(ctx context.Context) error {
	found, err := c.definitions(ctx)
	if err != nil {
		return err
	}
	if err := c.closeDoors(ctx, found, ""); err != nil {
		return err
	}
	c.Returning, c.Conversions = false, nil
	return c.enter(ctx, Moved)
}

// removeCopies removes the objects from the server's etcd.
func (c *claim) removeCopies(ctx context.Context) error {
	for _, store := range c.Stores {
		if _, err := c.write(ctx, clientv3.OpDelete(store.Prefix, clientv3.WithPrefix())); err != nil {
			return err
		}
		c.progress("the server has no %s", store.GroupResource)
	}
	_, err := c.write(ctx, clientv3.OpDelete(c.HistoryKey))
	return err
}
