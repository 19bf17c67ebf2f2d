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

package fuzz

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/install"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const (
	group = restaurant.GroupName
	// corpusFile has the requests that others are made from, one a line.
	corpusFile = "testdata/corpus.jsonl"
	// bodyBytes is up to which size bodies grow.
	bodyBytes = 64 << 10
)

// request is what is sent.
type request struct {
	Method string      `json:"method"`
	Path   string      `json:"path"`
	Query  string      `json:"query,omitempty"`
	Header http.Header `json:"header,omitempty"`
	Body   []byte      `json:"body,omitempty"`
}

func (r request) String() string {
	text, _ := json.Marshal(r)
	return string(text)
}

// seeds returns requests of all kinds, valid ones.
func seeds(t *testing.T) (requests []request) {
	t.Helper()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme, serializer.WithSerializer(cbor.NewSerializerInfo))
	bodies := map[string]runtime.Object{
		"pizzas":       &restaurant.Pizza{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: restaurant.PizzaSpec{Toppings: []restaurant.PizzaTopping{{Name: "tomato", Quantity: 2}}, Replicas: 3}},
		"toppings":     &restaurant.Topping{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: restaurant.ToppingSpec{Cost: new(resource.MustParse("1.5"))}},
		"pricereviews": &restaurant.PriceReview{Spec: restaurant.PriceReviewSpec{Toppings: []restaurant.PizzaTopping{{Name: "tomato", Quantity: 1}}}},
		"bake":         &restaurant.Bake{Spec: restaurant.BakeSpec{Count: 1}},
	}
	with := func(mediaType string, more ...string) http.Header {
		header := http.Header{"Content-Type": {mediaType}}
		for i := 0; i < len(more); i += 2 {
			header.Set(more[i], more[i+1])
		}
		return header
	}
	for _, version := range framework.Versions() {
		gv := schema.GroupVersion{Group: group, Version: version}
		root := "/apis/" + gv.String()
		pizzas, toppings := root+"/namespaces/"+namespace+"/pizzas", root+"/toppings"
		for _, path := range []string{root, "/apis/" + group, "/openapi/v3" + root, "/openapi/v3", "/version", "/readyz", "/metrics",
			pizzas, root + "/pizzas", pizzas + "/a", pizzas + "/a/status", pizzas + "/a/scale", pizzas + "/a/track", toppings, toppings + "/a"} {
			requests = append(requests, request{Method: "GET", Path: path, Header: http.Header{"Accept": {"application/json"}}})
		}
		requests = append(requests,
			request{Method: "GET", Path: pizzas, Query: "watch=true&timeoutSeconds=1&resourceVersion=1&allowWatchBookmarks=true"},
			request{Method: "GET", Path: pizzas, Query: "limit=1&labelSelector=a%3Db&fieldSelector=metadata.name%3Da"},
			request{Method: "DELETE", Path: pizzas + "/a", Query: "dryRun=All&propagationPolicy=Background"},
			request{Method: "DELETE", Path: pizzas, Query: "labelSelector=a", Header: with("application/json"), Body: []byte(`{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"a"},"gracePeriodSeconds":0}`)},
			request{Method: "PUT", Path: pizzas + "/a/scale", Header: with("application/json"), Body: []byte(`{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"a","namespace":"` + namespace + `"},"spec":{"replicas":2}}`)},
		)
		for _, encoding := range codecs.SupportedMediaTypes() {
			for name, object := range bodies {
				path := map[string]string{"pizzas": pizzas, "toppings": toppings, "pricereviews": root + "/pricereviews", "bake": pizzas + "/a/bake"}[name]
				if !scheme.Recognizes(gv.WithKind(kindOf(t, scheme, object))) {
					continue
				}
				body, err := runtime.Encode(codecs.EncoderForVersion(encoding.Serializer, gv), object)
				require.NoError(t, err)
				header := with(encoding.MediaType, "Accept", encoding.MediaType)
				requests = append(requests, request{Method: "POST", Path: path, Query: "fieldValidation=Strict", Header: header, Body: body})
				if name == "pizzas" || name == "toppings" {
					requests = append(requests, request{Method: "PUT", Path: path + "/a", Header: header, Body: body})
				}
				if name == "pizzas" {
					requests = append(requests, request{Method: "PUT", Path: path + "/a/status", Header: header, Body: body})
				}
				if encoding.MediaType == runtime.ContentTypeJSON && (name == "pizzas" || name == "toppings") {
					requests = append(requests,
						request{Method: "PATCH", Path: path + "/a", Query: "fieldManager=f&force=true", Header: with(string(types.ApplyYAMLPatchType)), Body: body},
						request{Method: "PATCH", Path: path + "/a", Header: with(string(types.MergePatchType)), Body: []byte(`{"metadata":{"labels":{"a":"b"}}}`)},
						request{Method: "PATCH", Path: path + "/a", Header: with(string(types.StrategicMergePatchType)), Body: []byte(`{"metadata":{"finalizers":["x/y"],"$deleteFromPrimitiveList/finalizers":["x/z"]}}`)},
						request{Method: "PATCH", Path: path + "/a", Header: with(string(types.JSONPatchType)), Body: []byte(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}},{"op":"copy","from":"/spec","path":"/status"}]`)},
					)
				}
			}
		}
	}
	return requests
}

func kindOf(t *testing.T, scheme *runtime.Scheme, object runtime.Object) string {
	t.Helper()
	kinds, _, err := scheme.ObjectKinds(object)
	require.NoError(t, err)
	return kinds[0].Kind
}

// readCorpus returns what earlier runs have found.
func readCorpus(t *testing.T) (requests []request) {
	t.Helper()
	content, err := os.ReadFile(corpusFile)
	require.NoError(t, err)
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r request
		require.NoError(t, json.Unmarshal(lines.Bytes(), &r), "%s: %s", corpusFile, lines.Text())
		requests = append(requests, r)
	}
	require.NoError(t, lines.Err())
	return requests
}

// mutator makes requests of others. Which, follows from the seed and the number of the
// request alone, so that each can be sent again.
type mutator struct {
	*rand.Rand
	corpus []request
}

func newMutator(corpus []request, seed, number uint64) mutator {
	return mutator{rand.New(rand.NewPCG(seed, number)), corpus}
}

func pick[T any](m mutator, of ...T) T { return of[m.IntN(len(of))] }

// next returns a mutated request.
func (m mutator) next() request {
	r := pick(m, m.corpus...)
	r.Header = maps.Clone(r.Header)
	r.Body = slices.Clone(r.Body)
	if r.Header == nil {
		r.Header = http.Header{}
	}
	for range m.IntN(4) {
		switch m.IntN(8) {
		case 0:
			r.Method = pick(m, "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE", "LIST", "get")
		case 1:
			m.changePath(&r)
		case 2:
			m.changeQuery(&r)
		case 3:
			m.changeHeader(&r)
		case 4: // The body of another request.
			other := pick(m, m.corpus...)
			r.Body = slices.Clone(other.Body)
			if m.IntN(2) == 0 {
				r.Header.Set("Content-Type", other.Header.Get("Content-Type"))
			}
		default:
			r.Body = m.changeBody(r.Body)
		}
	}
	if strings.Contains(r.Query, "watch") || strings.Contains(r.Query, "follow") {
		r.Query += "&timeoutSeconds=1"
	}
	return r
}

var names = []string{"a", "a", "b", "c", "d", "tomato", "A", "a.b", "a-", "-", "..", ".", "%2e%2e", "a%2fb", "a%00", "%ff", "é", "status", "*", "", strings.Repeat("a", 253), strings.Repeat("a", 254), "0", "a b", "a%20b", "a:b", "a;b", "a=b"}

func (m mutator) changePath(r *request) {
	segments := strings.Split(r.Path, "/")
	i := m.IntN(len(segments))
	switch m.IntN(4) {
	case 0:
		segments[i] = pick(m, names...)
	case 1:
		segments = append(segments, pick(m, append(names, "status", "scale", "track", "bake", "pizzas", "exec", "proxy")...))
	case 2:
		segments = slices.Delete(segments, i, i+1)
	case 3:
		segments[i] = pick(m, "v1", "v1beta1", "v1alpha1", "v2", "pizzas", "toppings", "pricereviews", "namespaces", namespace, "default", "watch", group)
	}
	r.Path = "/" + strings.TrimPrefix(strings.Join(segments, "/"), "/")
}

func (m mutator) changeQuery(r *request) {
	parameter := pick(m, "limit", "continue", "resourceVersion", "resourceVersionMatch", "watch", "allowWatchBookmarks", "sendInitialEvents",
		"timeoutSeconds", "timeout", "labelSelector", "fieldSelector", "dryRun", "fieldManager", "fieldValidation", "force", "pretty", "includeObject",
		"gracePeriodSeconds", "orphanDependents", "propagationPolicy", "ignoreStoreReadErrorWithClusterBreakingPotential", "follow", "shardSelector", "x")
	value := pick(m, "", "0", "1", "-1", "10", "true", "false", "All", "Strict", "Warn", "Ignore", "Exact", "NotOlderThan", "Orphan", "Foreground", "Background",
		"9223372036854775807", "9223372036854775808", "18446744073709551616", "1e3", "0x1", "NaN", "a", "a=b", "a in (b,c)", "!a", "a,a=b,a!=c", "metadata.name=a", "metadata.name!=a",
		"metadata.namespace="+namespace, "spec.toppings=tomato", "spec.toppings=", "status.replicas=1", "=", ",", "a=b=c", "\x00", "\xff", "é", "%", "1s", "-1s", "1000000h",
		strings.Repeat("a", 129), "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhXHUwMDAwIn0", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiLi4vYSJ9", "Table", "Object", "Metadata", "None")
	pair := parameter + "=" + url.QueryEscape(value)
	if m.IntN(16) == 0 {
		pair = pick(m, "%zz", ";", "&&", "=", parameter, pair+"&"+pair)
	}
	if r.Query == "" || m.IntN(4) == 0 {
		r.Query = pair
	} else {
		r.Query += "&" + pair
	}
}

func (m mutator) changeHeader(r *request) {
	types := []string{
		"application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor", "application/cbor-seq", "application/json-patch+json", "application/merge-patch+json",
		"application/strategic-merge-patch+json", "application/apply-patch+yaml", "application/apply-patch+cbor", "application/json;as=Table;v=v1;g=meta.k8s.io",
		"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
		"application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch", "application/json;as=Table;v=v9;g=a", "text/plain", "text/html", "*/*", "a", ";", "application/json; charset=x", "application/json,application/yaml;q=0.1", "",
	}
	switch m.IntN(4) {
	case 0, 1:
		r.Header.Set(pick(m, "Content-Type", "Accept"), pick(m, types...))
	case 2:
		r.Header.Set("Content-Type", pick(m, types...))
		r.Header.Set("Accept", pick(m, types...))
	default:
		name := pick(m, "Accept-Encoding", "Content-Encoding", "If-Match", "If-None-Match", "Range", "Expect", "Impersonate-User", "Impersonate-Group", "Authorization", "Audit-Id", "Traceparent",
			"Origin", "Upgrade", "Sec-Websocket-Protocol", "User-Agent", "X-Forwarded-For", "X-Remote-Extra-A", "X-Http-Method-Override", "X-Stream-Protocol-Version", "Kubectl-Command", "Cookie")
		r.Header.Set(name, pick(m, "gzip", "identity", "*", "bytes=0-1", "100-continue", "websocket", "SPDY/3.1", "Bearer a", "Basic YTpi", "system:admin", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", strings.Repeat("a", 300), "é", ""))
	}
}

// tokens are pieces of bodies that have a meaning.
var tokens = []string{
	"null", "true", "0", "-1", "1.5", "1e999", "2147483648", "9223372036854775808", `"1e-999"`, `"1e999999999"`, `"1000000000000000000e999"`, `"1Ki"`, `""`, `"\u0000"`, `"\ud800"`, "[]", "{}", "[{}]", "[null]", "{\"\":null}", `"a"`, `"tomato"`,
	`"2026-01-01T00:00:00.5Z"`, `"0000-00-00T00:00:00Z"`, `"metadata":`, `"name":`, `"generateName":`, `"namespace":`, `"uid":`, `"resourceVersion":`, `"generation":`, `"creationTimestamp":`, `"deletionTimestamp":`, `"deletionGracePeriodSeconds":`,
	`"labels":`, `"annotations":`, `"ownerReferences":`, `"finalizers":`, `"managedFields":`, `"spec":`, `"status":`, `"toppings":`, `"quantity":`, `"replicas":`, `"cost":`, `"conditions":`, `"selector":`, `"count":`, `"kind":`, `"apiVersion":`,
	`"$patch":"delete",`, `"$patch":"replace",`, `"$retainKeys":["a"],`, `"$setElementOrder/toppings":[{"name":"a"}],`, `"f:metadata":{}`, `"op":"remove",`, `"op":"test",`, `"path":"/metadata/name",`, `"path":"/spec/toppings/-",`, `"path":"",`,
	"v1", "v1beta1", "v1alpha1", "Pizza", "Topping", "List", "Status", "Scale", "Bake", "&a ", "*a", "<<: *a", "!!binary ", "---\n", "|\n", "\x00", "\xff", "\xfe\xff", "k8s\x00", "{", "}", "[", "]", ",", ":",
}

func (m mutator) changeBody(body []byte) []byte {
	at := m.IntN(len(body) + 1)
	end := min(len(body), at+1+m.IntN(16))
	switch m.IntN(8) {
	case 0: // Another byte.
		if at < len(body) {
			body[at] = byte(m.Uint32())
		}
	case 1: // Another bit.
		if at < len(body) {
			body[at] ^= 1 << m.IntN(8)
		}
	case 2:
		body = slices.Delete(body, at, end)
	case 3: // Something again, many times.
		if repeated := bytes.Repeat(body[at:end], 1+m.IntN(64)); len(body)+len(repeated) <= bodyBytes {
			body = slices.Insert(body, end, repeated...)
		}
	case 4: // A value of JSON in place of another.
		if i := bytes.IndexByte(body[at:], ':'); i >= 0 {
			begin := at + i + 1
			length := bytes.IndexAny(body[begin:], ",}]")
			body = slices.Replace(body, begin, begin+max(length, 0), []byte(pick(m, tokens...))...)
		}
	case 5: // A part of another body.
		other := pick(m, m.corpus...).Body
		from := m.IntN(len(other) + 1)
		if part := other[from:min(len(other), from+1+m.IntN(256))]; len(body)+len(part) <= bodyBytes {
			body = slices.Insert(body, at, part...)
		}
	default:
		body = slices.Insert(body, at, []byte(pick(m, tokens...))...)
	}
	return body
}

// label is what makes an answer to a request another than those to others.
func label(r request, code int, reason, message string) string {
	resource, _, _ := strings.Cut(strings.TrimPrefix(r.Path, "/apis/"+group+"/"), "?")
	segments := strings.Split(resource, "/")
	for i, segment := range segments {
		if slices.Contains(names, segment) && segment != "status" {
			segments[i] = "_"
		}
	}
	return fmt.Sprintf("%s %s %s %d %s %s", r.Method, strings.Join(segments, "/"), r.Header.Get("Content-Type"), code, reason, shape(message))
}

// shape is a message without what differs from one request to another.
func shape(message string) string {
	const most = 60
	var out strings.Builder
	quoted := false
	for _, c := range message {
		switch {
		case out.Len() >= most:
			return out.String()
		case c == '"' || c == '\'' || c == '`':
			quoted = !quoted
		case quoted || c >= '0' && c <= '9' || c > '~' || c < ' ':
		default:
			out.WriteRune(c)
		}
	}
	return out.String()
}
