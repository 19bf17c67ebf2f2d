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
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCurrentOpenAPI(t *testing.T) {
	handler := WithCurrentOpenAPI(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch hash := req.URL.Query().Get("hash"); hash {
		case "":
			_, _ = w.Write([]byte("current"))
		case "new":
			_, _ = w.Write([]byte("current, for ever"))
		case "broken":
			http.Error(w, "broken", http.StatusInternalServerError)
		default:
			http.Redirect(w, req, "?hash=new", http.StatusMovedPermanently)
		}
	}))
	for name, test := range map[string]struct {
		url, want string
		code      int
	}{
		"no hash":          {"/openapi/v3/apis/example.com/v1", "current", 200},
		"its hash":         {"/openapi/v3/apis/example.com/v1?hash=new", "current, for ever", 200},
		"an older one's":   {"/openapi/v3/apis/example.com/v1?hash=old&timeout=1s", "current", 200},
		"an error":         {"/openapi/v3/apis/example.com/v1?hash=broken", "broken\n", 500},
		"another document": {"/openapi/v2?hash=old", "<a href=\"/openapi/?hash=new\">Moved Permanently</a>.\n\n", 301},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, test.url, http.NoBody))
			require.Equal(t, test.code, recorder.Code)
			require.Equal(t, test.want, recorder.Body.String())
			require.Equal(t, test.code == 301, recorder.Header().Get("Location") != "")
		})
	}
}
