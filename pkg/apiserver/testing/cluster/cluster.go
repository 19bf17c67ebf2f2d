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

// Package cluster has a stub of kube-apiserver for the requests of an API server. It
// authenticates and authorizes users, stores objects such as leases, and is almost empty by
// default. It checks neither requests nor their clients, and is not a substitute for a test
// with a real kube-apiserver.
package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// FrontProxyName is the common name of certificates that may assert the identity of users.
const FrontProxyName = "front-proxy-client"

// authenticationPath is where kube-apiserver publishes how it authenticates.
const authenticationPath = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"

// Cluster is a stub of kube-apiserver. Its methods may be called at any time.
type Cluster struct {
	// Users issues the certificates of users, and FrontProxy the certificates of front proxies.
	Users, FrontProxy *CA

	server  *httptest.Server
	stopped chan struct{}

	mu         sync.Mutex
	objects    map[string]*unstructured.Unstructured
	version    int
	allow      func(authorizationv1.SubjectAccessReviewSpec) bool
	allowSelf  func(authorizationv1.ResourceAttributes) bool
	tokens     map[string]authenticationv1.UserInfo
	reviews    []authorizationv1.SubjectAccessReviewSpec
	userAgents map[string]bool
	fail       func(*http.Request) int
}

// Start starts a cluster that lets every server and every user do everything. It is stopped
// at the end of the test.
func Start(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{
		Users:      NewCA(t, "users"),
		FrontProxy: NewCA(t, "front-proxy"),
		stopped:    make(chan struct{}),
		objects:    map[string]*unstructured.Unstructured{},
		tokens:     map[string]authenticationv1.UserInfo{},
		userAgents: map[string]bool{},
		allow:      func(authorizationv1.SubjectAccessReviewSpec) bool { return true },
		allowSelf:  func(authorizationv1.ResourceAttributes) bool { return true },
		fail:       func(*http.Request) int { return 0 },
	}
	c.Publish(map[string]string{
		"client-ca-file":                     string(c.Users.PEM()),
		"requestheader-client-ca-file":       string(c.FrontProxy.PEM()),
		"requestheader-username-headers":     `["X-Remote-User"]`,
		"requestheader-uid-headers":          `["X-Remote-Uid"]`,
		"requestheader-group-headers":        `["X-Remote-Group"]`,
		"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
		"requestheader-allowed-names":        `["` + FrontProxyName + `"]`,
	})
	c.Put("/api/v1/namespaces/default", map[string]any{"metadata": map[string]any{"name": "default"}})
	c.server = httptest.NewServer(c)
	t.Cleanup(func() {
		close(c.stopped)
		c.server.Close()
	})
	return c
}

// URL is the address of the cluster.
func (c *Cluster) URL() string { return c.server.URL }

// Kubeconfig writes a kubeconfig for the cluster and returns its path.
func (c *Cluster) Kubeconfig(t testing.TB) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["stub"] = &clientcmdapi.Cluster{Server: c.server.URL}
	config.Contexts["stub"] = &clientcmdapi.Context{Cluster: "stub"}
	config.CurrentContext = "stub"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// Publish replaces the data of the ConfigMap with kube-apiserver's configuration of
// authentication. Without data, there is no such ConfigMap.
func (c *Cluster) Publish(data map[string]string) {
	if len(data) == 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.objects, authenticationPath)
		return
	}
	content := map[string]any{}
	for key, value := range data {
		content[key] = value
	}
	c.Put(authenticationPath, map[string]any{
		"metadata": map[string]any{"name": path.Base(authenticationPath), "namespace": "kube-system"}, "data": content,
	})
}

// Put creates or replaces the object at a path such as /api/v1/namespaces/default. Watches
// are not told of it.
func (c *Cluster) Put(at string, object map[string]any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(at, &unstructured.Unstructured{Object: object})
}

// Get returns the object at a path, or nil.
func (c *Cluster) Get(at string) *unstructured.Unstructured {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.objects[at].DeepCopy()
}

// Allow decides what users may do, from now on.
func (c *Cluster) Allow(may func(authorizationv1.SubjectAccessReviewSpec) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.allow = may
}

// AllowSelf decides what the server that asks may do, from now on.
func (c *Cluster) AllowSelf(may func(authorizationv1.ResourceAttributes) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.allowSelf = may
}

// AddToken makes a bearer token valid for a user.
func (c *Cluster) AddToken(token string, user authenticationv1.UserInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens[token] = user
}

// Fail lets requests fail with the HTTP status that the function returns, unless that is 0.
func (c *Cluster) Fail(status func(*http.Request) int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = status
}

// Reviews returns all SubjectAccessReviews until now.
func (c *Cluster) Reviews() []authorizationv1.SubjectAccessReviewSpec {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]authorizationv1.SubjectAccessReviewSpec(nil), c.reviews...)
}

// UserAgents returns the user agents of all requests until now, except watches.
func (c *Cluster) UserAgents() (agents []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for agent := range c.userAgents {
		agents = append(agents, agent)
	}
	return agents
}

// ServeHTTP answers as kube-apiserver would.
func (c *Cluster) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Query().Get("watch") == "true" {
		c.serveWatch(w, req)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.userAgents[req.UserAgent()] = true
	if code := c.fail(req); code != 0 {
		writeStatus(w, code, "Failure", "as the test wants")
		return
	}
	switch {
	case req.URL.Path == "/openapi/v3":
		write(w, http.StatusOK, map[string]any{"paths": map[string]any{}})
	case req.Method == http.MethodPost && path.Base(req.URL.Path) == "tokenreviews":
		answer(w, req, func(review *authenticationv1.TokenReview) {
			review.Status.User, review.Status.Authenticated = c.tokens[review.Spec.Token], c.tokens[review.Spec.Token].Username != ""
		})
	case req.Method == http.MethodPost && path.Base(req.URL.Path) == "subjectaccessreviews":
		answer(w, req, func(review *authorizationv1.SubjectAccessReview) {
			c.reviews = append(c.reviews, review.Spec)
			review.Status.Allowed = c.allow(review.Spec)
		})
	case req.Method == http.MethodPost && path.Base(req.URL.Path) == "selfsubjectaccessreviews":
		answer(w, req, func(review *authorizationv1.SelfSubjectAccessReview) {
			review.Status.Allowed = c.allowSelf(*review.Spec.ResourceAttributes)
		})
	default:
		c.serveObjects(w, req)
	}
}

// answer answers a review.
func answer[R any](w http.ResponseWriter, req *http.Request, decide func(*R)) {
	review := new(R)
	body, err := readJSON(req)
	if err == nil {
		err = json.Unmarshal(body, review)
	}
	if err != nil {
		writeStatus(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	decide(review)
	write(w, http.StatusCreated, review)
}

// readJSON returns a body as JSON, which may be protobuf if it is of a kind of Kubernetes.
func readJSON(req *http.Request) ([]byte, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil || json.Valid(body) {
		return body, err
	}
	object, kind, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	object.GetObjectKind().SetGroupVersionKind(*kind)
	return json.Marshal(object)
}

// serveObjects stores and returns objects.
func (c *Cluster) serveObjects(w http.ResponseWriter, req *http.Request) {
	at := strings.TrimSuffix(req.URL.Path, "/")
	switch req.Method {
	case http.MethodGet:
		if object := c.objects[at]; object != nil {
			write(w, http.StatusOK, object)
		} else if kind, ok := kindAt(at); ok {
			c.list(w, at, kind)
		} else {
			writeStatus(w, http.StatusNotFound, "NotFound", at+" not found")
		}
	case http.MethodPost, http.MethodPut:
		object := &unstructured.Unstructured{}
		body, err := readJSON(req)
		if err == nil {
			err = json.Unmarshal(body, &object.Object)
		}
		if err != nil {
			writeStatus(w, http.StatusBadRequest, "BadRequest", err.Error())
			return
		}
		if req.Method == http.MethodPost {
			at = path.Join(at, object.GetName())
		}
		c.put(at, object)
		write(w, http.StatusOK, object)
	default:
		writeStatus(w, http.StatusMethodNotAllowed, "MethodNotAllowed", req.Method)
	}
}

// kindAt returns the kind of the objects at a path such as
// /apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE. The path of a single object has none.
func kindAt(collection string) (kind schema.GroupVersionKind, ok bool) {
	parts := strings.Split(strings.Trim(collection, "/"), "/")
	var version schema.GroupVersion
	switch {
	case parts[0] == "api" && len(parts) > 2:
		version, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		version, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return kind, false
	}
	if len(parts) == 3 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) != 1 {
		return kind, false
	}
	for name := range scheme.Scheme.KnownTypes(version) {
		if plural, _ := meta.UnsafeGuessKindToResource(version.WithKind(name)); plural.Resource == parts[0] {
			return version.WithKind(name), true
		}
	}
	return kind, false
}

func (c *Cluster) list(w http.ResponseWriter, at string, kind schema.GroupVersionKind) {
	items := []any{}
	for name, object := range c.objects {
		if path.Dir(name) == at {
			items = append(items, object.Object)
		}
	}
	write(w, http.StatusOK, map[string]any{
		"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind + "List",
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(c.version + 1)}, "items": items,
	})
}

func (c *Cluster) put(at string, object *unstructured.Unstructured) {
	c.version++
	object.SetResourceVersion(strconv.Itoa(c.version))
	if kind, ok := kindAt(path.Dir(at)); ok {
		object.SetGroupVersionKind(kind)
	}
	c.objects[at] = object
}

// serveWatch tells of no changes until the client leaves. Initial events are refused, as by
// a kube-apiserver that does not have them: clients list then.
func (c *Cluster) serveWatch(w http.ResponseWriter, req *http.Request) {
	if req.URL.Query().Get("sendInitialEvents") == "true" {
		writeStatus(w, http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents is not supported")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	if flusher, ok := w.(http.Flusher); ok {
		flusher.Flush()
	}
	select {
	case <-req.Context().Done():
	case <-c.stopped:
	}
}

func writeStatus(w http.ResponseWriter, code int, reason, message string) {
	write(w, code, map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
	})
}

func write(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(object); err != nil {
		fmt.Fprintln(os.Stderr, err) // Nobody else can be told any more.
	}
}
