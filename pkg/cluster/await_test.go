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

package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAwait(t *testing.T) {
	t.Parallel()
	refused := fmt.Errorf("%w: the file is damaged", ErrRefused)
	for name, test := range map[string]struct {
		// check answers the call with a number, from 1 on.
		check func(ctx context.Context, call int) error
		// cancel ends the waiting before its time is over.
		cancel bool
		err    string
		calls  int
	}{
		"it is there": {check: func(context.Context, int) error { return nil }, calls: 1},
		"it comes": {
			check: func(_ context.Context, call int) error {
				if call < 3 {
					return errors.New("not yet")
				}
				return nil
			},
			calls: 3,
		},
		"waiting does not help": {
			check: func(_ context.Context, call int) error {
				if call < 2 {
					return errors.New("not yet")
				}
				return refused
			},
			err: "the server refuses to start: the file is damaged", calls: 2,
		},
		"it never comes": {
			check: func(context.Context, int) error { return errors.New("no endpoints") },
			err:   "etcd was not ready within --startup-timeout: no endpoints",
		},
		"the last check is cut off": {
			check: func(ctx context.Context, call int) error {
				if call == 1 {
					return errors.New("no endpoints")
				}
				<-ctx.Done()
				return ctx.Err()
			},
			err: "etcd was not ready within --startup-timeout: no endpoints", calls: 2,
		},
		"the only check is cut off": {
			check: func(ctx context.Context, _ int) error { <-ctx.Done(); return errors.New("no answer") },
			err:   "etcd was not ready within --startup-timeout: no answer", calls: 1,
		},
		"it is told to stop": {
			check:  func(context.Context, int) error { return errors.New("no endpoints") },
			cancel: true, err: "context canceled",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if test.cancel {
					time.AfterFunc(time.Second, cancel)
				}
				calls := 0
				err := Await(ctx, "etcd", func(ctx context.Context) error {
					calls++
					return test.check(ctx, calls)
				})
				if test.err == "" {
					require.NoError(t, err)
				} else {
					require.EqualError(t, err, test.err)
				}
				if test.calls > 0 {
					require.Equal(t, test.calls, calls)
				}
			})
		})
	}
}

func TestEventually(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// try answers the call with a number, from 1 on.
		try   func(ctx context.Context, call int) error
		err   string
		after time.Duration
	}{
		"at once": {try: func(context.Context, int) error { return nil }},
		"the third time": {
			try: func(_ context.Context, call int) error {
				if call < 3 {
					return errors.New("not yet")
				}
				return nil
			},
			after: 2 * time.Second,
		},
		"never": {
			try: func(context.Context, int) error { return errors.New("not yet") },
			err: "not yet (context deadline exceeded)", after: time.Minute,
		},
		"the last try is cut off": {
			try: func(ctx context.Context, call int) error {
				if call == 1 {
					return errors.New("not yet")
				}
				<-ctx.Done()
				return ctx.Err()
			},
			err: "not yet (context deadline exceeded)", after: time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began, calls := time.Now(), 0
				err := Eventually(ctx, time.Second, func(ctx context.Context) error {
					calls++
					return test.try(ctx, calls)
				})
				if test.err == "" {
					require.NoError(t, err)
				} else {
					require.EqualError(t, err, test.err)
				}
				require.Equal(t, test.after, time.Since(began))
			})
		})
	}
}
