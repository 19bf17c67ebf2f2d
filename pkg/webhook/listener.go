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

package webhook

import (
	"net"
	"sync"
)

// leavingListener can stop to accept connections before its server stops.
type leavingListener struct {
	net.Listener
	left, closed chan struct{}
	closing      sync.Once
}

func newLeavingListener(listener net.Listener) *leavingListener {
	return &leavingListener{Listener: listener, left: make(chan struct{}), closed: make(chan struct{})}
}

// leave refuses further connections.
func (l *leavingListener) leave() {
	close(l.left)
	_ = l.Listener.Close() // Close returns the same error.
}

// Accept returns the next connection, and an error when the listener is closed. The library's server
// panics of one that comes earlier.
func (l *leavingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		select {
		case <-l.left:
			<-l.closed
		default:
		}
	}
	return conn, err
}

// Close closes the listener.
func (l *leavingListener) Close() error {
	l.closing.Do(func() { close(l.closed) })
	select {
	case <-l.left:
		return nil
	default:
		return l.Listener.Close()
	}
}
