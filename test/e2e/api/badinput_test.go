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

package api

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// A badRequest is one that the server refuses. target.fill fills in the braces in
// its strings.
type badRequest struct {
	method, path, contentType, accept, body string
	// unknownTo are versions in which the request does not mean the same.
	unknownTo []string
	// direct requests would not reach the server through kube-apiserver, which
	// answers them itself.
	direct bool

	code int32
	// causes are the answer's, as "field: message". A cause or message that ends in
	// "…" goes on in the answer. An empty message is not looked at.
	causes  []string
	message string
}

func request(method, path, contentType, body string) badRequest {
	return badRequest{method: method, path: path, contentType: contentType, body: body}
}

func get(path string) badRequest { return request(http.MethodGet, path, "", "") }

func create(body string) badRequest { return createAt("{pizzas}", body) }

func createAt(path, body string) badRequest {
	return request(http.MethodPost, path, "application/json", body)
}

func replace(body string) badRequest { return replaceAt("{pizza}", body) }

func replaceAt(path, body string) badRequest {
	return request(http.MethodPut, path, "application/json", body)
}

func remove(path, body string) badRequest {
	return request(http.MethodDelete, path, "application/json", body)
}

func patch(kind types.PatchType, body string) badRequest { return patchAt("{pizza}", kind, body) }

func patchAt(path string, kind types.PatchType, body string) badRequest {
	return request(http.MethodPatch, path, string(kind), body)
}

// apply sends an apply patch with these fields besides the necessary ones.
func apply(fields string) badRequest {
	return applyAt("{pizza}?fieldManager=e2e&force=true", `{"apiVersion":"{version}","kind":"Pizza","metadata":{"name":"margherita"}`+more(fields)+`}`)
}

func applyAt(path, body string) badRequest { return patchAt(path, types.ApplyYAMLPatchType, body) }

func (b badRequest) as(contentType string) badRequest { b.contentType = contentType; return b }

func (b badRequest) accepting(mediaType string) badRequest { b.accept = mediaType; return b }

func (b badRequest) directly() badRequest { b.direct = true; return b }

func (b badRequest) except(versions ...string) badRequest { b.unknownTo = versions; return b }

func (b badRequest) gets(code int32, causes ...string) badRequest {
	b.code, b.causes = code, causes
	return b
}

func (b badRequest) saying(message string) badRequest { b.message = message; return b }

// reasons are those of the codes that answers here have.
var reasons = map[int32]metav1.StatusReason{
	http.StatusBadRequest:            metav1.StatusReasonBadRequest,
	http.StatusNotFound:              metav1.StatusReasonNotFound,
	http.StatusMethodNotAllowed:      metav1.StatusReasonMethodNotAllowed,
	http.StatusNotAcceptable:         metav1.StatusReasonNotAcceptable,
	http.StatusConflict:              metav1.StatusReasonConflict,
	http.StatusRequestEntityTooLarge: metav1.StatusReasonRequestEntityTooLarge,
	http.StatusUnsupportedMediaType:  metav1.StatusReasonUnsupportedMediaType,
	http.StatusUnprocessableEntity:   metav1.StatusReasonInvalid,
	http.StatusGatewayTimeout:        metav1.StatusReasonTimeout,
}

// pizza is a new pizza with more in its spec.
func pizza(spec string) string { return object("new", "", `"toppings":{toppings}`+more(spec)) }

// metadata is a new pizza with more in its metadata.
func metadata(metadata string) string { return object("new", metadata, `"toppings":{toppings}`) }

// changed is the existing pizza with more in its metadata, at first a
// resourceVersion that is too old.
func changed(metadata string) string {
	return object("margherita", metadata, `"toppings":{toppings}`)
}

func toppings(list string) string { return object("new", "", `"toppings":`+list) }

func object(name, metadata, spec string) string {
	return `{"apiVersion":"{version}","kind":"Pizza","metadata":{"name":"` + name + `"` + more(metadata) + `},"spec":{` + spec + `}}`
}

// topping is a new topping with this spec.
func topping(spec string) string {
	return `{"apiVersion":"{version}","kind":"Topping","metadata":{"name":"{namespace}-new"},"spec":{` + spec + `}}`
}

func more(fields string) string {
	if fields == "" {
		return ""
	}
	return "," + fields
}

// A door is a way to the server.
type door struct {
	name   string
	config *rest.Config
}

// doors are the way of all clients, and the one that kube-apiserver takes.
func doors() []door {
	through, direct := framework.Config(cp), framework.Config(cp)
	direct.Host = cp.APIServer.URL()
	return []door{{"through kube-apiserver", through}, {"directly", direct}}
}

// A target has a pizza and a topping that bad requests must not change.
type target struct {
	door
	version string
	client  *http.Client
	filler  *strings.Replacer
}

func newTarget(t *testing.T, d door, version string) *target {
	t.Helper()
	client, err := rest.HTTPClientFor(d.config)
	require.NoError(t, err)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	pizzas, all := newSubject(t, "Pizza", version), newSubject(t, "Topping", version)
	list, err := json.Marshal(framework.Toppings(version, "mozzarella", "tomato"))
	require.NoError(t, err)
	target := &target{door: d, version: version, client: client, filler: strings.NewReplacer(
		"{version}", pizzas.GroupVersion().String(), "{v}", version, "{group}", pizzas.Group,
		"{namespace}", pizzas.Namespace,
		"{root}", "/apis/"+pizzas.GroupVersion().String(), "{pizzas}", pizzas.Path(), "{pizza}", pizzas.Path()+"/margherita",
		"{all toppings}", all.Path(), "{topping}", path.Join(all.Path(), all.Name("a")),
		"{toppings}", string(list),
	)}
	all.Create(t, "a")
	created := target.send(t, create(object("margherita", "", `"toppings":{toppings},"replicas":3`)))
	require.Equal(t, http.StatusCreated, created.code, created.body)
	return target
}

func (g *target) fill(text string) string { return g.filler.Replace(text) }

// state is everything that a bad request could change.
func (g *target) state(t *testing.T) []string {
	t.Helper()
	var state []string
	for _, path := range []string{"{pizza}", "{topping}", "{pizzas}"} {
		answer := g.send(t, get(path))
		require.Equal(t, http.StatusOK, answer.code, answer.body)
		if path == "{pizzas}" { // Its resourceVersion is of no matter.
			var list metav1.PartialObjectMetadataList
			require.NoError(t, json.Unmarshal([]byte(answer.body), &list))
			require.Len(t, list.Items, 1)
			continue
		}
		state = append(state, answer.body)
	}
	return state
}

type httpAnswer struct {
	code   int
	header http.Header
	body   string
}

func (g *target) send(t *testing.T, b badRequest) httpAnswer {
	t.Helper()
	// Parsed, it keeps escapes and dots as they are.
	address, err := url.Parse(g.config.Host + g.fill(b.path))
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), b.method, "", strings.NewReader(g.fill(b.body)))
	require.NoError(t, err)
	request.URL, request.Host = address, address.Host
	for header, value := range map[string]string{"Content-Type": b.contentType, "Accept": b.accept} {
		if value != "" {
			request.Header.Set(header, value)
		}
	}
	response, err := g.client.Do(request)
	require.NoError(t, err, "The connection was dropped.")
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err, "The connection was dropped.")
	return httpAnswer{response.StatusCode, response.Header, string(body)}
}

// refuses requires that the request is answered as it says.
func (g *target) refuses(t *testing.T, b badRequest) {
	t.Helper()
	answer := g.send(t, b)
	var status metav1.Status
	require.NoError(t, json.Unmarshal([]byte(answer.body), &status), "This is not a Status: %d %.300s", answer.code, answer.body)
	require.Equal(t, "Status", status.Kind, "%.300s", answer.body)
	require.Equal(t, int(b.code), answer.code, "%.600s", answer.body)
	require.Equal(t, b.code, status.Code)
	require.Equal(t, reasons[b.code], status.Reason)

	var causes []string
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			causes = append(causes, cause.Field+": "+cause.Message)
		}
	}
	want := make([]string, len(b.causes))
	for i, cause := range b.causes {
		want[i] = abridged(g.fill(cause), causes...)
	}
	require.ElementsMatch(t, want, causes)
	if b.message != "" {
		require.Equal(t, abridged(g.fill(b.message), status.Message), status.Message)
	}
}

// abridged returns the first text that begins like want, if that ends with an
// ellipsis, and else want.
func abridged(want string, texts ...string) string {
	if beginning, ok := strings.CutSuffix(want, "…"); ok {
		for _, text := range texts {
			if strings.HasPrefix(text, beginning) {
				return text
			}
		}
	}
	return want
}

// requireRefused sends every request through both doors in every version.
func requireRefused(t *testing.T, requests map[string]badRequest) {
	t.Helper()
	t.Parallel()
	before := cp.APIServer.PID()
	for _, d := range doors() {
		for _, version := range framework.Versions() {
			t.Run(d.name+"/"+version, func(t *testing.T) {
				t.Parallel()
				target := newTarget(t, d, version)
				state := target.state(t)
				for _, name := range slices.Sorted(maps.Keys(requests)) {
					request := requests[name]
					if slices.Contains(request.unknownTo, version) || request.direct && d.name != "directly" {
						continue
					}
					t.Run(name, func(t *testing.T) { target.refuses(t, request) })
				}
				require.Equal(t, state, target.state(t), "A refused request has had an effect.")
				requireAlive(t, before)
			})
		}
	}
}

// requireAlive requires that the server is the same process as before.
func requireAlive(t *testing.T, pid int) {
	t.Helper()
	require.Equal(t, pid, cp.APIServer.PID(), "The server has been restarted.")
	direct := framework.Config(cp)
	direct.Host = cp.APIServer.URL()
	client, err := rest.HTTPClientFor(direct)
	require.NoError(t, err)
	response, err := client.Get(direct.Host + "/livez")
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
}
