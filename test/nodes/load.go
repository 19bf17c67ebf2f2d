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

package nodes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
)

// Load runs clients that write and read a pizza, and counts their failures. A client sends one
// request after the other.
type Load struct {
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu                        sync.Mutex
	requests, failed          int
	slowest                   time.Duration
	failures                  map[string]int
	firstFailure, lastFailure time.Time
}

// pause is the time between two rounds of a client.
const pause = 100 * time.Millisecond

// StartLoad starts clients of a pizza in the namespace "default". Each has its own connections.
func StartLoad(t testing.TB, config *rest.Config, pizza string, clients int) *Load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &Load{cancel: cancel, failures: map[string]int{}}
	for range clients {
		own := rest.CopyConfig(config)
		// kube-apiserver gives up on a request after a minute.
		own.Timeout = 2 * time.Minute
		client, err := versioned.NewForConfig(own)
		require.NoError(t, err)
		l.ended.Go(func() { l.use(ctx, client, pizza) })
	}
	t.Cleanup(l.stop)
	return l
}

func (l *Load) stop() {
	l.cancel()
	l.ended.Wait()
}

func (l *Load) use(ctx context.Context, client versioned.Interface, pizza string) {
	pizzas := client.RestaurantV1().Pizzas(metav1.NamespaceDefault)
	for i := 0; ctx.Err() == nil; i++ {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"load":"%d"}}}`, i)
		l.count(ctx, func() error {
			_, err := pizzas.Patch(ctx, pizza, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		})
		l.count(ctx, func() error {
			_, err := pizzas.Get(ctx, pizza, metav1.GetOptions{})
			return err
		})
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// count sends a request and counts it, unless the load ends meanwhile.
func (l *Load) count(ctx context.Context, request func() error) {
	began := time.Now()
	err := request()
	took := time.Since(began)
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	l.slowest = max(l.slowest, took)
	if err == nil {
		return
	}
	if l.failed == 0 {
		l.firstFailure = began
	}
	l.failed++
	l.lastFailure = time.Now()
	l.failures[errorText(err)]++
}

// errorText returns a text that failures of the same kind have in common.
func errorText(err error) string {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return fmt.Sprintf("%d %s", status.Status().Code, status.Status().Message)
	}
	return err.Error()
}

// Requests returns how many requests were sent so far.
func (l *Load) Requests() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests
}

// Result sums up the requests of a Load.
type Result struct {
	Requests, Failed int
	// Outage is the time from the beginning of the first failed request to the end of the last.
	Outage, Slowest time.Duration
	// Failures are the numbers of the failures of each kind.
	Failures map[string]int
}

// String returns a text for the log of a test.
func (r Result) String() string {
	text := fmt.Sprintf("%d requests, the slowest took %.1f s", r.Requests, r.Slowest.Seconds())
	if r.Failed == 0 {
		return text + ", none failed"
	}
	text += fmt.Sprintf(", %d failed within %.1f s", r.Failed, r.Outage.Seconds())
	for failure, times := range r.Failures {
		text += fmt.Sprintf("\n%5d × %s", times, failure)
	}
	return text
}

// Stop ends the load, and returns its result.
func (l *Load) Stop() Result {
	l.stop()
	return Result{
		Requests: l.requests, Failed: l.failed, Outage: l.lastFailure.Sub(l.firstFailure), Slowest: l.slowest, Failures: l.failures,
	}
}
