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

package authorization

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// turnsPerAccount is a fifth of the reviews that the server asks for in a second by default.
const turnsPerAccount = 40

// TakeTurns returns an authorizer that asks its delegate about at most turnsPerAccount requests of an
// account at once. Others of the account wait for these.
//
// All users share the reviews of each second, and wait in one queue. Priority and fairness lets a
// single user have hundreds of requests in it, when other users have few.
func TakeTurns(delegate authorizer.Authorizer) authorizer.Authorizer {
	return &turns{Authorizer: delegate, accounts: map[string]*account{}}
}

type turns struct {
	authorizer.Authorizer

	mu sync.Mutex
	// accounts are those with requests that are asked about, or wait.
	accounts map[string]*account
}

type account struct {
	*semaphore.Weighted
	requests int
}

// Authorize decides whether a request is allowed.
func (t *turns) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	name := ""
	if user := attributes.GetUser(); user != nil {
		name = limits.Account(user.GetName())
	}
	of := t.enter(name)
	defer t.leave(name, of)
	if err := of.Acquire(ctx, 1); err != nil {
		return authorizer.DecisionNoOpinion, "", fmt.Errorf("%d reviews of %s are asked for: %w", turnsPerAccount, name, err)
	}
	defer of.Release(1)
	return t.Authorizer.Authorize(ctx, attributes)
}

// ConditionsAwareAuthorize is not aware of conditions.
func (t *turns) ConditionsAwareAuthorize(ctx context.Context, attributes authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(t.Authorize(ctx, attributes))
}

func (t *turns) enter(name string) *account {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.accounts[name]
	if of == nil {
		of = &account{Weighted: semaphore.NewWeighted(turnsPerAccount)}
		t.accounts[name] = of
	}
	of.requests++
	return of
}

func (t *turns) leave(name string, of *account) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if of.requests--; of.requests == 0 {
		delete(t.accounts, name)
	}
}
