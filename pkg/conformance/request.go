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

package conformance

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing/iotest"
	"time"
	"unicode/utf8"
)

// shown is how many bytes of a body a finding has.
const shown = 2048

// Request is a request that a check sends.
type Request struct {
	Method, Path string
	Query        url.Values
	Header       http.Header
	// Body is sent as JSON, unless it is a []byte or a string.
	Body any
	// to is the destination of the request, kube-apiserver if it is nil.
	to *endpoint
	// cut has the body break off before its end.
	cut bool
}

// An Option changes a Request.
type Option func(*Request)

// Query adds a parameter.
func Query(name, value string) Option { return func(r *Request) { r.Query.Add(name, value) } }

// Header replaces a header.
func Header(name, value string) Option { return func(r *Request) { r.Header.Set(name, value) } }

// At sends the request to another path.
func At(path string) Option { return func(r *Request) { r.Path = path } }

// As impersonates a user.
func As(user string, groups ...string) Option {
	return func(r *Request) {
		r.Header.Set("Impersonate-User", user)
		for _, group := range groups {
			r.Header.Add("Impersonate-Group", group)
		}
	}
}

// through sends a request to another endpoint.
func through(to *endpoint) Option { return func(r *Request) { r.to = to } }

func newRequest(method, path string, body any, options ...Option) Request {
	request := Request{Method: method, Path: path, Query: url.Values{}, Header: http.Header{}, Body: body}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for _, option := range options {
		option(&request)
	}
	return request
}

// target returns the path with its parameters.
func (r Request) target() string {
	if len(r.Query) == 0 {
		return r.Path
	}
	return r.Path + "?" + r.Query.Encode()
}

func (r Request) body() ([]byte, error) {
	switch body := r.Body.(type) {
	case nil:
		return nil, nil
	case []byte:
		return body, nil
	case string:
		return []byte(body), nil
	default:
		return json.Marshal(body)
	}
}

// String returns the request as text.
func (r Request) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s", r.Method, r.target())
	for _, line := range r.headers() {
		text.WriteString("\n" + line)
	}
	if body, err := r.body(); err == nil && len(body) > 0 {
		fmt.Fprintf(&text, "\n\n%s", excerpt(body, shown))
	}
	return text.String()
}

// headers returns the lines of the header, without tokens.
func (r Request) headers() []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		for _, value := range r.Header[name] {
			if name == "Authorization" {
				value = "Bearer …"
			}
			lines = append(lines, name+": "+value)
		}
	}
	return lines
}

// Command returns a command that sends the request again, once "kubectl proxy" runs.
func (r Request) Command() string {
	words := []string{"curl", "-i", "-X", r.Method}
	for _, line := range r.headers() {
		words = append(words, "-H", quote(line))
	}
	if body, err := r.body(); err == nil && len(body) > 0 {
		words = append(words, "--data-binary", quote(excerpt(body, shown)))
	}
	return strings.Join(append(words, quote("http://127.0.0.1:8001"+r.target())), " ")
}

// quote returns a text as one word of a shell command.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// excerpt returns a body for a finding, shortened if it is long.
func excerpt(body []byte, shown int) string {
	if !utf8.Valid(body) {
		return fmt.Sprintf("%d bytes, which begin with %q", len(body), body[:min(len(body), 64)])
	}
	if len(body) > shown {
		return printable(fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(string(body[:shown]), ""), len(body)))
	}
	return printable(string(body))
}

// Answer is the answer to a request.
type Answer struct {
	Request Request
	Code    int
	Header  http.Header
	Body    []byte
}

// String returns the answer as text.
func (a Answer) String() string {
	text := fmt.Sprintf("%d %s", a.Code, http.StatusText(a.Code))
	if kind := a.Header.Get("Content-Type"); kind != "" {
		text += "\nContent-Type: " + kind
	}
	if len(a.Body) > 0 {
		text += "\n\n" + excerpt(bytes.TrimSpace(a.Body), shown)
	}
	return text
}

// open sends a request and returns when the header of the answer has come. Like other clients it
// retries when the server says so.
func (r *run) open(ctx context.Context, request Request) (*http.Response, error) {
	if err := r.guard(request.Method, request.Path); err != nil {
		return nil, err
	}
	body, err := request.body()
	if err != nil {
		return nil, err
	}
	to := cmp.Or(request.to, r.main)
	for {
		reader, length := io.Reader(bytes.NewReader(body)), int64(len(body))
		if request.cut {
			reader, length = io.MultiReader(reader, iotest.ErrReader(errors.New("the client has gone away"))), length+1
		}
		sent, err := http.NewRequestWithContext(ctx, request.Method, strings.TrimSuffix(to.server.String(), "/")+request.target(), reader)
		if err != nil {
			return nil, err
		}
		sent.ContentLength = length
		sent.Header = http.Header{"Accept": {"application/json"}}
		maps.Copy(sent.Header, request.Header)
		response, err := to.client.Do(sent)
		if err != nil {
			return nil, err
		}
		wait, again := retryAfter(response)
		if !again {
			return response, nil
		}
		response.Body.Close()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// retryAfter reports whether a server has asked to retry, and after how long.
func retryAfter(response *http.Response) (time.Duration, bool) {
	seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
	return time.Duration(seconds) * time.Second, err == nil && response.StatusCode == http.StatusTooManyRequests
}

// send sends a request and reads the whole answer, within requestTime.
func (r *run) send(ctx context.Context, request Request) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	response, err := r.open(ctx, request)
	if err != nil {
		return Answer{Request: request}, err
	}
	defer response.Body.Close()
	answer := Answer{Request: request, Code: response.StatusCode, Header: response.Header}
	answer.Body, err = io.ReadAll(response.Body)
	return answer, err
}
