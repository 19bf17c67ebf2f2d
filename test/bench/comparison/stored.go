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

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/test/bench/machine"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// Stored is what a server costs that starts with custom resources in etcd.
type Stored struct {
	Contender string `json:"contender"`
	Objects   int    `json:"objects"`
	// Ready is how many seconds after its start the server can answer lists. CPU is how many of processor time it has
	// used until then.
	Ready float64 `json:"ready"`
	CPU   float64 `json:"cpu"`
	// Resident and Peak are the bytes of its memory, some seconds later. Read are those after lists.
	Resident int64 `json:"resident"`
	Peak     int64 `json:"peak"`
	Read     int64 `json:"read"`
	// Database is the size of etcd's file in bytes, with the objects of all contenders so far.
	Database int64 `json:"database"`
	// Pages is how many seconds a client needs to list all objects in pages of 500, and Informer those until one of
	// client-go has synced.
	Pages    float64 `json:"pages"`
	Informer float64 `json:"informer"`
	// Create and Get are the milliseconds of a request at the median, of one client.
	Create float64 `json:"create"`
	Get    float64 `json:"get"`
	// Value is the size of an object in etcd, in bytes.
	Value int `json:"value"`
}

// workflow is an object of a kilobyte with managedFields, labels and a status. Its copies have other names, each 5,000
// another namespace and label, and each 100 another label.
const (
	workflowName = "stored-0000000"
	workflow     = `{"apiVersion":%q,"kind":"Workflow","metadata":{"name":"` + workflowName + `","namespace":"batch-0000",` +
		`"labels":{"batch":"batch-0000","hundred":"hundred-00000"}},` +
		`"spec":{"entrypoint":"main","arguments":{"parameters":[{"name":"message","value":"hello world"},{"name":"retries","value":"3"}]},` +
		`"templates":[%s]},` +
		`"status":{"phase":"Succeeded","startedAt":"2026-11-01T08:00:00Z","finishedAt":"2026-11-01T08:03:12Z","progress":"4/4"}}`
	batch    = 5000
	template = `{"name":"main","container":{"image":"registry.example.com/jobs/worker:1.4.2","command":["worker"],"args":["--input=/data/in","--output=/data/out"]}}`

	storedWatches, storedWrites = 100, 2000

	// mostOfOthers is how many objects the others can have beside the other processes.
	mostOfOthers = 300_000

	moved, uncached = "crd-apiserver", "crd-apiserver without a watch cache"
)

func workflows() apiextensionsv1.CustomResourceDefinitionSpec {
	anything := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	return apiextensionsv1.CustomResourceDefinitionSpec{
		Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "workflows", Kind: "Workflow"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": anything, "status": anything},
			}},
			AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{
				{Name: "Phase", Type: "string", JSONPath: ".status.phase"},
				{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
			},
		}},
	}
}

// storedReads are what four clients read of stored custom resources. Each has a batch to itself, if there are as many.
var storedReads = []struct {
	name, query, accept string
	limit               int
	compressed, all     bool
}{
	{name: "5,000 in a namespace", query: "in"},
	{name: "5,000 in a namespace, with gzip", query: "in", compressed: true},
	{name: "5,000 in a namespace, in pages of 500", query: "in", limit: pageSize},
	{name: "5,000 of all namespaces by label", query: "batch", all: true},
	{name: "5,000 in a namespace, as a table", query: "in", accept: table},
	{name: "100 of all namespaces by label", query: "hundred", all: true},
	{name: "a watch that begins with 5,000", query: "watch"},
}

// measureStored starts kube-apiserver, crd-apiserver and, if there is one, another build of it with more and more custom
// resources, which are copies of one in etcd.
func (b *bench) measureStored(ctx context.Context, result *Result, s size) (err error) {
	if len(s.stored) == 0 {
		return nil
	}
	contenders, err := b.storing(ctx, s)
	if err != nil {
		return err
	}
	clients, err := newClients(b.cp.RESTConfig(), readers)
	if err != nil {
		return err
	}
	client, err := b.etcd()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	from := 1
	for _, objects := range s.stored {
		for _, c := range contenders {
			if objects > mostOfOthers && c.name != moved && c.name != uncached {
				continue
			}
			progress(fmt.Sprintf("Starting %s with %d custom resources", c.name, objects))
			value, err := copyWorkflows(ctx, client, c, from, objects)
			if err != nil {
				return err
			}
			stored, err := b.stored(ctx, clients[0], c)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			stored.Objects, stored.Value = objects, value
			status, err := client.Status(ctx, b.cp.Etcd.URL())
			if err != nil {
				return err
			}
			stored.Database = status.DbSize
			if objects == s.stored[0] {
				watch, err := b.watch(ctx, b.cp.RESTConfig(), c, storedWatches, storedWrites)
				if err != nil {
					return fmt.Errorf("%s: watch: %w", c.name, err)
				}
				result.Watches = append(result.Watches, watch)
			}
			if err := stored.use(ctx, b, c, clients[:1]); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			for round := range s.rounds {
				if objects < batch {
					break
				}
				samples, err := b.readStored(ctx, c, objects)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				for _, sample := range samples {
					sample.Round, sample.Verb = round, fmt.Sprintf("%s, %d stored", sample.Verb, objects)
					result.Samples = append(result.Samples, sample)
				}
			}
			if stored.Read, _, err = machine.Resident(c.process(b).PID()); err != nil {
				return err
			}
			result.Stored = append(result.Stored, stored)
			if c.server != nil { // It would compete with the next for the machine's memory.
				if err := c.server.Stop(); err != nil {
					return err
				}
			}
		}
		from = max(from, objects)
	}
	return nil
}

// storing returns the contenders, each with the first object.
func (b *bench) storing(ctx context.Context, s size) ([]*contender, error) {
	admin, err := newClients(b.cp.RESTConfig(), 1)
	if err != nil {
		return nil, err
	}
	if _, err := admin[0].do(ctx, http.MethodPost, "/api/v1/namespaces", "", []byte(`{"metadata":{"name":"batch-0000"}}`)); err != nil {
		return nil, err
	}
	var contenders []*contender
	for _, each := range []struct {
		name, group, prefix, binary string
		flags                       []string
	}{
		{name: reference, group: "crd.stored.example.com", prefix: "/registry"},
		{name: moved, group: "moved.stored.example.com", prefix: "/moved"},
		{name: uncached, group: "uncached.stored.example.com", prefix: "/uncached", flags: []string{"--watch-cache-sizes=workflows.uncached.stored.example.com#0"}},
		{name: "crd-apiserver, base", group: "base.stored.example.com", prefix: "/base", binary: s.base},
	} {
		if each.binary == "" && each.prefix == "/base" {
			continue
		}
		if err := b.define(ctx, each.group, workflows()); err != nil {
			return nil, err
		}
		c := &contender{name: each.name, group: each.group, version: "v1", resource: "workflows", kind: "Workflow", content: `"spec":{"entrypoint":"main"}`, prefix: each.prefix, revision: map[string]string{}}
		if each.name != reference {
			if c.server, err = b.startMoved(ctx, strings.Trim(each.prefix, "/"), each.prefix, each.group, each.binary, each.flags...); err != nil {
				return nil, err
			}
			if err := b.await(ctx, "/apis/"+c.group+"/v1/workflows"); err != nil {
				return nil, err
			}
		}
		content := fmt.Appendf(nil, workflow, c.group+"/v1", strings.Join(slices.Repeat([]string{template}, s.templates), ","))
		if _, err := admin[0].do(ctx, http.MethodPost, "/apis/"+c.group+"/v1/namespaces/batch-0000/workflows", "", content); err != nil {
			return nil, err
		}
		contenders = append(contenders, c)
	}
	return contenders, nil
}

func (c *contender) process(b *bench) *controlplane.Component {
	if c.server == nil {
		return b.cp.KubeAPIServer
	}
	return c.server
}

// stored restarts a server, and returns what it took until it has filled its watch cache and has been left alone.
func (b *bench) stored(ctx context.Context, client client, c *contender) (Stored, error) {
	process := c.process(b)
	if err := process.Stop(); err != nil {
		return Stored{}, err
	}
	began := time.Now()
	if err := process.Start(ctx); err != nil {
		return Stored{}, err
	}
	if err := awaitCache(ctx, client, c); err != nil {
		return Stored{}, err
	}
	stored := Stored{Contender: c.name, Ready: time.Since(began).Seconds()}
	used, err := machine.CPU(process.PID())
	if err != nil {
		return Stored{}, err
	}
	stored.CPU = used.Seconds()
	select {
	case <-ctx.Done():
		return Stored{}, ctx.Err()
	case <-time.After(2 * settle):
	}
	stored.Resident, stored.Peak, err = machine.Resident(process.PID())
	return stored, err
}

// use measures what takes longer with more objects, or should not.
func (s *Stored) use(ctx context.Context, b *bench, c *contender, clients []client) error {
	began := time.Now()
	path := "/apis/" + c.group + "/v1/workflows"
	if err := listPages(ctx, clients[0], path+"?", "", pageSize); err != nil {
		return err
	}
	s.Pages = time.Since(began).Seconds()
	dynamics, err := dynamic.NewForConfig(b.cp.RESTConfig())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	informer := dynamicinformer.NewDynamicSharedInformerFactory(dynamics, 0).ForResource(schema.GroupVersionResource{Group: c.group, Version: c.version, Resource: c.resource}).Informer()
	// This process is not measured, and need not keep the objects.
	if err := informer.SetTransform(func(o any) (any, error) {
		meta, err := meta.Accessor(o)
		if err != nil {
			return nil, err
		}
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: meta.GetNamespace(), Name: meta.GetName(), ResourceVersion: meta.GetResourceVersion()}}, nil
	}); err != nil {
		return err
	}
	began = time.Now()
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return ctx.Err()
	}
	s.Informer = time.Since(began).Seconds()
	if have := len(informer.GetStore().ListKeys()); have != s.Objects {
		return fmt.Errorf("the informer has %d objects, not %d", have, s.Objects)
	}
	for _, each := range []struct {
		verb verb
		to   *float64
	}{{verbs[0], &s.Create}, {verbs[1], &s.Get}, {verbs[3], nil}} {
		sample, err := b.measure(ctx, c, clients, attempts, each.verb.do(c, "used"))
		if err != nil {
			return err
		}
		if each.to != nil {
			*each.to = sample.Median
		}
	}
	return nil
}

func (b *bench) readStored(ctx context.Context, c *contender, objects int) ([]Sample, error) {
	var samples []Sample
	for _, read := range storedReads {
		if c.name == uncached && read.all && objects > batch {
			continue // It would have to read all objects for each.
		}
		config := b.cp.RESTConfig()
		config.DisableCompression = !read.compressed
		clients, err := newClients(config, readers)
		if err != nil {
			return nil, err
		}
		sample, err := b.measure(ctx, c, clients, listed, func(ctx context.Context, client client, n int) error {
			at := n % (objects / batch)
			path := fmt.Sprintf("/apis/%s/v1/workflows?labelSelector=hundred=hundred-%05d", c.group, n%(objects/100))
			switch read.query {
			case "hundred":
			case "batch":
				path = fmt.Sprintf("/apis/%s/v1/workflows?labelSelector=batch=batch-%04d", c.group, at)
			case "watch":
				return watchAll(ctx, client, fmt.Sprintf("/apis/%s/v1/namespaces/batch-%04d/workflows", c.group, at))
			default:
				path = fmt.Sprintf("/apis/%s/v1/namespaces/batch-%04d/workflows?", c.group, at)
			}
			return listPages(ctx, client, path, read.accept, read.limit)
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", read.name, err)
		}
		sample.Verb = read.name
		samples = append(samples, sample)
	}
	return samples, nil
}

// watchAll watches until all objects of a path have come.
func watchAll(ctx context.Context, client client, path string) error {
	query := "?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, client.host+path+query, nil)
	if err != nil {
		return err
	}
	response, err := client.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	events, lines := 0, bufio.NewScanner(response.Body)
	for lines.Scan() {
		if bytes.HasPrefix(lines.Bytes(), []byte(`{"type":"BOOKMARK"`)) {
			break
		}
		events++
	}
	if events != batch {
		return fmt.Errorf("%s: %d events, not %d: %w", path, events, batch, lines.Err())
	}
	return nil
}

// copyWorkflows makes as many objects of the first one, and returns its size.
func copyWorkflows(ctx context.Context, client *clientv3.Client, c *contender, from, to int) (int, error) {
	prefix := c.prefix + "/" + c.group + "/" + c.resource
	key := func(n int) string { return fmt.Sprintf("%s/batch-%04d/stored-%07d", prefix, n/batch, n) }
	first, err := client.Get(ctx, key(0))
	if err != nil {
		return 0, err
	}
	if len(first.Kvs) == 0 {
		return 0, fmt.Errorf("etcd does not have %s", key(0))
	}
	sealed := etcd.ValueIsSealed(first.Kvs[0].Value)
	value, err := etcd.OpenValue(key(0), first.Kvs[0].Value)
	if err != nil {
		return 0, err
	}
	const most = 100
	revision := int64(0)
	for n := from; n < to; n += most {
		var puts []clientv3.Op
		for i := n; i < min(n+most, to); i++ {
			copied := bytes.ReplaceAll(value, []byte(workflowName), fmt.Appendf(nil, "stored-%07d", i))
			copied = bytes.ReplaceAll(copied, []byte("batch-0000"), fmt.Appendf(nil, "batch-%04d", i/batch))
			copied = bytes.ReplaceAll(copied, []byte("hundred-00000"), fmt.Appendf(nil, "hundred-%05d", i/100))
			if sealed {
				copied = etcd.SealValue(key(i), copied)
			}
			puts = append(puts, clientv3.OpPut(key(i), string(copied)))
		}
		response, err := client.Txn(ctx).Then(puts...).Commit()
		if err != nil {
			return 0, err
		}
		revision = response.Header.Revision
	}
	if revision > 0 { // A server would begin its history in the midst of the copies.
		_, err = client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	}
	return len(value), err
}
