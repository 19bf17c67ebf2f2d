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

package customresources

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const (
	readGroup  = "reads.example.com"
	readPrefix = "/reads"
)

// Lists and watches of custom resources have the answers of kube-apiserver. Both servers have the same objects with the
// same revisions, which are written to etcd in one transaction.
func TestReadsAreThoseOfKubeAPIServer(t *testing.T) {
	t.Parallel()
	reads, batches := 10_000, 40
	if testing.Short() {
		reads = 1000
	}
	other, err := cp.NewCRDServer("crd-apiserver-reads", controlplane.CRDServerConfig{
		Groups: []string{readGroup}, Service: framework.CRDServer(), Account: framework.CRDServer(), Etcd: cp.Etcd.Name(),
		ComponentConfig: controlplane.ComponentConfig{Flags: []string{"--etcd-prefix=" + readPrefix}},
	})
	require.NoError(t, err)
	require.NoError(t, other.Start(t.Context()))
	definition := widgets(readGroup, true)
	definition.Spec.Versions[1].Deprecated = true
	content, err := json.Marshal(definition)
	require.NoError(t, err)
	apply(t, content)
	both := [2]reader{newReader(t, framework.Config(cp)), newReader(t, framework.AdminConfig(t, cp, other))}
	for _, r := range both {
		controlplane.Eventually(t, func() error {
			answer, err := r.read(t.Context(), request{path: "/apis/" + readGroup + "/v1/widgets"})
			if err == nil && answer.code != http.StatusOK {
				err = fmt.Errorf("%d: %s", answer.code, answer.body)
			}
			return err
		})
	}

	random := rand.New(rand.NewPCG(1, 2))
	w := &writer{client: etcdClient(t, cp.Etcd), random: random, stored: map[string]int{}}
	for range 100 {
		require.NoError(t, w.write(t.Context()))
	}
	for batch := range batches {
		if batch == batches/2 {
			change(t, definition, both)
		}
		// Watches begin before the writes, and end after them. The lists follow, since nothing is written meanwhile.
		var requests []request
		for range reads / batches {
			requests = append(requests, randomRequest(random, w.revisions))
		}
		var running sync.WaitGroup
		watches := slices.DeleteFunc(slices.Clone(requests), func(r request) bool { return !r.watches() })
		inParallel(&running, len(watches), watches, func(r request) { compare(t, both, r) })
		for range 20 {
			require.NoError(t, w.write(t.Context()))
		}
		running.Wait()
		for _, version := range []string{"v1", "v2"} {
			for _, r := range both { // A consistent list waits until the watch cache has the last write.
				_, err := r.read(t.Context(), request{path: "/apis/" + readGroup + "/" + version + "/widgets"})
				require.NoError(t, err)
			}
		}
		lists := slices.DeleteFunc(requests, request.watches)
		inParallel(&running, 8, lists, func(r request) { compare(t, both, r) })
		running.Wait()
		if t.Failed() {
			return
		}
	}
}

// change changes the default, the columns, the stored version and the deprecation of a definition, and waits until both
// servers show it.
func change(t *testing.T, definition *apiextensionsv1.CustomResourceDefinition, both [2]reader) {
	t.Helper()
	changed := definition.DeepCopy()
	for i := range changed.Spec.Versions {
		version := &changed.Spec.Versions[i]
		version.Deprecated = false
		version.Storage = version.Name == "v2"
		version.AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Labels", Type: "string", JSONPath: ".metadata.labels"}}
		properties := version.Schema.OpenAPIV3Schema.Properties["spec"].Properties
		colour := properties["colour"]
		colour.Default = &apiextensionsv1.JSON{Raw: []byte(`"yellow"`)}
		properties["colour"] = colour
		delete(properties, "free") // It is pruned.
	}
	content, err := json.Marshal(changed)
	require.NoError(t, err)
	apply(t, content)
	for _, version := range []string{"v1", "v2"} {
		for _, r := range both {
			controlplane.Eventually(t, func() error {
				answer, err := r.read(t.Context(), request{path: "/apis/" + readGroup + "/" + version + "/widgets"})
				if err == nil && (!strings.Contains(answer.body, "yellow") || strings.Contains(answer.body, `"free"`) || answer.warned != "") {
					err = fmt.Errorf("the old definition is served: %s %s", answer.warned, answer.body)
				}
				return err
			})
		}
	}
}

func inParallel(running *sync.WaitGroup, workers int, requests []request, do func(request)) {
	work := make(chan request, len(requests))
	for _, r := range requests {
		work <- r
	}
	close(work)
	for range workers {
		running.Go(func() {
			for r := range work {
				do(r)
			}
		})
	}
}

// writer writes objects for both servers.
type writer struct {
	client    *clientv3.Client
	random    *rand.Rand
	stored    map[string]int
	revisions []int64
}

// write creates, changes or deletes an object.
func (w *writer) write(ctx context.Context) error {
	n := w.random.IntN(80)
	path := fmt.Sprintf("%s/widgets/ns-%d/object-%02d", readGroup, n%3, n)
	ours, theirs := readPrefix+"/"+path, "/registry/"+path
	operations := []clientv3.Op{clientv3.OpDelete(ours), clientv3.OpDelete(theirs)}
	if w.stored[path] == 0 || w.random.IntN(4) > 0 {
		w.stored[path]++
		value := w.value(n, w.stored[path])
		operations = []clientv3.Op{clientv3.OpPut(ours, string(etcd.SealValue(ours, value))), clientv3.OpPut(theirs, string(value))}
	} else {
		delete(w.stored, path)
	}
	response, err := w.client.Txn(ctx).Then(operations...).Commit()
	if err != nil {
		return err
	}
	w.revisions = append(w.revisions, response.Header.Revision)
	return nil
}

// value is an object as it is stored, with what a server adds, prunes and escapes.
func (w *writer) value(n, generation int) []byte {
	colour := pick(w.random, `,"colour":"blue"`, `,"colour":"green"`, `,"colour":null`, "")
	free := pick(w.random, `,"free":{"text":"<b>&\u2028é\"items\":[]","numbers":[1.0,1e30,-0.5,9007199254740993]}`, `,"free":{"resourceVersion":"1"}`, "")
	return fmt.Appendf(nil, `{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":"object-%02d","namespace":"ns-%d","uid":"%08d-0000-4000-8000-000000000000",`+
		`"creationTimestamp":"2026-01-02T03:04:05Z","generation":%d,"labels":{"part":"%d","metadata.name":"%d"},"annotations":{"a":"\u003c"},`+
		`"managedFields":[{"manager":"m","operation":"Update","apiVersion":"%s/v1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:size":{}}}}]},`+
		`"spec":{"size":%d,"pruned":true%s%s},"status":{"replicas":%d}}`+"\n",
		readGroup, n, n%3, n, generation, n%5, generation%2, readGroup, generation, colour, free, n)
}

func revisionsOf(revisions []int64) (texts []string) {
	for _, revision := range revisions {
		texts = append(texts, fmt.Sprint(revision))
	}
	return texts
}

func pick[T any](random *rand.Rand, values ...T) T { return values[random.IntN(len(values))] }

// request is a list or a watch.
type request struct {
	path, accept, agent string
	query               url.Values
}

func (r request) watches() bool { return r.query.Get("watch") != "" }

func randomRequest(random *rand.Rand, revisions []int64) request {
	r := request{path: "/apis/" + readGroup + "/" + pick(random, "v1", "v1", "v1", "v2"), query: url.Values{}}
	r.path += pick(random, "/widgets", "/widgets", "/namespaces/ns-0/widgets", "/namespaces/ns-1/widgets", "/namespaces/none/widgets")
	r.accept = pick(random, "application/json", "application/json", "application/json", "", "*/*", "application/yaml",
		"application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json", "text/plain", "application/json;pretty=1",
		"application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json")
	r.agent = pick(random, "test", "test", "test", "curl/8")
	sometimes := func(name string, values ...string) {
		if random.IntN(3) == 0 {
			r.query.Set(name, pick(random, values...))
		}
	}
	sometimes("labelSelector", "part=1", "part in (1,2)", "part!=3", "!part", "metadata.name=1", "none", "part=", "a==b==c")
	sometimes("fieldSelector", "spec.colour=blue", "spec.colour!=red", "spec.colour=", "metadata.name=object-04", "metadata.name!=object-04",
		"metadata.namespace=ns-1", "metadata.namespace=ns-1,spec.colour=red", "spec.size=1", "nonsense")
	if len(revisions) > 0 {
		recent := fmt.Sprint(revisions[max(0, len(revisions)-1-random.IntN(30))])
		sometimes("resourceVersion", recent, recent, recent, "0", "abc", "-1", "1")
	}
	sometimes("resourceVersionMatch", "Exact", "NotOlderThan", "NotOlderThan", "Nonsense")
	if random.IntN(5) == 0 {
		r.query.Set("watch", pick(random, "true", "1"))
		r.query.Set("timeoutSeconds", "2")
		if !slices.Contains(append(revisionsOf(revisions), "0", ""), r.query.Get("resourceVersion")) {
			r.query.Del("resourceVersion") // crd-apiserver has a longer past, and does not answer nonsense with 500.
		}
		sometimes("allowWatchBookmarks", "true", "maybe")
		sometimes("sendInitialEvents", "true", "true", "false")
		r.accept = pick(random, "application/json", "application/json", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/yaml")
		if revision := r.query.Get("resourceVersion"); revision == "" || revision == "0" { // It begins at any time.
			if r.query.Get("sendInitialEvents") == "false" {
				r.query.Del("sendInitialEvents")
			}
			if strings.Contains(r.accept, "Table") { // The first row has the columns.
				r.accept = "application/json"
			}
		}
		return r
	}
	sometimes("limit", "1", "7", "500", "0", "-1", "many")
	sometimes("pretty", "true", "false")
	if random.IntN(10) == 0 {
		r.query.Set("continue", pick(random, "nonsense", base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":-1,"start":"ns-1/object-07\u0000"}`))))
	}
	return r
}

// reader reads from a server.
type reader struct {
	client *http.Client
	host   string
}

func newReader(t *testing.T, config *rest.Config) reader {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	return reader{client, config.Host}
}

// answer is what clients see of an answer.
type answer struct {
	code              int
	mediaType, warned string
	size              int
	body              string
}

func (r reader) read(ctx context.Context, request request) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.host+request.path+"?"+request.query.Encode(), nil)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Accept", request.accept)
	req.Header.Set("User-Agent", request.agent)
	response, err := r.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{code: response.StatusCode, mediaType: response.Header.Get("Content-Type"), warned: strings.Join(response.Header.Values("Warning"), "\n")}
	if request.watches() && a.code == http.StatusOK {
		a.body = normalizeEvents(body, request.query.Get("resourceVersion"))
	} else {
		a.body, a.size = normalize(body)
	}
	if a.code != http.StatusOK {
		a.size = 0 // A Status may be indented or not.
	}
	return a, nil
}

// compare sends a request to both servers, and follows the pages of the answer.
func compare(t *testing.T, both [2]reader, r request) {
	for again := r.watches(); ; {
		var answers [2]answer
		var errs [2]error
		var running sync.WaitGroup
		for i := range both {
			running.Go(func() { answers[i], errs[i] = both[i].read(t.Context(), r) })
		}
		running.Wait()
		if errs[0] != nil || errs[1] != nil || answers[0] != answers[1] {
			if again { // On a busy machine, a watch may end before the last write.
				again = false
				continue
			}
			t.Errorf("%s?%s, Accept: %s, User-Agent: %s\nkube-apiserver: %+v %v\ncrd-apiserver:  %+v %v", r.path, r.query.Encode(), r.accept, r.agent, answers[0], errs[0], answers[1], errs[1])
			return
		}
		next := continuation.FindString(answers[0].body)
		if next == "" || r.query.Get("continue") != "" {
			return
		}
		// The token with the revision of a page is another one at each server, but goes on at the same object.
		r.query = maps.Clone(r.query)
		r.query.Del("resourceVersion")
		r.query.Del("resourceVersionMatch")
		r.query.Set("continue", base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":-1,"start":`+strings.TrimPrefix(next, `"start":`)+`}`)))
	}
}

var (
	number       = regexp.MustCompile(`\d+`)
	continuation = regexp.MustCompile(`"start":"[^"]*"`)
)

// normalize returns JSON with sorted keys, without the revisions of lists and of messages, and its size.
func normalize(body []byte) (string, int) {
	var content map[string]any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if decoder.Decode(&content) != nil {
		return yamlRevision.ReplaceAllString(string(body), ""), 0
	}
	if message, ok := content["message"].(string); ok {
		content["message"] = number.ReplaceAllString(message, "N")
	}
	size := len(body)
	if meta, ok := content["metadata"].(map[string]any); ok && content["type"] == nil {
		for _, name := range []string{"resourceVersion", "continue"} {
			if text, ok := meta[name].(string); ok {
				size -= len(text)
			}
		}
		delete(meta, "resourceVersion")
		if token, ok := meta["continue"].(string); ok {
			decoded, _ := base64.RawURLEncoding.DecodeString(token)
			meta["continue"] = ""
			meta["start"] = continuation.FindString(string(decoded))
		}
	}
	var sorted bytes.Buffer
	encoder := json.NewEncoder(&sorted)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(content)
	text := sorted.String()
	if meta, ok := content["metadata"].(map[string]any); ok && meta["start"] != nil {
		text += meta["start"].(string)
	}
	return text, size
}

var yamlRevision = regexp.MustCompile(`(?m)^ {2}(resourceVersion|continue): .*$`)

// normalizeEvents returns the events of a watch in their order if it began at a revision, or else what they come to,
// since the beginning is then the present, which is not the same for both servers.
func normalizeEvents(body []byte, revision string) string {
	var events []string
	latest := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(body)); lines.Scan(); {
		var event struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return string(body)
		}
		if event.Type == "BOOKMARK" && !bytes.Contains(event.Object, []byte("k8s.io/initial-events-end")) {
			continue // It depends on the time.
		}
		var object any
		_ = json.Unmarshal(event.Object, &object)
		content, _ := json.Marshal(object)
		if event.Type == "BOOKMARK" || event.Type == "ERROR" {
			content = number.ReplaceAll(content, []byte("N"))
		}
		events = append(events, event.Type+" "+string(content))
		latest[string(objectName.Find(content))] = event.Type + " " + string(content)
	}
	if revision != "" && revision != "0" {
		return strings.Join(events, "\n")
	}
	for name, event := range latest {
		if strings.HasPrefix(event, "DELETED") { // A later beginning does not have it.
			delete(latest, name)
			continue
		}
		_, latest[name], _ = strings.Cut(event, " ") // It was added here, and modified there.
	}
	return strings.Join(slices.Sorted(maps.Values(latest)), "\n")
}

var objectName = regexp.MustCompile(`"name":"object-\d+"`)
