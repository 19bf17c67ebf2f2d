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
	"maps"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const versionsSource = "https://kubernetes.io/docs/reference/using-api/#api-versioning"

func versionsChecks() []Check {
	return []Check{
		basic("versions/round-trip", versionsSource, "create get update versions",
			"An object that is read in a version and written back in it is unchanged, in all versions.", func(p *Probe) {
				created := p.Create("a")
				for _, version := range p.Versions {
					other := p.in(version)
					var read *unstructured.Unstructured
					answer := other.Rewrite(created.GetName(), func(object *unstructured.Unstructured) { read = object })
					p.Equal(answer, "the object that was written as it was read", read.Object, p.Object(answer, http.StatusOK).Object)
					answer = p.Get(created.GetName())
					p.Same(answer, "the object, after it was written in "+version, created, p.Object(answer, http.StatusOK))
				}
			}),
		basic("versions/create", versionsSource, "create get update versions",
			"An object can be created in each version, and is the same object in all others.", func(p *Probe) {
				created := p.Create("a")
				for _, version := range p.Versions {
					other := p.in(version)
					object := p.Object(other.Get(created.GetName()), http.StatusOK)
					object.Object["metadata"] = p.New(version).Object["metadata"]
					p.Object(other.Post(object), http.StatusCreated)
					answer := p.Get(p.Name(version))
					p.Equal(answer, "what was created in "+version, content(created), content(p.Object(answer, http.StatusOK)))
				}
			}),
		basic("versions/one-object", versionsSource, "create get list versions",
			"An object has the same metadata in all versions, resourceVersion and uid included, when it is read and listed.", func(p *Probe) {
				created := p.Create("one-object")
				for _, version := range p.Versions {
					other := p.in(version)
					answer := other.Get(created.GetName())
					object := p.Object(answer, http.StatusOK)
					p.Equal(answer, "the version", version, object.GroupVersionKind().Version)
					p.Same(answer, "the metadata", onlyMetadata(created), onlyMetadata(object))
					answer = other.List()
					list := p.Items(answer)
					p.Equal(answer, "the version of the list", version, list.GroupVersionKind().Version)
					p.Require(answer, len(list.Items) == 1 && list.Items[0].GetUID() == created.GetUID(), "the object with the uid %s is expected", created.GetUID())
				}
			}),
		basic("versions/body", conventions+"#http-status-codes", "create versions",
			"A body of another version than that of the path is refused with 400.", func(p *Probe) {
				for _, version := range p.Versions {
					if version != p.Version {
						object := p.New("a")
						object.SetGroupVersionKind(p.in(version).GroupVersionKind())
						p.Refused(p.Post(object), http.StatusBadRequest, metav1.StatusReasonBadRequest)
					}
				}
			}),
		basic("versions/storage", "https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.37/#apiresource-v1-meta", "create get update versions",
			"All versions of a resource are stored alike, and so have one storageVersionHash in discovery.", func(p *Probe) {
				p.OnlyIf(p.Discovered.StorageVersionHash != "", "discovery has no storageVersionHash of the resource, which is optional")
				for _, version := range p.Versions {
					var list metav1.APIResourceList
					answer := p.Decode(p.Do(http.MethodGet, root(p.in(version).GroupVersion()), nil), http.StatusOK, &list)
					for _, entry := range list.APIResources {
						if entry.Name == p.GroupVersionResource.Resource {
							p.Equal(answer, "the storageVersionHash", p.Discovered.StorageVersionHash, entry.StorageVersionHash)
						}
					}
				}
			}),
	}
}

// content returns an object without metadata and status.
func content(object *unstructured.Unstructured) map[string]any {
	content := maps.Clone(object.Object)
	delete(content, "metadata")
	delete(content, "status")
	return content
}

// in returns the probe with another version of the resource.
func (p *Probe) in(version string) *Probe {
	resource := *p.Resource
	resource.Version = version
	other := *p
	other.Resource = &resource
	return &other
}
