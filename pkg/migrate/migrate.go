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

// Package migrate moves the objects of an API group from CustomResourceDefinitions to an
// API server with an etcd of its own, while they are used.
//
// Objects are read from kube-apiserver in their storage version. They are written into the server's
// etcd as the server itself would write them: with the same keys, codec and encryption. So they
// keep all of their metadata but the resourceVersion.
//
// A migration is a state machine, see steps in phases.go. Its state is a key in the server's etcd. Each write to
// etcd is a transaction that succeeds only while no other process has changed the state. So another
// process can continue a migration at any time, and the first one can no longer write.
package migrate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// Config names the objects that move, and the places that they move between.
type Config struct {
	// Group is the name of the API group.
	Group string
	// APIServices are the names of the APIServices that register the group's versions.
	APIServices []string
	// Stores are the resources of the group that the server stores.
	Stores []keys.Objects
	// Defined says that the server serves what the CustomResourceDefinitions define, and needs
	// them.
	Defined bool
	// KubeEtcd is kube-apiserver's etcd, and KubePrefix the prefix of its keys. KubeEtcd is nil if
	// only kube-apiserver can reach it.
	KubeEtcd   *clientv3.Client
	KubePrefix string
	// Etcd is the server's etcd.
	Etcd *clientv3.Client
	// StateKey is the key of the migration's state in etcd. No object has it.
	StateKey string
	// HistoryKey is the key of the revision where the server's history begins, see keys.HistoryKey.
	HistoryKey string
	// Cluster reaches kube-apiserver as the user that moves the objects.
	Cluster *rest.Config
	// Service is the server's Service. CABundle has, as PEM, the certificate authorities of its
	// serving certificate. Only Run needs them. Finish requires that the APIServices lead to this
	// Service, or, if it is empty, to the one given to Run.
	Service  apiregistrationv1.ServiceReference
	CABundle []byte
	// Lease is the Lease of the server's controllers, which must not run before the objects have
	// moved. It is in the namespace of the Service.
	Lease string
	// RequestTimeout is the timeout of the server's requests.
	RequestTimeout time.Duration
	// MaxElements and MaxOwners are the server's bounds for an object of a client.
	MaxElements, MaxOwners int
	// RaiseRevision lets Run and Back write empty revisions until the target's etcd has caught up
	// with the other one.
	RaiseRevision bool
	// DiscardWritten lets Back and Finish overwrite and delete what was written at kube-apiserver past the server.
	DiscardWritten bool
	// Report is called with the progress.
	Report func(Progress)
}

// Migration moves the objects of a group. It may write as long as no other process changes the state.
type Migration struct {
	config     Config
	dynamic    dynamic.Interface
	kube       kubernetes.Interface
	aggregator aggregator.Interface
	metadata   metadata.Interface
	// dryRun is set while updates of definitions and APIServices are only tried.
	dryRun []string

	// claimed is set when this process is the one that may write. state is then the state, and
	// revision its revision in etcd.
	claimed  bool
	state    State
	revision int64
	// meter measures the present pass over all objects.
	meter meter
	// positions say how far this process has compared objects, by resource.
	positions map[string]*position
	stopTails func()
	// frozen is set when this process has made sure that clients can't write.
	frozen bool
	// held is when this process has made kube-apiserver hold writes.
	held time.Time
	// historyStart is the revision of the server's etcd where this process has made the history begin.
	historyStart int64
}

// New returns a Migration. It sends no request yet.
func New(config Config) (*Migration, error) {
	m := &Migration{config: config}
	// By default a client sends five requests a second, and writes of others would wait for that.
	// kube-apiserver bounds the requests itself.
	m.config.Cluster = rest.CopyConfig(config.Cluster)
	m.config.Cluster.QPS = -1
	clients := rest.CopyConfig(m.config.Cluster)
	clients.Wrap(func(next http.RoundTripper) http.RoundTripper { return fence{retryTransport{next}, m} })
	var err error
	if m.dynamic, err = dynamic.NewForConfig(clients); err != nil {
		return nil, err
	}
	if m.kube, err = kubernetes.NewForConfig(clients); err != nil {
		return nil, err
	}
	if m.metadata, err = metadata.NewForConfig(clients); err != nil {
		return nil, err
	}
	m.aggregator, err = aggregator.NewForConfig(clients)
	return m, err
}

// pollInterval is the time between two attempts of eventually.
const pollInterval = 100 * time.Millisecond

// eventually calls a function until it succeeds, and returns its last error after a timeout.
func eventually(ctx context.Context, timeout time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return cluster.Eventually(ctx, pollInterval, try)
}

// inOrder calls functions until one returns an error.
func inOrder(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// retryTransport makes clients repeat requests that fail for a moment. client-go repeats a request
// up to ten times if an error has the header Retry-After. The context or MaxRetries may end that
// earlier. retryTransport adds the header where it is missing, and turns a broken connection into
// such an error.
//
// So a write may be done twice. Each write in this package allows that.
type retryTransport struct{ http.RoundTripper }

// RoundTrip sends a request.
func (t retryTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(req)
	// A client resumes a broken watch.
	if err == nil && !req.URL.Query().Has("watch") {
		err = readAll(response)
	}
	if err != nil && req.Context().Err() != nil {
		return nil, err
	}
	if err != nil {
		response = unavailable(req, err)
	}
	switch response.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if response.Header.Get("Retry-After") == "" {
			response.Header.Set("Retry-After", "1")
		}
	}
	return response, nil
}

// fence refuses writes of a process after another one has continued its migration. For example, the
// machine of the first process may have been suspended. Only a request that is on its way at that
// moment gets through.
type fence struct {
	http.RoundTripper
	m *Migration
}

// RoundTrip sends a request.
func (f fence) RoundTrip(req *http.Request) (*http.Response, error) {
	// Changes of ConfigMaps, which raise revisions, do no harm. There are thousands.
	harmless := req.Method == http.MethodGet || req.URL.Query().Has("dryRun") || strings.HasPrefix(req.URL.Path, "/api/")
	if f.m.claimed && !harmless {
		if _, err := f.m.write(req.Context()); err != nil {
			if req.Body != nil {
				_ = req.Body.Close()
			}
			return nil, err
		}
	}
	return f.RoundTripper.RoundTrip(req)
}

// readAll reads a response to its end, and returns an error if the connection breaks.
func readAll(response *http.Response) error {
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	response.Body = io.NopCloser(bytes.NewReader(body))
	return err
}

// unavailable returns a 503 response for a request that has got no response.
func unavailable(req *http.Request, cause error) *http.Response {
	status := apierrors.NewServiceUnavailable(fmt.Sprintf("%s %s: %v", req.Method, req.URL.Redacted(), cause)).Status()
	status.Kind, status.APIVersion = "Status", "v1"
	body, _ := json.Marshal(status)
	return &http.Response{
		StatusCode: http.StatusServiceUnavailable,
		Header:     http.Header{"Content-Type": {runtime.ContentTypeJSON}},
		Body:       io.NopCloser(bytes.NewReader(body)),
		Request:    req,
	}
}
