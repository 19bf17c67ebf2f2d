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
	turns := limits.NewTurns(turnsPerAccount)
	return authorizer.AuthorizerFunc(func(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
		account := ""
		if user := attributes.GetUser(); user != nil {
			account = limits.Account(user.GetName())
		}
		end, err := turns.Take(ctx, account)
		if err != nil {
			return authorizer.DecisionNoOpinion, "", fmt.Errorf("%d reviews of %s are asked for: %w", turnsPerAccount, account, err)
		}
		defer end()
		return delegate.Authorize(ctx, attributes)
	})
}
