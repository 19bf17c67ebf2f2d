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
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEnqueue checks that a slow follower delays no other.
func TestEnqueue(t *testing.T) {
	queue := make(chan news, queuedNews)
	for version := range 3 * queuedNews {
		enqueue(queue, news{version: uint64(version)})
	}
	close(queue)
	var got []uint64
	for next := range queue {
		got = append(got, next.version)
	}
	var want []uint64
	for version := 2 * queuedNews; version < 3*queuedNews; version++ {
		want = append(want, uint64(version))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unexpected versions (-want +got):\n%s", diff)
	}
}
