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

package filters

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/internal/testing/requests"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// deadlines records the deadlines that are set for a connection.
type deadlines struct {
	http.ResponseWriter
	read, write time.Duration
}

func (d *deadlines) SetReadDeadline(end time.Time) error  { d.read = time.Until(end); return nil }
func (d *deadlines) SetWriteDeadline(end time.Time) error { d.write = time.Until(end); return nil }

// A client that does not go on with a body, or does not read a refusal, is not waited for.
func TestDeadlines(t *testing.T) {
	const bodyTime = 30 * time.Second
	for name, test := range map[string]struct {
		target, body string
		code         int
		read, write  time.Duration
	}{
		"a request":              {"/things", "", http.StatusOK, 0, 0},
		"a body":                 {"/things", "{}", http.StatusCreated, bodyTime, 0},
		"a body that is refused": {"/things", "{}", http.StatusForbidden, bodyTime, refusalTime},
		"a refusal":              {"/things", "", http.StatusBadRequest, 0, refusalTime},
		"a failure":              {"/things", "", http.StatusInternalServerError, 0, refusalTime},
		"a bound":                {"/things?timeout=30", "", http.StatusOK, 0, refusalTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				codecs := requests.NewCodecs()
				handler := WithRetryableErrors(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(test.code) }), codecs)
				handler = WithRequestBounds(handler, codecs, limits.DefaultBounds(), bodyTime, direct)
				got := &deadlines{ResponseWriter: httptest.NewRecorder()}
				handler.ServeHTTP(got, httptest.NewRequest(http.MethodPost, test.target, strings.NewReader(test.body)))
				require.Equal(t, test.read, got.read, "for the body")
				require.Equal(t, test.write, got.write, "for the response")
			})
		})
	}
}
