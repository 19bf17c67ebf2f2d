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
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
	auditwebhook "k8s.io/apiserver/plugin/pkg/audit/webhook"
	"k8s.io/component-base/tracing"
)

// TestAuditHoldsUpShutdown needs no time, since synctest's clock does not wait.
func TestAuditHoldsUpShutdown(t *testing.T) {
	kubeconfig := writeFile(t, "{apiVersion: v1, kind: Config, clusters: [{name: a, cluster: {server: \"http://localhost:1\"}}], contexts: [{name: a, context: {cluster: a}}], current-context: a}")
	synctest.Test(t, func(t *testing.T) {
		options := genericoptions.NewAuditOptions().WebhookOptions
		unreachable := func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
		collector, err := auditwebhook.NewBackend(kubeconfig, auditv1.SchemeGroupVersion, webhook.DefaultRetryBackoffWithInitialDelay(options.InitialBackoff), unreachable)
		if err != nil {
			t.Fatal(err)
		}
		backend := buffered.NewBackend(collector, options.BatchOptions.BatchConfig)
		stop := make(chan struct{})
		if err := backend.Run(stop); err != nil {
			t.Fatal(err)
		}
		backend.ProcessEvents(&auditinternal.Event{})
		close(stop)
		began := time.Now()
		backend.Shutdown()
		if took := time.Since(began); took < time.Minute {
			fixed(t, "a server waits only %s for the collector of its audit events", took)
		}
	})
}

// endlessProvider records how long it may take to shut down.
type endlessProvider struct {
	tracing.TracerProvider
	bounded *bool
}

func (p endlessProvider) Shutdown(ctx context.Context) error {
	_, *p.bounded = ctx.Deadline()
	return nil
}

func TestTracesHoldUpShutdown(t *testing.T) {
	config, _, _ := newConfig(t)
	bounded := false
	config.TracerProvider = endlessProvider{tracing.NewNoopTracerProvider(), &bounded}
	server, err := config.Complete().New("upstream", genericapiserver.NewEmptyDelegate())
	if err != nil {
		t.Fatal(err)
	}
	server.Destroy()
	if bounded {
		fixed(t, "a server bounds how long it waits for the collector of its traces")
	}
}

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

// nothing encodes all objects as nothing.
type nothing struct{}

func (nothing) Encode(runtime.Object, io.Writer) error { return nil }
func (nothing) Identifier() runtime.Identifier         { return "nothing" }

// TestWebSocketWatchOutlivesItsServer sends events to a client whose server stops.
func TestWebSocketWatchOutlivesItsServer(t *testing.T) {
	const events = 20
	stopping := make(chan struct{})
	close(stopping)
	watched := watch.NewFake()
	handler := &handlers.WatchServer{
		Watching: watched, Scope: &handlers.RequestScope{}, Encoder: nothing{}, EmbeddedEncoder: nothing{}, ServerShuttingDownCh: stopping,
		TimeoutFactory: noTimeout{},
	}
	server := httptest.NewServer(websocket.Handler(handler.HandleWS))
	defer server.Close()
	client, err := websocket.Dial("ws"+strings.TrimPrefix(server.URL, "http"), "", server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for range events {
			watched.Add(&metav1.Status{})
		}
	}()
	select {
	case <-sent:
	case <-time.After(10 * time.Second):
		fixed(t, "a watch by a WebSocket ends when its server stops")
	}
}

// noTimeout is one that never comes.
type noTimeout struct{}

func (noTimeout) TimeoutCh() (<-chan time.Time, func() bool) { return nil, func() bool { return true } }
