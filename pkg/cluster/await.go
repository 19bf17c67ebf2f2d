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
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// DefaultTimeout outlasts the start of a whole control plane.
const DefaultTimeout = 5 * time.Minute

// ErrRefused marks errors that waiting does not fix.
var ErrRefused = errors.New("the server refuses to start")

// Await returns when a check succeeds. Components of a cluster start in any order, so it
// waits for those that are missing until the context ends. Each new reason is logged once,
// with its fix.
func Await(ctx context.Context, what string, check func(context.Context) error) error {
	backoff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.5, Jitter: 0.1, Steps: 10, Cap: time.Second}
	var reason error
	err := backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if errors.Is(err, ErrRefused) {
			return false, err
		}
		// A failure that only the end of the waiting has caused says less than the one
		// before.
		if err != nil && (reason == nil || ctx.Err() == nil) {
			if reason == nil || reason.Error() != err.Error() {
				klog.InfoS("Waiting for "+what, "reason", err.Error())
			}
			reason = err
		}
		return err == nil, nil
	})
	if errors.Is(err, context.DeadlineExceeded) && reason != nil {
		return fmt.Errorf("%s was not ready within --startup-timeout: %w", what, reason)
	}
	return err
}

// Eventually returns when a try succeeds. If the context ends first, the error is the last one that a try had by
// itself, with the cause of the end.
func Eventually(ctx context.Context, interval time.Duration, try func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		err := try(ctx)
		if last == nil || ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w (%w)", last, context.Cause(ctx))
	}
	return nil
}

// FillWatchCache lists nothing from the watch cache of a resource, whose path begins with "/apis". Such a list has a
// server fill the cache, and gets 429 until that is done.
func FillWatchCache(ctx context.Context, client rest.Interface, path string) error {
	return client.Get().AbsPath(path).Param("resourceVersion", "0").Param("labelSelector", "no-object-has-this").MaxRetries(0).Do(ctx).Error()
}
