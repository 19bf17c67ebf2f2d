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
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
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

func (s *turnstile) Accept() {
	s.arrived <- struct{}{}
	<-s.tokens
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
		"a request with a body": {header(5, http2.FrameHeaders, 0) + header(3, http2.FrameContinuation, http2.FlagHeadersEndHeaders) +
			header(9, http2.FrameData, 0) + header(0, http2.FrameData, http2.FlagDataEndStream), 0, 0},
		"headers of many bytes":              {header(bytesPerFrame-1, http2.FrameHeaders, 0) + header(1, http2.FrameContinuation, http2.FlagHeadersEndHeaders), 0, 1},
		"headers of several requests":        {strings.Repeat(header(bytesPerFrame/2-1, http2.FrameHeaders, http2.FlagHeadersEndHeaders), 4), 0, 1},
		"headers of more bytes than a frame": {header(3*bytesPerFrame, http2.FrameHeaders, http2.FlagHeadersEndHeaders), 0, 3},
		"nothing of a body":                  {header(0, http2.FrameData, 0), 0, 1},
		"a reset":                            {header(5, http2.FrameHeaders, 0) + header(4, http2.FrameRSTStream, 0), 0, 1},
		"settings, a ping and a priority":    {header(6, http2.FrameSettings, 0) + header(8, http2.FramePing, 0) + header(5, http2.FramePriority, 0), 0, 3},
		"answers":                            {header(0, http2.FrameSettings, http2.FlagSettingsAck) + header(8, http2.FramePing, http2.FlagPingAck), 0, 2},
		"a kind that nobody knows":           {header(200, 0xee, 0), 0, 1},
		"updates without a reason":           {update + update, 0, 2},
		"updates of what was written":        {update + update, 2 * bytesPerUpdate, 0},
		"more updates than was written of":   {update + update + update, 2*bytesPerUpdate - 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			for size := 1; size <= len(http2.ClientPreface)+len(test.frames); size += 1 + size/64 {
				pace := newTurnstile(len(test.frames))
				close(pace.tokens)
				conn := &pacedConn{goAwayConn: newGoAwayConn(nil), pace: pace, read: frameScanner{payload: len(http2.ClientPreface)}}
				conn.unread.Store(test.written)
				for rest := []byte(http2.ClientPreface + test.frames); len(rest) > 0; rest = rest[min(size, len(rest)):] {
					conn.read.scan(rest[:min(size, len(rest))], conn.sees)
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
	authenticate := TrustConnections(authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: req.Header.Get("name")}}, true, nil
	}), func(info user.Info) bool { return info.GetName() == "proxy" })
	server := httptest.NewUnstartedServer(drain.Handler(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, _, _ = authenticate.AuthenticateRequest(req)
	})))
	server.EnableHTTP2 = true
	server.Listener = drain.Listener(server.Listener)
	server.StartTLS()
	t.Cleanup(server.Close)
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
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
	as(1, "anna")
	require.Equal(t, "200", next())
	ping("waits---")
	<-pace.arrived // What is sent now is read later.
	as(3, "proxy")
	pace.tokens <- struct{}{}
	require.Equal(t, "waits---", next())
	require.Equal(t, "200", next())
	ping("does not")
	require.Equal(t, "does not", next())
	require.Empty(t, pace.arrived)
}

// Headers that never ended kept what had come of them, on each of many connections.
func TestHeadersThatNeverEnd(t *testing.T) {
	for name, end := range map[string]bool{"ended": true, "never ended": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				conn := newFramePace(framesPerSecond).conn(newGoAwayConn(tls.Server(server, &tls.Config{Certificates: []tls.Certificate{certificate(t)}})))
				began := time.Now()
				ended := make(chan time.Duration, 1)
				go func() {
					_, _ = io.Copy(io.Discard, conn)
					ended <- time.Since(began)
				}()
				secured := tls.Client(client, &tls.Config{InsecureSkipVerify: true})
				_, err := io.WriteString(secured, http2.ClientPreface)
				require.NoError(t, err)
				go func() { _, _ = io.Copy(io.Discard, secured) }()
				framer := http2.NewFramer(secured, nil)
				require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}}))
				require.NoError(t, framer.WriteContinuation(1, end, []byte{0x84}))
				want := headerPatience
				if end {
					time.AfterFunc(2*headerPatience, func() { _ = secured.Close() })
					want = 2 * headerPatience
				}
				require.Equal(t, want, <-ended)
				_ = client.Close()
			})
		})
	}
}

// Connections of HTTP/1.1, whose headers come at any speed, keep less of them than those of HTTP/2
// may, where kube-apiserver's client would refuse to send more.
func TestHeadersOfEachProtocol(t *testing.T) {
	bounds := limits.Bounds{HeaderBytes: 8 << 10, PathBytes: 8 << 10, QueryBytes: 8 << 10}
	drain := NewDrain(testStreams, bounds)
	server := httptest.NewUnstartedServer(drain.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})))
	server.EnableHTTP2 = true
	server.Config.MaxHeaderBytes = 1 << 20
	server.Listener = drain.Listener(server.Listener)
	server.StartTLS()
	t.Cleanup(server.Close)
	for name, test := range map[string]struct {
		http2 bool
		bytes int
		want  int
	}{
		"HTTP/1.1":                 {false, 16 << 10, http.StatusNoContent},
		"HTTP/1.1, more than that": {false, 64 << 10, http.StatusRequestHeaderFieldsTooLarge},
		"HTTP/2":                   {true, 64 << 10, http.StatusNoContent},
	} {
		t.Run(name, func(t *testing.T) {
			transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: test.http2}
			t.Cleanup(transport.CloseIdleConnections)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
			require.NoError(t, err)
			request.Header.Set("A", strings.Repeat("b", test.bytes))
			response, err := (&http.Client{Transport: transport}).Do(request)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.Equal(t, test.want, response.StatusCode)
		})
	}
}
