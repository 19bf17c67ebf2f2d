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

package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

// slowDiscovery is much longer than a healthy server takes to answer. kube-apiserver gives up after
// five seconds.
const slowDiscovery = 2 * time.Second

// discoverAll returns a function that reads kube-apiserver's discovery of all groups once.
func discoverAll(ctx context.Context, kube kubernetes.Interface) func() (*apidiscoveryv2.APIGroupDiscoveryList, error) {
	return sync.OnceValues(func() (*apidiscoveryv2.APIGroupDiscoveryList, error) {
		content, err := kube.Discovery().RESTClient().Get().AbsPath("/apis").
			SetHeader("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList").DoRaw(ctx)
		if err != nil {
			return nil, err
		}
		list := &apidiscoveryv2.APIGroupDiscoveryList{}
		return list, json.Unmarshal(content, list)
	})
}

// told returns kube-apiserver's discovery of a version, or nil if it has none.
func (e *examination) told(apiService *apiregistrationv1.APIService) (*apidiscoveryv2.APIVersionDiscovery, error) {
	list, err := e.allGroups()
	if err != nil {
		return nil, err
	}
	for _, group := range list.Items {
		for i := range group.Versions {
			if group.Name == apiService.Spec.Group && group.Versions[i].Version == apiService.Spec.Version {
				return &group.Versions[i], nil
			}
		}
	}
	return nil, nil //nolint:nilnil // There is none.
}

// discover asks the server of a version for its resources, and returns how long that took.
func (e *examination) discover(ctx context.Context, apiService *apiregistrationv1.APIService) (list *metav1.APIResourceList, took time.Duration, err error) {
	began := time.Now()
	content, err := e.kube.Discovery().RESTClient().Get().AbsPath(pathOf(apiService)).DoRaw(ctx)
	if err != nil {
		return nil, 0, err
	}
	list = &metav1.APIResourceList{}
	return list, time.Since(began), json.Unmarshal(content, list)
}

func pathOf(apiService *apiregistrationv1.APIService) string {
	return "/apis/" + apiService.Spec.Group + "/" + apiService.Spec.Version
}

// learnResources records the resources of a version that kube-apiserver knows.
func (e *examination) learnResources(apiService *apiregistrationv1.APIService) {
	names := sets.New(e.resources[apiService.Spec.Group]...)
	if known, err := e.told(apiService); err == nil && known != nil {
		names = names.Union(namesIn(known))
	}
	e.resources[apiService.Spec.Group] = sets.List(names)
}

// namesIn returns the resources of a version and their subresources.
func namesIn(version *apidiscoveryv2.APIVersionDiscovery) sets.Set[string] {
	names := sets.New[string]()
	for _, resource := range version.Resources {
		names.Insert(resource.Resource)
		for _, subresource := range resource.Subresources {
			names.Insert(resource.Resource + "/" + subresource.Subresource)
		}
	}
	return names
}

// checkDiscovery compares the server's discovery with kube-apiserver's.
func (e *examination) checkDiscovery(ctx context.Context) ([]Finding, error) {
	var results []Finding
	for _, apiService := range e.apiServices {
		found, err := e.checkVersionDiscovery(ctx, apiService)
		if err != nil {
			return results, err
		}
		results = append(results, found...)
	}
	return orOK(results, "discovery and OpenAPI of %s agree", plural(len(e.apiServices), "version")), nil
}

func (e *examination) checkVersionDiscovery(ctx context.Context, apiService *apiregistrationv1.APIService) (results []Finding, err error) {
	show := "kubectl get --raw=" + pathOf(apiService)
	list, took, err := e.discover(ctx, apiService)
	if err == nil && took > slowDiscovery { // A busy moment is no fault.
		list, took, err = e.discover(ctx, apiService)
	}
	if err != nil {
		return nil, unreadable{"the discovery of " + apiService.Name, err}
	}
	if took > slowDiscovery {
		results = append(results, warning(fmt.Sprintf("the server of %s takes %s for its discovery, and kube-apiserver gives up after 5 s", apiService.Name, took.Round(100*time.Millisecond)), "see its log, and what it waits for").
			by("%s", e.logs(ctx, backendOf(apiService))))
	}
	known, err := e.told(apiService)
	switch {
	case err != nil:
		return results, unreadable{"the discovery of all groups", err}
	case known == nil:
		return append(results, failure("clients that discover all groups at once, such as kubectl, do not find "+apiService.Name, "see the log of the server for requests for /apis").by("%s", e.logs(ctx, backendOf(apiService)))), nil
	case known.Freshness == apidiscoveryv2.DiscoveryFreshnessStale:
		return append(results, failure("what kube-apiserver tells clients of "+apiService.Name+" is stale, so that no namespace can be deleted, since the server does not answer requests for /apis", "see the log of the server for requests for /apis").
			by("%s", e.logs(ctx, backendOf(apiService)))), nil
	}
	own, paths := sets.New[string](), sets.New[string]()
	for _, resource := range list.APIResources {
		own.Insert(resource.Name)
		if !strings.Contains(resource.Name, "/") {
			paths.Insert(resource.Name)
		}
	}
	if len(own) == 0 {
		return append(results, warning("the server of "+apiService.Name+" has no resource in it", "remove the APIService, unless the server is going to have some").by("%s", show)), nil
	}
	if other := namesIn(known); !own.Equal(other) {
		results = append(results, warning(fmt.Sprintf("the server of %s tells of %s at %s, and of %s at /apis", apiService.Name, strings.Join(sets.List(own), ", "), pathOf(apiService), strings.Join(sets.List(other), ", ")),
			"wait a minute, since kube-apiserver keeps what it was told; after that, correct the server").by("%s", show))
	}
	found, err := e.checkOpenAPI(apiService, paths)
	return append(results, found...), err
}

// checkOpenAPI looks for resources that OpenAPI does not describe.
func (e *examination) checkOpenAPI(apiService *apiregistrationv1.APIService, resources sets.Set[string]) ([]Finding, error) {
	path := pathOf(apiService)
	show := "kubectl get --raw=/openapi/v3" + path
	all, err := e.kube.Discovery().OpenAPIV3().Paths()
	if err != nil {
		return nil, unreadable{"OpenAPI version 3", err}
	}
	described, found := all[strings.TrimPrefix(path, "/")]
	if !found {
		return []Finding{warning("OpenAPI version 3 has nothing of "+apiService.Name+", so that kubectl explain, validation and apply of clients do not know it", "have the server serve /openapi/v3").by("%s", show)}, nil
	}
	content, err := described.Schema("application/json")
	if err != nil {
		return nil, unreadable{"OpenAPI of " + apiService.Name, err}
	}
	var document struct {
		Paths map[string]any `json:"paths"`
	}
	if err := json.Unmarshal(content, &document); err != nil {
		return nil, unreadable{"OpenAPI of " + apiService.Name, err}
	}
	missing := sets.New(sets.List(resources)...)
	for documented := range document.Paths {
		missing.Delete(strings.TrimPrefix(strings.TrimPrefix(documented, path+"/"), "namespaces/{namespace}/"))
	}
	if len(missing) > 0 {
		return []Finding{warning(fmt.Sprintf("OpenAPI of %s does not describe %s, which discovery has", apiService.Name, strings.Join(sets.List(missing), ", ")), "correct the server").by("%s", show)}, nil
	}
	return nil, nil
}

// checkPrecedence checks the priorities that decide between groups and between versions.
func (e *examination) checkPrecedence(ctx context.Context) ([]Finding, error) {
	list, err := e.aggregator.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, unreadable{"the APIServices", err}
	}
	all, err := e.allGroups()
	if err != nil {
		return nil, unreadable{"the discovery of all groups", err}
	}
	builtIn := map[string]int32{}
	for _, apiService := range list.Items {
		if apiService.Spec.Service == nil && apiService.Labels[cluster.ManagedLabel] == "onstart" {
			builtIn[apiService.Spec.Group] = max(builtIn[apiService.Spec.Group], apiService.Spec.GroupPriorityMinimum)
		}
	}
	var results []Finding
	for _, apiService := range e.apiServices {
		own, err := e.told(apiService)
		if err != nil || own == nil {
			continue
		}
		for _, group := range all.Items {
			priority, known := builtIn[group.Name]
			if !known || group.Name == apiService.Spec.Group || priority > apiService.Spec.GroupPriorityMinimum {
				continue
			}
			if common := callable(*own).Intersection(callable(group.Versions...)); len(common) > 0 {
				results = append(results, warning(fmt.Sprintf("by its groupPriorityMinimum, %s comes before %s, so that kubectl takes %s for its resources", apiService.Name, group.Name, strings.Join(sets.List(common), ", ")), "lower it").
					by(`kubectl patch apiservice %s --type=merge --patch='{"spec":{"groupPriorityMinimum":1000}}'`, e.names(" ")))
			}
		}
		for _, other := range e.apiServices {
			a, b := apiService.Spec, other.Spec
			if a.Group == b.Group && a.VersionPriority > b.VersionPriority && !stable.MatchString(a.Version) && stable.MatchString(b.Version) {
				results = append(results, warning(fmt.Sprintf("by its versionPriority, clients prefer %s to %s, which is stable", apiService.Name, other.Name), "raise that of the stable one").
					by(`kubectl patch apiservice %s --type=merge --patch='{"spec":{"versionPriority":%d}}'`, other.Name, min(a.VersionPriority+1, 1000)))
				break
			}
		}
	}
	return orOK(results, "clients choose groups and versions as one expects"), nil
}

var stable = regexp.MustCompile(`^v\d+$`)

// callable returns the names that clients may use for resources.
func callable(versions ...apidiscoveryv2.APIVersionDiscovery) sets.Set[string] {
	names := sets.New[string]()
	for _, version := range versions {
		for _, resource := range version.Resources {
			names.Insert(resource.Resource, resource.SingularResource)
			names.Insert(resource.ShortNames...)
		}
	}
	return names.Delete("")
}

// checkLists lists one object of each resource. Some controllers list all resources.
func (e *examination) checkLists(ctx context.Context) ([]Finding, error) {
	var results []Finding
	count := 0
	for _, apiService := range e.apiServices {
		list, _, err := e.discover(ctx, apiService)
		if err != nil {
			return results, unreadable{"the discovery of " + apiService.Name, err}
		}
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") {
				continue
			}
			path := pathOf(apiService) + "/" + resource.Name
			_, err := e.kube.Discovery().RESTClient().Get().AbsPath(path).Param("limit", "1").
				SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json").DoRaw(ctx)
			if apierrors.IsForbidden(err) {
				continue
			}
			if count++; err == nil {
				continue
			}
			consequence := ""
			if sets.New(resource.Verbs...).HasAll("delete", "watch") {
				consequence = ", so that no namespace can be deleted, and the garbage collector and quotas wait for it"
			}
			results = append(results, failure(fmt.Sprintf("%s of %s can't be listed (%v)%s", resource.Name, apiService.Name, err, consequence), "see the log of the server").by("kubectl get --raw='%s?limit=1'", path))
		}
	}
	if count == 0 {
		return []Finding{skipped("this user may list no resource of the server")}, nil
	}
	return orOK(results, "%s can be listed", plural(count, "resource")), nil
}

// checkDefinitions looks for CustomResourceDefinitions whose objects clients can't reach. The
// server has their version, but not their resource.
func (e *examination) checkDefinitions(ctx context.Context) ([]Finding, error) {
	var results []Finding
	if e.foreign && len(e.managed) > 0 {
		managed := strings.Join(e.managed, " ")
		results = append(results, failure("kube-apiserver is about to reset "+managed+", or delete it, because of the label "+cluster.ManagedLabel+" of a CustomResourceDefinition", "remove the label").
			by("kubectl label apiservice %s %s-", managed, cluster.ManagedLabel))
	}
	content, err := e.kube.Discovery().RESTClient().Get().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").DoRaw(ctx)
	if err != nil {
		return results, unreadable{"the CustomResourceDefinitions", err}
	}
	var definitions apiextensionsv1.CustomResourceDefinitionList
	if err := json.Unmarshal(content, &definitions); err != nil {
		return results, unreadable{"the CustomResourceDefinitions", err}
	}
	for _, apiService := range e.apiServices {
		known, err := e.told(apiService)
		if err != nil || known == nil {
			continue
		}
		for _, definition := range definitions.Items {
			serves := slices.ContainsFunc(definition.Spec.Versions, func(version apiextensionsv1.CustomResourceDefinitionVersion) bool {
				return version.Served && version.Name == apiService.Spec.Version
			})
			if definition.Spec.Group == apiService.Spec.Group && serves && !namesIn(known).Has(definition.Spec.Names.Plural) {
				results = append(results, failure(fmt.Sprintf("the CustomResourceDefinition %s defines a version that %s has a server for, which has no such resource, so that its objects can't be reached", definition.Name, apiService.Name),
					"move the definition to a group or a version of its own").by("kubectl get customresourcedefinition %s --output=yaml", definition.Name).since(definition.CreationTimestamp))
			}
		}
	}
	return orOK(results, "no CustomResourceDefinition is in the way"), nil
}
