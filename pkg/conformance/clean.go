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
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

const (
	// idPrefix begins the ID of each run, and so the names of all objects that runs create.
	idPrefix = "conformance-"
	// cleanupTime bounds the clean-up after a check, and sweepTime the search for what is left of a resource.
	cleanupTime, sweepTime = 5 * time.Minute, 2 * time.Minute
)

// ledger has the paths of all objects that the requests of a check may have created.
type ledger struct {
	mu    sync.Mutex
	paths []string
}

// note adds the object that a request may create, by its name alone: a server may ignore that the request is a dry run,
// or create the object and then fail.
func (l *ledger) note(id string, request Request) {
	target, _, _ := strings.Cut(request.Path, "?")
	switch request.Method {
	case http.MethodPost:
		object, _ := request.Body.(map[string]any)
		name, _, _ := unstructured.NestedString(object, "metadata", "name")
		if strings.Contains(target, "/"+name+"/") { // A subresource of the object.
			return
		}
		target += "/" + name
	case http.MethodPut, http.MethodPatch:
	default:
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.HasPrefix(path.Base(target), id) && !slices.Contains(l.paths, target) {
		l.paths = append(l.paths, target)
	}
}

// owner returns the ID of the check or the run that has created an object. It is empty for objects of others, whose
// labels and names do not agree.
func owner(object *unstructured.Unstructured) string {
	id, name := object.GetLabels()[Label], object.GetName()
	if strings.HasPrefix(id, idPrefix) && (name == id || strings.HasPrefix(name, id+"-")) && object.GetUID() != "" {
		return id
	}
	return ""
}

// guard returns an error if a request could delete objects of others. A collection is only deleted in a namespace of
// the run, since a server may ignore selectors and dry runs.
func (r *run) guard(method, target string) error {
	target, _, _ = strings.Cut(target, "?")
	decoded, err := url.PathUnescape(target)
	own := func(part string) bool { return strings.HasPrefix(part, r.id) }
	if method == http.MethodDelete && (err != nil || !slices.ContainsFunc(strings.Split(path.Clean(decoded), "/"), own)) {
		return fmt.Errorf("%s %s is not sent: it could delete objects of others", method, target)
	}
	return nil
}

// leave records what the run has left behind.
func (r *run) leave(err error) {
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.left = append(r.left, err)
	}
}

// clean undoes what a check has done, even if the run has been interrupted.
func (p *Probe) clean(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	var removals errgroup.Group
	removals.SetLimit(atOnce)
	for _, target := range slices.Backward(p.ledger.paths) {
		removals.Go(func() error {
			p.run.leave(p.run.remove(ctx, target))
			return nil
		})
	}
	_ = removals.Wait()
}

// remove deletes an object if it exists and is one of the run's. An error says what may be left.
func (r *run) remove(ctx context.Context, target string) error {
	answer, err := r.send(ctx, newRequest(http.MethodGet, target, nil))
	object := &unstructured.Unstructured{}
	switch {
	case err != nil:
		return fmt.Errorf("%s may be left: %w", target, err)
	case answer.Code == http.StatusNotFound, answer.Code == http.StatusMethodNotAllowed:
		return nil
	case answer.Code != http.StatusOK:
		return fmt.Errorf("%s may be left, as it can't be read: %s", target, statusOf(answer))
	case object.UnmarshalJSON(answer.Body) != nil || !strings.HasPrefix(owner(object), r.id):
		return fmt.Errorf("%s is left, as it has not the label, the name and a UID that the run gave it", target)
	}
	return r.removeObject(ctx, target, object)
}

// removeObject deletes an object of the run that has just been read.
func (r *run) removeObject(ctx context.Context, target string, object *unstructured.Unstructured) error {
	requests := []Request{newRequest(http.MethodDelete, target, map[string]any{
		"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": map[string]any{"uid": object.GetUID()},
	})}
	if slices.ContainsFunc(object.GetFinalizers(), func(name string) bool { return strings.Contains(name, "example.com/") }) {
		requests = append(requests, newRequest(http.MethodPatch, target, released, Header("Content-Type", string(types.MergePatchType))))
	}
	for _, request := range requests {
		answer, err := r.send(ctx, request)
		if err != nil {
			return fmt.Errorf("%s may be left: %w", target, err)
		}
		if !slices.Contains([]int{http.StatusOK, http.StatusAccepted, http.StatusNotFound}, answer.Code) {
			return fmt.Errorf("%s is left, as %s is refused: %s", target, request.Method, statusOf(answer))
		}
	}
	return nil
}

// own returns the objects of a resource that the run has created, by their paths. The server may ignore the selector.
func (r *run) own(ctx context.Context, resource *Resource) (map[string]*unstructured.Unstructured, error) {
	own, next := map[string]*unstructured.Unstructured{}, ""
	for {
		answer, err := r.send(ctx, newRequest(http.MethodGet, resource.path(""), nil, Query("labelSelector", Label), Query("limit", "500"), Query("continue", next)))
		if err != nil {
			return nil, err
		}
		list := &unstructured.UnstructuredList{}
		if answer.Code != http.StatusOK || list.UnmarshalJSON(answer.Body) != nil {
			return nil, errors.New(statusOf(answer))
		}
		for _, item := range list.Items {
			if strings.HasPrefix(owner(&item), r.id) {
				own[resource.path(item.GetNamespace())+"/"+url.PathEscape(item.GetName())] = &item
			}
		}
		if next = list.GetContinue(); next == "" {
			return own, nil
		}
	}
}

// sweep deletes what is left of a resource's objects of the run, until they have gone. It returns how many there were.
func (r *run) sweep(ctx context.Context, resource *Resource) (int, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepTime)
	defer cancel()
	seen := map[string]bool{}
	for {
		own, err := r.own(ctx, resource)
		if err != nil {
			return len(seen), fmt.Errorf("objects of %s may be left, as they can't be listed: %w", resource, err)
		}
		var left error
		for target, object := range own {
			seen[target] = true
			if object.GetDeletionTimestamp() == nil || resource.path("") != namespaces { // A namespace that is being deleted goes by itself.
				left = errors.Join(left, cmp.Or(r.removeObject(ctx, target, object), fmt.Errorf("%s is left, with the finalizers %q", target, object.GetFinalizers())))
			}
		}
		if left == nil {
			return len(seen), nil
		}
		select {
		case <-ctx.Done():
			return len(seen), left
		case <-time.After(time.Second):
		}
	}
}

// Clean deletes all objects that runs have left because they were killed, and tells progress about each resource that has
// some. No run may go on meanwhile.
func Clean(ctx context.Context, config *rest.Config, progress func(string)) error {
	r, err := newRun(config, Options{})
	if err != nil {
		return err
	}
	r.id = idPrefix
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	lists, left := client.ServerPreferredResources()
	var resources []*Resource
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, entry := range list.APIResources {
			resource := &Resource{GroupVersionResource: version.WithResource(entry.Name), Discovered: entry}
			if resource.lacks("", "list") == "" && resource.lacks("", "delete") == "" {
				resources = append(resources, resource)
			}
		}
	}
	// A namespace would wait for the finalizers of objects in it.
	slices.SortStableFunc(resources, func(a, b *Resource) int {
		return map[string]int{namespaces: 1}[a.path("")] - map[string]int{namespaces: 1}[b.path("")]
	})
	for _, resource := range resources {
		if ctx.Err() != nil {
			return errors.Join(left, ctx.Err())
		}
		count, err := r.sweep(ctx, resource)
		if count > 0 {
			progress(fmt.Sprintf("%s: %d objects of runs", resource, count))
		}
		left = errors.Join(left, err)
	}
	return left
}
