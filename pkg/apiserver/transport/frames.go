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
	"encoding/binary"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

const (
	// framesPerSecond bounds the frames of HTTP/2 from an IP address without a request or
	// much of its body. frameBurst is how many are read at once.
	framesPerSecond = 500
	frameBurst      = 2 * framesPerSecond
	// freeData is the size from which a part of a body is free. The server answers each that it
	// does not expect, and smaller ones cost it more than the client.
	freeData = 256
	// freeParts is how many smaller ones of each request are free: a small body and its end.
	freeParts = 2
	// bytesPerUpdate is the number of written bytes that allow the client another
	// WINDOW_UPDATE. Go's client sends two for each 4 KiB.
	bytesPerUpdate = 1 << 10
	// updatesPerWrite is for clients that send two for each event of a watch: of the stream and
	// of the connection.
	updatesPerWrite = 2
	// stuckTime is how long a write may last after a response was to end. It is longer than
	// processes wait for a busy processor.
	stuckTime = time.Second
	// frameClients is the number of tracked IP addresses.
	frameClients = 4096
)

// framePace slows down clients of HTTP/2 whose frames cost the server more than the client.
// These are resets of requests in work (CVE-2023-44487), and frames to answer or to remember
// (CVE-2019-9512, CVE-2019-9515). The library only ends connections with too many frames to
// send.
type framePace struct {
	perSecond float32
	// clients are the buckets of IP addresses.
	clients *lru.Cache
}

func newFramePace(perSecond float32) *framePace {
	return &framePace{perSecond: perSecond, clients: lru.New(frameClients)}
}

// of returns the bucket of an IP address, which has a token for each frame.
func (p *framePace) of(address string) flowcontrol.RateLimiter {
	found, ok := p.clients.Get(address)
	if !ok {
		// Of two that are made at the same time, one is forgotten.
		found = flowcontrol.NewTokenBucketRateLimiter(p.perSecond, frameBurst)
		p.clients.Add(address, found)
	}
	return found.(flowcontrol.RateLimiter)
}

// pacedConn is a connection of HTTP/2 that is read as slowly as its client may send.
type pacedConn struct {
	*goAwayConn
	pace flowcontrol.RateLimiter
	// open ends with the connection, so that nothing is left waiting for a token.
	open context.Context
	end  context.CancelFunc
	// trusted connections are not paced.
	trusted *atomic.Bool
	// read follows the frames of the client. It belongs to the reader.
	read frameScanner
	// unread is the number of written bytes that the client has not yet acknowledged by a
	// WINDOW_UPDATE.
	unread atomic.Int64
	// parts is the number of small parts of bodies that are free. It belongs to the reader, as does headers, the
	// number of bytes of headers that have not ended.
	parts, headers int
	// writes counts the beginnings and the ends of writes. There is one at a time.
	writes atomic.Int64
}

func (p *framePace) conn(conn *goAwayConn, trusted *atomic.Bool) *pacedConn {
	open, end := context.WithCancel(context.Background())
	conn.bounded.expect(0) // Only headers and streams count.
	return &pacedConn{goAwayConn: conn, pace: p.of(limits.ClientAddress(conn.RemoteAddr().String())), open: open, end: end, trusted: trusted, read: frameScanner{payload: len(http2.ClientPreface)}}
}

// Close closes the connection.
func (c *pacedConn) Close() error {
	c.end()
	return c.goAwayConn.Close()
}

// Write writes frames, or parts of them.
func (c *pacedConn) Write(frames []byte) (int, error) {
	c.writes.Add(1)
	n, err := c.goAwayConn.Write(frames)
	c.writes.Add(1)
	c.unread.Add(int64(n) + updatesPerWrite*bytesPerUpdate)
	return n, err
}

// endStuck closes the connection if the write that there is, or that comes next, does not end in time. Its client may
// allow responses of any size, and read none of them. The library then only remembers which ones to end, and
// each keeps its seat of priority and fairness. Trusted connections have the responses of many clients.
func (c *pacedConn) endStuck() {
	stuck := c.writes.Load() | 1 // Odd numbers are those of writes that have not ended.
	time.AfterFunc(stuckTime, func() {
		if c.writes.Load() == stuck && !c.trusted.Load() {
			_ = c.Close()
		}
	})
}

// Read reads frames, or parts of them, and waits as long as each frame must.
func (c *pacedConn) Read(frames []byte) (int, error) {
	n, err := c.goAwayConn.Read(frames)
	c.read.scan(frames[:n], c.onFrame)
	return n, err
}

// onFrame charges one frame and blocks until the next may be read.
func (c *pacedConn) onFrame(length int, kind http2.FrameType, flags http2.Flags, stream uint32) {
	c.received(kind, flags, stream)
	if kind == http2.FrameHeaders || kind == http2.FrameContinuation {
		c.headers += length
		if flags.Has(http2.FlagHeadersEndHeaders) { // Of both kinds.
			c.headers = 0
		}
		if !c.bounded.hold(forRequest, c.headers*blockFactor) || !c.awaitStreams() {
			_ = c.Close()
		}
	}
	if !c.trusted.Load() && !c.isFree(length, kind) {
		_ = c.pace.Wait(c.open) // It fails when the connection is closed, and then the next read does.
	}
}

// awaitStreams waits until the client may have the streams that it has, and tells whether it may. Handlers begin, or the
// library gives up refusals that nobody reads.
func (c *pacedConn) awaitStreams() bool {
	const pause = 10 * time.Millisecond
	for end := time.Now().Add(2 * headerPatience); !c.countStreams(); time.Sleep(pause) {
		if time.Now().After(end) || c.open.Err() != nil {
			return false
		}
	}
	return true
}

// isFree tells whether a client may send a frame as often as it can.
func (c *pacedConn) isFree(length int, kind http2.FrameType) bool {
	switch kind {
	case http2.FrameHeaders: // It begins a request, whose headers are bounded.
		c.parts = min(c.parts+freeParts, frameBurst)
		return true
	case http2.FrameData:
		if length >= freeData {
			return true
		}
		if c.parts == 0 {
			return false
		}
		c.parts--
		return true
	case http2.FrameWindowUpdate:
		if c.unread.Add(-bytesPerUpdate) >= 0 {
			return true
		}
		c.unread.Add(bytesPerUpdate)
		return false
	default:
		return false
	}
}

// frameHeader is the length of the header of a frame of HTTP/2.
const frameHeader = 9

// frameScanner finds frames of HTTP/2 in bytes that are read or written in parts.
type frameScanner struct {
	// header is the part of a header that has come. payload is the number of bytes of its frame
	// that have not.
	header  []byte
	payload int
	// began is set by the first frame.
	began bool
}

// scan calls a function, if it is not nil, for the header of each frame.
func (s *frameScanner) scan(part []byte, each func(length int, kind http2.FrameType, flags http2.Flags, stream uint32)) {
	for len(part) > 0 {
		if s.payload > 0 {
			n := min(s.payload, len(part))
			s.payload -= n
			part = part[n:]
			continue
		}
		n := min(frameHeader-len(s.header), len(part))
		s.header = append(s.header, part[:n]...)
		part = part[n:]
		if len(s.header) < frameHeader {
			return
		}
		s.payload = int(binary.BigEndian.Uint32(s.header) >> 8)
		s.began = true
		if each != nil {
			each(s.payload, http2.FrameType(s.header[3]), http2.Flags(s.header[4]), binary.BigEndian.Uint32(s.header[5:]))
		}
		s.header = s.header[:0]
	}
}

// betweenFrames tells whether a frame has ended and none begun since.
func (s *frameScanner) betweenFrames() bool {
	return s.began && len(s.header) == 0 && s.payload == 0
}
