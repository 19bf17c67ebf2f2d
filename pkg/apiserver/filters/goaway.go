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

package filters

import (
	"crypto/tls"
	"sync"
)

// frameHeader is the length of what a frame of HTTP/2 begins with.
const frameHeader = 9

// goAwayFrame asks a client to begin no more requests, and leaves open which ones will be
// answered.
const goAwayFrame = "\x00\x00\x08\x07\x00\x00\x00\x00\x00" + "\x7f\xff\xff\xff" + "\x00\x00\x00\x00"

// goAwayConn is a connection of HTTP/2 of which a client can be told that it is going to end.
type goAwayConn struct {
	*tls.Conn

	mu sync.Mutex
	// header is what has been written of a header, and payload what has not been written yet
	// of the frame after it.
	header  []byte
	payload int
	// began is set with the first frame, which has to be one of another kind.
	began, wanted, told bool
}

// Write writes frames, or parts of them.
func (c *goAwayConn) Write(frames []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.Conn.Write(frames)
	c.follow(frames[:n])
	if err == nil {
		err = c.tell()
	}
	return n, err
}

// goAway tells the client as soon as a frame ends.
func (c *goAwayConn) goAway() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = true
	_ = c.tell() // Who can't be told is gone.
}

func (c *goAwayConn) tell() error {
	if !c.wanted || c.told || !c.began || len(c.header) > 0 || c.payload > 0 {
		return nil
	}
	c.told = true
	_, err := c.Conn.Write([]byte(goAwayFrame))
	return err
}

// follow keeps track of where frames end.
func (c *goAwayConn) follow(written []byte) {
	for len(written) > 0 {
		if c.payload > 0 {
			n := min(c.payload, len(written))
			c.payload -= n
			written = written[n:]
			continue
		}
		n := min(frameHeader-len(c.header), len(written))
		c.header = append(c.header, written[:n]...)
		written = written[n:]
		if len(c.header) == frameHeader {
			c.payload = int(c.header[0])<<16 | int(c.header[1])<<8 | int(c.header[2])
			c.header = c.header[:0]
			c.began = true
		}
	}
}
