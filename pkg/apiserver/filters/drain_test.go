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
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const testStreams = 100

// stopped is a server that is told to stop while a client has opened a connection, but not
// begun the handshake.
type stopped struct {
	client *tls.Conn
	// done has the result of Shutdown, which waits for a minute at most.
	done chan error
}

func stopBeforeHandshake(t *testing.T, handler http.Handler) stopped {
	t.Helper()
	drain := NewDrain(testStreams)
	server := httptest.NewUnstartedServer(drain.Handler(handler))
	server.EnableHTTP2 = true
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err := client.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return stopped{client, done}
}

func TestAHandshakeThatEndsAfterTheListener(t *testing.T) {
	server := stopBeforeHandshake(t, http.NotFoundHandler())
	// Without it, the server would not wait.
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	if _, err := io.WriteString(server.client, preface); err != nil {
		t.Fatal(err)
	}
	if err := <-server.done; err != nil {
		t.Errorf("the server has stopped with %v", err)
	}
}

// TestARequestAfterTheListener is answered, however long that takes.
func TestARequestAfterTheListener(t *testing.T) {
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
		time.Sleep(drainGrace + 2*drainInterval) // What has no requests is closed by then.
		close(proceed)
	}()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://server", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || string(body) != "answer" || response.ProtoMajor != 2 {
		t.Errorf("got %q by %s (%v)", body, response.Proto, err)
	}
	if err := <-server.done; err != nil {
		t.Errorf("the server has stopped with %v", err)
	}
}

// TestARequestAfterGoAway is one that a client has sent before it was told that the server
// stops. It is answered like any other.
func TestARequestAfterGoAway(t *testing.T) {
	drain := NewDrain(testStreams)
	server := httptest.NewUnstartedServer(drain.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(w, req.Body)
	})))
	server.EnableHTTP2 = true
	server.Listener = drain.Listener(server.Listener)
	server.StartTLS()
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	// next returns the next frame of a kind.
	next := func(kind http2.FrameType) http2.Frame {
		t.Helper()
		for {
			frame, err := framer.ReadFrame()
			if err != nil {
				t.Fatalf("there is no %s: %v", kind, err)
			}
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
			if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
				t.Fatal(err)
			}
		}
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: headers.Bytes(), EndHeaders: true}); err != nil {
			t.Fatal(err)
		}
		if err := framer.WriteData(stream, true, []byte(body)); err != nil {
			t.Fatal(err)
		}
		if status := next(http2.FrameHeaders).(*http2.MetaHeadersFrame).PseudoValue("status"); status != "200" {
			t.Errorf("got the status %q", status)
		}
		data := next(http2.FrameData)
		for data.Header().StreamID != stream { // The end of the one before.
			data = next(http2.FrameData)
		}
		if data := data.(*http2.DataFrame).Data(); string(data) != body {
			t.Errorf("got %q", data)
		}
	}
	ask(1, "early")

	stopped := make(chan error, 1)
	go func() { stopped <- server.Config.Shutdown(context.WithoutCancel(t.Context())) }()
	goAway := next(http2.FrameGoAway).(*http2.GoAwayFrame)
	if goAway.LastStreamID != 1<<31-1 || goAway.ErrCode != http2.ErrCodeNo {
		t.Fatalf("got %v", goAway)
	}
	ask(3, "late")
	if err := <-stopped; err != nil {
		t.Errorf("the server has stopped with %v", err)
	}
}

// TestFollow finds the ends of frames wherever writes end.
func TestFollow(t *testing.T) {
	const frames = "\x00\x00\x03\x00\x00\x00\x00\x00\x01abc" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x01\x00\x00\x00\x00\x00\x00\x01"
	for size := 1; size <= len(frames); size++ {
		conn := &goAwayConn{}
		var ends []int
		for at := 0; at < len(frames); at += size {
			end := min(at+size, len(frames))
			conn.follow([]byte(frames[at:end]))
			if conn.payload == 0 && len(conn.header) == 0 {
				ends = append(ends, end)
			}
		}
		var want []int
		for at := size; at <= len(frames); at += size {
			if at == 12 || at == 21 {
				want = append(want, at)
			}
		}
		if !slices.Equal(ends, want) || conn.payload != 256 {
			t.Errorf("in writes of %d bytes, frames end at %v, want %v", size, ends, want)
		}
	}
}
