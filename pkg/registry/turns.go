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

// objectLocks is the maximum number of Actions of a kind that a server executes at a time.
const objectLocks = 64

// turns lets only one of this server's Actions on an object run at a time. Competing Actions
// would be correct, as between servers, but each conflict repeats work. A hundred Actions at
// once would need thousands of attempts.
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

// take waits for the turn, and returns a function that ends it. If the wait is too long, the
// error tells the client to try again.
func (t *turns) take(ctx context.Context, key string) (end func(), err error) {
	ctx, cancel := beforeDeadline(ctx)
	defer cancel()
	lock := t.locks[maphash.String(t.seed, key)%objectLocks]
	if err := lock.Acquire(ctx, 1); err != nil {
		return nil, apierrors.NewTimeoutError("others have been using the object for too long", 1)
	}
	return func() { lock.Release(1) }, nil
}
