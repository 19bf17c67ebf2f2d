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
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/client-go/util/flowcontrol"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// turnstile lets a frame be read for each token.
type turnstile struct {
	flowcontrol.RateLimiter
	arrived, tokens chan struct{}
}

func newTurnstile(places int) *turnstile {
	return &turnstile{arrived: make(chan struct{}, places), tokens: make(chan struct{}, places)}
}

func (s *turnstile) Wait(ctx context.Context) error {
	s.arrived <- struct{}{}
	select {
	case <-s.tokens:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestFramesThatWait(t *testing.T) {
	header := func(length int, kind http2.FrameType, flags http2.Flags) string {
		return string([]byte{byte(length >> 16), byte(length >> 8), byte(length), byte(kind), byte(flags), 0, 0, 0, 1}) + string(make([]byte, length))
	}
	update := header(4, http2.FrameWindowUpdate, 0)
	for name, test := range map[string]struct {
		frames  string
		written int64
		want    int
	}{
		"a request with a body": {header(5, http2.FrameHeaders, http2.FlagHeadersEndHeaders) + header(9, http2.FrameData, 0) +
			header(0, http2.FrameData, http2.FlagDataEndStream), 0, 0},
		"headers that go on": {header(5, http2.FrameHeaders, 0) + header(3, http2.FrameContinuation, 0) +
			header(0, http2.FrameContinuation, http2.FlagHeadersEndHeaders), 0, 2},
		"requests, and then their bodies": {strings.Repeat(header(5, http2.FrameHeaders, http2.FlagHeadersEndHeaders), 3) +
			strings.Repeat(header(9, http2.FrameData, http2.FlagDataEndStream), 3), 0, 0},
		"a body in small parts":            {header(5, http2.FrameHeaders, 0) + strings.Repeat(header(1, http2.FrameData, 0), 5), 0, 3},
		"a request beside small parts":     {header(1, http2.FrameData, 0) + header(5, http2.FrameHeaders, 0) + header(1, http2.FrameData, 0), 0, 1},
		"small parts of no request":        {strings.Repeat(header(1, http2.FrameData, 0), 3), 0, 3},
		"ends of no request":               {strings.Repeat(header(0, http2.FrameData, http2.FlagDataEndStream), 3), 0, 3},
		"large parts":                      {strings.Repeat(header(freeData, http2.FrameData, 0), 3), 0, 0},
		"parts that are not large":         {strings.Repeat(header(freeData-1, http2.FrameData, 0), 3), 0, 3},
		"nothing of a body":                {header(0, http2.FrameData, 0), 0, 1},
		"a reset":                          {header(5, http2.FrameHeaders, 0) + header(4, http2.FrameRSTStream, 0), 0, 1},
		"settings, a ping and a priority":  {header(6, http2.FrameSettings, 0) + header(8, http2.FramePing, 0) + header(5, http2.FramePriority, 0), 0, 3},
		"answers":                          {header(0, http2.FrameSettings, http2.FlagSettingsAck) + header(8, http2.FramePing, http2.FlagPingAck), 0, 2},
		"a kind that nobody knows":         {header(200, 0xee, 0), 0, 1},
		"updates without a reason":         {update + update, 0, 2},
		"updates of what was written":      {update + update, 2 * bytesPerUpdate, 0},
		"more updates than was written of": {update + update + update, 2*bytesPerUpdate - 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			for size := 1; size <= len(http2.ClientPreface)+len(test.frames); size += 1 + size/64 {
				pace := newTurnstile(len(test.frames))
				close(pace.tokens)
				conn := &pacedConn{goAwayConn: &goAwayConn{streams: map[uint32]struct{}{}}, pace: pace, open: t.Context(), trusted: &atomic.Bool{}, read: frameScanner{payload: len(http2.ClientPreface)}}
				conn.unread.Store(test.written)
				for rest := []byte(http2.ClientPreface + test.frames); len(rest) > 0; rest = rest[min(size, len(rest)):] {
					conn.read.scan(rest[:min(size, len(rest))], conn.onFrame)
				}
				require.Len(t, pace.arrived, test.want, "in reads of %d bytes", size)
			}
		})
	}
}

// TestPacedConnections sends pings to a server, which answers them as fast as they may come,
// until it trusts the client.
func TestPacedConnections(t *testing.T) {
	drain := NewDrain(testStreams, limits.DefaultBounds())
	pace := newTurnstile(10)
	drain.frames.clients.Add("127.0.0.1", pace)
	server := httptest.NewUnstartedServer(drain.Handler(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if req.Header.Get("name") == "proxy" {
			Trust(req)
		}
	})))
	conn := begun(t, drain, server)
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)

	var headers bytes.Buffer
	encoder := hpack.NewEncoder(&headers)
	as := func(stream uint32, name string) {
		t.Helper()
		headers.Reset()
		for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "server"}, {":path", "/"}, {"name", name}} {
			require.NoError(t, encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
		}
		require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: headers.Bytes(), EndHeaders: true, EndStream: true}))
	}
	// next reads up to a response or the answer to a ping.
	next := func() string {
		t.Helper()
		for {
			frame, err := framer.ReadFrame()
			require.NoError(t, err)
			switch frame := frame.(type) {
			case *http2.MetaHeadersFrame:
				return frame.PseudoValue("status")
			case *http2.PingFrame:
				return string(frame.Data[:])
			}
		}
	}
	ping := func(data string) {
		t.Helper()
		require.NoError(t, framer.WritePing(false, [8]byte([]byte(data))))
	}

	require.NoError(t, framer.WriteSettings())
	<-pace.arrived
	pace.tokens <- struct{}{}
	as(1, "reader")
	require.Equal(t, "200", next())
	ping("waits---")
	<-pace.arrived // Frames that are sent now are read later.
	as(3, "proxy")
	pace.tokens <- struct{}{}
	require.Equal(t, "waits---", next())
	require.Equal(t, "200", next())
	ping("does not")
	require.Equal(t, "does not", next())
	require.Empty(t, pace.arrived)
}

// A closed connection waits for nothing, whatever its IP address has sent.
func TestClosedConnectionsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const connections = 10
		pace := newFramePace(1)
		var clients []net.Conn
		ended := make(chan struct{}, connections)
		certificates := []tls.Certificate{certificate(t)}
		for range connections {
			client, server := net.Pipe()
			conn := pace.conn(newGoAwayConn(tls.Server(server, &tls.Config{Certificates: certificates})), &atomic.Bool{})
			go func() {
				_, _ = io.Copy(io.Discard, conn)
				ended <- struct{}{}
			}()
			secured := tls.Client(client, &tls.Config{InsecureSkipVerify: true})
			go func() {
				_, _ = io.WriteString(secured, http2.ClientPreface)
				framer := http2.NewFramer(secured, nil)
				for framer.WritePing(false, [8]byte{}) == nil {
				}
			}()
			clients = append(clients, client, conn)
		}
		time.Sleep(time.Minute)
		began := time.Now()
		for _, conn := range clients {
			_ = conn.Close()
		}
		for range connections {
			<-ended
		}
		require.Zero(t, time.Since(began))
	})
}

// Connections keep headers while they arrive, and no more of them than a request may have.
func TestHeadersOfEachProtocol(t *testing.T) {
	drain := NewDrain(testStreams, limits.Bounds{HeaderBytes: 8 << 10, PathBytes: 8 << 10, QueryBytes: 8 << 10})
	server := httptest.NewUnstartedServer(drain.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})))
	server.EnableHTTP2 = true
	server.Config.MaxHeaderBytes = 1 << 20
	server.Listener = drain.Listener(server.Listener)
	server.StartTLS()
	t.Cleanup(server.Close)
	for name, test := range map[string]struct {
		protocol string
		bytes    int
		want     string
	}{
		"HTTP/1.1":                 {"http/1.1", 16 << 10, "204"},
		"HTTP/1.1, more than that": {"http/1.1", 64 << 10, "431"},
		"HTTP/2":                   {"h2", 16 << 10, "204"},
		"HTTP/2, more than that":   {"h2", 64 << 10, "closed"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{test.protocol}}}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			const each = 8 << 10
			value := strings.Repeat("b", each)
			if test.protocol == "http/1.1" {
				_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: server\r\n"+strings.Repeat("A: "+value+"\r\n", test.bytes/each)+"\r\n")
				require.NoError(t, err)
				response, err := http.ReadResponse(bufio.NewReader(conn), nil)
				require.NoError(t, err)
				require.NoError(t, response.Body.Close())
				require.Equal(t, test.want, strconv.Itoa(response.StatusCode))
				return
			}
			// A client of the library refuses to send more than the server has told it.
			_, err = io.WriteString(conn, http2.ClientPreface)
			require.NoError(t, err)
			framer := http2.NewFramer(conn, conn)
			framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
			require.NoError(t, framer.WriteSettings())
			var block bytes.Buffer
			encoder := hpack.NewEncoder(&block)
			fields := [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "server"}, {":path", "/"}}
			for range test.bytes / each {
				fields = append(fields, [2]string{"a", value})
			}
			for _, field := range fields {
				require.NoError(t, encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
			}
			const most = 16 << 10
			require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Next(most), EndHeaders: block.Len() == 0, EndStream: true}))
			for block.Len() > 0 {
				part := block.Next(most)
				require.NoError(t, framer.WriteContinuation(1, block.Len() == 0, part))
			}
			for {
				frame, err := framer.ReadFrame()
				if test.want == "closed" && errors.Is(err, io.EOF) {
					return
				}
				require.NoError(t, err)
				if frame, ok := frame.(*http2.MetaHeadersFrame); ok {
					require.Equal(t, test.want, frame.PseudoValue("status"))
					return
				}
			}
		})
	}
}

// begun starts a server, and returns a connection of a client that has begun with HTTP/2.
func begun(t *testing.T, drain *Drain, server *httptest.Server) net.Conn {
	t.Helper()
	server.EnableHTTP2 = true
	server.Listener = drain.Listener(server.Listener)
	server.StartTLS()
	t.Cleanup(server.Close)
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	return conn
}

// A connection ends if a write lasts after a response was to end.
func TestStuckConnections(t *testing.T) {
	for name, test := range map[string]struct {
		// before and after are the writes that begin before and after that, and ended those that end.
		before, after, ended int64
		trusted              bool
		want                 error
	}{
		"a write that lasts":         {1, 0, 0, false, io.EOF},
		"the next write lasts":       {0, 1, 0, false, io.EOF},
		"a write ends":               {1, 0, 1, false, os.ErrDeadlineExceeded},
		"another write lasts":        {1, 1, 1, false, os.ErrDeadlineExceeded},
		"no write":                   {0, 0, 0, false, os.ErrDeadlineExceeded},
		"a write of a front proxy's": {1, 0, 0, true, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				var trusted atomic.Bool
				trusted.Store(test.trusted)
				conn := newFramePace(1).conn(newGoAwayConn(tls.Server(server, &tls.Config{})), &trusted)
				conn.writes.Add(test.before)
				conn.endStuck()
				conn.writes.Add(test.ended + test.after)
				require.NoError(t, client.SetDeadline(time.Now().Add(2*stuckTime)))
				_, err := client.Read(make([]byte, 1))
				require.ErrorIs(t, err, test.want)
			})
		})
	}
}

// A client that allows responses of any size, and reads nothing of its connection, has no more of them in work than
// any other.
func TestUnreadResponses(t *testing.T) {
	const streams, mayWait = 10, 2
	bounds := limits.DefaultBounds()
	bounds.WaitsPerUser = mayWait
	drain, ended := NewDrain(testStreams, bounds), make(chan struct{}, streams)
	server := httptest.NewUnstartedServer(drain.Handler(limits.WithResponseDeadlines(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		limits.NoteUser(req.Context(), "reader")
		for err := error(nil); err == nil; {
			_, err = w.Write(make([]byte, 1<<20))
		}
		ended <- struct{}{}
	}), bounds)))
	conn := begun(t, drain, server)
	framer := http2.NewFramer(conn, nil)
	require.NoError(t, framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: math.MaxInt32}))
	require.NoError(t, framer.WriteWindowUpdate(0, 1<<30))
	var headers bytes.Buffer
	encoder := hpack.NewEncoder(&headers)
	for i := range uint32(streams) {
		headers.Reset()
		for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "server"}, {":path", "/"}} {
			require.NoError(t, encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
		}
		require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: headers.Bytes(), EndHeaders: true, EndStream: true}))
	}
	late := time.After(limits.EventTime / 2)
	for range streams - mayWait { // If some bytes get through meanwhile, the connection stays for these.
		select {
		case <-ended:
		case <-late:
			require.Fail(t, "responses that nobody reads go on")
		}
	}
}

// connector is a listener for connections without buffers.
type connector chan net.Conn

func (c connector) Accept() (net.Conn, error) {
	if conn, ok := <-c; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (c connector) Close() error { return nil }
func (connector) Addr() net.Addr { return &net.TCPAddr{} }

// addressed is a connection whose address is not that of the introduction.
type addressed struct{ net.Conn }

func (addressed) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// Without a response, the connection of a client that reads nothing ends, too.
func TestUnreadConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const goodbye = 5 * time.Second // So long, crypto/tls tries to tell the client.
		drain := NewDrain(testStreams, limits.DefaultBounds())
		server := &http.Server{ReadHeaderTimeout: time.Hour, Handler: drain.Handler(http.NotFoundHandler()), TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{certificate(t)},
			MaxVersion:   tls.VersionTLS12, // Later ones write after the handshake.
		}}
		require.NoError(t, http2.ConfigureServer(server, nil)) //nolint:staticcheck // SA1019: the library does so.
		listener := make(connector)
		go func() { _ = server.ServeTLS(drain.Listener(listener), "", "") }()
		client, conn := net.Pipe()
		listener <- addressed{conn}
		secured := tls.Client(client, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		_, err := io.WriteString(secured, http2.ClientPreface)
		require.NoError(t, err)
		framer, began := http2.NewFramer(secured, nil), time.Now()
		for err := framer.WriteSettings(); err == nil; err = framer.WritePing(false, [8]byte{}) {
			time.Sleep(time.Second)
		}
		require.Equal(t, limits.EventTime+goodbye, time.Since(began))
		close(listener)
		_ = server.Close()
		time.Sleep(drainGrace + drainInterval)
	})
}
