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
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// WithRetryableDenials returns an authorizer that reports requests that kube-apiserver could
// not be asked about. It calls note with the context of such a request. It waits for the
// delegate no longer than the timeout. That also covers watches and streams, which have no deadline
// of their own, and would wait for their turn without a limit.
//
// Upstream fault 20.
func WithRetryableDenials(delegate authorizer.Authorizer, timeout time.Duration, note func(context.Context)) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		decision, reason, err := delegate.Authorize(bounded, attributes)
		if err != nil {
			note(ctx)
		}
		return decision, reason, err
	})
}
