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
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/util/flowcontrol"
)

func TestTakeTurns(t *testing.T) {
	for name, test := range map[string]struct {
		// user returns the user of a request in a flood, by its number.
		user func(n int) string
		// asked is how many of them are asked about at once, beside one of another user.
		asked int
	}{
		"of a user":                           {func(int) string { return "first" }, turnsPerAccount},
		"of ServiceAccounts of one namespace": {func(n int) string { return fmt.Sprint("system:serviceaccount:a:", n) }, turnsPerAccount},
		"of two users":                        {func(n int) string { return fmt.Sprint("user-", n%2) }, 2 * turnsPerAccount},
		"of the cluster's ServiceAccounts":    {func(n int) string { return fmt.Sprint("system:serviceaccount:kube-system:", n) }, 200},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				asked, all := map[string]int{}, 0
				answer := make(chan struct{})
				taking := TakeTurns(authorizer.AuthorizerFunc(func(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
					mu.Lock()
					all++
					asked[attributes.GetUser().GetName()]++
					mu.Unlock()
					<-answer
					return authorizer.DecisionAllow, "", nil
				}))
				ask := func(ctx context.Context, name string) <-chan error {
					result := make(chan error, 1)
					go func() {
						decision, _, err := taking.Authorize(ctx, authorizer.AttributesRecord{User: &user.DefaultInfo{Name: name}})
						if err == nil && decision != authorizer.DecisionAllow {
							err = fmt.Errorf("the decision is %d", decision)
						}
						result <- err
					}()
					synctest.Wait()
					return result
				}
				var answers []<-chan error
				for n := range 200 {
					answers = append(answers, ask(t.Context(), test.user(n)))
				}
				require.Equal(t, test.asked, all)
				answers = append(answers, ask(t.Context(), "second"))
				require.Equal(t, 1, asked["second"])

				ctx, leave := context.WithCancel(t.Context())
				left := ask(ctx, test.user(0))
				if test.asked < 200 {
					leave()
					require.ErrorIs(t, <-left, context.Canceled)
				} else {
					answers = append(answers, left)
				}
				close(answer)
				for _, answer := range answers {
					require.NoError(t, <-answer)
				}
				leave()
				require.Equal(t, len(answers), all)
			})
		})
	}
}

// However many requests a user has, another one does not wait for all of their reviews.
func TestTurnsBesideAFlood(t *testing.T) {
	const flood = 600
	options := NewOptions(nil)
	synctest.Test(t, func(t *testing.T) {
		limiter := flowcontrol.NewTokenBucketRateLimiter(options.QPS, options.Burst)
		taking := TakeTurns(authorizer.AuthorizerFunc(func(ctx context.Context, _ authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionDeny, "", limiter.Wait(ctx)
		}))
		ask := func(ctx context.Context, name string) {
			_, _, _ = taking.Authorize(ctx, authorizer.AttributesRecord{User: &user.DefaultInfo{Name: name}})
		}
		ctx, stop := context.WithCancel(t.Context())
		for range flood {
			go func() {
				for ctx.Err() == nil {
					ask(ctx, "first")
				}
			}()
		}
		time.Sleep(10 * time.Second)
		slowest := time.Duration(0)
		for range 50 {
			began := time.Now()
			ask(ctx, "second")
			slowest = max(slowest, time.Since(began))
		}
		stop()
		t.Logf("the longest wait: %s", slowest)
		require.LessOrEqual(t, slowest, 250*time.Millisecond)
	})
}
