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

package faults

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// condition is what is wrong with a network.
type condition int

const (
	healthy condition = iota
	// cut refuses connections, and closes those that exist.
	cut
	// silent delivers nothing, and closes nothing.
	silent
	// slow delivers late.
	slow
)

// link is a network between a server and its etcd.
type link struct {
	listener net.Listener
	target   string

	mu        sync.Mutex
	changed   *sync.Cond
	condition condition
	conns     map[net.Conn]bool
}

func newLink(t *testing.T, target string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &link{listener: listener, target: target, conns: map[net.Conn]bool{}}
	l.changed = sync.NewCond(&l.mu)
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		l.set(cut)
	})
	go l.serve()
	return l
}

func (l *link) address() string { return l.listener.Addr().String() }

// set changes the condition of the network.
func (l *link) set(condition condition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.condition = condition
	if condition == cut {
		for conn := range l.conns {
			_ = conn.Close()
		}
		clear(l.conns)
	}
	l.changed.Broadcast()
}

func (l *link) serve() {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.connect(conn)
	}
}

func (l *link) connect(client net.Conn) {
	server, err := net.Dial("tcp", l.target)
	if err != nil {
		_ = client.Close()
		return
	}
	if !l.keep(client, server) {
		return
	}
	go l.copy(server, client)
	l.copy(client, server)
}

// keep remembers connections to be cut.
func (l *link) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range conns {
		if l.condition == cut {
			_ = conn.Close()
		} else {
			l.conns[conn] = true
		}
	}
	return l.condition != cut
}

// copy delivers what comes from one side to the other.
func (l *link) copy(to io.WriteCloser, from io.ReadCloser) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		l.wait()
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// wait returns when something may be delivered.
func (l *link) wait() {
	l.mu.Lock()
	for l.condition == silent {
		l.changed.Wait()
	}
	late := l.condition == slow
	l.mu.Unlock()
	if late {
		time.Sleep(slowness)
	}
}
