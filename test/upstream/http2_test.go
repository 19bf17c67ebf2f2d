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

package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestLateHandshakeHoldsUpShutdown has a client that connects before the server is told to
// stop, and shakes hands after.
func TestLateHandshakeHoldsUpShutdown(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.EnableHTTP2 = true
	opened, told := make(chan struct{}), make(chan struct{})
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
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
		// Of a connection that has not begun a request within 5 s the server knows better.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		done <- server.Config.Shutdown(ctx)
	}()
	<-told
	client := tls.Client(connection, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	if _, err := io.WriteString(client, preface); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
		fixed(t, "a server that stops does not wait for a connection whose handshake is late (%v)", err)
	}
}

func TestWriteDeadlineEndsIdleHTTP2Stream(t *testing.T) {
	began, ended := make(chan struct{}), make(chan bool, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		control := http.NewResponseController(w)
		_ = control.Flush()
		select {
		case <-began:
		case <-req.Context().Done():
			return
		}
		_ = control.SetWriteDeadline(time.Now().Add(time.Millisecond))
		select {
		case <-req.Context().Done():
			ended <- true
		case <-time.After(30 * time.Second):
			ended <- false
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	response, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	close(began)
	if !<-ended {
		fixed(t, "the write deadline of an HTTP/2 stream on which nothing is written has no effect")
	}
}

// TestGoAwayNamesTheLastRequest as soon as a server stops, so that it drops those that are on
// their way.
//
//nolint:staticcheck // SA1019: k8s.io/apiserver serves HTTP/2 so.
func TestGoAwayNamesTheLastRequest(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.TLSConfig = &tls.Config{NextProtos: []string{http2.NextProtoTLS}}
	if err := http2.ConfigureServer(server.Config, &http2.Server{}); err != nil {
		t.Fatal(err)
	}
	server.TLS = server.Config.TLSConfig
	server.StartTLS()
	conn, err := tls.Dial("tcp", server.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http2.NextProtoTLS}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if frame.IsAck() {
				go func() { stopped <- server.Config.Shutdown(context.WithoutCancel(t.Context())) }()
			}
			continue
		case *http2.GoAwayFrame:
			if frame.LastStreamID == 1<<31-1 {
				fixed(t, "a server that stops answers the requests that are on their way")
			}
		default:
			continue
		}
		break
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
}

// closed reports whether a body was closed.
type closed struct {
	io.Reader
	closed bool
}

func (c *closed) Close() error {
	c.closed = true
	return nil
}

// TestGoAwayClosesBodies of requests that a client has chosen the connection for, and not begun, so that it can't send
// them by another one.
//
//nolint:staticcheck // SA1019: client-go's own client in kube-apiserver does the same.
func TestGoAwayClosesBodies(t *testing.T) {
	client, server := net.Pipe()
	chosen := make(chan struct{})
	go func() {
		_, _ = io.CopyN(io.Discard, server, int64(len(http2.ClientPreface)))
		go func() { _, _ = io.Copy(io.Discard, server) }()
		framer := http2.NewFramer(server, nil)
		_ = framer.WriteSettings()
		<-chosen
		_ = framer.WriteGoAway(1<<31-1, http2.ErrCodeNo, nil)
	}()
	conn, err := new(http2.Transport).NewClientConn(client)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if !conn.ReserveNewRequest() {
		t.Fatal("the connection takes no request")
	}
	close(chosen)
	for !conn.State().Closing {
		time.Sleep(time.Millisecond)
	}
	body := &closed{Reader: strings.NewReader("body")}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://server", body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := conn.RoundTrip(request)
	if err == nil {
		_ = response.Body.Close()
		t.Fatal("the request was sent after GOAWAY")
	}
	if !body.closed {
		fixed(t, "the body of a request that was not begun is left as it was (%v)", err)
	}
}
