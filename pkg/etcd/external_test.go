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

package etcd

import (
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A program that is built for external etcds links nothing of the etcd server.
func TestExternalBuild(t *testing.T) {
	server := regexp.MustCompile(`(?m)^go\.etcd\.io/(etcd/server|etcd/etcdutl|raft)\b.*$`)
	linked := func(flags ...string) []string {
		args := append(append([]string{"list", "-deps"}, flags...), "../../cmd/apiserver")
		packages, err := exec.CommandContext(t.Context(), "go", args...).Output()
		require.NoError(t, err)
		return server.FindAllString(string(packages), -1)
	}
	if got := linked(); !slices.Contains(got, "go.etcd.io/etcd/server/v3/embed") {
		assert.Failf(t, "unexpected", "a server with an etcd of its own links %v", got)
	}
	if got := linked("-tags=externaletcd"); len(got) > 0 {
		assert.Failf(t, "unexpected", "it links %v", got)
	}

	if output, err := exec.CommandContext(t.Context(), "go", "build", "-tags=externaletcd", ".").CombinedOutput(); err != nil {
		assert.Failf(t, "unexpected", "%v: %s", err, output)
	}
}
