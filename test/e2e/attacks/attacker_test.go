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
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/client-go/rest"
)

const (
	// connections are how many an attacker has.
	connections = 32
	// perConnection is how many requests the attacker sends at once over each, and inFlight over
	// each in attacks by number. All connections together have more than the server works on.
	perConnection, inFlight = 4, 40
	// attackerAddress is the first of those of other machines than the bystander's.
	attackerAddress = 2
	// nodeAddress is that of the kubelet.
	nodeAddress = 100
)

// attacker is a user with many connections.
type attacker struct {
	host string
	tls  *tls.Config
	// tokens are those of ServiceAccounts, if the attack is theirs.
	tokens []string
	// addresses is how many the attacker has.
	addresses int64
	// counter tells requests from each other, and dialed connections.
	counter, dialed atomic.Int64

	mu      sync.Mutex
	answers map[string]int
}

// order is what the process of an attacker is told, which runs no tests.
type order struct {
	Attack      string
	Host        string
	Credentials rest.TLSClientConfig
	Tokens      []string
	Duration    time.Duration
}

// orders is the environment variable of such a process.
const orders = "ATTACKER"

// send has an attacker attack in a process of its own. In that of the tests, other users would wait for it even if
// the server did not. The attack has begun when started is called.
func (o order) send(ctx context.Context, started func()) (*attacker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// Attackers have machines of their own: here, they get what the others leave of the processors.
	cmd := exec.CommandContext(ctx, "nice", "-n", "10", self)
	cmd.Env = append(os.Environ(), orders+"=1")
	cmd.Stderr = os.Stderr
	input, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	cmd.Stdin = bytes.NewReader(input)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	a, output := &attacker{}, json.NewDecoder(stdout)
	if err = output.Decode(&a.answers); err == nil {
		started()
		err = output.Decode(&a.answers)
	}
	return a, errors.Join(err, cmd.Wait())
}

// obey attacks as it is told on stdin, and says on stdout when it begins, and what came of it.
func obey() (err error) {
	var o order
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		return err
	}
	attack := attacks()[o.Attack]
	a := &attacker{host: strings.TrimPrefix(o.Host, "https://"), tokens: o.Tokens, addresses: max(1, attack.addresses), answers: map[string]int{}}
	if a.tls, err = rest.TLSConfigFor(&rest.Config{Host: o.Host, TLSClientConfig: o.Credentials}); err != nil {
		return err
	}
	a.tls.ServerName = "localhost"
	output := json.NewEncoder(os.Stdout)
	if err := output.Encode(a.answers); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(context.Background(), o.Duration)
	defer stop()
	attack.run(ctx, a)
	a.mu.Lock()
	defer a.mu.Unlock()
	return output.Encode(a.answers)
}

// got counts an answer.
func (a *attacker) got(answer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers[answer]++
}

func (a *attacker) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	texts := []string{}
	for _, answer := range slices.Sorted(maps.Keys(a.answers)) {
		texts = append(texts, fmt.Sprintf("%s: %d", answer, a.answers[answer]))
	}
	return strings.Join(texts, ", ")
}

func (a *attacker) dial(ctx context.Context) (net.Conn, error) {
	address := net.IPv4(127, 0, 0, byte(attackerAddress+a.dialed.Add(1)%a.addresses))
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: address}, Timeout: 10 * time.Second}
	return dialer.DialContext(ctx, "tcp", a.host)
}

// dialUntil returns a connection that ends with the attack, whatever goes on over it. A connection
// that stays would cost the server memory during the next attack.
func (a *attacker) dialUntil(ctx context.Context) (net.Conn, error) {
	conn, err := a.dial(ctx)
	if err == nil {
		context.AfterFunc(ctx, func() { _ = conn.Close() })
	}
	return conn, err
}

// onConnections runs as many of them at once as the attacker has connections.
func onConnections(ctx context.Context, run func(context.Context)) {
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			for ctx.Err() == nil {
				run(ctx)
			}
		})
	}
	all.Wait()
}

// call is a request of an attacker.
type call struct {
	method, path string
	header       map[string]string
	body         []byte
}

// send sends a request and reads the answer.
func (a *attacker) send(ctx context.Context, client *http.Client, c call) {
	request, err := http.NewRequestWithContext(ctx, c.method, "https://"+a.host+c.path, bytes.NewReader(c.body))
	if err != nil {
		a.got(err.Error())
		return
	}
	for name, value := range c.header {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		a.got("broken")
	default:
		a.got(fmt.Sprint(response.StatusCode))
	}
	if err == nil {
		_, _ = io.Copy(io.Discard, response.Body) // The attacker does not mind.
		response.Body.Close()
	}
}

// bearer returns the headers of the next of the attacker's ServiceAccounts.
func (a *attacker) bearer(n int64) string { return "Bearer " + a.tokens[int(n)%len(a.tokens)] }

// calls is an attack of requests that differ in their numbers, over HTTP/2.
func calls(next func(n int64) call) func(context.Context, *attacker) {
	return callsBy(true, perConnection, func(_ *attacker, n int64) call { return next(n) })
}

// masses is such an attack by so many requests at once that the server has to refuse some.
func masses(next func(a *attacker, n int64) call) func(context.Context, *attacker) {
	return callsBy(true, inFlight, next)
}

// callsBy is such an attack, over HTTP/1.1 if it is not multiplexed.
func callsBy(multiplexed bool, perConnection int, next func(a *attacker, n int64) call) func(context.Context, *attacker) {
	return func(ctx context.Context, a *attacker) {
		onConnections(ctx, func(ctx context.Context) {
			most := 1
			if !multiplexed {
				most = perConnection
			}
			transport := &http.Transport{
				DialContext:       func(context.Context, string, string) (net.Conn, error) { return a.dialUntil(ctx) },
				TLSClientConfig:   a.tls.Clone(),
				ForceAttemptHTTP2: multiplexed,
				MaxConnsPerHost:   most,
				// Compressed answers would be less to send.
				DisableCompression: true,
			}
			client := &http.Client{Transport: transport}
			var all sync.WaitGroup
			for range perConnection {
				all.Go(func() {
					for ctx.Err() == nil {
						a.send(ctx, client, next(a, a.counter.Add(1)))
					}
				})
			}
			all.Wait()
		})
	}
}

// wire is a connection of HTTP/2 to which an attacker writes frames as they come.
type wire struct {
	*http2.Framer
	net.Conn
	attacker *attacker
	stream   uint32
}

// frames is an attack by frames over connections that are made again when the server has
// ended them.
func frames(attack func(ctx context.Context, w *wire) error) func(context.Context, *attacker) {
	return framesTo(func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }, attack)
}

// unread is an attack like frames, whose attacker does not even read what TCP brings.
func unread(attack func(ctx context.Context, w *wire) error) func(context.Context, *attacker) {
	return framesTo(func(net.Conn) {}, attack)
}

func framesTo(read func(net.Conn), attack func(ctx context.Context, w *wire) error) func(context.Context, *attacker) {
	return func(ctx context.Context, a *attacker) {
		onConnections(ctx, func(ctx context.Context) { framesOver(ctx, a, read, attack) })
	}
}

// over runs something over a connection of a protocol.
func over(ctx context.Context, a *attacker, protocol string, run func(net.Conn)) {
	raw, err := a.dialUntil(ctx)
	if err != nil {
		a.got("no connection")
		return
	}
	defer raw.Close()
	config := a.tls.Clone()
	config.NextProtos = []string{protocol}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		a.got("no handshake")
		return
	}
	run(conn)
}

// framesOver attacks over a connection.
func framesOver(ctx context.Context, a *attacker, read func(net.Conn), attack func(ctx context.Context, w *wire) error) {
	over(ctx, a, http2.NextProtoTLS, func(conn net.Conn) {
		go read(conn)
		w := &wire{http2.NewFramer(conn, nil), conn, a, 1}
		w.AllowIllegalWrites = true
		if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
			return
		}
		if err := attack(ctx, w); err != nil && ctx.Err() == nil {
			a.got("ended by the server")
		}
	})
}

// next is the number of another stream.
func (w *wire) next() uint32 {
	stream := w.stream
	w.stream += 2
	w.attacker.got("sent")
	return stream
}

// block encodes headers without a memory of those before.
func (w *wire) block(method, path string, more ...hpack.HeaderField) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range append([]hpack.HeaderField{
		{Name: ":method", Value: method}, {Name: ":scheme", Value: "https"},
		{Name: ":authority", Value: w.attacker.host, Sensitive: true}, {Name: ":path", Value: path, Sensitive: true},
	}, more...) {
		_ = encoder.WriteField(field) // To memory.
	}
	return block.Bytes()
}

// open sends the headers of a request, in as many frames as they need.
func (w *wire) open(block []byte, end bool) (uint32, error) {
	const most = 16 << 10
	stream := w.next()
	first := block[:min(len(block), most)]
	err := w.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndStream: end, EndHeaders: len(first) == len(block)})
	for rest := block[len(first):]; err == nil && len(rest) > 0; {
		part := rest[:min(len(rest), most)]
		rest = rest[len(part):]
		err = w.WriteContinuation(stream, len(rest) == 0, part)
	}
	return stream, err
}

// wait waits until the connection or the attack ends.
func (w *wire) wait(ctx context.Context) error {
	for ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
		if err := w.WritePing(false, [8]byte{}); err != nil {
			return err
		}
	}
	return nil
}
