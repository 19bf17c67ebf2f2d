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

package broken

import (
	"bufio"
	"io"
)

// lineReader changes what is read, line by line.
type lineReader struct {
	io.Closer
	lines  *bufio.Reader
	change func([]byte) []byte
	rest   []byte
}

func newLineReader(body io.ReadCloser, change func([]byte) []byte) io.ReadCloser {
	return &lineReader{Closer: body, lines: bufio.NewReader(body), change: change}
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
