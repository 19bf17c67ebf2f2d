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
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

// retryTransport makes clients repeat requests that fail for a moment. client-go repeats a request
// up to ten times if an error has the header Retry-After. The context or MaxRetries may end that
// earlier. retryTransport adds the header where it is missing, and turns a broken connection into
// such an error.
//
// So a write may be done twice. Each write in this package allows that.
type retryTransport struct{ http.RoundTripper }

// RoundTrip sends a request.
func (t retryTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(req)
	// A client resumes a broken watch.
	if err == nil && !req.URL.Query().Has("watch") {
		err = readAll(response)
	}
	if err != nil && req.Context().Err() != nil {
		return nil, err
	}
	if err != nil {
		if response, err = unavailable(req, err); err != nil {
			return nil, err
		}
	}
	switch response.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if response.Header.Get("Retry-After") == "" {
			response.Header.Set("Retry-After", "1")
		}
	}
	return response, nil
}

// fence refuses writes of a process after another one has continued its migration. For example, the
// machine of the first process may have been suspended. Only a request that is on its way at that
// moment gets through.
type fence struct {
	http.RoundTripper
	m *Migration
}

// RoundTrip sends a request.
func (f fence) RoundTrip(req *http.Request) (*http.Response, error) {
	// Changes of ConfigMaps, which raise revisions, do no harm. There are thousands.
	harmless := req.Method == http.MethodGet || req.URL.Query().Has("dryRun") || strings.HasPrefix(req.URL.Path, "/api/")
	if f.m.claimed && !harmless {
		if _, err := f.m.write(req.Context()); err != nil {
			if req.Body != nil {
				_ = req.Body.Close()
			}
			return nil, err
		}
	}
	return f.RoundTripper.RoundTrip(req)
}

// readAll reads a response to its end, and returns an error if the connection breaks.
func readAll(response *http.Response) error {
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	response.Body = io.NopCloser(bytes.NewReader(body))
	return err
}

// unavailable returns a 503 response for a request that has got no response.
func unavailable(req *http.Request, cause error) (*http.Response, error) {
	status := apierrors.NewServiceUnavailable(fmt.Sprintf("%s %s: %v", req.Method, req.URL.Redacted(), cause)).Status()
	status.Kind, status.APIVersion = "Status", "v1"
	body, err := json.Marshal(status)
	return &http.Response{
		StatusCode: http.StatusServiceUnavailable,
		Header:     http.Header{"Content-Type": {runtime.ContentTypeJSON}},
		Body:       io.NopCloser(bytes.NewReader(body)),
		Request:    req,
	}, err
}
