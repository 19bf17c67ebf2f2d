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
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// No answer is waited for longer than the timeout, and undecided requests are noted.
func TestRetryableDenials(t *testing.T) {
	never := authorizer.AuthorizerFunc(func(ctx context.Context, _ authorizer.Attributes) (authorizer.Decision, string, error) {
		<-ctx.Done()
		return authorizer.DecisionDeny, "", ctx.Err()
	})
	for name, ask := range map[string]func(context.Context, authorizer.Authorizer) error{
		"a decision": func(ctx context.Context, asked authorizer.Authorizer) error {
			_, _, err := asked.Authorize(ctx, authorizer.AttributesRecord{})
			return err
		},
		"a decision with conditions": func(ctx context.Context, asked authorizer.Authorizer) error {
			return asked.ConditionsAwareAuthorize(ctx, authorizer.AttributesRecord{}).Error()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				noted := 0
				start := time.Now()
				err := ask(t.Context(), WithRetryableDenials(never, time.Second, func(context.Context) { noted++ }))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, 1, noted)
				require.Equal(t, time.Second, time.Since(start))
			})
		})
	}
}
