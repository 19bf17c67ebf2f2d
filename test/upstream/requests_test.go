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
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	libraryoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"
)

// newPod is a pod of k8s.io/apiserver's example group.
func newPod(name string) string {
	return fmt.Sprintf(`{"apiVersion":"example.apiserver.k8s.io/v1","kind":"Pod","metadata":{"name":%q}}`, name)
}

// answer is what a server answers.
type answer struct {
	code        int
	contentType string
	body        string
}

// send sends a request.
func send(t *testing.T, method, url, mediaType, body string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", mediaType)
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header.Get("Content-Type"), string(content)}
}

// TestAnswers has requests that are answered with the wrong code.
func TestAnswers(t *testing.T) {
	pods := servePods(t)
	server := strings.TrimSuffix(pods, "/apis/example.apiserver.k8s.io/v1/namespaces/default/pods")
	if created := send(t, http.MethodPost, pods, "application/json", newPod("a")); created.code != http.StatusCreated {
		t.Fatal(created)
	}
	type request struct {
		method, url, mediaType, body string
		code                         int
		part                         string
	}
	version := func(name, version string) string {
		return strings.Replace(newPod(name), `"name"`, fmt.Sprintf(`"resourceVersion":%q,"name"`, version), 1)
	}
	large := strings.Replace(newPod("b"), `"metadata"`, `"spec":{"hostname":"`+strings.Repeat("a", 2<<20)+`"},"metadata"`, 1)
	each(t, map[int]request{
		12: {http.MethodPatch, pods + "/a", "application/strategic-merge-patch+json", `{"spec":{"$patch":"x"}}`, http.StatusInternalServerError, ""},
		13: {http.MethodPut, pods + "/a", "application/json", version("a", "x"), http.StatusInternalServerError, ""},
		15: {http.MethodPost, pods, "application/json", version("b", "1"), http.StatusInternalServerError, ""},
		16: {http.MethodGet, strings.Replace(pods, "/default/", "/%2e%2e/", 1) + "/a", "", "", http.StatusInternalServerError, ""},
		17: {http.MethodGet, server + "/apis/example.apiserver.k8s.io/v1/watch", "", "", http.StatusInternalServerError, ""},
		21: {http.MethodPost, pods, "application/json", large, http.StatusInternalServerError, ""},
		27: {http.MethodGet, server + "/openapi/v3/apis?hash=0", "", "", http.StatusMovedPermanently, ""},
		28: {http.MethodGet, server + "/openapi/v3", "", "", http.StatusOK, `"apis":`},
	}, func(t *testing.T, r request) {
		a := send(t, r.method, r.url, r.mediaType, r.body)
		if a.code != r.code || !strings.Contains(a.body, r.part) {
			fixed(t, "%s %s is answered with %d: %s", r.method, r.url, a.code, a.body)
		}
	})
}

// note is an object without protobuf messages.
type note struct {
	metav1.TypeMeta
	metav1.ObjectMeta
}

func (n *note) DeepCopyObject() runtime.Object { return &note{n.TypeMeta, *n.DeepCopy()} }

// OpenAPIModelName names a definition that allows anything.
func (note) OpenAPIModelName() string { return examplev1.Pod{}.OpenAPIModelName() }

// noteREST deletes a note that does not exist.
type noteREST struct{}

func (noteREST) New() runtime.Object     { return &note{} }
func (noteREST) Destroy()                {}
func (noteREST) NamespaceScoped() bool   { return false }
func (noteREST) GetSingularName() string { return "note" }
func (noteREST) Delete(context.Context, string, rest.ValidateObjectFunc, *metav1.DeleteOptions) (runtime.Object, bool, error) {
	return &note{}, false, nil
}

func TestObjectWithoutMessagesIsSentAsProtobuf(t *testing.T) {
	config, scheme, codecs := newConfig(t)
	for _, version := range []schema.GroupVersion{example.SchemeGroupVersion, examplev1.SchemeGroupVersion} {
		scheme.AddKnownTypes(version, &note{})
	}
	info := genericapiserver.NewDefaultAPIGroupInfo(example.GroupName, scheme, runtime.NewParameterCodec(scheme), codecs)
	info.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{"notes": noteREST{}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, serve(t, config, &info)+"/apis/"+example.GroupName+"/v1/notes/a", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/vnd.kubernetes.protobuf,application/json")
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusNotAcceptable {
		fixed(t, "an object without messages is answered with %s, as %s", response.Status, response.Header.Get("Content-Type"))
	}
}

func TestMalformedResourceVersionOfReadIsInternalError(t *testing.T) {
	pods := servePods(t)
	for _, path := range []string{"/a?resourceVersion=x", "?watch=true&resourceVersion=x"} {
		a := send(t, http.MethodGet, pods+path, "", "")
		// Before the watch cache is ready, etcd's storage answers.
		for end := time.Now().Add(10 * time.Second); a.code != http.StatusInternalServerError && time.Now().Before(end); {
			time.Sleep(100 * time.Millisecond)
			a = send(t, http.MethodGet, pods+path, "", "")
		}
		if a.code != http.StatusInternalServerError {
			fixed(t, "the malformed resourceVersion of %s is answered with %d: %s", path, a.code, a.body)
		}
	}
}

// TestPatchInFlowStyleIsNotAudited applies the same object in two styles of YAML.
func TestPatchInFlowStyleIsNotAudited(t *testing.T) {
	config, scheme, codecs := newConfig(t)
	var log bytes.Buffer
	config.AuditBackend = auditlog.NewBackend(&log, auditlog.FormatJson, auditv1.SchemeGroupVersion)
	config.AuditPolicyRuleEvaluator = policy.NewPolicyRuleEvaluator(&auditinternal.Policy{
		Rules: []auditinternal.PolicyRule{{Level: auditinternal.LevelRequest}}, OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived},
	})
	info := genericapiserver.NewDefaultAPIGroupInfo(example.GroupName, scheme, runtime.NewParameterCodec(scheme), codecs)
	info.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{"pods": podREST{newPodStore(t, sharedEtcd(), func(*storagebackend.Config) {})}}
	pod := serve(t, config, &info) + "/apis/" + example.GroupName + "/v1/namespaces/default/pods/a?fieldManager=a"
	for body, recorded := range map[string]bool{"metadata: {name: a}": true, "{metadata: {name: a}}": false} {
		log.Reset()
		send(t, http.MethodPatch, pod, string(types.ApplyYAMLPatchType), body)
		if (log.Len() > 0) != recorded {
			fixed(t, "the patch %s is recorded: %v", body, !recorded)
		}
	}
}

// serveThings returns a handler of the custom resources things of a group, and another function for what it passes on.
func serveThings(t *testing.T, group string, passedOn http.HandlerFunc) func(method, path, contentType, body string) (code int, panicked any) {
	t.Helper()
	etcd := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig("/"+t.Name(), unstructured.UnstructuredJSONScheme))
	etcd.StorageConfig.Transport.ServerList = []string{sharedEtcd()}
	etcd.EnableWatchCache = false
	definitions := externalversions.NewSharedInformerFactory(nil, 0).Apiextensions().V1().CustomResourceDefinitions()
	handler, err := apiextensions.NewCustomResourceDefinitionHandler(nil, nil, definitions, passedOn,
		libraryoptions.NewCRDRESTOptionsGetter(*etcd, nil, nil), nil, nil, nil, nil, 1, authorizerfactory.NewAlwaysAllowAuthorizer(), time.Minute, time.Minute, nil, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"}
	if err := definitions.Informer().GetIndexer().Add(&apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things." + group, UID: "a"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.ClusterScoped, Names: names,
			Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}}},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{AcceptedNames: names, Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
			{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue},
			{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue},
		}},
	}); err != nil {
		t.Fatal(err)
	}
	resolver := &genericapirequest.RequestInfoFactory{APIPrefixes: sets.NewString("apis")}
	return func(method, path, contentType, body string) (code int, panicked any) {
		req := httptest.NewRequest(method, path, strings.NewReader(body))
		req.Header.Set("Content-Type", contentType)
		info, err := resolver.NewRequestInfo(req)
		if err != nil {
			t.Fatal(err)
		}
		response := httptest.NewRecorder()
		defer func() { code, panicked = response.Code, recover() }()
		handler.ServeHTTP(response, req.WithContext(genericapirequest.WithRequestInfo(req.Context(), info)))
		return response.Code, nil
	}
}

// TestDefinitionsAreFoundByOneText asks for things.apps of example.com, where there are things of
// apps.example.com.
func TestDefinitionsAreFoundByOneText(t *testing.T) {
	passedOn := false
	request := serveThings(t, "apps.example.com", func(http.ResponseWriter, *http.Request) { passedOn = true })
	for path, found := range map[string]bool{
		"/apis/apps.example.com/v1/things": true, "/apis/example.com/v1/things.apps": true, "/apis/example.com/v1/things": false,
	} {
		passedOn = false
		request(http.MethodGet, path, "", "")
		if passedOn == found {
			fixed(t, "of things.apps.example.com, %s is found: %v", path, !found)
		}
	}
}

// TestCustomResourceInProtobufPanics creates a custom resource in protobuf: there is a decoder, but none
// that is strict.
func TestCustomResourceInProtobufPanics(t *testing.T) {
	request := serveThings(t, "example.com", http.NotFound)
	const things = "/apis/example.com/v1/things"
	if code, panicked := request(http.MethodPost, things, "application/json", "<"); code != http.StatusBadRequest {
		t.Fatalf("a body that is no object is answered with %d, or panics: %v", code, panicked)
	}
	if code, panicked := request(http.MethodPost, things, "application/vnd.kubernetes.protobuf", "k8s\x00\x0a\x00"); panicked == nil {
		fixed(t, "a custom resource in protobuf is answered with %d", code)
	}
}

func TestCanceledRequestIsInternalError(t *testing.T) {
	if status := responsewriters.ErrorToAPIStatus(context.Canceled); status.Code != http.StatusInternalServerError {
		fixed(t, "a request that its client has given up is answered with %d", status.Code)
	}
}
