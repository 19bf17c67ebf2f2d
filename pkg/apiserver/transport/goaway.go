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
	"context"
	"crypto/tls"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

const (
	// A client is asked to begin no more requests after it has answered calmPings PINGs in a row
	// without a new request. calmPause is the pause after each answer, and calmPatience bounds the
	// wait.
	calmPings               = 5
	calmPause, calmPatience = 10 * time.Millisecond, time.Second
)

const (
	pingFrame = "\x00\x00\x08\x06\x00\x00\x00\x00\x00" + "going on"
	// goAwayFrame asks a client to begin no more requests, and leaves open which ones will be
	// answered.
	goAwayFrame = "\x00\x00\x08\x07\x00\x00\x00\x00\x00" + "\x7f\xff\xff\xff" + "\x00\x00\x00\x00"
)

// goAwayConn is a connection of HTTP/2 whose client can be told that it is going to end.
type goAwayConn struct {
	*tls.Conn

	// requests counts the client's requests. answered has a value after it has answered a PING.
	requests atomic.Int64
	answered chan struct{}

	// bounded counts streams, or is nil.
	bounded   *boundedConn
	streaming sync.Mutex
	// streams are open, last is the greatest of them so far, and handled is how many of the open ones handlers have.
	streams map[uint32]struct{}
	last    uint32
	handled int

	mu sync.Mutex
	// written follows the frames to the client. The GOAWAY must not be the first.
	written      frameScanner
	wanted, told bool
}

func newGoAwayConn(conn *tls.Conn) *goAwayConn {
	return &goAwayConn{Conn: conn, answered: make(chan struct{}, 1), bounded: boundOf(conn), streams: map[uint32]struct{}{}}
}

// Write writes frames, or parts of them.
func (c *goAwayConn) Write(frames []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.Conn.Write(frames)
	c.written.scan(frames[:n], c.sent)
	if err == nil {
		err = c.tell()
	}
	return n, err
}

// goAway tells the client as soon as a frame ends and no requests come.
func (c *goAwayConn) goAway() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = true
	_ = c.tell() // A client that can't be told is gone.
}

func (c *goAwayConn) tell() error {
	if !c.wanted || c.told || !c.written.betweenFrames() {
		return nil
	}
	c.told = true
	// A client that reads nothing is not waited for any longer than by a response.
	_ = c.SetWriteDeadline(time.Now().Add(limits.EventTime))
	defer func() { _ = c.SetWriteDeadline(time.Time{}) }()
	if err := c.awaitCalm(); err != nil {
		return err
	}
	_, err := c.Conn.Write([]byte(goAwayFrame))
	return err
}

// awaitCalm waits until the client begins no requests.
// A client in Go may have chosen the connection for a request, but not begun it. If it is told
// then, the request fails, unless it has no body. So nothing is written for a moment. Senders that
// wait for an answer before the next request all come to wait, and none is about to begin one.
// Time alone does not tell: this process, the client or both may have had no processor, so the
// client has to answer.
// Upstream fault 79.
func (c *goAwayConn) awaitCalm() error {
	patience := time.NewTimer(calmPatience)
	defer patience.Stop()
	for calm, began := 0, c.requests.Load(); calm < calmPings; calm++ {
		if _, err := c.Conn.Write([]byte(pingFrame)); err != nil {
			return err
		}
		select {
		case <-c.answered:
		case <-patience.C:
			return nil
		}
		time.Sleep(calmPause)
		if now := c.requests.Load(); now != began {
			calm, began = -1, now
		}
	}
	return nil
}

// received counts requests, their streams, and answers to PINGs among the client's frames.
func (c *goAwayConn) received(kind http2.FrameType, flags http2.Flags, stream uint32) {
	switch {
	case kind == http2.FrameHeaders:
		c.requests.Add(1)
		c.streaming.Lock()
		defer c.streaming.Unlock()
		if stream > c.last { // Others have trailers.
			c.last = stream
			c.streams[stream] = struct{}{}
		}
	case kind == http2.FrameRSTStream:
		c.endStream(stream)
	case kind == http2.FramePing && flags.Has(http2.FlagPingAck):
		select {
		case c.answered <- struct{}{}:
		default:
		}
	}
}

// sent notices the ends of streams among the server's frames.
func (c *goAwayConn) sent(_ int, kind http2.FrameType, flags http2.Flags, stream uint32) {
	isEnd := flags.Has(http2.FlagDataEndStream) && (kind == http2.FrameData || kind == http2.FrameHeaders)
	if isEnd || kind == http2.FrameRSTStream {
		c.endStream(stream)
	}
}

func (c *goAwayConn) endStream(stream uint32) {
	c.streaming.Lock()
	delete(c.streams, stream)
	c.streaming.Unlock()
	c.countStreams()
}

// handle counts a stream as one that a handler has, until end is called. A handler may go on when its client has reset
// the stream, which ends the context.
func (c *goAwayConn) handle(ctx context.Context) (end func()) {
	count := func(change int) {
		c.streaming.Lock()
		c.handled += change
		c.streaming.Unlock()
		c.countStreams()
	}
	count(1)
	end = sync.OnceFunc(func() { count(-1) })
	context.AfterFunc(ctx, end)
	return end
}

// countStreams tells whether the client may have the streams that no handler has.
func (c *goAwayConn) countStreams() bool {
	c.streaming.Lock()
	defer c.streaming.Unlock()
	return c.bounded.open(max(0, len(c.streams)-c.handled))
}
