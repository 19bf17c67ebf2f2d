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
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// slowAfter is how long a client may be waited for before the wait counts. It is longer than
	// processes wait for a busy processor: all requests that kube-apiserver forwards for a user
	// would count then, and be cut off.
	slowAfter = time.Second
	// waitsRetrySeconds is when a client may hope that others of the user have gone on.
	waitsRetrySeconds = 1
)

// clientWait is a wait for a client. Meanwhile, the request holds a seat of priority and
// fairness: a single user whose bodies never come would keep all seats of a priority level
// from all other users of it.
type clientWait struct {
	*waits
	account string
	// end ends the wait.
	end   func()
	timer *time.Timer

	mu    sync.Mutex
	state waitState
}

type waitState int

const (
	// waitCounted is the state of a long wait, waitEnded that of one too many. A short one has none.
	waitCounted waitState = iota + 1
	waitEnded
	waitOver
)

// waits counts the long waits of each account.
type waits struct {
	limit int

	mu       sync.Mutex
	accounts map[string]int
}

func newWaits(limit int) *waits { return &waits{limit: limit, accounts: map[string]int{}} }

// awaitClient begins a wait, which counts as one of the account's after some time. If there are too
// many of them then, it calls end.
func (s *waits) awaitClient(account string, end func()) *clientWait {
	w := &clientWait{waits: s, account: account, end: end}
	w.timer = time.AfterFunc(slowAfter, w.late)
	return w
}

func (w *clientWait) late() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.state == waitOver:
	case w.add(w.account):
		w.state = waitCounted
	default:
		w.state = waitEnded
		w.end()
	}
}

// over says that the client is no longer waited for, and tells whether end was called.
func (w *clientWait) over() (ended bool) {
	w.timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == waitCounted {
		w.remove(w.account)
	}
	ended = w.state == waitEnded
	w.state = waitOver
	return ended
}

// add tells whether the account may have another wait.
func (s *waits) add(account string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accounts[account] >= s.limit {
		return false
	}
	s.accounts[account]++
	return true
}

func (s *waits) remove(account string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accounts[account]--; s.accounts[account] == 0 {
		delete(s.accounts, account)
	}
}

func errTooManyWaits(limit int) error {
	return apierrors.NewTooManyRequests(fmt.Sprintf("this user has %d requests already that wait for their clients to send a body or to read a response", limit), waitsRetrySeconds)
}
