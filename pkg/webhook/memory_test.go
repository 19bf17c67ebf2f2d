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

package webhook

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// testReview is a review without a question.
type testReview struct {
	metav1.TypeMeta `json:",inline"`
	Padding         string `json:"padding,omitempty"`
}

// padded is a review whose body has a length.
func padded(length int) string {
	const begin, end = `{"kind":"Review","apiVersion":"example.com/v1","padding":"`, `"}`
	return begin + strings.Repeat("x", length-len(begin)-len(end)) + end
}

// reviewer answers reviews when it may, with so much memory.
func reviewsWith(memory *memory, may <-chan struct{}) http.Handler {
	return handleReviews(schema.GroupKind{Group: "example.com", Kind: "Review"}, memory, 1<<20, func(context.Context, *testReview) error {
		<-may
		return nil
	})
}

// sendReview returns where the code of the answer to a client is going to be.
func sendReview(t *testing.T, handler http.Handler, client int, body io.Reader, length int64) <-chan int {
	t.Helper()
	code := make(chan int, 1)
	ctx, cancel := context.WithTimeout(t.Context(), requestTimeout)
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", body)
	request.ContentLength = length
	request.RemoteAddr = fmt.Sprintf("192.0.2.%d:1234", client)
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	go func() {
		defer cancel()
		handler.ServeHTTP(answer, request)
		code <- answer.Code
	}()
	synctest.Wait()
	return code
}

// Bodies that were announced, and do not come, take no memory.
func TestAnnouncedBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answering := make(chan struct{})
		close(answering)
		handler := reviewsWith(newMemory(10*bodyFactor<<10), answering)
		for range 3 {
			body, sender := io.Pipe()
			defer sender.Close()
			sendReview(t, handler, 0, body, 100<<20)
			_, err := sender.Write([]byte("{"))
			require.NoError(t, err)
		}
		answered := sendReview(t, handler, 0, strings.NewReader(padded(1<<10)), 1<<10)
		select {
		case code := <-answered:
			require.Equal(t, http.StatusOK, code)
		default:
			require.Fail(t, "The review waits for bodies that do not come.")
		}
	})
}

// However many reviews there are, those in work are bounded, and each has its turn.
func TestReviewsInTurn(t *testing.T) {
	const length = 3 << 10
	synctest.Test(t, func(t *testing.T) {
		working := make(chan struct{})
		// Half of it is for two and as much as the second leaves, and the other half for one more.
		memory := newMemory(2 * 3 * (length*bodyFactor + 3*elementBytes))
		handler := reviewsWith(memory, working)
		send := func(n int) (codes []<-chan int) {
			for i := range n {
				codes = append(codes, sendReview(t, handler, i%2, strings.NewReader(padded(length)), -1))
			}
			return codes
		}
		codes := send(6)
		for range 6 {
			synctest.Wait()
			working <- struct{}{}
		}
		for i, code := range codes {
			require.Equal(t, http.StatusOK, <-code, i)
		}

		// A review that waits for too long is told to try again.
		codes = send(4)
		require.Equal(t, http.StatusServiceUnavailable, <-codes[3])
		close(working)
		for _, code := range codes[:3] {
			require.Equal(t, http.StatusOK, <-code)
		}
		synctest.Wait()
		require.True(t, memory.shared.Take("", memory.largest/2), "All has been given back.")
		require.True(t, memory.spare.TryAcquire(1))
	})
}

// Bodies that have each arrived in part do not wait for each other.
func TestBodiesThatWaitForEachOther(t *testing.T) {
	const length = 3 << 10
	synctest.Test(t, func(t *testing.T) {
		answering := make(chan struct{})
		close(answering)
		handler := reviewsWith(newMemory(2*(3*length*bodyFactor)), answering)
		var senders []*io.PipeWriter
		var codes []<-chan int
		for i := range 4 {
			body, sender := io.Pipe()
			senders = append(senders, sender)
			codes = append(codes, sendReview(t, handler, i%2, body, -1))
			_, err := io.WriteString(sender, padded(length)[:length/2])
			require.NoError(t, err)
		}
		for _, sender := range senders {
			go func() {
				_, _ = io.WriteString(sender, padded(length)[length/2:])
				_ = sender.Close()
			}()
		}
		for i, code := range codes {
			require.Equal(t, http.StatusOK, <-code, i)
		}
	})
}

// Clients whose bodies take all that they may have keep no other from being answered.
func TestClientsThatTakeTheMemory(t *testing.T) {
	const length, clients = 4 << 10, 5
	synctest.Test(t, func(t *testing.T) {
		answering := make(chan struct{})
		close(answering)
		// Each takes half of what the one before has left, and one of their reviews the spare part.
		memory := newMemory(2 * ((1 << clients) * 4 * length * bodyFactor))
		memory.turns = limits.NewTurns(1000)
		handler := reviewsWith(memory, answering)
		for client := range clients {
			for range 8 << (clients - client) {
				body, sender := io.Pipe()
				defer sender.Close()
				sendReview(t, handler, client, body, -1)
				go func() { _, _ = io.WriteString(sender, padded(length)[:length/2]) }()
			}
		}
		synctest.Wait()
		require.False(t, memory.spare.TryAcquire(1))
		answered := sendReview(t, handler, clients, strings.NewReader(padded(length)), length)
		select {
		case code := <-answered:
			require.Equal(t, http.StatusOK, code)
		default:
			require.Fail(t, "The review waits for those of another client.")
		}
	})
}

// However many reviews a client sends, some are in work, and those of others besides.
func TestReviewsOfAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var working atomic.Int64
		answering := make(chan struct{})
		handler := handleReviews(schema.GroupKind{Group: "example.com", Kind: "Review"}, newMemory(64<<20), 1<<20, func(context.Context, *testReview) error {
			working.Add(1)
			<-answering
			return nil
		})
		var codes []<-chan int
		reviews := reviewsPerProcessor * goruntime.GOMAXPROCS(0)
		for range reviews + 5 {
			codes = append(codes, sendReview(t, handler, 1, strings.NewReader(padded(1<<10)), -1))
		}
		require.EqualValues(t, reviews, working.Load())
		codes = append(codes, sendReview(t, handler, 2, strings.NewReader(padded(1<<10)), -1))
		require.EqualValues(t, reviews+1, working.Load())
		close(answering)
		for _, code := range codes {
			require.Equal(t, http.StatusOK, <-code)
		}
	})
}

func TestLargestReview(t *testing.T) {
	for name, test := range map[string]struct {
		memory   int64
		wantBody int64
		// wantElements are those of an empty body, and of the longest.
		wantElements [2]int
	}{
		"of a pod of 512 MiB": {256 << 20, 16 << 20, [2]int{149_130, 37_282}},
		"of a pod of 256 MiB": {128 << 20, 8 << 20, [2]int{74_565, 18_641}},
		"of a small pod":      {32 << 20, 2 << 20, [2]int{18_641, 4_660}},
	} {
		t.Run(name, func(t *testing.T) {
			memory := newMemory(test.memory)
			body := memory.maxBody(maxConversionBody)
			require.Equal(t, test.wantBody, body)
			require.Equal(t, test.wantElements, [2]int{memory.maxElements(0), memory.maxElements(int(body))})
		})
	}
}

// The allocations of a review are bounded by the memory that is taken for it.
func TestAllocations(t *testing.T) {
	list := func(element string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
	}
	annotations := func(value string) string {
		return object("v1", "Pizza", `"metadata":{"annotations":{"a":"`+value+`"}}`)
	}
	toppings := object("v1", "Pizza", `"spec":{"toppings":`+list("{}", 20_000)+`}`)
	admission := func(object string) string {
		return admissionKind + `,"request":{"uid":"1","operation":"CREATE","kind":{"group":"` + group + `","version":"v1","kind":"Pizza"},"object":` + object + `}}`
	}
	for name, test := range map[string]struct{ path, body string }{
		"a large object":                {"/convert", conversionReviewOf("v1", group+"/v1beta1", annotations(strings.Repeat("x", 2<<20)))},
		"what means something in HTML":  {"/convert", conversionReviewOf("v1", group+"/v1beta1", annotations(strings.Repeat("<", 2<<20)))},
		"many objects":                  {"/convert", conversionReviewOf("v1", group+"/v1beta1", slices.Repeat([]string{object("v1", "Pizza", named)}, 10_000)...)},
		"many elements":                 {"/convert", conversionReviewOf("v1", group+"/v1beta1", toppings)},
		"many objects that are none":    {"/convert", conversionReviewOf("v1", group+"/v1beta1", slices.Repeat([]string{"null"}, 20_000)...)},
		"a large object to admit":       {"/admit", admission(annotations(strings.Repeat("x", 2<<20)))},
		"many elements to admit":        {"/admit", admission(toppings)},
		"many elements to be validated": {"/validate", admission(toppings)},
	} {
		t.Run(name, func(t *testing.T) {
			handler := newHandler(t.Context(), inertWebhooks(), callers{})
			request := httptest.NewRequest(http.MethodPost, test.path, strings.NewReader(test.body))
			request.Header.Set("Content-Type", "application/json")
			answer := &discarded{header: http.Header{}}
			var before, after goruntime.MemStats
			goruntime.ReadMemStats(&before)
			handler.ServeHTTP(answer, request)
			goruntime.ReadMemStats(&after)
			require.Equal(t, http.StatusOK, answer.code)
			// Most of it is not in use at once.
			taken := len(test.body)*bodyFactor + strings.Count(test.body, ",")*elementBytes
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(3*taken))
		})
	}
	handler := newHandler(t.Context(), inertWebhooks(), callers{})
	request := httptest.NewRequest(http.MethodPost, "/admit", strings.NewReader(admission(object("v1", "Pizza", `"spec":{"toppings":`+list("{}", 600_000)+`}`))))
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	require.Equal(t, http.StatusRequestEntityTooLarge, answer.Code)
	require.Contains(t, answer.Body.String(), "the review is too large")
}

// discarded is an answer that takes no memory.
type discarded struct {
	header http.Header
	code   int
}

func (d *discarded) Header() http.Header            { return d.header }
func (d *discarded) WriteHeader(code int)           { d.code = code }
func (d *discarded) Write(body []byte) (int, error) { return len(body), nil }
