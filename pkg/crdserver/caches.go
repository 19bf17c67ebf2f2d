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

package crdserver

import (
	"context"
	"errors"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

const (
	// fillTimeout is how long the server waits for the watch caches of a definition. After it,
	// the server is ready without them, such as when a conversion webhook does not answer.
	fillTimeout = time.Minute
	// fillsAtOnce is the number of definitions whose objects are read at once.
	fillsAtOnce = 4
	// fillInterval is the interval of the attempts.
	fillInterval = 100 * time.Millisecond
)

// caches fills the watch caches with the objects of definitions before the first client request.
// Such a request would have to wait, or be tried again.
type caches struct {
	// client is nil if there are no caches.
	client rest.Interface
	// sizes are those of --watch-cache-sizes. A resource with the size 0 has no cache.
	sizes map[schema.GroupResource]int
	slots chan struct{}
	// filled are the resourceVersions of the copies of definitions, by name. Starting is true
	// until all definitions have been copied once. Only the mirror's one worker uses both.
	filled   map[string]string
	starting bool
	// pending counts the definitions of the start.
	pending sync.WaitGroup
	ready   atomic.Bool
}

func newCaches(config *apiserver.Config) (*caches, error) {
	c := &caches{slots: make(chan struct{}, fillsAtOnce), filled: map[string]string{}, starting: true}
	if !config.Etcd.EnableWatchCache {
		return c, nil
	}
	var err error
	if c.sizes, err = genericoptions.ParseWatchCacheSizes(config.Etcd.WatchCacheSizes); err != nil {
		return nil, err
	}
	loopback := rest.CopyConfig(config.Generic.LoopbackClientConfig)
	loopback.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	c.client, err = rest.UnversionedRESTClientFor(loopback)
	return c, err
}

// fill starts filling the caches of a definition, once for each copy.
func (c *caches) fill(ctx context.Context, copied *apiextensions.CustomResourceDefinition) {
	if c.client == nil || c.filled[copied.Name] == copied.ResourceVersion {
		return
	}
	c.filled[copied.Name] = copied.ResourceVersion
	if size, set := c.sizes[schema.ParseGroupResource(copied.Name)]; set && size == 0 {
		return
	}
	var paths []string
	for _, version := range copied.Spec.Versions {
		if version.Served {
			paths = append(paths, path.Join(genericapiserver.APIGroupPrefix, copied.Spec.Group, version.Name, copied.Spec.Names.Plural))
		}
	}
	if c.starting {
		c.pending.Go(func() { c.fillAll(ctx, paths) })
	} else {
		go c.fillAll(ctx, paths)
	}
}

func (c *caches) fillAll(ctx context.Context, paths []string) {
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	limited, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	for _, resource := range paths {
		err := cluster.Eventually(limited, fillInterval, func(ctx context.Context) error {
			return cluster.FillWatchCache(ctx, c.client, resource)
		})
		if err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Objects have not been read into a watch cache in time", "path", resource)
		}
	}
}

// start makes the server ready when the caches of all copied definitions are filled, or have
// timed out.
func (c *caches) start() {
	c.starting = false
	go func() {
		c.pending.Wait()
		c.ready.Store(true)
	}()
}

// check is the check for /readyz.
func (c *caches) check(*http.Request) error {
	if !c.ready.Load() {
		return errors.New("the objects of the CustomResourceDefinitions are being read")
	}
	return nil
}
