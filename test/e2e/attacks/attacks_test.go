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
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const (
	menuPath     = framework.GroupPath + "/v1/namespaces/" + menuNamespace + "/pizzas"
	attackedPath = framework.GroupPath + "/v1/namespaces/" + attackedNamespace + "/pizzas"
	dryRun       = "?dryRun=All"

	jsonType     = "application/json"
	yamlType     = "application/yaml"
	applyType    = "application/apply-patch+yaml"
	mergeType    = "application/merge-patch+json"
	protobufType = "application/vnd.kubernetes.protobuf"
	cborType     = "application/cbor"

	// bodyBytes is nearly as much as a body may have.
	bodyBytes = 3<<20 - 1<<10
)

// attack is what an attacker does.
type attack struct {
	// user is the one that the attacker has credentials of; empty is nobody.
	user string
	// accounts are the number of ServiceAccounts of one namespace that attack instead, which may
	// write there.
	accounts int
	// namespaces are the number of those that a ServiceAccount each attacks from instead.
	namespaces int
	// addresses is how many the attacker has, if not one.
	addresses int64
	// builtIn attacks need what custom resources don't have, defined ones a custom resource, and
	// toWebhook is of attacks on what converts and judges them.
	builtIn, defined, toWebhook bool
	// frames are not requests that kube-apiserver would forward, and direct attacks are of what it
	// does itself.
	frames, direct bool
	// allowed attacks are those of requests with which nothing is wrong.
	allowed bool
	run     func(context.Context, *attacker)
}

// attacks returns all of them by name.
func attacks() map[string]attack {
	all := map[string]attack{}
	for name, a := range requestAttacks() {
		all[name] = a
	}
	for name, a := range bodyAttacks() {
		all[name] = a
	}
	for name, a := range massAttacks() {
		all[name] = a
	}
	for name, a := range webhookAttacks() {
		a.toWebhook = true
		all[name] = a
	}
	for name, a := range frameAttacks() {
		a.frames = true
		all[name] = a
	}
	return all
}

func read(user string, path func(n int64) string) attack {
	return attack{user: user, run: calls(func(n int64) call { return call{method: http.MethodGet, path: path(n)} })}
}

func requestAttacks() map[string]attack {
	long := func(bytes int) string { return strings.Repeat("x", bytes) }
	selector := func(n int64, requirements int) string {
		return url.QueryEscape(fmt.Sprintf("a%d%s", n, strings.Repeat(",!b", requirements-1)))
	}
	return map[string]attack{
		"refused lists with selectors of 900 KB": read(nobody, func(n int64) string {
			return fmt.Sprintf("%s?fieldSelector=metadata.name%%3D%s%d", menuPath, long(900<<10), n)
		}),
		"refused lists with selectors of 30 KB": read(nobody, func(n int64) string {
			return fmt.Sprintf("%s?fieldSelector=metadata.name%%3D%s%d", menuPath, long(30<<10), n)
		}),
		"selectors of 40,000 requirements": read(reader, func(n int64) string { return menuPath + "?labelSelector=" + selector(n, 40_000) }),
		"selectors of 1,000 requirements":  read(reader, func(n int64) string { return menuPath + "?labelSelector=" + selector(n, 1000) }),
		"lists":                            read(reader, func(int64) string { return menuPath }),
		"lists in YAML": {user: reader, run: calls(func(int64) call {
			return call{method: http.MethodGet, path: menuPath, header: map[string]string{"Accept": yamlType}}
		})},
		"tables": {user: reader, run: calls(func(int64) call {
			return call{method: http.MethodGet, path: menuPath, header: map[string]string{"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}}
		})},
		"random bearer tokens": {run: calls(func(n int64) call {
			return call{method: http.MethodGet, path: menuPath, header: map[string]string{"Authorization": fmt.Sprintf("Bearer %d", n)}}
		})},
		"track without follow": {user: writer, builtIn: true, run: calls(func(int64) call {
			return call{method: http.MethodGet, path: attackedPath + "/target/track"}
		})},
		"many followers": {user: writer, builtIn: true, allowed: true, run: followers},
	}
}

// massAttacks are of more requests at once than the server works on, and of several users.
func massAttacks() map[string]attack {
	// Each is about another name, so that no cached review answers it.
	get := func(n int64, header map[string]string) call {
		return call{method: http.MethodGet, path: fmt.Sprintf("%s/mass-%d", menuPath, n), header: header}
	}
	return map[string]attack{
		"1,280 gets without a permission": {user: nobody, run: masses(func(_ *attacker, n int64) call { return get(n, nil) })},
		"1,280 impersonations": {user: nobody, direct: true, run: masses(func(_ *attacker, n int64) call {
			return get(n, map[string]string{"Impersonate-User": fmt.Sprint("u", n)})
		})},
		"a known token, a tab and a number": {accounts: 1, direct: true, run: masses(func(a *attacker, n int64) call {
			return get(n, map[string]string{"Authorization": fmt.Sprintf("%s\t%d", a.bearer(0), n)})
		})},
		"audit IDs of others": {user: nobody, run: masses(func(_ *attacker, n int64) call {
			return get(n, map[string]string{"Audit-ID": strings.Repeat("a", 1000)})
		})},
		"announced bodies of five ServiceAccounts": {accounts: 5, frames: true, run: frames(announcedBodies)},
		"WebSockets that watch":                    {user: writer, run: websockets},
		"watches without end":                      {user: writer, allowed: true, run: manyWatches(nil)},
		"watches with bodies":                      {user: writer, allowed: true, run: manyWatches(make([]byte, 256<<10))},
		"everything at once":                       {namespaces: otherNamespaces, addresses: 3, direct: true, run: everything},
		// Through kube-apiserver, which opens connections for requests that are given up, its own
		// processors are the first to be busy.
		"lists that are given up": {user: reader, direct: true, run: givenUp},
	}
}

// announcedBodies begins bodies of 3 MiB and sends a byte of each.
func announcedBodies(ctx context.Context, w *wire) error {
	if err := w.WriteSettings(); err != nil {
		return err
	}
	for n := range int64(streams) {
		stream, err := w.open(w.block(http.MethodPost, attackedPath+dryRun, hpack.HeaderField{Name: "content-type", Value: jsonType},
			hpack.HeaderField{Name: "authorization", Value: w.attacker.bearer(n), Sensitive: true},
			hpack.HeaderField{Name: "content-length", Value: fmt.Sprint(bodyBytes)}), false)
		if err != nil {
			return err
		}
		if err := w.WriteData(stream, false, []byte("{")); err != nil {
			return err
		}
	}
	return w.wait(ctx)
}

// webhookAttacks are those of an attacker that has learned the webhook's paths, but for the first.
func webhookAttacks() map[string]attack {
	review := func(kind, version, request string) []byte {
		return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"request":{"uid":"a",%s}}`, version, kind, request)
	}
	// pizza is one that names n toppings.
	pizza := func(version string, n int64, toppings string) string {
		return fmt.Sprintf(`{"apiVersion":"restaurant.programming-kubernetes.info/%s","kind":"Pizza","metadata":{"name":"a%d","namespace":"a"},"spec":{"toppings":[%s]}}`, version, n, toppings)
	}
	convert := func(size int) []byte {
		one := pizza("v1alpha1", 0, `"tomato"`) + ","
		objects := strings.TrimSuffix(strings.Repeat(one, size/len(one)), ",")
		return review("ConversionReview", "apiextensions.k8s.io/v1", `"desiredAPIVersion":"restaurant.programming-kubernetes.info/v1","objects":[`+objects+`]`)
	}
	admit := func(operation string, resource, kind, name, object string) []byte {
		return review("AdmissionReview", "admission.k8s.io/v1", fmt.Sprintf(`"operation":%q,"name":%q,"kind":{"group":"restaurant.programming-kubernetes.info","version":"v1","kind":%q},`+
			`"resource":{"group":"restaurant.programming-kubernetes.info","version":"v1","resource":%q},%s`, operation, name, kind, resource, object))
	}
	post := func(next func(n int64) (path string, body []byte)) func(*attacker, int64) call {
		return func(_ *attacker, n int64) call {
			path, body := next(n)
			return call{method: http.MethodPost, path: path, header: map[string]string{"Content-Type": jsonType}, body: body}
		}
	}
	mebibyte, large, tooLarge := convert(1<<20), convert(7<<20), convert(98<<20)
	return map[string]attack{
		"paths that are none": {run: callsBy(false, inFlight, post(func(n int64) (string, []byte) { return fmt.Sprintf("/convert-%d", n), mebibyte }))},
		"announced conversions of 7 MiB": {run: endless("http/1.1", func(conn io.Writer, _ *attacker) error {
			_, err := fmt.Fprintf(conn, "POST /convert HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", jsonType, len(large), mebibyte[:64<<10])
			return err
		})},
		"conversions of 7 MiB":       {allowed: true, run: callsBy(false, 1, post(func(int64) (string, []byte) { return "/convert", large }))},
		"conversions of 98 MiB":      {run: callsBy(false, 1, post(func(int64) (string, []byte) { return "/convert", tooLarge }))},
		"1,280 conversions of 1 MiB": {allowed: true, run: callsBy(false, inFlight, post(func(int64) (string, []byte) { return "/convert", mebibyte }))},
		"pizzas of unknown toppings": {allowed: true, run: callsBy(false, inFlight, post(func(n int64) (string, []byte) {
			return "/validate", admit("CREATE", "pizzas", "Pizza", fmt.Sprint("a", n), `"object":`+pizza("v1", n, fmt.Sprintf(`{"name":"unknown-%d"}`, n)))
		}))},
		"announced conversions from eight addresses": {addresses: 8, run: endless("http/1.1", func(conn io.Writer, _ *attacker) error {
			_, err := fmt.Fprintf(conn, "POST /convert HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", jsonType, len(large), mebibyte[:512<<10])
			return err
		})},
		"1,280 conversions of 1 MiB from eight addresses": {addresses: 8, allowed: true, run: callsBy(false, inFlight, post(func(int64) (string, []byte) { return "/convert", mebibyte }))},
		"headers of strangers that never end":             {addresses: 3, run: endless("http/1.1", beginMany)},
		"deletions of toppings": {allowed: true, run: callsBy(false, inFlight, post(func(int64) (string, []byte) {
			object := `{"apiVersion":"restaurant.programming-kubernetes.info/v1","kind":"Topping","metadata":{"name":"tomato"},"spec":{"cost":"1"}}`
			return "/validate", admit("DELETE", "toppings", "Topping", "tomato", `"oldObject":`+object)
		}))},
	}
}

// websockets opens more connections than an IP address may have. Each takes one between
// kube-apiserver and the server, too.
func websockets(ctx context.Context, a *attacker) {
	const each = 20
	onConnections(ctx, func(ctx context.Context) {
		var all sync.WaitGroup
		for range each {
			all.Go(func() {
				over(ctx, a, "http/1.1", func(conn net.Conn) {
					_, _ = fmt.Fprintf(conn, "GET %s?watch=true HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
						"Origin: https://localhost\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n", attackedPath)
					status := make([]byte, len("HTTP/1.1 101"))
					if _, err := io.ReadFull(conn, status); err == nil {
						a.got(string(status[len("HTTP/1.1 "):]))
					}
					_, _ = io.Copy(io.Discard, conn)
				})
				select { // It is opened again.
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			})
		}
		all.Wait()
	})
}

// givenUp asks for lists, and gives each up before it comes.
func givenUp(ctx context.Context, a *attacker) {
	onConnections(ctx, func(ctx context.Context) {
		client := &http.Client{Transport: &http.Transport{
			DialContext:     func(context.Context, string, string) (net.Conn, error) { return a.dialUntil(ctx) },
			TLSClientConfig: a.tls.Clone(), ForceAttemptHTTP2: true, MaxConnsPerHost: 1,
		}}
		var all sync.WaitGroup
		for n := range perConnection {
			all.Go(func() {
				for ctx.Err() == nil {
					request, leave := context.WithTimeout(ctx, time.Duration(n+1)*5*time.Millisecond)
					a.send(request, client, call{method: http.MethodGet, path: menuPath})
					leave()
				}
			})
		}
		all.Wait()
	})
}

// followers opens streams until the attack ends.
func followers(ctx context.Context, a *attacker) {
	follow := calls(func(int64) call {
		return call{method: http.MethodGet, path: attackedPath + "/target/track?follow=true"}
	})
	var all sync.WaitGroup
	for range 20 { // Each has its own connections.
		all.Go(func() { follow(ctx, a) })
	}
	all.Wait()
}

func write(method, path, contentType string, body []byte) attack {
	return attack{user: writer, run: calls(func(int64) call {
		return call{method: method, path: path, header: map[string]string{"Content-Type": contentType}, body: body}
	})}
}

func bodyAttacks() map[string]attack {
	const head = "apiVersion: restaurant.programming-kubernetes.info/v1\nkind: Pizza\nmetadata:\n  name: new\n"
	aliases := head + "  annotations:\n    a: &a " + strings.Repeat("x", 1<<20) + "\n" + strings.Repeat("    b: *a\n", 300)
	wide := head + "  labels:\n" + strings.Repeat("    a: b\n", bodyBytes/len("    a: b\n")-20)
	owners := append([]byte("k8s\x00"), protobufPizza(bytes.Repeat([]byte{0x6a, 0}, bodyBytes/2-100))...)
	arrays := append([]byte{0xd9, 0xd9, 0xf7}, bytes.Repeat([]byte{0x9f, 0xff}, bodyBytes/2)...)
	plain := func(bytes int) []byte { return big("new", bytes) }
	gzipped := write(http.MethodPost, attackedPath+dryRun, jsonType, nil)
	bomb := compressed(big("new", 256<<20))
	gzipped.run = calls(func(int64) call {
		return call{method: http.MethodPost, path: attackedPath + dryRun, header: map[string]string{"Content-Type": jsonType, "Content-Encoding": "gzip"}, body: bomb}
	})
	large := write(http.MethodPost, attackedPath+dryRun, jsonType, plain(bodyBytes-1<<10))
	large.allowed = true
	bake := write(http.MethodPost, attackedPath+"/target/bake"+dryRun, yamlType, []byte(aliases))
	bake.builtIn = true
	labels := attack{user: labeller, allowed: true, run: func(ctx context.Context, a *attacker) {
		a.send(ctx, &http.Client{Transport: &http.Transport{TLSClientConfig: a.tls.Clone()}}, call{
			method: http.MethodPost, path: attackedPath, header: map[string]string{"Content-Type": jsonType}, body: big("labelled", 600_000),
		})
		calls(func(n int64) call {
			return call{method: http.MethodPatch, path: attackedPath + "/labelled", header: map[string]string{"Content-Type": mergeType}, body: fmt.Appendf(nil, `{"metadata":{"labels":{"n":"%d"}}}`, n)}
		})(ctx, a)
	}}
	// Its objects are not judged by a webhook before they are validated.
	pattern := func(query, spec string) attack {
		a := write(http.MethodPost, framework.GroupPath+"/v1/namespaces/"+attackedNamespace+"/patterns"+dryRun+query, jsonType,
			fmt.Appendf(nil, `{"apiVersion":"restaurant.programming-kubernetes.info/v1","kind":"Pattern","metadata":{"name":"new"},"spec":{%s}}`, spec))
		a.defined = true
		return a
	}
	outlived := pattern("&timeout=1s", `"pattern":["b"`+strings.Repeat(`,"b"`, 18_000)+`]`)
	defaulted := pattern("", `"defaulted":[{}`+strings.Repeat(`,{}`, 18_000)+`]`)
	return map[string]attack{
		"work that outlives its requests":            outlived,
		"defaults of many elements":                  defaulted,
		"labels of a big object":                     labels,
		"fieldManager of 15,000 NULs":                write(http.MethodPost, attackedPath+dryRun+"&fieldManager="+strings.Repeat("%00", 15_000), jsonType, plain(0)),
		"YAML aliases of a long string":              write(http.MethodPost, attackedPath+dryRun, yamlType, []byte(aliases)),
		"YAML aliases in an apply":                   write(http.MethodPatch, attackedPath+"/target"+dryRun+"&fieldManager=a", applyType, []byte(aliases)),
		"wide YAML":                                  write(http.MethodPost, attackedPath+dryRun, yamlType, []byte(wide)),
		"wide YAML in a deletion":                    write(http.MethodDelete, attackedPath+"/target"+dryRun, yamlType, []byte(wide)),
		"YAML aliases in a deletion of a collection": write(http.MethodDelete, attackedPath+dryRun, yamlType, []byte(aliases)),
		"YAML aliases in a bake":                     bake,
		"protobuf with empty owners":                 write(http.MethodPost, attackedPath+dryRun, protobufType, owners),
		"CBOR with empty arrays":                     write(http.MethodPost, attackedPath+dryRun, cborType, arrays),
		"compressed bodies":                          gzipped,
		"bodies as large as they may be":             large,
		"names of 1 MiB":                             write(http.MethodPost, attackedPath+dryRun, jsonType, bytes.Replace(plain(0), []byte("new"), bytes.Repeat([]byte("n"), 1<<20), 1)),
	}
}

// protobufPizza is a pizza with these fields in its metadata, in the envelope of protobuf.
func protobufPizza(metadata []byte) []byte {
	field := func(number byte, value []byte) []byte {
		out := []byte{number<<3 | 2}
		for n := len(value); ; n >>= 7 {
			if n < 0x80 {
				out = append(out, byte(n))
				break
			}
			out = append(out, byte(n)|0x80)
		}
		return append(out, value...)
	}
	typeMeta := append(field(1, []byte("restaurant.programming-kubernetes.info/v1")), field(2, []byte("Pizza"))...)
	return append(field(1, typeMeta), field(2, field(1, metadata))...)
}

func compressed(content []byte) []byte {
	var buffer bytes.Buffer
	writer := gzip.NewWriter(&buffer)
	_, _ = writer.Write(content) // To memory.
	_ = writer.Close()
	return buffer.Bytes()
}

func frameAttacks() map[string]attack {
	resets := frames(func(ctx context.Context, w *wire) error {
		if err := w.WriteSettings(); err != nil {
			return err
		}
		for block := w.block(http.MethodGet, menuPath); ctx.Err() == nil; {
			stream, err := w.open(block, true)
			if err != nil {
				return err
			}
			if err := w.WriteRSTStream(stream, http2.ErrCodeCancel); err != nil {
				return err
			}
		}
		return nil
	})
	return map[string]attack{
		"rapid resets, anonymous":     {run: resets},
		"rapid resets, authenticated": {user: reader, run: resets},
		"CONTINUATION frames without end": {run: flood(func(w *wire) error {
			if w.stream == 1 {
				return w.WriteHeaders(http2.HeadersFrameParam{StreamID: w.next(), BlockFragment: w.block(http.MethodGet, menuPath)})
			}
			return w.WriteContinuation(1, false, w.block(http.MethodGet, "/", hpack.HeaderField{Name: "a", Value: "b", Sensitive: true}))
		})},
		"SETTINGS frames": {run: flood(func(w *wire) error {
			return w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		})},
		"SETTINGS frames, unread": {run: unread(repeat(func(w *wire) error { return w.WriteSettings() }))},
		"PING frames":             {run: flood(func(w *wire) error { return w.WritePing(false, [8]byte{}) })},
		"PING frames, unread":     {run: unread(repeat(func(w *wire) error { return w.WritePing(false, [8]byte{}) }))},
		"WINDOW_UPDATE frames":    {run: flood(func(w *wire) error { return w.WriteWindowUpdate(0, 1) })},
		"headers of 1 MiB": {run: flood(func(w *wire) error {
			_, err := w.open(w.block(http.MethodGet, menuPath, hpack.HeaderField{Name: "a", Value: strings.Repeat("b", 1<<20-1<<10), Sensitive: true}), true)
			return err
		})},
		"headers of 1 MiB, over HTTP/1.1": {run: callsBy(false, perConnection, func(*attacker, int64) call {
			return call{method: http.MethodGet, path: "/", header: map[string]string{"A": strings.Repeat("b", 1<<20-1<<13)}}
		})},
		"headers that never end":                       {addresses: 3, run: endless("h2", beginHeaders)},
		"headers that never end, over HTTP/1.1":        {addresses: 3, run: endless("http/1.1", beginText)},
		"many headers that never end":                  {addresses: 3, run: endless("http/1.1", beginMany)},
		"headers whose body never comes":               {addresses: 3, run: endless("http/1.1", beginBodies)},
		"refused headers, unread":                      {addresses: 3, run: endless("h2", beginCookies)},
		"headers of a byte that never end":             {addresses: 3, run: endless("h2", beginIndexed)},
		"handshakes that never end":                    {addresses: 3, run: handshakes},
		"handshakes that never end, with certificates": {addresses: 3, run: certificatesBegun},
		"connections with large buffers":               {addresses: 3, run: buffers},
		"connections with many certificates":           {addresses: 3, run: certificates},
		"slow bodies":                                  {user: writer, run: frames(slowBodies)},
		"slow readers of compressed OpenAPI":           {namespaces: otherNamespaces, addresses: 3, run: frames(slowReaders("/openapi/v2", 0, hpack.HeaderField{Name: "accept-encoding", Value: "gzip"}))},
		"slow readers of compressed watches": {user: reader, run: frames(slowReaders(menuPath+"?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan", 0,
			hpack.HeaderField{Name: "accept-encoding", Value: "gzip"}))},
		"slow readers of lists":                   {user: reader, run: frames(slowReaders(menuPath, 0))},
		"slow readers of lists, unread":           {user: reader, run: unread(slowReaders(menuPath, 0))},
		"slow readers, large window, unread":      {user: reader, run: unread(slowReaders(menuPath, math.MaxInt32))},
		"slow readers of a selection":             {user: reader, run: frames(slowReaders(menuPath+"?labelSelector=name%3Dpizza-1", 0))}, // A small one of a large list.
		"slow readers of pizzas":                  {user: reader, run: frames(slowReaders(menuPath+"/pizza-1", 0))},
		"watches of big events that nobody reads": {user: writer, allowed: true, run: watches},
	}
}

// repeat writes the same until the attack or the connection ends.
func repeat(write func(w *wire) error) func(context.Context, *wire) error {
	return func(ctx context.Context, w *wire) error {
		if err := w.WriteSettings(); err != nil {
			return err
		}
		for ctx.Err() == nil {
			if err := write(w); err != nil {
				return err
			}
		}
		return nil
	}
}

func flood(write func(w *wire) error) func(context.Context, *attacker) { return frames(repeat(write)) }

const streams = 100 // of a connection, as many as it may have

// slowBodies begins bodies that go on with a byte a second.
func slowBodies(ctx context.Context, w *wire) error {
	if err := w.WriteSettings(); err != nil {
		return err
	}
	var open []uint32
	for range streams {
		stream, err := w.open(w.block(http.MethodPost, attackedPath+dryRun, hpack.HeaderField{Name: "content-type", Value: jsonType}), false)
		if err != nil {
			return err
		}
		open = append(open, stream)
	}
	for ctx.Err() == nil {
		for _, stream := range open {
			// That of a stream that has ended is not minded.
			if err := w.WriteData(stream, false, []byte("{")); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

// slowReaders asks for a path, and lets the server send as much of it over HTTP/2 as a window allows.
func slowReaders(path string, window uint32, more ...hpack.HeaderField) func(context.Context, *wire) error {
	return func(ctx context.Context, w *wire) error {
		if err := w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
			return err
		}
		if window > 0 { // The connection has one of its own.
			if err := w.WriteWindowUpdate(0, window>>1); err != nil {
				return err
			}
		}
		for n := range int64(streams) {
			header := more
			if w.attacker.tokens != nil {
				header = append(slices.Clone(more), hpack.HeaderField{Name: "authorization", Value: w.attacker.bearer(n), Sensitive: true})
			}
			if _, err := w.open(w.block(http.MethodGet, path, header...), true); err != nil {
				return err
			}
		}
		return w.wait(ctx)
	}
}

// manyWatches opens 12,800 of them, one after the other over each connection.
func manyWatches(body []byte) func(context.Context, *attacker) {
	return func(ctx context.Context, a *attacker) { openWatches(ctx, a, body) }
}

func openWatches(ctx context.Context, a *attacker, body []byte) {
	const each = 4
	onConnections(ctx, func(ctx context.Context) {
		var all sync.WaitGroup
		for range each {
			all.Go(func() {
				client := &http.Client{Transport: &http.Transport{
					DialContext:     func(context.Context, string, string) (net.Conn, error) { return a.dialUntil(ctx) },
					TLSClientConfig: a.tls.Clone(), ForceAttemptHTTP2: true, MaxConnsPerHost: 1,
				}}
				for open := 0; open < streams && ctx.Err() == nil; {
					request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+a.host+attackedPath+"?watch=true&fieldSelector=metadata.name%3Dnone", bytes.NewReader(body))
					if err != nil {
						a.got(err.Error())
						return
					}
					if a.tokens != nil {
						request.Header.Set("Authorization", a.bearer(a.counter.Add(1)))
					}
					response, err := client.Do(request)
					if err != nil {
						continue
					}
					a.got(fmt.Sprint("watch ", response.StatusCode))
					if response.StatusCode == http.StatusOK {
						defer response.Body.Close()
						open++
						continue
					}
					response.Body.Close()
					select {
					case <-ctx.Done():
					case <-time.After(time.Second):
					}
				}
				<-ctx.Done()
			})
		}
		all.Wait()
	})
}

// watches opens 300 of them, reads nothing, and changes a big object.
func watches(ctx context.Context, a *attacker) {
	const perConnection = 10
	// Attackers take as little time as they can: they run beside what measures.
	before, after, _ := bytes.Cut(big("watched", 600_000), []byte(`"ownerReferences"`))
	apply := func(n int64) call {
		body := slices.Concat(before, fmt.Appendf(nil, `"labels":{"n":"%d"},"ownerReferences"`, n), after)
		return call{method: http.MethodPatch, path: attackedPath + "/watched?fieldManager=a&force=true", header: map[string]string{"Content-Type": applyType}, body: body}
	}
	a.send(ctx, &http.Client{Transport: &http.Transport{TLSClientConfig: a.tls.Clone()}}, apply(0))
	var all sync.WaitGroup
	all.Go(func() { calls(apply)(ctx, a) })
	all.Go(func() {
		frames(func(ctx context.Context, w *wire) error {
			if err := w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
				return err
			}
			for range perConnection {
				if _, err := w.open(w.block(http.MethodGet, attackedPath+"?watch=true"), true); err != nil {
					return err
				}
			}
			return w.wait(ctx)
		})(ctx, a)
	})
	all.Wait()
}
