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
	"fmt"
	"net/http"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/discovery"
)

func discoveryChecks() []Check {
	return []Check{
		basic("discovery/group", concepts+"#discovery-api", "group",
			"The list of groups and the group's own entry agree, and the preferred version is one of those that are served.", func(p *Probe) {
				var groups metav1.APIGroupList
				answer := p.Decode(p.Do(http.MethodGet, "/apis", nil), http.StatusOK, &groups)
				i := slices.IndexFunc(groups.Groups, func(group metav1.APIGroup) bool { return group.Name == p.Group })
				p.Require(answer, i >= 0, "the group %s is expected", p.Group)
				var group metav1.APIGroup
				answer = p.Decode(p.Do(http.MethodGet, "/apis/"+p.Group, nil), http.StatusOK, &group)
				group.TypeMeta = metav1.TypeMeta{}
				p.Equal(answer, "the group, as the list of groups has it", groups.Groups[i], group)
				for _, version := range []string{p.Version, group.PreferredVersion.Version} {
					p.Require(answer, slices.Contains(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: p.Group + "/" + version, Version: version}), "the version %q is expected among those that are served", version)
				}
			}),
		basic("discovery/resources", concepts+"#discovery-api", "",
			"The entry of a resource has a kind, a singular name and verbs. That of a subresource has a kind and verbs.", func(p *Probe) {
				var list metav1.APIResourceList
				answer := p.Decode(p.Do(http.MethodGet, root(p.GroupVersion()), nil), http.StatusOK, &list)
				p.Equal(answer, "the version of the list", p.GroupVersion().String(), list.GroupVersion)
				for _, entry := range list.APIResources {
					name, _, isSubresource := strings.Cut(entry.Name, "/")
					if name != p.GroupVersionResource.Resource {
						continue
					}
					p.Require(answer, len(utilvalidation.IsDNS1035Label(name)) == 0, "%s: a name of lower-case letters is expected", entry.Name)
					p.Require(answer, entry.Kind != "" && len(entry.Verbs) > 0, "%s: a kind and verbs are expected", entry.Name)
					p.Require(answer, isSubresource || entry.SingularName != "", "%s: a singular name is expected", entry.Name)
					p.Require(answer, entry.Namespaced == p.Namespaced, "%s is expected to be namespaced just as the resource is", entry.Name)
				}
			}),
		basic("discovery/aggregated", concepts+"#aggregated-discovery", "",
			"Aggregated discovery says the same as discovery of a single version, and is up to date.", func(p *Probe) {
				var want metav1.APIResourceList
				p.Decode(p.Do(http.MethodGet, root(p.GroupVersion()), nil), http.StatusOK, &want)
				path := "/apis"
				if p.Group == "" {
					path = "/api"
				}
				answer := p.Do(http.MethodGet, path, nil, Header("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"))
				var groups apidiscoveryv2.APIGroupDiscoveryList
				p.Decode(answer, http.StatusOK, &groups)
				p.OnlyIf(groups.Kind == "APIGroupDiscoveryList", "the server has no aggregated discovery, but %s", groups.Kind)
				_, lists, stale := discovery.SplitGroupsAndResources(groups)
				p.Require(answer, stale[p.GroupVersion()] == nil, "kube-apiserver could not read discovery of the version: %v", stale[p.GroupVersion()])
				got, found := lists[p.GroupVersion()]
				p.Require(answer, found, "the version %s is expected", p.GroupVersion())
				p.Equal(answer, "the entries of the resource", p.entries(want), p.entries(*got))
			}),
		basic("discovery/names", "https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#advanced-topics", "",
			"A name or short name stands for one resource of a group, and only resources that can be listed are in a category.", func(p *Probe) {
				var list metav1.APIResourceList
				answer := p.Decode(p.Do(http.MethodGet, root(p.GroupVersion()), nil), http.StatusOK, &list)
				taken := map[string]string{}
				for _, entry := range list.APIResources {
					if strings.Contains(entry.Name, "/") {
						continue
					}
					for _, name := range slices.Compact(append([]string{entry.Name, entry.SingularName}, entry.ShortNames...)) {
						other, ambiguous := taken[name]
						p.Require(answer, !ambiguous || name == "", "%q stands for %s and for %s", name, other, entry.Name)
						taken[name] = entry.Name
					}
					p.Require(answer, len(entry.Categories) == 0 || slices.Contains(entry.Verbs, "list"), "%s is in the categories %s, with which \"kubectl get\" fails: it can't be listed", entry.Name, entry.Categories)
				}
			}),
		basic("discovery/scope", concepts+"#resource-uris", "get",
			"The path of an object has a namespace just if discovery says that the resource is namespaced.", func(p *Probe) {
				other := ""
				if !p.Namespaced {
					other = "default"
				}
				answer := p.Do(http.MethodGet, p.CollectionIn(other, p.Version, p.Name("a")), nil)
				p.Require(answer, answer.Code == http.StatusNotFound && !speaksOf(answer, p.Name("a")), "404 is expected, as there is no such path")
				p.Refused(p.Get(p.Name("a")), http.StatusNotFound, metav1.StatusReasonNotFound)
			}),
		basic("discovery/verbs", concepts+"#api-verbs", "",
			"A verb that discovery lists is served. Another one is answered with 405, or with 404 if the path serves none.", func(p *Probe) {
				for name, entry := range p.Subresources {
					p.tryVerbs(entry, name, "get", "update", "patch")
				}
				p.tryVerbs(p.Discovered, "", "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
			}),
	}
}

// entries returns texts with the fields that clients read of the resource's and its subresources'
// entries.
func (p *Probe) entries(list metav1.APIResourceList) []string {
	var entries []string
	for _, entry := range list.APIResources {
		if name, _, isSubresource := strings.Cut(entry.Name, "/"); name == p.GroupVersionResource.Resource {
			slices.Sort(entry.Verbs)
			text := fmt.Sprintf("%s: %s %s, namespaced %t, verbs %v", entry.Name, cmp.Or(entry.Group, p.Group), entry.Kind, entry.Namespaced, entry.Verbs)
			if !isSubresource {
				text += fmt.Sprintf(", singular %s, short %v, categories %v", entry.SingularName, entry.ShortNames, entry.Categories)
			}
			entries = append(entries, text)
		}
	}
	slices.Sort(entries)
	return entries
}

// tryVerbs sends a request for each of the verbs. None of them changes anything.
func (p *Probe) tryVerbs(entry metav1.APIResource, subresource string, verbs ...string) {
	name := p.Name("missing")
	for _, verb := range verbs {
		var body any
		if slices.Contains([]string{"create", "update", "patch"}, verb) {
			body = "{}"
		}
		tried := action{verb, subresource}
		if p.run.ReadOnly && tried.writes() || verb == "deletecollection" && !p.Namespaced {
			continue
		}
		answer := p.try(tried, p.Namespace, name, body)
		served := answer.Code != http.StatusMethodNotAllowed && (answer.Code != http.StatusNotFound || speaksOf(answer, name))
		listed := slices.Contains(entry.Verbs, verb)
		p.Require(answer, listed == served, "the verbs of %s in discovery are %s: %q is expected to be %s", entry.Name, strings.Join(entry.Verbs, ", "), verb,
			map[bool]string{true: "served", false: "refused with 405"}[listed])
	}
}

// speaksOf reports whether an answer is about an object of that name, not about a path.
func speaksOf(answer Answer, name string) bool { return strings.Contains(string(answer.Body), name) }
