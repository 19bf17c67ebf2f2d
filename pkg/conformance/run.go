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

package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

const (
	// checkTime bounds a check.
	checkTime = time.Minute
	// cleanupTime bounds the cleanup after a check.
	cleanupTime = 10 * time.Second
	// atOnce is how many checks run at the same time: most of them wait.
	atOnce = 8
)

// Options select the resources and the checks of a run.
type Options struct {
	// GroupVersions are examined with all of their resources. By default they are those of the
	// examples.
	GroupVersions []schema.GroupVersion
	// Resources, if not empty, narrow the run to resources with these names.
	Resources []string
	// Examples are objects that the API accepts. A second one of a kind shows valid changes. Kinds
	// without an example get one made from their schema.
	Examples []*unstructured.Unstructured
	// Level is Full if it is empty.
	Level Level
	// ReadOnly leaves out all checks that write.
	ReadOnly bool
	// Only, if not empty, narrows the run to checks with these IDs.
	Only []string
	// Direct leads past kube-apiserver to the server of an APIService, and has no credentials.
	// Without it the endpoints of the APIService's Service are tried.
	Direct *rest.Config
	// WebhookAddress is a host of this machine and a port, which may be 0. The API's servers reach webhooks of
	// the run there. Without it no webhook is examined.
	WebhookAddress string
	// AuditLog is the file that the server of the API writes its audit events to. Without it audit is not examined.
	AuditLog string
	// Seed makes hostile requests repeatable.
	Seed uint64
	// Progress is called with each result at once, by one goroutine at a time. It may be nil.
	Progress func(Result)
}

// run is the state of a run.
type run struct {
	Options
	id string
	// probes counts the probes. Their IDs have its value.
	probes atomic.Int64
	// main is kube-apiserver with the credentials of the run, and anonymous without credentials.
	main, anonymous *endpoint
	// wrap wraps all transports.
	wrap  transport.WrapperFunc
	hooks *webhooks
}

// endpoint is a server, and the client that sends it requests.
type endpoint struct {
	server *url.URL
	client *http.Client
}

// Run examines an API with the permissions of the configuration's user. It returns an error if it
// could not begin or its context has ended. Faults of the API are in the report.
func Run(ctx context.Context, config *rest.Config, options Options) (*Report, error) {
	options.Level = cmp.Or(options.Level, Full)
	r, err := newRun(config, options)
	if err != nil {
		return nil, err
	}
	report := &Report{Level: options.Level, Seed: options.Seed}
	if err := r.read(ctx, "/version", &report.Server); err != nil {
		return nil, err
	}
	var resources []*Resource
	for _, version := range options.groupVersions() {
		learned, err := r.learn(ctx, version)
		if err != nil {
			return nil, err
		}
		resources = append(resources, learned...)
	}
	if len(options.Resources) > 0 {
		resources = slices.DeleteFunc(resources, func(resource *Resource) bool {
			return !slices.Contains(options.Resources, resource.Resource)
		})
	}
	if len(resources) == 0 {
		return nil, errors.New("nothing to examine: discovery lists none of the resources; see \"kubectl api-resources\"")
	}
	if options.WebhookAddress != "" && !options.ReadOnly {
		if r.hooks, err = serveWebhooks(options.WebhookAddress); err != nil {
			return nil, err
		}
		defer func() { _ = r.hooks.server.Close() }()
	}
	namespace := r.id
	if !options.ReadOnly && slices.ContainsFunc(resources, func(resource *Resource) bool { return resource.Namespaced }) {
		if err := r.createNamespace(ctx, namespace, nil); err != nil {
			return nil, err
		}
		defer r.cleanUp(ctx, func(ctx context.Context) { r.remove(ctx, "/api/v1/namespaces/"+namespace) })
	}
	for _, resource := range resources {
		results, err := r.examine(ctx, resource, namespace)
		if err != nil {
			return nil, err
		}
		report.Results = append(report.Results, results...)
	}
	return report, ctx.Err()
}

func (o Options) groupVersions() []schema.GroupVersion {
	versions := slices.Clone(o.GroupVersions)
	if len(versions) > 0 {
		return versions
	}
	for _, example := range o.Examples {
		if version := example.GroupVersionKind().GroupVersion(); !slices.Contains(versions, version) {
			versions = append(versions, version)
		}
	}
	return versions
}

// Test examines an API, and runs a subtest for every check of each resource.
func Test(t *testing.T, config *rest.Config, options Options) {
	t.Helper()
	report, err := Run(t.Context(), config, options)
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range report.Results {
		t.Run(result.Resource+"/"+result.Check, func(t *testing.T) {
			switch result.Outcome {
			case Failed:
				t.Error(result.Finding)
			case NotOffered:
				t.Log("not offered:", result.Reason)
			case Passed:
			}
		})
	}
}

func newRun(config *rest.Config, options Options) (*run, error) {
	main, err := newEndpoint(config)
	if err != nil {
		return nil, err
	}
	nobody := rest.AnonymousClientConfig(config)
	nobody.WrapTransport = config.WrapTransport
	anonymous, err := newEndpoint(nobody)
	if err != nil {
		return nil, err
	}
	return &run{Options: options, id: "conformance-" + rand.String(5), main: main, anonymous: anonymous, wrap: config.WrapTransport}, nil
}

func newEndpoint(config *rest.Config) (*endpoint, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = manager
	// Checks read the answers of the server, not as a transport has changed them.
	config.DisableCompression = true
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	return &endpoint{server, client}, nil
}

// examine runs the checks for a resource concurrently.
func (r *run) examine(ctx context.Context, resource *Resource, namespace string) ([]Result, error) {
	if !resource.Namespaced {
		namespace = ""
	}
	example, unable := r.example(ctx, resource, namespace)
	checks := slices.DeleteFunc(Checks(), func(check Check) bool {
		return !r.Level.Includes(cmp.Or(check.Level, Basic)) || len(r.Only) > 0 && !slices.Contains(r.Only, check.ID)
	})
	results := make([]Result, len(checks))
	var progress sync.Mutex
	var running errgroup.Group
	running.SetLimit(atOnce)
	for i, check := range checks {
		running.Go(func() error {
			probe := &Probe{
				Resource: resource, Example: example, Namespace: namespace, run: r, check: check,
				ID:     fmt.Sprintf("%s-%d", r.id, r.probes.Add(1)),
				result: &Result{Check: check.ID, Rule: check.Rule, Source: check.Source, Resource: resource.String(), Outcome: Passed},
			}
			reason := check.notOffered(r.Options, resource)
			if reason == "" && unable != nil && check.creates() {
				reason = unable.Error()
			}
			if reason != "" {
				probe.result.Outcome, probe.result.Reason = NotOffered, reason
			} else {
				probe.look(ctx)
			}
			results[i] = *probe.result
			if r.Progress != nil {
				progress.Lock()
				defer progress.Unlock()
				r.Progress(*probe.result)
			}
			return nil
		})
	}
	return results, running.Wait()
}

// creates tells whether the check makes objects of the resource.
func (c Check) creates() bool { return slices.Contains(c.Needs, "create") }

// look runs the check in a goroutine that the check can end, and then the cleanups.
func (p *Probe) look(ctx context.Context) {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	p.ctx = limited
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.check.Run(p)
	}()
	<-ended
	p.result.Took = time.Since(began)
	p.run.cleanUp(ctx, func(ctx context.Context) {
		for _, do := range slices.Backward(p.cleanups) {
			do(ctx)
		}
		if p.check.creates() {
			p.run.remove(ctx, p.Collection(), p.Selector())
		}
	})
}

// cleanUp calls a function with its own timeout, even if the run has been interrupted.
func (r *run) cleanUp(ctx context.Context, do func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	do(ctx)
}

// createNamespace creates a namespace.
func (r *run) createNamespace(ctx context.Context, name string, labels map[string]string) error {
	answer, err := r.send(ctx, Request{Method: http.MethodPost, Path: "/api/v1/namespaces", Body: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "labels": labels},
	}})
	if err != nil {
		return err
	}
	if answer.Code != http.StatusCreated {
		return fmt.Errorf("a namespace for the checks can't be created (%s): a run that writes needs permission for that; with --read-only it writes nothing", statusOf(answer))
	}
	return nil
}

// remove deletes an object or a collection, and ignores errors.
func (r *run) remove(ctx context.Context, path string, options ...Option) {
	_, _ = r.send(ctx, newRequest(http.MethodDelete, path, nil, options...))
}
