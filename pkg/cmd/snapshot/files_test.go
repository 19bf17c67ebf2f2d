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

package snapshot

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	tool "restaurant.programming-kubernetes.info/apiserver/pkg/cmd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
)

func TestFilesOfADirectory(t *testing.T) {
	dir := t.TempDir()
	if _, err := latest(dir); err == nil || err.Error() != "there is no snapshot in "+dir {
		t.Errorf("got error %v for an empty directory", err)
	}
	begin := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	var files []string
	for i := range 4 {
		file, err := destination(dir, 2, begin.Add(time.Duration(i)*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	if want := filepath.Join(dir, "snapshot-20261122T090000Z.db"); files[0] != want {
		t.Errorf("got %s, want %s", files[0], want)
	}
	other := filepath.Join(dir, "mine.db")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := latest(dir); got != files[3] || err != nil {
		t.Errorf("got %s and the error %v, want %s", got, err, files[3])
	}
	// A save that was killed, and one that is not complete.
	saving := files[3] + ".2.part"
	for _, part := range []string{files[0] + ".1.part", saving} {
		if err := os.WriteFile(part, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := prune(dir, 2); err != nil {
		t.Fatal(err)
	}
	kept, err := filepath.Glob(filepath.Join(dir, "snapshot-*"))
	if want := []string{files[2], files[3], saving}; err != nil || !slices.Equal(kept, want) {
		t.Errorf("got %v and the error %v, want %v", kept, err, want)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
	if got, err := destination(other, 0, begin); got != other || err != nil {
		t.Errorf("got %s and the error %v", got, err)
	}
	if _, err := destination(other, 1, begin); err == nil || err.Error() != "--keep needs a directory of snapshots, which "+other+" is not" {
		t.Errorf("got error %v", err)
	}
}

// A snapshot through the client of an external etcd is one that can be restored.
func TestTrial(t *testing.T) {
	config := etcd.Config{Dir: filepath.Join(t.TempDir(), "d"), QuotaBytes: etcd.DefaultQuotaBytes}
	started, err := config.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = started.Close() }()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{config.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	for _, key := range []string{"/registry/a", "/registry/b", "/registry/c"} {
		if _, err := client.Put(t.Context(), key, "value"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Delete(t.Context(), "/registry/b"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "snapshot")
	save, err := saver("", "", &tool.Etcd{Servers: []string{config.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	var content bytes.Buffer
	if err := save(t.Context(), &content, func(int64, int64) {}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	good := func(string, []byte) (string, error) { return "things", nil }
	snapshot, objects, err := readObjects(file, func(int64, int64) {}, good)
	if err != nil || snapshot.Keys != 2 || objects["things"] < 2 {
		t.Fatalf("got %+v, %v and the error %v", snapshot, objects, err)
	}
	work := t.TempDir()
	if err := try(t.Context(), file, work, snapshot); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(work); err != nil || len(left) > 0 {
		t.Errorf("%v is left behind, %v", left, err)
	}
	snapshot.Keys++
	if err := try(t.Context(), file, work, snapshot); err == nil || err.Error() != "the restored etcd has 2 keys, and not 3" {
		t.Errorf("got error %v", err)
	}
	bad := func(key string, _ []byte) (string, error) {
		if strings.HasSuffix(key, "c") {
			return "things", errors.New("it can't be decoded")
		}
		return "things", nil
	}
	if _, _, err := readObjects(file, func(int64, int64) {}, bad); err == nil || err.Error() != "/registry/c: it can't be decoded" {
		t.Errorf("got error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := try(ctx, file, work, snapshot); err == nil {
		t.Error("got no error after the end of the context")
	}
}
