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
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
)

const (
	admissionKind  = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"`
	conversionKind = `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1"`
)

// A body that is not a review is refused with a Status, and never redirected.
func TestRefusedRequests(t *testing.T) {
	url := server(t, inertWebhooks()).URL
	for name, test := range map[string]struct {
		method, path, contentType, body string
		code                            int
		message                         string
	}{
		"GET":                        {http.MethodGet, "/admit", "", "", 405, "send a POST"},
		"no content type":            {http.MethodPost, "/admit", "", admissionKind + `}`, 415, "send application/json"},
		"a malformed content type":   {http.MethodPost, "/convert", "application/json;=", conversionKind + `}`, 415, "send application/json"},
		"no JSON":                    {http.MethodPost, "/convert", "application/json", "<html>", 400, "the body is no ConversionReview.apiextensions.k8s.io: invalid character '<' looking for beginning of value"},
		"null":                       {http.MethodPost, "/convert", "application/json", "null", 400, `the body is no ConversionReview.apiextensions.k8s.io in v1 or v1beta1, but "/, Kind="`},
		"a review of the other kind": {http.MethodPost, "/admit", "application/json", conversionKind + `}`, 400, `the body is no AdmissionReview.admission.k8s.io in v1 or v1beta1, but "apiextensions.k8s.io/v1, Kind=ConversionReview"`},
		"a review of the future":     {http.MethodPost, "/convert", "application/json", strings.Replace(conversionKind, "v1", "v2", 1) + `}`, 400, `the body is no ConversionReview.apiextensions.k8s.io in v1 or v1beta1, but "apiextensions.k8s.io/v2, Kind=ConversionReview"`},
		"a review with no request":   {http.MethodPost, "/validate", "application/json; charset=utf-8", admissionKind + `}`, 400, "the review has no request"},
		"too much":                   {http.MethodPost, "/admit", "application/json", admissionKind + strings.Repeat(" ", maxBody), 413, "a review may have 3145728 bytes"},
		"another path":               {http.MethodPost, "/", "application/json", admissionKind + `}`, 404, ""},
		"a path that is not clean":   {http.MethodPost, "//admit", "application/json", admissionKind + `}`, 404, ""},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequest(test.method, url+test.path, strings.NewReader(test.body))
			require.NoError(t, err)
			if test.contentType != "" {
				req.Header.Set("Content-Type", test.contentType)
			}
			response, err := http.DefaultTransport.RoundTrip(req)
			require.NoError(t, err)
			code, body := read(t, response)
			require.Equal(t, test.code, code, body)
			if test.code == http.StatusMethodNotAllowed {
				require.Equal(t, "POST", response.Header.Get("Allow"))
			}
			if test.message != "" {
				var status metav1.Status
				require.NoError(t, json.Unmarshal([]byte(body), &status))
				assert.Equal(t, test.message, status.Message)
				assert.EqualValues(t, test.code, status.Code)
			}
		})
	}
}

// informerOf reads toppings by a function that returns when they have been read.
func informerOf(read func(context.Context) error) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(listOnly{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			return &restaurantv1.ToppingList{}, read(ctx)
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}}, &restaurantv1.Topping{}, 0, nil)
}

// listOnly makes an informer begin with a list, not with a watch.
type listOnly struct{ *cache.ListWatch }

func (listOnly) IsWatchListSemanticsUnSupported() bool { return true }

// Until everything has been read, the server is not ready and names the missing resources.
// It defaults and converts, but judges only objects that it can judge already.
func TestBeforeInformersHaveSynced(t *testing.T) {
	read := make(chan struct{})
	hooks := inertWebhooks()
	hooks.Informers = map[string]cache.SharedIndexInformer{
		"toppings": informerOf(func(ctx context.Context) error {
			select {
			case <-read:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}),
		"plates": informerOf(func(context.Context) error { return nil }),
	}
	for _, informer := range hooks.Informers {
		go informer.RunWithContext(t.Context())
	}
	require.True(t, cache.WaitForCacheSync(t.Context().Done(), hooks.Informers["plates"].HasSynced))
	url := server(t, hooks).URL

	code, body := get(t, url+"/readyz")
	require.Equal(t, 500, code)
	require.Equal(t, "[+]ping ok\n[+]shutdown ok\n[+]informer-plates ok\n[-]informer-toppings failed: reason withheld\nreadyz check failed\n", body)
	code, _ = get(t, url+"/livez")
	require.Equal(t, 200, code)

	good := object("v1", "Pizza", inV1)
	later := refusal(503, metav1.StatusReasonServiceUnavailable, "this webhook has not read all toppings of the cluster yet: try again")
	later.Result.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	create := admissionRequest(admissionv1.Create, "v1", good, "")
	require.Equal(t, later, ask(t, hooks, "/validate", create))
	require.Equal(t, later, ask(t, hooks, "/validate", admissionRequest(admissionv1.Delete, "v1", "", good)))
	bad := admissionRequest(admissionv1.Create, "v1", object("v1", "Pizza", named+`,"spec":{"replicas":-1}`), "")
	require.EqualValues(t, 422, ask(t, hooks, "/validate", bad).Result.Code)
	require.True(t, ask(t, hooks, "/admit", create).Allowed)
	code, body = post(t, url+"/convert", conversionReviewOf("v1", group+"/v1alpha1", good))
	require.Equal(t, 200, code)
	require.Contains(t, body, `"status":"Success"`)

	close(read)
	require.True(t, cache.WaitForCacheSync(t.Context().Done(), hooks.Informers["toppings"].HasSynced))
	code, _ = get(t, url+"/readyz")
	require.Equal(t, 200, code)
	require.True(t, ask(t, hooks, "/validate", create).Allowed)
}

func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	response, err := http.Get(url)
	require.NoError(t, err)
	return read(t, response)
}

func TestUnreadyWhenToldToStop(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	server := httptest.NewServer(withTimeout(newHandler(ctx, inertWebhooks(), callers{}), requestTimeout))
	t.Cleanup(server.Close)
	code, _ := get(t, server.URL+"/readyz")
	require.Equal(t, 200, code)
	stop()
	code, body := get(t, server.URL+"/readyz")
	require.Equal(t, 500, code)
	require.Contains(t, body, "[-]shutdown failed")
	code, _ = get(t, server.URL+"/livez")
	require.Equal(t, 200, code)
	code, _ = post(t, server.URL+"/convert", conversionReviewOf("v1", group+"/v1"))
	require.Equal(t, 200, code)
}

// A client that never finishes a request does not keep a connection for ever.
func TestSlowClients(t *testing.T) {
	const timeout = 100 * time.Millisecond
	server := httptest.NewServer(withTimeout(newHandler(t.Context(), inertWebhooks(), callers{}), timeout))
	t.Cleanup(server.Close)
	connection, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { connection.Close() })
	_, err = fmt.Fprintf(connection, "POST /convert HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
	require.NoError(t, err)
	require.NoError(t, connection.SetReadDeadline(time.Now().Add(3*time.Minute)))
	_, err = io.ReadAll(connection)
	require.NoError(t, err, "It is still open.")
}
