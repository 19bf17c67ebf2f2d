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
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	certutil "k8s.io/client-go/util/cert"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

const testStreams = 100

// stopped is a server that is told to stop while a client has opened a connection, but not
// begun the handshake.
type stopped struct {
	client *tls.Conn
	// done has the result of Shutdown, which waits for a minute at most.
	done chan error
}

// stopBeforeHandshake uses the clock of the machine. The library keeps channels of one server for the next, and those of
// synctest must not leave their test.
func stopBeforeHandshake(t *testing.T, handler http.Handler) stopped {
	t.Helper()
	drain := NewDrain(testStreams, limits.DefaultBounds())
	server := httptest.NewUnstartedServer(drain.Handler(handler))
	server.EnableHTTP2 = true
	require.NoError(t, http2.ConfigureServer(server.Config, nil)) //nolint:staticcheck // SA1019: the library does so.
	server.Listener = drain.Listener(server.Listener)
	opened, told := make(chan struct{}), make(chan struct{})
	server.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateNew && conn.RemoteAddr().String() != introduction {
			close(opened)
		}
	}
	server.Config.RegisterOnShutdown(func() { close(told) })
	server.StartTLS()
	connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	<-opened
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		done <- server.Config.Shutdown(ctx)
	}()
	<-told
	client := tls.Client(connection, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	require.NoError(t, client.HandshakeContext(t.Context()))
	return stopped{client, done}
}

func TestAHandshakeThatEndsAfterTheListener(t *testing.T) {
	t.Parallel()
	server := stopBeforeHandshake(t, http.NotFoundHandler())
	// Without it, the server would not wait.
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	_, err := io.WriteString(server.client, preface)
	require.NoError(t, err)
	require.NoError(t, <-server.done)
}

// TestARequestAfterTheListener is answered, however long that takes.
func TestARequestAfterTheListener(t *testing.T) {
	t.Parallel()
	began, proceed := make(chan struct{}), make(chan struct{})
	server := stopBeforeHandshake(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		<-proceed
		_, _ = io.WriteString(w, "answer")
	}))
	transport := &http.Transport{
		ForceAttemptHTTP2: true,
		DialTLSContext:    func(context.Context, string, string) (net.Conn, error) { return server.client, nil },
	}
	t.Cleanup(transport.CloseIdleConnections)
	go func() {
		<-began
		time.Sleep(drainGrace + 2*drainInterval) // Connections without requests are closed by then.
		close(proceed)
	}()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://server", nil)
	require.NoError(t, err)
	response, err := transport.RoundTrip(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, "answer", string(body))
	require.Equal(t, 2, response.ProtoMajor)
	require.NoError(t, <-server.done)
}

// TestARequestAfterGoAway is one that a client has sent before it was told that the server
// stops. It is answered like any other.
func TestARequestAfterGoAway(t *testing.T) {
	t.Parallel()
	drain := NewDrain(testStreams, limits.DefaultBounds())
	server := httptest.NewUnstartedServer(drain.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(w, req.Body)
	})))
	server.EnableHTTP2 = true
	require.NoError(t, http2.ConfigureServer(server.Config, nil)) //nolint:staticcheck // SA1019: the library does so.
	server.Listener = drain.Listener(server.Listener)
	server.StartTLS()
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	require.NoError(t, framer.WriteSettings())
	// next returns the next frame of a kind.
	next := func(kind http2.FrameType) http2.Frame {
		t.Helper()
		for {
			frame, err := framer.ReadFrame()
			require.NoError(t, err, "there is no %s", kind)
			if frame.Header().Type == kind {
				return frame
			}
		}
	}
	next(http2.FrameSettings)
	var headers bytes.Buffer
	encoder := hpack.NewEncoder(&headers)
	// ask sends a body, and expects it back.
	ask := func(stream uint32, body string) {
		t.Helper()
		headers.Reset()
		for _, field := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":authority", "server"}, {":path", "/"}} {
			require.NoError(t, encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
		}
		require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: headers.Bytes(), EndHeaders: true}))
		require.NoError(t, framer.WriteData(stream, true, []byte(body)))
		require.Equal(t, "200", next(http2.FrameHeaders).(*http2.MetaHeadersFrame).PseudoValue("status"))
		data := next(http2.FrameData)
		for data.Header().StreamID != stream { // The end of the one before.
			data = next(http2.FrameData)
		}
		require.Equal(t, body, string(data.(*http2.DataFrame).Data()))
	}
	ask(1, "early")

	stopped := make(chan error, 1)
	go func() { stopped <- server.Config.Shutdown(context.WithoutCancel(t.Context())) }()
	goAway := next(http2.FrameGoAway).(*http2.GoAwayFrame)
	require.Equal(t, uint32(1<<31-1), goAway.LastStreamID)
	require.Equal(t, http2.ErrCodeNo, goAway.ErrCode)
	ask(3, "late")
	require.NoError(t, <-stopped)
}

// TestGoAwayWaitsForCalm stops a server with a client that begins requests. The server waits until it
// begins none, and answers wait for that. Before, one in ten or twenty thousand requests with bodies
// failed in rolling restarts. More failed when only time decided, where processes waited for a processor.
func TestGoAwayWaitsForCalm(t *testing.T) {
	const other = "\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x01"
	for name, test := range map[string]struct {
		// requests is how many the client begins, one before it answers each PING.
		requests int
		// silent clients answer none.
		silent bool
		// pings is how many there are, unless that depends on the machine.
		pings int
		// after is how long it takes at least until the client is told.
		after time.Duration
	}{
		"no requests":                   {0, false, calmPings, calmPings * calmPause},
		"requests":                      {3, false, 3 + calmPings, (3 + calmPings) * calmPause},
		"requests that never end":       {math.MaxInt, false, 0, calmPatience},
		"a client that answers no PING": {0, true, 1, calmPatience},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := net.Pipe()
			require.NoError(t, client.SetDeadline(time.Now().Add(10*calmPatience)))
			conn := newFramePace(framesPerSecond).conn(newGoAwayConn(tls.Server(server, &tls.Config{Certificates: []tls.Certificate{certificate(t)}})), &atomic.Bool{})
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			secured := tls.Client(client, &tls.Config{InsecureSkipVerify: true})
			framer := http2.NewFramer(secured, secured)
			began := time.Now()
			go func() {
				_, _ = io.WriteString(conn, other) // The first frame.
				conn.goAway()
			}()
			_, err := io.WriteString(secured, http2.ClientPreface)
			require.NoError(t, err)
			next := func() http2.Frame {
				t.Helper()
				frame, err := framer.ReadFrame()
				require.NoError(t, err)
				return frame
			}
			require.Equal(t, http2.FrameWindowUpdate, next().Header().Type)
			frame, pings := next(), 0
			// This waits until the client has been told.
			go func() { _, _ = io.WriteString(conn, other) }()
			for ; frame.Header().Type == http2.FramePing; frame = next() {
				pings++
				if test.silent {
					continue
				}
				if pings <= test.requests {
					require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*pings + 1), EndHeaders: true, EndStream: true}))
				}
				require.NoError(t, framer.WritePing(true, frame.(*http2.PingFrame).Data))
			}
			require.Equal(t, http2.FrameGoAway, frame.Header().Type)
			require.GreaterOrEqual(t, time.Since(began), test.after)
			require.Equal(t, http2.FrameWindowUpdate, next().Header().Type)
			if test.pings > 0 {
				require.Equal(t, test.pings, pings)
			}
		})
	}
}

// A client that reads nothing does not keep the server from giving up on it.
func TestGoAwayIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		conn := newGoAwayConn(tls.Server(server, &tls.Config{Certificates: []tls.Certificate{certificate(t)}}))
		secured := tls.Client(client, &tls.Config{InsecureSkipVerify: true})
		const frame = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
		go func() { _, _ = io.WriteString(conn, frame) }()
		_, err := io.ReadFull(secured, make([]byte, len(frame)))
		require.NoError(t, err)
		synctest.Wait()
		began := time.Now()
		conn.goAway()
		require.Equal(t, limits.EventTime, time.Since(began))
	})
}

// certificate is that of a server whose name nobody looks at.
func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	cert, key, err := certutil.GenerateSelfSignedCertKey("server", nil, nil)
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	return pair
}

// TestFrameScanner finds where frames begin and end wherever writes end.
func TestFrameScanner(t *testing.T) {
	const frames = "\x00\x00\x03\x00\x00\x00\x00\x00\x01abc" + "\x00\x00\x00\x04\x01\x00\x00\x00\x00" + "\x00\x01\x00\x00\x00\x00\x00\x00\x01"
	for size := 1; size <= len(frames); size++ {
		var scanner frameScanner
		var headers []string
		var ends []int
		for at := 0; at < len(frames); at += size {
			end := min(at+size, len(frames))
			scanner.scan([]byte(frames[at:end]), func(length int, kind http2.FrameType, flags http2.Flags, _ uint32) {
				headers = append(headers, fmt.Sprint(length, kind, flags))
			})
			if scanner.betweenFrames() {
				ends = append(ends, end)
			}
		}
		var want []int
		for at := size; at <= len(frames); at += size {
			if at == 12 || at == 21 {
				want = append(want, at)
			}
		}
		require.Equal(t, want, ends, "in writes of %d bytes", size)
		require.Equal(t, []string{"3 DATA 0", "0 SETTINGS 1", "256 DATA 0"}, headers, "in writes of %d bytes", size)
	}
}
