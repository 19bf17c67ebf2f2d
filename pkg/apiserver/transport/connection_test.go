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

package transport

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// kube-apiserver dials once for each of many first requests: its connections wait for
// their turn, and only what no client needs is closed.
func TestConnectionsPerClient(t *testing.T) {
	const limit = 2
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := BoundConnections(tcp, limits.Bounds{ConnectionsPerClient: limit})
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", tcp.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	var open, waiting []net.Conn
	for range limit {
		dial()
		open = append(open, <-accepted)
	}
	for range waitingPerConnection * limit {
		waiting = append(waiting, dial())
	}
	if _, err := dial().Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one connection too many ends with %v", err)
	}
	select {
	case <-accepted:
		t.Error("more connections of a client are open than it may have")
	default:
	}

	// One that has ended makes room for one, however often it is closed.
	for range 2 {
		_ = open[0].Close()
	}
	next := <-accepted
	if got, want := next.RemoteAddr().String(), waiting[0].LocalAddr().String(); got != want {
		t.Errorf("%s is next, not %s", got, want)
	}
	if _, err := next.Write([]byte("your turn")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(waiting[0], make([]byte, len("your turn"))); err != nil {
		t.Error(err)
	}

	// Nothing waits for a listener that is closed.
	_ = listener.Close()
	if _, err := waiting[1].Read(make([]byte, 1)); err == nil {
		t.Error("a connection waits for a listener that is closed")
	}
	if _, more := <-accepted; more {
		t.Error("a listener that is closed accepts a connection")
	}
}
