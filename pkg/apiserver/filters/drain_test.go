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
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// stopped is a server that is told to stop while a client has opened a connection, but not
// begun the handshake.
type stopped struct {
	client *tls.Conn
	// done has the result of Shutdown, which waits for a minute at most.
	done chan error
}

func stopBeforeHandshake(t *testing.T, handler http.Handler) stopped {
	t.Helper()
	drain := NewDrain()
	server := httptest.NewUnstartedServer(drain.Handler(handler))
	server.EnableHTTP2 = true
	server.Listener = drain.Listener(server.Listener)
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
