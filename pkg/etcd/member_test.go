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
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

// killedBeforeItsFirstCommit makes the files of an etcd that has not yet committed that it
// is a member.
func killedBeforeItsFirstCommit(t *testing.T, config Config) {
	t.Helper()
	mkdir(t, config.path(dataDir))
	log, err := wal.Create(zap.NewNop(), filepath.Join(config.path(dataDir), walDir), []byte{8, 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
}

// TestAFirstStartAfterAKill starts with the remains of an interrupted first start.
func TestAFirstStartAfterAKill(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, Config){
		"a member without a commit":      killedBeforeItsFirstCommit,
		"an empty directory of a member": func(t *testing.T, config Config) { mkdir(t, config.path(dataDir)) },
		"a member that is half made": func(t *testing.T, config Config) {
			mkdir(t, filepath.Join(config.path(newDir), dataDir, walDir))
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
			prepare(t, config)
			closed(t, start(t, config))
			defer closed(t, start(t, config))
			if _, err := newClient(t, config).Put(t.Context(), "key", "value"); err != nil {
				t.Error(err)
			}
		})
	}
}

const helperDir = "TEST_ETCD_DIR"

// TestHelperStart is another process, which TestKillsDuringTheFirstStart kills.
func TestHelperStart(t *testing.T) {
	dir := os.Getenv(helperDir)
	if dir == "" {
		return
	}
	start(t, Config{Dir: dir, QuotaBytes: testQuota})
	_, _ = io.Copy(io.Discard, os.Stdin) // Until it is killed.
}

func TestKillsDuringTheFirstStart(t *testing.T) {
	for delay := 15 * time.Millisecond; delay <= 300*time.Millisecond; delay += 15 * time.Millisecond {
		config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
		process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperStart$")
		process.Env = append(os.Environ(), helperDir+"="+config.Dir)
		stdin, err := process.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(delay) // Any moment is as good as another.
		_ = process.Process.Kill()
		_ = process.Wait()
		_ = stdin.Close()
		closed(t, start(t, config))
	}
}

// TestAStartEndsWithItsContext starts a member that never becomes ready.
func TestAStartEndsWithItsContext(t *testing.T) {
	config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
	killedBeforeItsFirstCommit(t, config)
	lock, err := config.tryLock()
	if err != nil {
		t.Fatal(err)
	}
	told := errors.New("told to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(time.Second, func() { cancel(told) })
	if _, err := config.run(ctx, lock); !errors.Is(err, told) {
		t.Errorf("got error %v, want %v", err, told)
	}
	closed(t, start(t, config))
}

// TestADatabaseWithoutItsLog must not be taken for a first start.
func TestADatabaseWithoutItsLog(t *testing.T) {
	config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
	etcd := start(t, config)
	if _, err := newClient(t, config).Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
	closed(t, etcd)
	if err := os.RemoveAll(filepath.Join(config.path(dataDir), walDir)); err != nil {
		t.Fatal(err)
	}
	_, err := config.Start(t.Context())
	if want := "the data directory " + config.Dir + " has a database, but no write-ahead log"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got error %v, want %s", err, want)
	}
}

func TestASaveOfADirectoryThatHasNeverServed(t *testing.T) {
	config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
	killedBeforeItsFirstCommit(t, config)
	err := config.Save(t.Context(), io.Discard, noProgress)
	if want := "there is nothing to save in " + config.Dir + ": its server was killed before it had served for the first time; start it again"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}
