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
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Transport wraps a transport to break one behaviour of the API behind it.
type Transport func(http.RoundTripper) http.RoundTripper

// roundTripper is a function that is an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// match reports whether a transport is for a request. All matches of a transport have to agree.
type match func(*http.Request) bool

func all(request *http.Request, matches []match) bool {
	return !slices.ContainsFunc(matches, func(matches match) bool { return !matches(request) })
}

// answers changes answers.
func answers(change func(*http.Request, *http.Response), matches ...match) Transport {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil && all(request, matches) {
				change(request, response)
			}
			return response, err
		})
	}
}

// requests changes requests before they are sent.
func requests(change func(*http.Request), matches ...match) Transport {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if all(request, matches) {
				request = request.Clone(request.Context())
				change(request)
			}
			return next.RoundTrip(request)
		})
	}
}

// text replaces matches of a pattern in answers, line by line. The events of a watch are lines, and
// other JSON is one line. A line that becomes empty is left out.
func text(pattern, by string, matches ...match) Transport {
	return answers(func(_ *http.Request, response *http.Response) { replace(response, pattern, by) }, matches...)
}

func replace(response *http.Response, pattern, by string) {
	compiled := regexp.MustCompile(pattern)
	lines(response, func(line []byte) []byte { return compiled.ReplaceAll(line, []byte(by)) })
}

// code replaces a code with another, also in the Status. 0 stands for any code.
func code(from, to int, matches ...match) Transport {
	return answers(func(_ *http.Request, response *http.Response) {
		if from == 0 || from == response.StatusCode {
			response.StatusCode = to
			replace(response, `"code":\d+`, fmt.Sprintf(`"code":%d`, to))
		}
	}, matches...)
}

// plain answers with text.
func plain(matches ...match) Transport {
	return answers(func(_ *http.Request, response *http.Response) {
		response.Header.Set("Content-Type", "text/plain")
		replace(response, `(?s).+`, "bad request")
	}, matches...)
}

// query replaces matches of a pattern in the encoded parameters of requests.
func query(pattern, by string, matches ...match) Transport {
	compiled := regexp.MustCompile(pattern)
	return requests(func(request *http.Request) {
		request.URL.RawQuery = compiled.ReplaceAllString(request.URL.RawQuery, by)
	}, matches...)
}

// header sends another value of a header. An empty value removes the header.
func header(name, value string, matches ...match) Transport {
	return requests(func(request *http.Request) {
		request.Header.Set(name, value)
		if value == "" {
			request.Header.Del(name)
		}
	}, matches...)
}

// body replaces a text in the bodies of requests.
func body(from, to string, matches ...match) Transport {
	return requests(func(request *http.Request) {
		changed := bytes.ReplaceAll(sent(request), []byte(from), []byte(to))
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(changed)), nil }
		request.Body, _ = request.GetBody()
		request.ContentLength = int64(len(changed))
	}, append(matches, sends(from))...)
}

// sent returns the body of a request.
func sent(request *http.Request) []byte {
	if request.GetBody == nil {
		return nil
	}
	body, err := request.GetBody()
	if err != nil {
		return nil
	}
	defer body.Close()
	content, _ := io.ReadAll(body)
	return content
}

// lines changes the lines of an answer as they come. A line that becomes empty is left out.
func lines(response *http.Response, change func([]byte) []byte) {
	response.Body = &lineReader{Closer: response.Body, lines: bufio.NewReader(response.Body), change: change}
	response.ContentLength = -1
	response.Header.Del("Content-Length")
}

// whole changes an answer once all of it has come.
func whole(response *http.Response, change func([]byte) []byte) {
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err == nil {
		body = change(body)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	response.ContentLength = int64(len(body))
	response.Header.Set("Content-Length", strconv.Itoa(len(body)))
}

type lineReader struct {
	io.Closer
	lines  *bufio.Reader
	change func([]byte) []byte
	rest   []byte
}

// Read reads the changed lines.
func (r *lineReader) Read(into []byte) (int, error) {
	for len(r.rest) == 0 {
		line, err := r.lines.ReadBytes('\n')
		if len(line) > 0 {
			r.rest = r.change(line)
		}
		if err != nil && len(r.rest) == 0 {
			return 0, err
		}
	}
	n := copy(into, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func method(name string) match {
	return func(request *http.Request) bool { return request.Method == name }
}

func not(matches match) match {
	return func(request *http.Request) bool { return !matches(request) }
}

// with matches a parameter of the query. An empty text stands for any value that is not empty.
func with(name, text string) match {
	return func(request *http.Request) bool {
		value := request.URL.Query().Get(name)
		return value != "" && (text == "" || value == text)
	}
}

func without(parameter string) match { return not(with(parameter, "")) }

func watches(request *http.Request) bool { return with("watch", "true")(request) }

// asks matches a text in the encoded parameters.
func asks(text string) match {
	return func(request *http.Request) bool { return strings.Contains(request.URL.RawQuery, text) }
}

// path matches a pattern in the encoded path.
func path(pattern string) match {
	compiled := regexp.MustCompile(pattern)
	return func(request *http.Request) bool { return compiled.MatchString(request.URL.EscapedPath()) }
}

// named matches the object with that suffix, and its subresources.
func named(suffix string) match { return path("/conformance-[^-/]+-[0-9]+-" + suffix + "(/|$)") }

// has matches a pattern in a header.
func has(name, pattern string) match {
	compiled := regexp.MustCompile(pattern)
	return func(request *http.Request) bool {
		return slices.ContainsFunc(request.Header.Values(name), compiled.MatchString)
	}
}

// sends matches a text in the body.
func sends(text string) match {
	return func(request *http.Request) bool { return bytes.Contains(sent(request), []byte(text)) }
}
