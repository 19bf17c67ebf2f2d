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

package restaurant

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
)

// patience limits every wait.
const patience = 3 * time.Minute

func following(seconds int64) *restaurant.PizzaTrackOptions {
	return &restaurant.PizzaTrackOptions{Follow: true, TimeoutSeconds: seconds}
}

func trackHandler(ctx context.Context, t *testing.T, storage map[string]rest.Storage, name string, options *restaurant.PizzaTrackOptions) (http.Handler, error) {
	info, _ := genericapirequest.RequestInfoFrom(requestContext(t, "pizzas", "track"))
	ctx = genericapirequest.WithRequestInfo(genericapirequest.WithNamespace(ctx, "default"), info)
	return storage["pizzas/track"].(rest.Connecter).Connect(ctx, name, options, nil)
}

// TestTrackAnotherPizzaOfThatName has a client that misses a pizza's deletion. It
// learns of it only from another pizza with the same name.
func TestTrackAnotherPizzaOfThatName(t *testing.T) {
	const wanted = 50
	storage := newStorage(t)
	newPizza(t, storage, "margherita", 0, 3)
	handler, err := trackHandler(t.Context(), t, storage, "margherita", following(10))
	if err != nil {
		t.Fatal(err)
	}
	deletePizza(t, storage, "margherita")
	newPizza(t, storage, "margherita", 0, wanted)
	other := startTracking(t, storage, "margherita", following(3600))
	other.want(t, fmt.Sprintf("0 of %d baked", wanted))
	for baked := 1; baked < wanted; baked++ {
		mustBake(t, storage, 1)
		other.want(t, fmt.Sprintf("%d of %d baked", baked, wanted))
	}

	recorder := httptest.NewRecorder()
	handler.ServeHTTP(writerWithDeadline{recorder}, nil)
	if diff := cmp.Diff("0 of 3 baked\ndeleted\n", recorder.Body.String()); diff != "" {
		t.Errorf("unexpected lines (-want +got):\n%s", diff)
	}
	other.leave()
	noneRemains(t)
}

// A single line sets no deadline. k8s.io/apiserver may have answered already, and begun with the next request.
func TestTrackSetsNoDeadline(t *testing.T) {
	storage := newStorage(t)
	newPizza(t, storage, "margherita", 0, 3)
	handler, err := trackHandler(t.Context(), t, storage, "margherita", &restaurant.PizzaTrackOptions{TimeoutSeconds: 1})
	if err != nil {
		t.Fatal(err)
	}
	withoutDeadlines := httptest.NewRecorder()
	handler.ServeHTTP(withoutDeadlines, nil)
	if diff := cmp.Diff("0 of 3 baked\n", withoutDeadlines.Body.String()); diff != "" {
		t.Errorf("unexpected lines (-want +got):\n%s", diff)
	}
}

// writerWithDeadline never waits.
type writerWithDeadline struct{ *httptest.ResponseRecorder }

func (writerWithDeadline) SetWriteDeadline(time.Time) error { return nil }

// A tracker is a client that tracks a pizza over HTTP.
type tracker struct {
	*bufio.Scanner
	leave func()
}

func startTracking(t *testing.T, storage map[string]rest.Storage, name string, options *restaurant.PizzaTrackOptions) tracker {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		handler, err := trackHandler(req.Context(), t, storage, name, options)
		if err != nil {
			t.Error(err)
			return
		}
		handler.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	ctx, leave := context.WithTimeout(t.Context(), patience)
	t.Cleanup(leave)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	if got := response.Header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("got content of type %q", got)
	}
	return tracker{bufio.NewScanner(response.Body), leave}
}

// want requires the next line.
func (c tracker) want(t *testing.T, line string) {
	t.Helper()
	if !c.Scan() {
		t.Fatalf("the stream has ended (%v) instead of %q", c.Err(), line)
	}
	if c.Text() != line {
		t.Fatalf("got line %q, want %q", c.Text(), line)
	}
}

func (c tracker) wantEnd(t *testing.T) {
	t.Helper()
	if c.Scan() {
		t.Fatalf("got line %q, want none", c.Text())
	}
	if c.Err() != nil {
		t.Fatalf("the stream was cut off: %v", c.Err())
	}
}

// noneRemains waits until no goroutine is left that tracks a pizza.
func noneRemains(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		stacks := make([]byte, 4<<20)
		stacks = stacks[:goruntime.Stack(stacks, true)]
		if !strings.Contains(string(stacks), "registry.(*streamREST") && !strings.Contains(string(stacks), "registry.(*broadcaster") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("goroutines remain:\n%s", stacks)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func mustBake(t *testing.T, storage map[string]rest.Storage, count int32) {
	t.Helper()
	if _, err := bakeSome(t, storage, "margherita", order(count), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestTrack(t *testing.T) {
	for name, test := range map[string]struct {
		options *restaurant.PizzaTrackOptions
		baked   int32
		run     func(*testing.T, map[string]rest.Storage, tracker)
	}{
		"not followed": {&restaurant.PizzaTrackOptions{TimeoutSeconds: 50}, 1, func(t *testing.T, _ map[string]rest.Storage, client tracker) {
			client.want(t, "1 of 3 baked")
		}},
		"ready before": {following(50), 3, func(t *testing.T, _ map[string]rest.Storage, client tracker) {
			client.want(t, "3 of 3 baked: ready")
		}},
		"until it is ready": {following(50), 0, func(t *testing.T, storage map[string]rest.Storage, client tracker) {
			client.want(t, "0 of 3 baked")
			mustBake(t, storage, 1)
			client.want(t, "1 of 3 baked")
			pizza := readPizza(t, storage, "margherita")
			pizza.Labels = map[string]string{"no": "progress"}
			if _, err := update(t, storage, "pizzas", "", "margherita", pizza); err != nil {
				t.Fatal(err)
			}
			mustBake(t, storage, 2)
			client.want(t, "3 of 3 baked: ready")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			storage := newStorage(t)
			newPizza(t, storage, "margherita", test.baked, 3)
			client := startTracking(t, storage, "margherita", test.options)
			test.run(t, storage, client)
			client.wantEnd(t)
			noneRemains(t)
		})
	}
}

func TestTrackUntilTheClientLeaves(t *testing.T) {
	storage := newStorage(t)
	newPizza(t, storage, "margherita", 0, 3)
	client := startTracking(t, storage, "margherita", following(3600))
	client.want(t, "0 of 3 baked")
	client.leave()
	noneRemains(t)
}

func TestTrackErrors(t *testing.T) {
	storage := newStorage(t)
	newPizza(t, storage, "margherita", 0, 3)
	for name, test := range map[string]struct {
		name    string
		options *restaurant.PizzaTrackOptions
		reason  func(error) bool
		want    string
	}{
		"not there": {"funghi", following(1), apierrors.IsNotFound, `pizzas.restaurant.programming-kubernetes.info "funghi" not found`},
		"no time": {"margherita", following(0), apierrors.IsInvalid,
			`PizzaTrackOptions.restaurant.programming-kubernetes.info "" is invalid: timeoutSeconds: Invalid value: 0: must be greater than or equal to 1`},
		"too much time": {"margherita", following(3601), apierrors.IsInvalid,
			`PizzaTrackOptions.restaurant.programming-kubernetes.info "" is invalid: timeoutSeconds: Invalid value: 3601: must be less than or equal to 3600`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := trackHandler(t.Context(), t, storage, test.name, test.options)
			if !test.reason(err) {
				t.Errorf("got error %v, want one of another reason", err)
			}
			if diff := cmp.Diff(test.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("unexpected error (-want +got):\n%s", diff)
			}
		})
	}
}
