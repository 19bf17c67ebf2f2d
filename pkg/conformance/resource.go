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
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource describes a resource in one version, as discovery does.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	// Discovered is the resource's entry in discovery.
	Discovered metav1.APIResource
	// Subresources are the entries of its subresources by name, for example "status".
	Subresources map[string]metav1.APIResource
	// Versions are all versions of the group that serve the resource, the preferred one first.
	Versions []string
}

// String returns the resource as kubectl takes it, for example "pizzas.v1.example.com".
func (r *Resource) String() string {
	return strings.TrimSuffix(r.Resource+"."+r.Version+"."+r.Group, ".")
}

// GroupVersionKind returns the kind of the resource's objects, which may be of another group.
func (r *Resource) GroupVersionKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: cmp.Or(r.Discovered.Group, r.Group), Version: cmp.Or(r.Discovered.Version, r.Version), Kind: r.Kind}
}

// root returns the path of the group version.
func root(version schema.GroupVersion) string {
	if version.Group == "" {
		return "/api/" + version.Version
	}
	return "/apis/" + version.String()
}

// path returns the path of the resource's objects in a namespace. An empty namespace stands for
// all.
func (r *Resource) path(namespace string) string {
	path := root(r.GroupVersion())
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + r.Resource
}

// actsOnCluster reports whether the resource is a cluster-scoped one of Kubernetes and its projects, such as nodes, whose
// objects others use as soon as they exist.
func (r *Resource) actsOnCluster() bool {
	project := !strings.Contains(r.Group, ".") || strings.HasSuffix(r.Group, ".k8s.io") || strings.HasSuffix(r.Group, ".kubernetes.io")
	return !r.Namespaced && project && r.lacks("", "create") == "" && r.lacks("", "get") == ""
}

// lacks returns a text if discovery does not list the verb, or "". A collection is only deleted in a namespace of the
// run.
func (r *Resource) lacks(subresource, verb string) string {
	entry, name := r.Discovered, r.Resource
	if subresource != "" {
		var found bool
		name += "/" + subresource
		if entry, found = r.Subresources[subresource]; !found {
			return "discovery has no " + name
		}
	}
	if !slices.Contains(entry.Verbs, verb) {
		return fmt.Sprintf("the verbs of %s in discovery are %s, without %q", name, strings.Join(entry.Verbs, ", "), verb)
	}
	if verb == "deletecollection" && !r.Namespaced {
		return "a deletion of a collection could delete objects of others, since the resource has no namespaces"
	}
	return ""
}

// learn returns the resources of a group version from discovery.
func (r *run) learn(ctx context.Context, version schema.GroupVersion) ([]*Resource, error) {
	entries, err := r.entries(ctx, version)
	if err != nil {
		return nil, err
	}
	var resources []*Resource
	byName := map[string]*Resource{}
	// Subresources come last: the group of custom metrics has some without their resources.
	slices.SortStableFunc(entries, func(a, b metav1.APIResource) int {
		return cmp.Compare(strings.Count(a.Name, "/"), strings.Count(b.Name, "/"))
	})
	for _, entry := range entries {
		name, subresource, isSubresource := strings.Cut(entry.Name, "/")
		resource := byName[name]
		if resource == nil {
			resource = &Resource{
				GroupVersionResource: version.WithResource(name), Namespaced: entry.Namespaced, Discovered: metav1.APIResource{Name: name, Namespaced: entry.Namespaced},
				Subresources: map[string]metav1.APIResource{},
			}
			if resource.Versions, err = r.versions(ctx, resource.GroupResource(), version.Version); err != nil {
				return nil, err
			}
			byName[name] = resource
			resources = append(resources, resource)
		}
		if isSubresource {
			resource.Subresources[subresource] = entry
		} else {
			resource.Kind, resource.Discovered = entry.Kind, entry
		}
	}
	return resources, nil
}

// versions returns the versions that serve a resource.
func (r *run) versions(ctx context.Context, resource schema.GroupResource, known string) ([]string, error) {
	if resource.Group == "" {
		return []string{known}, nil
	}
	var group metav1.APIGroup
	if err := r.read(ctx, "/apis/"+resource.Group, &group); err != nil {
		return nil, err
	}
	var versions []string
	for _, version := range append([]metav1.GroupVersionForDiscovery{group.PreferredVersion}, group.Versions...) {
		entries, err := r.entries(ctx, schema.GroupVersion{Group: resource.Group, Version: version.Version})
		if err != nil {
			return nil, err
		}
		serves := slices.ContainsFunc(entries, func(entry metav1.APIResource) bool { return entry.Name == resource.Resource })
		if serves && !slices.Contains(versions, version.Version) {
			versions = append(versions, version.Version)
		}
	}
	return versions, nil
}

func (r *run) entries(ctx context.Context, version schema.GroupVersion) ([]metav1.APIResource, error) {
	var list metav1.APIResourceList
	err := r.read(ctx, root(version), &list)
	return list.APIResources, err
}

// read decodes the answer to a GET of a path.
func (r *run) read(ctx context.Context, path string, into any) error {
	answer, err := r.send(ctx, Request{Method: http.MethodGet, Path: path})
	if err != nil {
		return err
	}
	if answer.Code != http.StatusOK {
		return fmt.Errorf("%s can't be read, which a run needs: %s", path, answer)
	}
	return json.Unmarshal(answer.Body, into)
}
