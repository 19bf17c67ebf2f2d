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
	// checkTime bounds a check, and requestTime each of its requests.
	checkTime, requestTime = 3 * time.Minute, time.Minute
	// atOnce is how many checks run at the same time: most of them wait.
	atOnce = 8
	// namespaces is the path of all namespaces.
	namespaces = "/api/v1/namespaces"
)

// Options select the resources and the checks of a run.
type Options struct {
	// GroupVersions are examined with all of their resources. By default they are the examples'.
	GroupVersions []schema.GroupVersion
	// Resources, if not empty, narrow the run to resources with these names. Resources whose objects act on the whole
	// cluster are only examined if they are named.
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
	// WebhookAddress is a host of this machine and a port, which may be 0. The API's servers reach webhooks of
	// the run there. Without it no webhook is examined.
	WebhookAddress string
	// AuditLog is the file that the server of the API writes its audit events to. Without it audit is not examined.
	AuditLog string
	// Progress is called with a line about each result of a check that was made, by one goroutine at a time. It may be
	// nil.
	Progress func(line string)
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

	mu sync.Mutex
	// left is what could not be deleted.
	left []error
}

// endpoint is a server, and the client that sends it requests.
type endpoint struct {
	server *url.URL
	client *http.Client
}

// Run examines an API with the permissions of the configuration's user. It returns an error without a report if it could
// not begin, and with a report of what it has found if its context has ended. Faults of the API are in the report.
func Run(ctx context.Context, config *rest.Config, options Options) (*Report, error) {
	options.Level = cmp.Or(options.Level, Full)
	if err := options.validate(); err != nil {
		return nil, err
	}
	r, err := newRun(config, options)
	if err != nil {
		return nil, err
	}
	report := &Report{Host: config.Host, Level: options.Level, Began: time.Now()}
	if err := r.read(ctx, "/version", &report.Server); err != nil {
		return nil, err
	}
	resources, err := r.resources(ctx, report)
	if err != nil {
		return nil, err
	}
	if options.WebhookAddress != "" && !options.ReadOnly {
		if r.hooks, err = serveWebhooks(options.WebhookAddress); err != nil {
			return nil, err
		}
		defer func() { _ = r.hooks.server.Close() }()
	}
	all := &Probe{run: r, ID: r.id, ctx: ctx, ledger: &ledger{}}
	if !options.ReadOnly && slices.ContainsFunc(resources, func(resource *Resource) bool { return resource.Namespaced }) {
		if err := all.createNamespace(r.id); err != nil {
			all.clean(ctx)
			return nil, errors.Join(append([]error{err}, r.left...)...)
		}
	}
	for _, resource := range resources {
		report.Results = append(report.Results, r.examine(ctx, resource, r.id)...)
	}
	all.clean(ctx)
	for _, left := range r.left {
		report.Left = append(report.Left, left.Error())
	}
	report.Took = time.Since(report.Began)
	return report, ctx.Err()
}

// validate returns an error about a name that the options mistake.
func (o Options) validate() error {
	for _, id := range o.Only {
		i := slices.IndexFunc(Checks(), func(check Check) bool { return check.ID == id })
		if i < 0 {
			return fmt.Errorf("there is no check %q: see the IDs in a report of all checks", id)
		}
		if level := Checks()[i].Level; !o.Level.Includes(level) {
			return fmt.Errorf("the check %s is of the level %s, and the run of the level %s", id, level, o.Level)
		}
	}
	return nil
}

// resources returns the resources to examine. It fails if an option names one that discovery does not have.
func (r *run) resources(ctx context.Context, report *Report) ([]*Resource, error) {
	var all, resources []*Resource
	for _, version := range r.groupVersions() {
		learned, err := r.learn(ctx, version)
		if err != nil {
			return nil, err
		}
		all = append(all, learned...)
	}
	for _, name := range r.Resources {
		if !slices.ContainsFunc(all, func(resource *Resource) bool { return resource.Resource == name }) {
			return nil, fmt.Errorf("discovery of %v has no resource %q: see \"kubectl api-resources\"", r.groupVersions(), name)
		}
	}
	for _, resource := range all {
		switch {
		case len(r.Resources) > 0 && !slices.Contains(r.Resources, resource.Resource):
		case len(r.Resources) == 0 && !r.ReadOnly && resource.actsOnCluster():
			report.Omitted = append(report.Omitted, resource.String())
		default:
			resources = append(resources, resource)
		}
	}
	for _, example := range r.Examples {
		if !slices.ContainsFunc(all, func(resource *Resource) bool { return resource.GroupVersionKind() == example.GroupVersionKind() }) {
			return nil, fmt.Errorf("discovery of %v has no kind %s, of which there is an example", r.groupVersions(), example.GroupVersionKind())
		}
	}
	if len(resources) == 0 {
		return nil, fmt.Errorf("nothing to examine: discovery of %v lists no resources but %q, whose objects act on the whole cluster, and which have to be named", r.groupVersions(), report.Omitted)
	}
	return resources, nil
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
	for _, left := range report.Left {
		t.Error(left)
	}
	for _, result := range report.Results {
		t.Run(result.Resource+"/"+result.Check, func(t *testing.T) {
			switch result.Outcome {
			case Failed:
				t.Error(result.Finding)
			case NotChecked:
				t.Error("not checked:", result.Reason)
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
func (r *run) examine(ctx context.Context, resource *Resource, namespace string) []Result {
	if !resource.Namespaced {
		namespace = ""
	}
	example, unable := r.example(ctx, resource, namespace)
	checks := slices.DeleteFunc(Checks(), func(check Check) bool {
		return !r.Level.Includes(check.Level) || len(r.Only) > 0 && !slices.Contains(r.Only, check.ID)
	})
	results := make([]Result, len(checks))
	progress := r.progress(len(checks))
	var running errgroup.Group
	running.SetLimit(atOnce)
	for i, check := range checks {
		running.Go(func() error {
			probe := r.probe(ctx, resource, namespace)
			probe.Example, probe.check = example, check
			probe.result = &Result{Check: check.ID, Rule: check.Rule, Source: check.Source, Resource: resource.String(), Outcome: Passed}
			switch reason := check.notOffered(r.Options, resource); {
			case reason != "":
				probe.result.Outcome, probe.result.Reason = NotOffered, reason
			case ctx.Err() != nil:
				probe.result.Outcome, probe.result.Reason = NotChecked, interrupted
			case unable != nil && check.creates():
				probe.result.Outcome, probe.result.Reason = NotChecked, unable.Error()
			default:
				probe.look(ctx)
			}
			results[i] = *probe.result
			progress(*probe.result)
			return nil
		})
	}
	_ = running.Wait()
	// Objects in namespaces of the run go with these.
	if !r.ReadOnly && !resource.Namespaced && resource.lacks("", "create") == "" && resource.lacks("", "list") == "" {
		_, left := r.sweep(ctx, resource)
		r.leave(left)
	}
	return results
}

// progress returns a function that tells Options.Progress about each result of a resource.
func (r *run) progress(total int) func(Result) {
	var mu sync.Mutex
	done := 0
	return func(result Result) {
		mu.Lock()
		defer mu.Unlock()
		if done++; r.Progress != nil && result.Outcome != NotOffered {
			r.Progress(fmt.Sprintf("[%d/%d] %s", done, total, result.Line()))
		}
	}
}

// probe returns a probe for a resource.
func (r *run) probe(ctx context.Context, resource *Resource, namespace string) *Probe {
	return &Probe{Resource: resource, Namespace: namespace, ID: fmt.Sprintf("%s-%d", r.id, r.probes.Add(1)), ctx: ctx, run: r, ledger: &ledger{}}
}

// creates reports whether the check makes objects of the resource.
func (c Check) creates() bool { return slices.Contains(c.Needs, "create") }

// look runs the check in a goroutine that the check can end, and then the clean-up.
func (p *Probe) look(ctx context.Context) {
	defer p.clean(ctx)
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	p.ctx = limited
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if cause := recover(); cause != nil {
				p.result.Outcome, p.result.Finding = Failed, &Finding{Problem: fmt.Sprintf("the check did not expect an answer, and panicked: %v", cause)}
			}
		}()
		p.check.Run(p)
	}()
	<-ended
	p.result.Took = time.Since(began)
}
