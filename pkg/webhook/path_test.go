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
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Callers that don't know the path get no answer, and their bodies are not read.
func TestPath(t *testing.T) {
	const path = "qwertyuiopasdfghjklzxcvbnm"
	file := filepath.Join(t.TempDir(), "path")
	write := func(content string) { require.NoError(t, os.WriteFile(file, []byte(content), 0o600)) }
	write(path + "\n")
	handler := newHandler(t.Context(), inertWebhooks(), file)
	send := func(path string) (code int, answer string, read bool) {
		body := strings.NewReader(admissionKind + `}`)
		request := httptest.NewRequest(http.MethodPost, path, body)
		request.Header.Set("Content-Type", "application/json")
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, request)
		return response.Code, response.Body.String(), body.Len() == 0
	}
	for name, test := range map[string]struct {
		path string
		code int
	}{
		"admission":              {"/" + path + "/admit", 400}, // as the review has no request
		"conversion":             {"/" + path + "/convert", 400},
		"health":                 {"/readyz", 200},
		"a conversion without":   {"/convert", 404},
		"another path":           {"/" + strings.ToUpper(path) + "/validate", 404},
		"health below it":        {"/" + path + "/readyz", 404},
		"an escaped slash in it": {"/" + path + "%2Fvalidate", 400},
	} {
		t.Run(name, func(t *testing.T) {
			code, answer, read := send(test.path)
			require.Equal(t, test.code, code, answer)
			require.Equal(t, test.code == 400, read)
		})
	}

	write("abcdefghijklmnop")
	code, _, _ := send("/" + path + "/admit")
	require.Equal(t, 404, code)
	code, _, _ = send("/abcdefghijklmnop/admit")
	require.Equal(t, 400, code)
	write("")
	code, _, read := send("/admit")
	require.Equal(t, 500, code, "No path is not the empty path.")
	require.False(t, read)
	for content, want := range map[string]string{
		"":                    "must have one path of at least 16 small letters and digits",
		"ABCDEFGHIJKLMNOP":    "must have one path of at least 16 small letters and digits",
		"short":               "must have one path of at least 16 small letters and digits",
		"abcdefghijklmnop/..": "must have one path of at least 16 small letters and digits",
	} {
		write(content)
		_, err := readPath(file)
		require.ErrorContains(t, err, want)
	}
	_, err := readPath("/missing")
	require.ErrorContains(t, err, "reading the file of --path-file: open /missing")
}
