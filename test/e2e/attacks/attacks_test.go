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
// Package attacks replays what was found to bring the server down. There are floods of
package attacks

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/rest"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/scheme"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const (
	// medianWithin is how long half of the neighbor's requests may take at most while strangers attack.
	medianWithin = time.Second / 2
	// recovery is how long after the attack of a user the neighbor may still be refused.
	recovery = 5 * time.Second
)

// The program that is attacked survives, and the neighbor has what docs/security.md promises.
func TestAttacks(t *testing.T) {
	all := attacks()
	for name, attack := range all {
		t.Run(name, func(t *testing.T) { testAttack(t, name, attack, server) })
		if webhook != nil && attack.webhook {
			t.Run(name+", of the webhook", func(t *testing.T) { testAttack(t, name, attack, webhook) })
		}
	}
}

func testAttack(t *testing.T, name string, attack attack, door *controlplane.Component) {
	duration := attackTime()
	if duration == shortTime && name != shortAttack {
		framework.Long(t, shortAttack+" are the short one")
	}
	config, pid := framework.ConfigFor(t, cp, door, attack.user), door.PID()
	if attack.user == "" || door == webhook {
		config = rest.AnonymousClientConfig(config)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	had := make(chan experience)
	innocent := framework.ConfigFor(t, cp, cp.KubeAPIServer, neighbor)
	go func() { had <- live(ctx, innocent) }()
	answers, err := order{name, config.Host, door == webhook, config.TLSClientConfig, duration}.send(t.Context())
	require.NoError(t, err)
	stop()
	during := <-had

	byStranger := attack.user != attacker || door == webhook
	if !byStranger {
		framework.Pause(t.Context(), recovery)
	}
	ctx, stop = context.WithTimeout(t.Context(), time.Second)
	defer stop()
	after := live(ctx, innocent)
	memory, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err, "It has died: answers: %v; the neighbor: %s", answers, during)
	_, peak, _ := strings.Cut(string(memory), "VmHWM:")
	peak, _, _ = strings.Cut(peak, "\n")
	t.Logf("answers: %v; memory at most: %s; the neighbor: %s; afterwards: %s", answers, strings.TrimSpace(peak), during, after)

	assert.Empty(t, during.failed)
	assert.Empty(t, after.failed)
	assert.Zero(t, after.refused, "after the attack")
	if byStranger {
		assert.Zero(t, during.refused, "while strangers attacked")
		assert.LessOrEqual(t, during.median(), medianWithin)
	}
	for _, answer := range []string{"401", "403", "404"} {
		assert.True(t, answers[answer] == 0 || byStranger, "The attack does not get as far as it is meant to: %v", answers)
	}
	assert.NotEmpty(t, answers)
}

type attack struct {
	// user is the one whose credentials the attackers have; empty is nobody.
	user string
	// webhook attacks are also sent to the webhook.
	webhook bool
	run     func(context.Context, *attackers)
}

const (
	menuPath     = framework.GroupPath + "/v1/namespaces/" + menuNamespace + "/pizzas"
	attackedPath = framework.GroupPath + "/v1/namespaces/" + attackedNamespace + "/pizzas"
	dryRun       = "?dryRun=All"

	jsonType, yamlType, protobufType = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"

	// bodyBytes is nearly as much as a body may have.
	bodyBytes = 3<<20 - 1<<10
	// allConnections are fewer than the addresses may have, so that some are left for the next attack.
	allConnections = 500 * addresses
)

func attacks() map[string]attack {
	bodies, nested := bodies(), nested()
	selector := "?labelSelector=a" + strings.Repeat("%2C!b", 40_000)
	return map[string]attack{
		"headers that never end": {webhook: true, run: both(
			begun(allConnections/2, "http/1.1", func(_ *attackers, conn net.Conn) error {
				_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n"+strings.Repeat("a:\r\n", 80<<10))
				return err
			}),
			begun(allConnections/2, http2.NextProtoTLS, func(a *attackers, conn net.Conn) error {
				w, err := wired(a, conn)
				if err != nil {
					return err
				}
				stream, err := w.get(menuPath, false)
				for n := 0; n < 40 && err == nil; n++ {
					err = w.WriteContinuation(stream, false, encode([][2]string{{"a", strings.Repeat("b", 8<<10)}}))
				}
				return err
			}),
		)},
		"bodies that never come": {webhook: true, run: begun(allConnections, "http/1.1", func(a *attackers, conn net.Conn) error {
			path := attackedPath
			if a.webhook {
				path = "/convert"
			}
			_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n{", path, jsonType, bodyBytes)
			return err
		})},
		"2,000 connections": {webhook: true, run: both(
			begun(allConnections/2, http2.NextProtoTLS, func(a *attackers, conn net.Conn) error { _, err := wired(a, conn); return err }),
			func(ctx context.Context, a *attackers) { // These begin a handshake.
				atOnce(ctx, allConnections/2, func(ctx context.Context) {
					if conn, err := a.dial(ctx); err == nil {
						_, _ = conn.Write([]byte{22, 3, 1, 2})
						_, _ = io.Copy(io.Discard, conn)
					}
				})
			},
		)},
		"5,000 random tokens": {run: calls(200, func(_ *attackers, n int64) call {
			return call{http.MethodGet, menuPath + "?timeout=1ns", "Authorization", fmt.Sprint("Bearer ", n), nil}
		})},
		"rapid resets": {run: begun(100, http2.NextProtoTLS, func(a *attackers, conn net.Conn) error {
			w, err := wired(a, conn)
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			for err == nil {
				var stream uint32
				if stream, err = w.get(menuPath, true); err == nil {
					err = w.WriteRSTStream(stream, http2.ErrCodeCancel)
				}
			}
			return err
		})},
		"direct impersonation": {user: stranger, run: calls(500, func(_ *attackers, n int64) call {
			return call{http.MethodGet, fmt.Sprint(menuPath, "/", n), "Impersonate-User", fmt.Sprint("user-", n), nil}
		})},
		"bodies of 3 MiB": {user: attacker, webhook: true, run: calls(200, func(a *attackers, n int64) call {
			if a.webhook {
				return call{http.MethodPost, "/convert", "Content-Type", jsonType, bodies[0].body}
			}
			return bodies[1+n%int64(len(bodies)-1)]
		})},
		"aliases, tags and nesting": {user: attacker, run: calls(200, func(_ *attackers, n int64) call {
			return nested[n%int64(len(nested))]
		})},
		"lists of 10,000 objects in YAML": {user: attacker, run: calls(100, func(*attackers, int64) call {
			return call{http.MethodGet, menuPath, "Accept", yamlType, nil}
		})},
		"selectors of 40,000 requirements": {user: attacker, run: calls(200, func(*attackers, int64) call {
			return call{http.MethodGet, menuPath + selector, "Accept", jsonType, nil}
		})},
		"patches that copy": {user: attacker, run: calls(200, func(*attackers, int64) call {
			patch := `[{"op":"add","path":"/metadata/annotations","value":{"a":"` + strings.Repeat("x", 1<<10) + `"}}`
			for range 30 {
				patch += `,{"op":"copy","from":"/metadata/annotations","path":"/metadata/annotations/b"}`
			}
			return call{http.MethodPatch, attackedPath + "/target" + dryRun, "Content-Type", "application/json-patch+json", []byte(patch + "]")}
		})},
		"5,000 watches": {user: attacker, run: calls(5000, func(*attackers, int64) call {
			return call{http.MethodGet, attackedPath + "?watch=true", "Accept", jsonType, nil}
		})},
	}
}

// both attacks in two ways at once.
func both(one, other func(context.Context, *attackers)) func(context.Context, *attackers) {
	return func(ctx context.Context, a *attackers) {
		done := make(chan struct{})
		go func() { defer close(done); one(ctx, a) }()
		other(ctx, a)
		<-done
	}
}

// create returns a request that would create a pizza.
func create(mediaType, body string) call {
	return call{http.MethodPost, attackedPath + dryRun, "Content-Type", mediaType, []byte(body)}
}

// bodies are a review of conversions, and pizzas in all encodings, some of them with many empty owners.
func bodies() []call {
	pizza := framework.Pizza("new")
	pizza.SetGroupVersionKind(restaurantv1.SchemeGroupVersion.WithKind("Pizza"))
	old := `{"apiVersion":"restaurant.programming-kubernetes.info/v1alpha1","kind":"Pizza","metadata":{"name":"a","namespace":"a"},"spec":{"toppings":["tomato"]}}`
	review := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"a","desiredAPIVersion":"restaurant.programming-kubernetes.info/v1","objects":[` +
		old + strings.Repeat(","+old, bodyBytes/len(old)-10) + `]}}`
	pizza.OwnerReferences = make([]metav1.OwnerReference, bodyBytes/20)
	owners, _ := json.Marshal(pizza)
	owners = bytes.ReplaceAll(owners, []byte(`{"apiVersion":"","kind":"","name":"","uid":""}`), []byte("{}"))
	protobuf, _ := runtime.Encode(scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(nil, nil), restaurantv1.SchemeGroupVersion), pizza)
	pizza.OwnerReferences = nil
	pizza.Annotations = map[string]string{"a": strings.Repeat("x", bodyBytes-1<<10)}
	plain, _ := json.Marshal(pizza)
	pizza.Annotations["a"] = pizza.Annotations["a"][:250<<10]
	small, _ := json.Marshal(pizza)
	return []call{
		create(jsonType, review), create(jsonType, string(plain)), create(jsonType, string(owners)),
		create(yamlType, string(plain)), create(yamlType, "# as YAML\n"+string(small)), create(protobufType, string(protobuf)),
	}
}

// nested are texts whose decoders take much more time or memory than they look like.
func nested() []call {
	const head = "apiVersion: v1\nkind: Pizza\nmetadata:\n  annotations:\n"
	tags := "%TAG !e! " + strings.Repeat("x", 100<<10) + "\n---\n" + head + strings.Repeat("    a: !e!a b\n", 5000)
	aliases := head + "    a: &a " + strings.Repeat("x", 100<<10) + "\n" + strings.Repeat("    b: *a\n", 5000)
	return []call{
		create(yamlType, tags), create(yamlType, aliases), create(yamlType, head+"    a: "+strings.Repeat("[", 200<<10)),
		create(jsonType, `{"a":`+strings.Repeat("[", 1<<20)),
		create(jsonType, `{"spec":{"a":"1e-999999999","b":`+strings.Repeat(`{"a":`, 200<<10)),
	}
}

// orders is the environment variable of a process that attacks. In the process of the tests, the neighbor would wait for it.
const orders = "ATTACKER"

type order struct {
	Attack, Host string
	Webhook      bool
	Credentials  rest.TLSClientConfig
	Duration     time.Duration
}

// send has a process attack as ordered, and returns how often it got which answers.
func (o order) send(ctx context.Context) (answers map[string]int, err error) {
	text, _ := json.Marshal(o)
	// Attackers have machines of their own: here, they get what the others leave of the processors.
	cmd := exec.CommandContext(ctx, "nice", "-n", "10", os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), orders+"="+string(text)), os.Stderr
	output, err := cmd.Output()
	err = errors.Join(err, json.Unmarshal(output, &answers))
	return answers, err
}

// obey attacks as ordered.
func obey(text string) (err error) {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	a := &attackers{host: strings.TrimPrefix(o.Host, "https://"), webhook: o.Webhook, answers: map[string]int{}}
	if a.tls, err = rest.TLSConfigFor(&rest.Config{Host: o.Host, TLSClientConfig: o.Credentials}); err != nil {
		return err
	}
	a.tls.ServerName = "localhost"
	ctx, stop := context.WithTimeout(context.Background(), o.Duration)
	defer stop()
	attacks()[o.Attack].run(ctx, a)
	return json.NewEncoder(os.Stdout).Encode(a.answers)
}

// attackers are a user with many connections, or many strangers.
type attackers struct {
	host    string
	webhook bool
	tls     *tls.Config
	// sent counts requests, and dialed connections.
	sent, dialed atomic.Int64

	mu      sync.Mutex
	answers map[string]int
}

func (a *attackers) got(answer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers[answer]++
}

// addresses are those that strangers have together, each with as many connections as it may have.
const addresses = 4

// dial returns a connection that ends with the attack, whatever goes on over it.
func (a *attackers) dial(ctx context.Context) (net.Conn, error) {
	from := net.IPv4(127, 0, 0, byte(2+a.dialed.Add(1)%addresses))
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: 10 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", a.host)
	if err == nil {
		context.AfterFunc(ctx, func() { _ = conn.Close() })
	}
	return conn, err
}

// atOnce does something so many times at once, again and again.
func atOnce(ctx context.Context, times int, do func(context.Context)) {
	var all sync.WaitGroup
	for range times {
		all.Go(func() {
			for ctx.Err() == nil {
				do(ctx)
			}
		})
	}
	all.Wait()
}

// call is a request.
type call struct {
	method, path, headerName, header string
	body                             []byte
}

// calls is an attack by so many requests at once, over some connections of HTTP/2.
func calls(times int, next func(a *attackers, n int64) call) func(context.Context, *attackers) {
	return func(ctx context.Context, a *attackers) {
		var clients [20]http.Client
		for i := range clients {
			clients[i].Transport = &http.Transport{
				DialContext:     func(context.Context, string, string) (net.Conn, error) { return a.dial(ctx) },
				TLSClientConfig: a.tls.Clone(), ForceAttemptHTTP2: true, MaxConnsPerHost: 1, DisableCompression: true,
			}
		}
		atOnce(ctx, times, func(ctx context.Context) {
			n := a.sent.Add(1)
			c := next(a, n)
			request, _ := http.NewRequestWithContext(ctx, c.method, "https://"+a.host+c.path, bytes.NewReader(c.body))
			request.Header.Set(c.headerName, c.header)
			response, err := clients[n%int64(len(clients))].Do(request)
			if err == nil {
				a.got(response.Status[:3])
				_, _ = io.Copy(io.Discard, response.Body) // The attackers do not mind.
				response.Body.Close()
			} else if ctx.Err() == nil {
				a.got("broken")
			}
		})
	}
}

// begun is an attack by so many connections over which something begins that never ends.
func begun(times int, protocol string, begin func(*attackers, net.Conn) error) func(context.Context, *attackers) {
	return func(ctx context.Context, a *attackers) {
		config := a.tls.Clone()
		config.NextProtos = []string{protocol}
		atOnce(ctx, times, func(ctx context.Context) {
			raw, err := a.dial(ctx)
			defer framework.Pause(ctx, 100*time.Millisecond)
			if err != nil {
				a.got("no connection")
				return
			}
			defer raw.Close()
			conn := tls.Client(raw, config)
			if err := conn.HandshakeContext(ctx); err != nil {
				a.got("no handshake")
			} else if err := begin(a, conn); err != nil {
				a.got("ended early")
			} else {
				a.got("begun")
				_, _ = io.Copy(io.Discard, conn)
			}
		})
	}
}

// wire is a connection of HTTP/2 to which frames are written as they come.
type wire struct {
	*http2.Framer
	host   string
	stream uint32
}

// wired begins HTTP/2 on a connection.
func wired(a *attackers, conn net.Conn) (*wire, error) {
	w := &wire{http2.NewFramer(conn, nil), a.host, 1}
	_, err := io.WriteString(conn, http2.ClientPreface)
	return w, errors.Join(err, w.WriteSettings())
}

// get writes the headers of a GET request, and returns its stream.
func (w *wire) get(path string, end bool) (uint32, error) {
	stream := w.stream
	w.stream += 2
	block := encode([][2]string{{":method", http.MethodGet}, {":scheme", "https"}, {":authority", w.host}, {":path", path}})
	return stream, w.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndStream: end, EndHeaders: end})
}

// encode encodes headers that a connection does not remember.
func encode(fields [][2]string) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range fields {
		_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1], Sensitive: true}) // To memory.
	}
	return block.Bytes()
}
