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

package registry

import (
	"context"
	"hash/maphash"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// objectLocks is how many Actions of a kind a server executes at a time at most.
const objectLocks = 64

// turns let this server's Actions on one object wait for each other. They may compete, as those
// of other servers do, but each attempt that comes to nothing is work, and a hundred at once
// would need thousands.
type turns struct {
	seed  maphash.Seed
	locks [objectLocks]*semaphore.Weighted
}

func newTurns() *turns {
	t := &turns{seed: maphash.MakeSeed()}
	for i := range t.locks {
		t.locks[i] = semaphore.NewWeighted(1)
	}
	return t
}

// take returns what ends the turn, or an error that invites the client to try again if there
// was no turn while it could still be answered.
func (t *turns) take(ctx context.Context, key string) (end func(), err error) {
	ctx, cancel := beforeDeadline(ctx)
	defer cancel()
	lock := t.locks[maphash.String(t.seed, key)%objectLocks]
	if err := lock.Acquire(ctx, 1); err != nil {
		return nil, apierrors.NewTimeoutError("others have been using the object for too long", 1)
	}
	return func() { lock.Release(1) }, nil
}
