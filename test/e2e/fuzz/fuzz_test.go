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

package fuzz

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const (
	// defaultRequests are sent if REQUESTS does not say how many.
	defaultRequests = 5000
	clients         = 8
	// throughKube is how many requests there are for one that is sent through kube-apiserver.
	throughKube = 10
	// tidy is how many requests there are between two deletions of all that they have made.
	tidy = 5000
	// patience is how long an answer may take: longer than the server works on a request.
	patience = 2 * time.Minute
	// retries is how often a request is sent again that was answered too late, and retryAfter when.
	retries    = 3
	retryAfter = 5 * time.Second
	// streamed is how long an answer is read.
	streamed = 2 * time.Second
	// corpusMost is how many requests a run adds to the corpus at most, none with a body of
	// more than corpusBytes.
	corpusMost, corpusBytes = 200, 2 << 10
	// heapGrowth is how much more of the heap may be in use afterwards: caches that fill up to
	// their bounds.
	heapGrowth = 100 << 20
	// goroutineGrowth is how many more goroutines there may be.
	goroutineGrowth = 100
)

// No mutated request is answered with a fault of the server, makes it panic, or costs it
// memory that it does not get back.
func TestRequests(t *testing.T) {
	framework.Long(t, "thousands of requests")
	run := &run{t: t, seed: number(t, "SEED", uint64(time.Now().Unix())), known: map[string]bool{}, answers: map[int]int{}}
	run.doors = []*door{
		newDoor(t, framework.FrontProxy(t, cp, cp.APIServer, cp.PKI.FrontProxyCA, fuzzer, "system:authenticated")),
		newDoor(t, framework.ConfigFor(t, cp, cp.KubeAPIServer, fuzzer)),
	}
	run.corpus = slices.Concat(seeds(t), readCorpus(t))
	if _, ok := os.LookupEnv("ONLY"); ok {
		run.send(number(t, "ONLY", 0))
		return
	}
	total := number(t, "REQUESTS", defaultRequests)
	t.Logf("SEED=%d sends the same again", run.seed)

	admin := framework.AdminConfig(t, cp, cp.APIServer)
	for i := range uint64(len(run.corpus)) { // The base includes the memory that first requests take.
		run.send(i)
	}
	run.tidy()
	base, err := framework.Usage(admin)
	require.NoError(t, err)
	begun := time.Now()
	sent := run.sendAll(total)
	run.tidy()
	if !t.Failed() {
		assert.GreaterOrEqual(t, sent, total, "there was no time for all requests")
	}
	t.Logf("%d requests in %s, answered with %v; %d were not sent, %d sent again, %d answered like none before", sent, time.Since(begun).Round(time.Second), run.answers, run.unsent.Load(), run.retried.Load(), len(run.found))
	run.writeCorpus()

	require.Positive(t, run.answers[http.StatusCreated], "Nothing was created.")
	log, err := os.ReadFile(cp.APIServer.LogFile())
	require.NoError(t, err)
	panics := regexp.MustCompile(`(?m)^.*(?:Observed a panic|runtime error|goroutine \d+ \[running\]).*$`).FindAllString(string(log), 3)
	assert.Empty(t, panics, "the server has panicked")
	controlplane.Eventually(t, func() error {
		now, err := framework.Usage(admin)
		if err == nil && (now.HeapBytes > base.HeapBytes+heapGrowth || now.Goroutines > base.Goroutines+goroutineGrowth) {
			return fmt.Errorf("the server has %d MiB of heap and %d goroutines; %d and %d before", now.HeapBytes>>20, now.Goroutines, base.HeapBytes>>20, base.Goroutines)
		}
		return err
	})
	now, err := framework.Usage(admin)
	require.NoError(t, err)
	t.Logf("heap: %d MiB before, %d after; goroutines: %d, %d", base.HeapBytes>>20, now.HeapBytes>>20, base.Goroutines, now.Goroutines)
}

// Found by TestRequests, each a regression test.
func TestRegressions(t *testing.T) {
	door := newDoor(t, framework.FrontProxy(t, cp, cp.APIServer, cp.PKI.FrontProxyCA, fuzzer, "system:authenticated"))
	for name, r := range regressions {
		t.Run(name, func(t *testing.T) {
			code, status, err := door.send(t.Context(), r)
			require.NoError(t, err)
			require.Less(t, code, 500, "%s", status.Message)
		})
	}
}

func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text, ok := os.LookupEnv(name)
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, "%s must be a number", name)
	return n
}

// run is what becomes of many requests.
type run struct {
	t      *testing.T
	seed   uint64
	doors  []*door
	corpus []request
	// unsent are requests that no client sends, and retried those that were answered too late.
	unsent, retried, failed atomic.Int64

	mu      sync.Mutex
	answers map[int]int
	known   map[string]bool
	found   []request
}

// sendAll sends as many requests as there is time for, and returns how many.
func (r *run) sendAll(total uint64) (sent uint64) {
	deadline, limited := r.t.Deadline()
	for begin := uint64(0); begin < total && r.failed.Load() == 0; begin += tidy {
		if limited && time.Until(deadline) < patience {
			return sent
		}
		var next atomic.Uint64
		next.Store(begin)
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				for r.failed.Load() == 0 {
					n := next.Add(1) - 1
					if n >= min(total, begin+tidy) {
						return
					}
					r.send(n)
				}
			})
		}
		all.Wait()
		r.tidy()
		sent = min(total, begin+tidy)
	}
	return sent
}

// send sends the request of a number.
func (r *run) send(n uint64) {
	request := newMutator(r.corpus, r.seed, n).next()
	through := n%throughKube == 0
	door := r.doors[0]
	if through {
		door = r.doors[1]
	}
	code, status, err := door.send(r.t.Context(), request)
	for attempt := 0; attempt < retries && err == nil && isBusy(code, status); attempt++ {
		r.retried.Add(1)
		time.Sleep(retryAfter)
		code, status, err = door.send(r.t.Context(), request)
	}
	switch {
	case errors.Is(err, errInvalid):
		r.unsent.Add(1)
		return
	case err != nil:
		r.fail(n, request, err.Error())
		return
	case code >= http.StatusInternalServerError && !isFuture(code, status) && (!through || !isKubes(code, status)):
		r.fail(n, request, fmt.Sprintf("%d %s", code, status.Message))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[code]++
	if label := label(request, code, string(status.Reason), status.Message); !r.known[label] {
		r.known[label] = true
		if len(request.Body) <= corpusBytes {
			r.found = append(r.found, request)
		}
	}
}

func (r *run) fail(n uint64, request request, how string) {
	r.failed.Add(1)
	assert.Failf(r.t, "unexpected answer", "SEED=%d ONLY=%d is answered with %.500s\n%.4000s", r.seed, n, how, request)
}

// isFuture reports whether a request was for a resourceVersion that there is not yet.
func isFuture(code int, status metav1.Status) bool {
	return code == http.StatusGatewayTimeout && strings.Contains(status.Message, "Too large resource version")
}

// isBusy reports whether the server had to wait for etcd or kube-apiserver for too long, which is no
// fault if another attempt succeeds.
func isBusy(code int, status metav1.Status) bool {
	return code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout && !isFuture(code, status)
}

// isKubes reports whether kube-apiserver has answered itself, with an error to paths that name no
// resource, such as .../v1/proxy. This server answers such requests with 404.
func isKubes(code int, status metav1.Status) bool {
	return code == http.StatusInternalServerError && strings.Contains(status.Message, "failed to create RequestInfo")
}

// tidy deletes all that requests have made.
func (r *run) tidy() {
	ctx := r.t.Context()
	for _, path := range []string{"/apis/" + group + "/v1/namespaces/" + namespace + "/pizzas", "/apis/" + group + "/v1/toppings?labelSelector=fuzz"} {
		config := framework.AdminConfig(r.t, cp, cp.APIServer)
		client, err := rest.HTTPClientFor(config)
		require.NoError(r.t, err)
		request, err := http.NewRequestWithContext(ctx, http.MethodDelete, config.Host+path, nil)
		require.NoError(r.t, err)
		response, err := client.Do(request)
		require.NoError(r.t, err)
		response.Body.Close()
		client.CloseIdleConnections()
	}
}

// writeCorpus adds what was found to the corpus, if CORPUS=write.
func (r *run) writeCorpus() {
	if os.Getenv("CORPUS") != "write" {
		return
	}
	known := map[string]bool{}
	for _, request := range r.corpus {
		known[request.String()] = true
	}
	file, err := os.OpenFile(corpusFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(r.t, err)
	defer file.Close()
	added := 0
	for _, request := range r.found {
		if known[request.String()] || added == corpusMost {
			continue
		}
		_, err := fmt.Fprintln(file, request)
		require.NoError(r.t, err)
		added++
	}
	r.t.Logf("%d requests were added to %s", added, corpusFile)
}

// door is a way to the server.
type door struct {
	host   *url.URL
	client *http.Client
}

func newDoor(t *testing.T, config *rest.Config) *door {
	t.Helper()
	host, err := url.Parse(config.Host)
	require.NoError(t, err)
	config = rest.CopyConfig(config)
	// Several connections, as a server may end one because of a single request.
	config.NextProtos = []string{"h2", "http/1.1"}
	transport, err := rest.TransportFor(config)
	require.NoError(t, err)
	// A redirect is an answer.
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(client.CloseIdleConnections)
	return &door{host, client}
}

// errInvalid means that a request can't be sent at all.
var errInvalid = errors.New("the client refuses to send it")

// send sends a request and returns the answer, with its Status if it is one. An answer that
// goes on is read for some time.
func (d *door) send(ctx context.Context, r request) (code int, status metav1.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	path, _ := url.PathUnescape(r.Path)
	target := &url.URL{Scheme: d.host.Scheme, Host: d.host.Host, Path: path, RawPath: r.Path, RawQuery: r.Query}
	req, err := http.NewRequestWithContext(ctx, r.Method, target.String(), strings.NewReader(string(r.Body)))
	if err != nil {
		return 0, status, errInvalid
	}
	req.Header = maps.Clone(r.Header)
	response, err := d.client.Do(req)
	if err != nil {
		if refused(err) {
			return 0, status, errInvalid
		}
		return 0, status, err
	}
	defer response.Body.Close()
	stop := time.AfterFunc(streamed, cancel)
	defer stop.Stop()
	// The rest of a stream is of no interest.
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if json.Unmarshal(body, &status) != nil || status.Kind != "Status" {
		status = metav1.Status{}
		if response.StatusCode >= http.StatusBadRequest {
			status.Message = string(body)
		}
	}
	return response.StatusCode, status, nil
}

// refused reports whether the client itself did not send a request.
func refused(err error) bool {
	var record tls.RecordHeaderError
	text := err.Error()
	return !errors.As(err, &record) && (strings.Contains(text, "invalid header") || strings.Contains(text, "invalid method") || strings.Contains(text, "invalid request :path") ||
		strings.Contains(text, "invalid Upgrade request header") || strings.Contains(text, "malformed"))
}
