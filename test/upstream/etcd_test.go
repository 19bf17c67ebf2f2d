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

package upstream

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdsnapshot "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"
)

// runEtcd runs an etcd until the test ends, or stop is called.
func runEtcd(t *testing.T, config *embed.Config) (_ *embed.Etcd, stop func()) {
	t.Helper()
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(etcd.Close) // A second time would panic.
	t.Cleanup(stop)
	select {
	case <-etcd.Server.ReadyNotify():
	case <-time.After(patience):
		t.Fatal("etcd does not become ready")
	}
	return etcd, stop
}

func TestEtcdOpensItsSocketToAll(t *testing.T) {
	config := testserver.NewTestConfig(t)
	socket := filepath.Join(config.Dir, "sock")
	config.ListenClientUrls = []url.URL{{Scheme: "unix", Path: socket}}
	mask := syscall.Umask(0o022)
	t.Cleanup(func() { syscall.Umask(mask) })
	runEtcd(t, config)
	info, err := os.Stat(socket)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm()&0o077 == 0 {
		fixed(t, "the socket of an etcd has the mode %s", info.Mode())
	}
}

func TestEtcdKeepsAlarmOfSpaceThatIsThere(t *testing.T) {
	config := testserver.NewTestConfig(t)
	etcd, stop := runEtcd(t, config)
	_, err := etcd.Server.Alarm(t.Context(), &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE})
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if etcd, _ = runEtcd(t, config); len(etcd.Server.Alarms()) == 0 {
		fixed(t, "an etcd whose database is smaller than its quota ends the alarm about space when it starts")
	}
}

// TestEtcdClientDoesNotSayWhyItHasNoConnection asks again until the first attempt to
// connect has failed.
func TestEtcdClientDoesNotSayWhyItHasNoConnection(t *testing.T) {
	failed, fail := onceChannel()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"http://localhost:1"},
		Logger:    zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			fail()
			return nil, syscall.ECONNREFUSED
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-failed
		cancel()
	}()
	_, err = client.Get(ctx, "key")
	t.Log(err)
	if err == nil || strings.Contains(err.Error(), "refused") {
		fixed(t, "a client of etcd that can't connect says: %v", err)
	}
}

func TestWriteDeadlineEndsIdleHTTP2Stream(t *testing.T) {
	began, ended := make(chan struct{}), make(chan bool, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		control := http.NewResponseController(w)
		_ = control.Flush()
		select {
		case <-began:
		case <-req.Context().Done():
			return
		}
		_ = control.SetWriteDeadline(time.Now().Add(time.Millisecond))
		select {
		case <-req.Context().Done():
			ended <- true
		case <-time.After(patience):
			ended <- false
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	response, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	close(began)
	if !<-ended {
		fixed(t, "the write deadline of an HTTP/2 stream on which nothing is written has no effect")
	}
}

// TestDamagedDatabaseEndsTheProcess runs itself once more, since nobody can recover from
// what happens there.
func TestDamagedDatabaseEndsTheProcess(t *testing.T) {
	const variable = "UPSTREAM_DAMAGED_DATABASE"
	if path := os.Getenv(variable); path != "" {
		_, err := etcdsnapshot.NewV3(zap.NewNop()).Status(path)
		t.Log("Status has returned", err)
		return
	}
	config := testserver.NewTestConfig(t)
	_, stop := runEtcd(t, config)
	stop()
	path := filepath.Join(config.Dir, "member", "snap", "db")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const metaPages = 2
	for i := metaPages * os.Getpagesize(); i < len(content); i += 64 {
		content[i] ^= 0xff
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	// Either an error or a goroutine's panic comes first.
	const attempts = 10
	for range attempts {
		command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		command.Env = append(os.Environ(), variable+"="+path)
		output, err := command.CombinedOutput()
		if err != nil && strings.Contains(string(output), "bbolt") {
			return
		}
	}
	fixed(t, "a process that reads the status of a damaged database survives")
}

// startKilled starts an etcd where another was killed when it had made its log, and nothing
// else.
func startKilled(t *testing.T) *embed.Etcd {
	t.Helper()
	config := testserver.NewTestConfig(t)
	if err := os.MkdirAll(filepath.Join(config.Dir, "member"), 0o700); err != nil {
		t.Fatal(err)
	}
	log, err := wal.Create(zap.NewNop(), filepath.Join(config.Dir, "member", "wal"), []byte{8, 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Server.HardStop)
	return etcd
}

// never is how long it takes to believe that something does not happen.
const never = 3 * time.Second

func TestEtcdKilledDuringItsFirstStartNeverStarts(t *testing.T) {
	select {
	case <-startKilled(t).Server.ReadyNotify():
		fixed(t, "an etcd that was killed during its first start becomes ready the next time")
	case <-time.After(never):
	}
}

func TestEtcdThatIsNotReadyCanNotBeClosed(t *testing.T) {
	etcd := startKilled(t)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		etcd.Close()
	}()
	select {
	case <-closed:
		fixed(t, "an etcd that is not ready can be closed")
	case <-time.After(never):
		etcd.Server.HardStop()
		<-closed
	}
}
