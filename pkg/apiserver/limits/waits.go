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

package limits

import (
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// slowAfter is how long a client may be waited for before the wait counts. It is longer than
	// processes wait for a busy processor: all requests that kube-apiserver forwards for a user
	// would count then, and be cut off.
	slowAfter = time.Second
	// slowInAll is how long all waits of a response may be before they count.
	slowInAll = 5 * time.Second
	// waitsRetrySeconds is when a client may hope that others of the user have gone on.
	waitsRetrySeconds = 1
)

// newWaits returns the Shares of requests that wait for their clients. Such a request holds a seat of priority and
// fairness. A single user whose bodies never come would keep all seats of a priority level from its other users, which
// are some fifty at least. All together have fewer.
func newWaits(bounds Bounds) *Shares { return NewBoundShares(1, int64(bounds.WaitsPerUser)) }

// after calls a function when some time has passed, unless the returned one has been called. That waits for a call that
// has begun: the library's writers must not be used when their handler has returned.
func after(delay time.Duration, call func()) (stop func()) {
	var mu sync.Mutex
	stopped := false
	timer := time.AfterFunc(delay, func() {
		mu.Lock()
		defer mu.Unlock()
		if !stopped {
			call()
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		stopped = true
	}
}

func errTooManyWaits() error {
	return apierrors.NewTooManyRequests("this user has as many requests that wait for their clients to send a body or to read a response as it leaves to others", waitsRetrySeconds)
}
