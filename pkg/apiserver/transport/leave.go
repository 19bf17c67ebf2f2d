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
	"net"
	"sync"
)

// leavingListener can refuse connections before its server stops.
type leavingListener struct {
	net.Listener
	closed  chan struct{}
	closing sync.Once
}

// newLeavingListener returns a listener that has not left.
func newLeavingListener(listener net.Listener) *leavingListener {
	return &leavingListener{Listener: listener, closed: make(chan struct{})}
}

// Leave refuses further connections.
func (l *leavingListener) Leave() { _ = l.Listener.Close() } // Close comes later, and has no error.

// Accept returns the next connection, and an error when the listener is closed. The library's server
// panics if one comes earlier.
func (l *leavingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if errors.Is(err, net.ErrClosed) {
		<-l.closed
	}
	return conn, err
}

// Close closes the listener.
func (l *leavingListener) Close() error {
	l.Leave()
	l.closing.Do(func() { close(l.closed) })
	return nil
}
