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
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

const namespace = "bench"

// contender is one way to serve objects through kube-apiserver.
type contender struct {
	// Name is what the results call it.
	name                     string
	group, version, resource string
	clusterScoped            bool
	kind                     string
	// content is what an object has beside its type and metadata, as members of a JSON object.
	content string
	// otherVersion is one that the objects are not stored in, if there is one.
	otherVersion string
	// protobuf is set if objects are served in it.
	protobuf bool
	// server is the process behind kube-apiserver, nil if kube-apiserver serves the objects
	// itself.
	server *controlplane.Component
	// prefix is where a contender with stored objects has them in etcd.
	prefix string
	// host is where clients send requests, if not to kube-apiserver.
	host string

	mu       sync.Mutex
	revision map[string]string
}

func (c *contender) path(version string) string {
	prefix := "/apis/" + c.group + "/" + version
	if c.clusterScoped {
		return prefix + "/" + c.resource
	}
	return prefix + "/namespaces/" + namespace + "/" + c.resource
}

// object is the one of that name, changed as often as the generation says.
func (c *contender) object(name string, generation int) []byte {
	version := schema.GroupVersion{Group: c.group, Version: c.version}.String()
	within := namespace
	if c.clusterScoped {
		within = ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"namespace":%q,"resourceVersion":%q,"labels":{"generation":"%d"}},%s}`,
		version, c.kind, name, within, c.revision[name], generation, c.content)
}

var resourceVersion = regexp.MustCompile(`"resourceVersion":"(\d+)"`)

// remember keeps the resource version that the next update has to name.
func (c *contender) remember(name string, answer []byte) error {
	match := resourceVersion.FindSubmatch(answer)
	if match == nil {
		return fmt.Errorf("%s: the answer has no resource version: %s", c.name, answer)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision[name] = string(match[1])
	return nil
}

// read reads an object, which controllers may have written since it was created.
func (c *contender) read(ctx context.Context, client client, name string) error {
	answer, err := client.do(ctx, http.MethodGet, c.path(c.version)+"/"+name, "", nil)
	if err != nil {
		return err
	}
	return c.remember(name, answer)
}

func (c *contender) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.revision, name)
}

// verb is what is measured. A create comes before, a delete after all others.
type verb struct {
	name string
	do   func(c *contender, name string) task
}

func object(prefix string, n int) string { return fmt.Sprintf("%s-%06d", prefix, n) }

var verbs = []verb{
	{"create", func(c *contender, prefix string) task {
		return func(ctx context.Context, client client, n int) error {
			name := object(prefix, n)
			answer, err := client.do(ctx, http.MethodPost, c.path(c.version), "", c.object(name, 1))
			if err != nil {
				return err
			}
			return c.remember(name, answer)
		}
	}},
	{"get", func(c *contender, prefix string) task {
		return func(ctx context.Context, client client, n int) error {
			return c.read(ctx, client, object(prefix, n))
		}
	}},
	{"update", func(c *contender, prefix string) task {
		return func(ctx context.Context, client client, n int) error {
			name := object(prefix, n)
			for {
				answer, err := client.do(ctx, http.MethodPut, c.path(c.version)+"/"+name, "", c.object(name, 2))
				if err == nil {
					return c.remember(name, answer)
				}
				if !errors.Is(err, errConflict) {
					return err
				}
				if err := c.read(ctx, client, name); err != nil {
					return err
				}
			}
		}
	}},
	{"delete", func(c *contender, prefix string) task {
		return func(ctx context.Context, client client, n int) error {
			name := object(prefix, n)
			defer c.forget(name)
			_, err := client.do(ctx, http.MethodDelete, c.path(c.version)+"/"+name, "", nil)
			return err
		}
	}},
}

const (
	protobuf = "application/vnd.kubernetes.protobuf"
	table    = "application/json;as=Table;v=v1;g=meta.k8s.io"
	pageSize = 500
)

// list is a way to read all objects.
type list struct {
	name string
	// of returns what to do, or nil if the contender does not have it.
	of func(c *contender) func(context.Context, client) error
}

var lists = []list{
	{"list", func(c *contender) func(context.Context, client) error { return c.list(c.version, "", 0) }},
	{"list in pages of 500", func(c *contender) func(context.Context, client) error {
		return c.list(c.version, "", pageSize)
	}},
	{"list as a table", func(c *contender) func(context.Context, client) error { return c.list(c.version, table, 0) }},
	{"list in protobuf", func(c *contender) func(context.Context, client) error {
		if !c.protobuf {
			return nil
		}
		return c.list(c.version, protobuf, 0)
	}},
	{"list in another version", func(c *contender) func(context.Context, client) error {
		if c.otherVersion == "" {
			return nil
		}
		return c.list(c.otherVersion, "", 0)
	}},
}

var continuation = regexp.MustCompile(`"continue":"([^"]+)"`)

func (c *contender) list(version, accept string, limit int) func(context.Context, client) error {
	return func(ctx context.Context, client client) error {
		return listPages(ctx, client, c.path(version)+"?", accept, limit)
	}
}

// listPages lists what a path with a query has.
func listPages(ctx context.Context, client client, path, accept string, limit int) error {
	for token := ""; ; {
		answer, err := client.do(ctx, http.MethodGet, fmt.Sprintf("%s&limit=%d&continue=%s", path, limit, token), accept, nil)
		if err != nil {
			return err
		}
		// It is in the list's metadata, which comes first or, in lists of custom resources, last.
		const part = 4096
		ends := slices.Concat(answer[:min(len(answer), part)], answer[max(len(answer)-part, 0):])
		match := continuation.FindSubmatch(ends)
		if limit == 0 || match == nil {
			return nil
		}
		token = string(match[1])
	}
}

func bodyReader(body []byte) io.Reader {
	if body == nil {
		return nil
	}
	return bytes.NewReader(body)
}
