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
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/install"
)

const group = "restaurant.programming-kubernetes.info"

// inertWebhooks neither change nor refuse anything.
func inertWebhooks() Webhooks {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return Webhooks{
		Scheme:         scheme,
		Mutate:         func(context.Context, *Request) error { return nil },
		ValidateObject: func(runtime.Object) field.ErrorList { return nil },
		Validate:       func(context.Context, *Request) error { return nil },
	}
}

// server answers requests without TLS.
func server(t *testing.T, hooks Webhooks) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(withTimeout(newHandler(t.Context(), hooks, callers{}), requestTimeout))
	t.Cleanup(server.Close)
	return server
}

func post(t *testing.T, url, body string) (code int, answer string) {
	t.Helper()
	response, err := http.Post(url, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	return read(t, response)
}

func read(t *testing.T, response *http.Response) (code int, body string) {
	t.Helper()
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(content)
}
