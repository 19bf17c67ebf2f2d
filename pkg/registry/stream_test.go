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

package registry

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEnqueue lets a client that takes nothing hold up nobody.
func TestEnqueue(t *testing.T) {
	lines := make(chan string, queuedLines)
	for i := range 3 * queuedLines {
		enqueue(lines, strconv.Itoa(i))
	}
	close(lines)
	var got []string
	for line := range lines {
		got = append(got, line)
	}
	var want []string
	for i := 2 * queuedLines; i < 3*queuedLines; i++ {
		want = append(want, strconv.Itoa(i))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unexpected lines (-want +got):\n%s", diff)
	}
}
