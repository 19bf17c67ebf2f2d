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
	"io"
	mathbig "math/big"
	"net"
	"sync"
	"time"
)

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
