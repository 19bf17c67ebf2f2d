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

package migrate

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

// answer returns the answer of a server, or an error without one.
type answer func() (*http.Response, error)

// answers gives one after the other.
type answers struct{ left []answer }

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	next := a.left[0]
	a.left = a.left[1:]
	return next()
}

// always gives the same.
type always answer

func (a always) RoundTrip(*http.Request) (*http.Response, error) { return a() }

func answered(code int, header http.Header, body string) answer {
	return func() (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: header.Clone(), Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

func TestPatience(t *testing.T) {
	t.Parallel()
	const list = `{"apiVersion":"example.com/v1","kind":"ThingList","metadata":{"resourceVersion":"7"},"items":[]}`
	var (
		plain  = http.Header{"Content-Type": {"text/plain"}}
		asJSON = http.Header{"Content-Type": {"application/json"}}
		reset  = errors.New("read: connection reset by peer")
		usual  = answered(http.StatusOK, asJSON, list)
		cutOff = func() (*http.Response, error) {
			body := io.MultiReader(strings.NewReader(list[:20]), iotest.ErrReader(reset))
			return &http.Response{StatusCode: http.StatusOK, Header: asJSON.Clone(), Body: io.NopCloser(body)}, nil
		}
		unreached answer = func() (*http.Response, error) { return nil, reset }
	)
	code := func(code int) answer { return answered(code, plain, "it says why") }
	for name, test := range map[string]struct {
		answers []answer
		waited  time.Duration
		err     string
	}{
		"an answer":         {[]answer{usual}, 0, ""},
		"busy":              {[]answer{code(http.StatusTooManyRequests), usual}, time.Second, ""},
		"a bad gateway":     {[]answer{code(http.StatusBadGateway), usual}, time.Second, ""},
		"unavailable twice": {[]answer{code(http.StatusServiceUnavailable), code(http.StatusServiceUnavailable), usual}, 2 * time.Second, ""},
		"too slow":          {[]answer{code(http.StatusGatewayTimeout), usual}, time.Second, ""},
		"told when to come": {[]answer{answered(http.StatusServiceUnavailable, http.Header{"Retry-After": {"5"}}, ""), usual}, 5 * time.Second, ""},
		"no answer":         {[]answer{unreached, usual}, time.Second, ""},
		"an answer cut off": {[]answer{cutOff, usual}, time.Second, ""},
		"an error":          {[]answer{code(http.StatusInternalServerError)}, 0, "it says why"},
		"never an answer":   {slices.Repeat([]answer{unreached}, 11), 10 * time.Second, "/apis/example.com/v1/things?limit=500: read: connection reset by peer"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &answers{left: test.answers}
				m, err := New(Config{Cluster: &rest.Config{Transport: server}})
				require.NoError(t, err)
				began := time.Now()
				_, err = m.list(t.Context(), thingsV1, func(*unstructured.Unstructured) error { return nil })
				requireError(t, test.err, err)
				require.Equal(t, test.waited, time.Since(began))
				require.Empty(t, server.left)
			})
		})
	}
	t.Run("of a write", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := &answers{left: []answer{unreached, code(http.StatusServiceUnavailable), usual}}
			m, err := New(Config{Cluster: &rest.Config{Transport: server}})
			require.NoError(t, err)
			_, err = m.dynamic.Resource(thingsV1).Patch(t.Context(), "a", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
			require.NoError(t, err)
			require.Empty(t, server.left)
		})
	})
}

// A repeated write finds the result of the first.
func TestWriteBackTwice(t *testing.T) {
	t.Parallel()
	resource := things.GroupResource
	for name, test := range map[string]struct {
		before *held
		err    error
	}{
		"create": {nil, apierrors.NewAlreadyExists(resource, "a")},
		"update": {&held{uid: "1", resourceVersion: "7"}, apierrors.NewConflict(resource, "a", errors.New("it has changed"))},
		"delete": {&held{uid: "1", resourceVersion: "7"}, apierrors.NewNotFound(resource, "a")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
			client.PrependReactor(name, resource.Resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.err })
			m := &Migration{dynamic: client}
			var after *wanted
			if name != "delete" {
				after = &wanted{object: &unmarshal(t, usualObject)[0]}
			}
			require.NoError(t, m.atKube().write(t.Context(), move{Objects: &things, from: thingsV1}, "default/a", test.before, after))
		})
	}
}
