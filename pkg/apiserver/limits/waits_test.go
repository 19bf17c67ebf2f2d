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
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/testing/requests"
)

// slowClient reads each part of a response after some time.
type slowClient struct {
	http.ResponseWriter
	each     time.Duration
	deadline chan time.Time
}

func newSlowClient(each time.Duration) *slowClient {
	return &slowClient{httptest.NewRecorder(), each, make(chan time.Time, 2)}
}

func (c *slowClient) SetWriteDeadline(deadline time.Time) error {
	if !deadline.After(time.Now()) {
		c.deadline <- deadline
	}
	return nil
}

func (c *slowClient) Write(part []byte) (int, error) {
	select {
	case <-time.After(c.each):
		return len(part), nil
	case <-c.deadline:
		return 0, os.ErrDeadlineExceeded
	}
}

// Of the responses to an account, only some may be slow, whatever others do.
func TestWaits(t *testing.T) {
	const most = 2
	for name, test := range map[string]struct {
		responses, parts int
		each             time.Duration
		// ended is how many of the responses are, and when.
		ended int
		after time.Duration
	}{
		"fast ones":                           {100, 40, slowInAll / 50, 0, 0},
		"slow ones":                           {most, 1, 2 * slowInAll, 0, 0},
		"one too many":                        {most + 1, 1, 2 * slowInAll, 1, slowAfter},
		"many too many":                       {10, 1, 2 * slowInAll, 10 - most, slowAfter},
		"slow ones with many parts":           {most, 20, slowAfter / 2, 0, 0},
		"one too many with many parts":        {most + 1, 20, slowAfter / 2, 1, slowInAll},
		"one too many with parts that differ": {most + 1, 40, slowAfter / 4, 1, slowInAll},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				waits := newWaits(Bounds{WaitsPerUser: most})
				var mu sync.Mutex
				ended := 0
				respond := func(user string, parts int, each time.Duration) {
					client, began := newSlowClient(each), time.Now()
					response := &timedWriter{ResponseWriter: client, control: http.NewResponseController(client), waits: waits}
					defer response.leave()
					NoteUser(context.WithValue(t.Context(), timedKey{}, response), user)
					for range parts {
						if _, err := response.Write([]byte("a")); err == nil {
							continue
						}
						require.Equal(t, test.after, time.Since(began), "when a response has ended")
						mu.Lock()
						ended++
						mu.Unlock()
						return
					}
				}
				for range 2 { // Responses that have ended count no more.
					var all sync.WaitGroup
					for range test.responses {
						all.Go(func() { respond("first", test.parts, test.each) })
					}
					for range most {
						all.Go(func() { respond("second", 1, 3*slowInAll) })
					}
					all.Wait()
				}
				require.Equal(t, 2*test.ended, ended)
				require.Empty(t, waits.taken)
			})
		})
	}
}

// seat is the seat of priority and fairness that a watch has until it has sent the objects that there are.
type seat struct{ given chan time.Time }

func (s *seat) Signal() {
	select {
	case s.given <- time.Now():
	default:
	}
}

func (s *seat) Wait() {}

// A watch whose client reads nothing keeps its seat from nobody.
func TestSeatsOfSlowWatches(t *testing.T) {
	const never = 0
	for name, test := range map[string]struct {
		verb string
		each time.Duration
		want time.Duration
	}{
		"a watch that nobody reads": {"watch", 2 * EventTime, slowAfter},
		"a watch read slowly":       {"watch", slowAfter / 2, slowInAll},
		"a watch read fast":         {"watch", slowInAll / 50, never},
		"a list that nobody reads":  {"list", 2 * EventTime, never},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				given, began := &seat{make(chan time.Time, 1)}, time.Now()
				handler := WithResponseDeadlines(WithMemoryBounds(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					for range 40 {
						_, _ = w.Write([]byte("a"))
					}
				}), requests.NewCodecs(), requests.IsWatch, DefaultBounds(), NewWatches(DefaultBounds()), 1<<20, anyBody), DefaultBounds())
				request := requests.WithInfo(httptest.NewRequest(http.MethodGet, "/", nil), test.verb)
				ctx := utilflowcontrol.WithInitializationSignal(request.Context(), utilflowcontrol.InitializationSignal(given))
				handler.ServeHTTP(newSlowClient(test.each), request.WithContext(ctx))
				if test.want == never {
					require.Empty(t, given.given)
					return
				}
				require.Equal(t, test.want, (<-given.given).Sub(began))
			})
		})
	}
}

// deadlines counts those that are set.
type deadlines struct {
	http.ResponseWriter
	set atomic.Int32
}

func (d *deadlines) SetReadDeadline(time.Time) error {
	d.set.Add(1)
	return nil
}

// slowBody ends after some time.
type slowBody time.Duration

func (b slowBody) Read([]byte) (int, error) {
	time.Sleep(time.Duration(b))
	return 0, io.EOF
}

// The library answers when the time for a request is over, and goes on with its body in another goroutine. A deadline
// that was set then ended the process, or was that of the next request.
func TestBodiesThatOutliveTheirRequests(t *testing.T) {
	const requestTime = slowAfter / 2
	for name, body := range map[string]slowBody{
		"a body that comes late":         slowBody(slowAfter * 3 / 4),
		"a body that is waited for long": slowBody(slowAfter * 2),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bounds := DefaultBounds()
				bounds.WaitsPerUser = 0
				bodies := WithMemoryBounds(http.NotFoundHandler(), requests.NewCodecs(), requests.IsWatch, bounds, NewWatches(bounds), 1<<20, anyBody)
				handler := WithResponseDeadlines(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					go bodies.ServeHTTP(w, req)
					time.Sleep(requestTime)
				}), bounds)
				w := &deadlines{ResponseWriter: httptest.NewRecorder()}
				handler.ServeHTTP(w, requests.WithInfo(httptest.NewRequest(http.MethodPost, "/", body), "create"))
				before := w.set.Load()
				require.NotZero(t, before)
				time.Sleep(time.Duration(body))
				synctest.Wait()
				require.Equal(t, before, w.set.Load())
			})
		})
	}
}
