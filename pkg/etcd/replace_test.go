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
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A directory is out of date once a server has run on another one with its snapshot. No
// server may use it, and no snapshot may be made of it, by mistake.
func TestReplacedDirectories(t *testing.T) {
	path, _ := saved(t)
	root := t.TempDir()
	directory := func(name string) Config { return Config{Dir: filepath.Join(root, name), QuotaBytes: testQuota} }
	first, second, third := directory("first"), directory("second"), directory("third")
	refused := func(config, by Config) {
		t.Helper()
		want := "the data directory " + config.Dir + " is out of use: a snapshot was restored into " + by.Dir +
			", and a server has served from that: name " + by.Dir + " with --data-dir; to go back to the old objects, delete the file " + config.path(replacedByFile)
		_, err := config.Start(t.Context())
		require.EqualError(t, err, want)
		_, err = saveFile(t.Context(), config, filepath.Join(t.TempDir(), "snapshot"))
		assert.EqualError(t, err, want)
	}
	restored := func(config Config, old string) {
		t.Helper()
		_, err := restore(config, path)
		require.NoError(t, err)
		require.NoError(t, config.Replace(old))
	}

	closed(t, start(t, first))
	restored(second, first.Dir)
	// Nothing has served from the second one yet.
	closed(t, start(t, first))
	closed(t, start(t, second))
	refused(first, second)

	restored(third, second.Dir)
	closed(t, start(t, third))
	refused(first, second)
	refused(second, third)
	closed(t, start(t, third))

	require.NoError(t, os.Remove(second.path(replacedByFile)))
	closed(t, start(t, second))
}

// A trial of a snapshot beside a running server leaves that server alone.
func TestATrialReplacesNothing(t *testing.T) {
	path, _ := saved(t)
	running := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
	trial := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
	etcd := start(t, running)
	_, err := restore(trial, path)
	require.NoError(t, err)
	require.NoError(t, trial.Replace(running.Dir))
	closed(t, start(t, trial))
	closed(t, etcd)
	closed(t, start(t, running))
}
