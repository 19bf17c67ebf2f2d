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

package authorization

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"golang.org/x/sync/singleflight"
)

// ShareReviews returns a transport that sends a review once for all requests that ask the same at
// the same time. When a cached answer expires, many requests of one user ask again at once.
func ShareReviews(delegate http.RoundTripper) http.RoundTripper {
	return &sharedReviews{delegate: delegate}
}

type sharedReviews struct {
	delegate http.RoundTripper
	asked    singleflight.Group
}

// answer is a response whose body each caller reads for itself.
type answer struct {
	http.Response
	body []byte
}

// RoundTrip sends a request, or waits for the answer to the same one.
func (s *sharedReviews) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodPost || req.Body == nil {
		return s.delegate.RoundTrip(req)
	}
	question, err := io.ReadAll(req.Body)
	_ = req.Body.Close()
	if err != nil {
		return nil, err
	}
	result := s.asked.DoChan(req.URL.String()+"\n"+string(question), func() (any, error) { return s.ask(req, question) })
	select {
	case <-req.Context().Done():
		return nil, req.Context().Err()
	case shared := <-result:
		if shared.Err != nil {
			return nil, shared.Err
		}
		answer := shared.Val.(*answer)
		response := answer.Response
		response.Header, response.Body, response.Request = response.Header.Clone(), io.NopCloser(bytes.NewReader(answer.body)), req
		return &response, nil
	}
}

// ask sends a request that outlives its caller, as others may wait for it.
func (s *sharedReviews) ask(req *http.Request, question []byte) (*answer, error) {
	ctx := context.WithoutCancel(req.Context())
	if deadline, limited := req.Context().Deadline(); limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	req = req.Clone(ctx)
	req.Body = io.NopCloser(bytes.NewReader(question))
	response, err := s.delegate.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	return &answer{*response, body}, err
}
