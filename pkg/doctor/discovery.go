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
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

const (
	// slowDiscovery is much longer than a healthy server takes to answer. kube-apiserver gives up
	// after five seconds.
	slowDiscovery = 2 * time.Second
	// slowList is much longer than a healthy server takes to list one object.
	slowList = 4 * time.Second
	// probes are the requests that find an endpoint without an answer among several.
	probes = 8
	// listsAtOnce bounds the lists that are requested at the same time.
	listsAtOnce = 8
)

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
	took, list = time.Since(began), &metav1.APIResourceList{}
	version := apiService.Spec.Group + "/" + apiService.Spec.Version
	if err := json.Unmarshal(content, list); err != nil || list.Kind != "APIResourceList" || list.GroupVersion != "" && list.GroupVersion != version {
		return nil, took, &problem{fmt.Sprintf("the server of %s answers requests for its discovery with something else: %.60q", apiService.Name, content),
			"see what listens there: it is not the API server of this version, but perhaps a web server, an ingress or a page to log in", e.around(ctx, backendOf(apiService))}
	}
	return list, took, nil
}

// pathOf returns the path of a version, whose parts kube-apiserver has validated.
func pathOf(apiService *apiregistrationv1.APIService) string {
	return "/apis/" + apiService.Spec.Group + "/" + apiService.Spec.Version
}

// segment matches the names of resources and subresources, also of metrics. They need no
// escapes in a path. A name that it does not match is in no path and in no command.
var segment = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]*$`)

func isName(resource string) bool {
	return !slices.ContainsFunc(strings.Split(resource, "/"), func(part string) bool { return !segment.MatchString(part) })
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

// checkDiscovery checks that kube-apiserver and clients get discovery from the server.
func (e *examination) checkDiscovery(ctx context.Context) []Finding {
	var results []Finding
	for _, apiService := range e.apiServices {
		results = append(results, e.checkVersionDiscovery(ctx, apiService)...)
	}
	return orOK(results, "discovery of %s is complete", plural(len(e.apiServices), "version"))
}

func (e *examination) checkVersionDiscovery(ctx context.Context, apiService *apiregistrationv1.APIService) (results []Finding) {
	show, b := kubectl("get", "--raw="+pathOf(apiService)), backendOf(apiService)
	list, took, err := e.discover(ctx, apiService)
	if err == nil && took > slowDiscovery { // A busy moment is no fault.
		list, took, err = e.discover(ctx, apiService)
	}
	if flaps := e.checkEndpoints(ctx, apiService, took); len(flaps) > 0 {
		return flaps
	}
	if apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) {
		return []Finding{e.answered(ctx, b, "kube-apiserver gets no discovery from the server of "+apiService.Name, err.Error())}
	}
	if err != nil {
		return unread("the discovery of "+apiService.Name, err)
	}
	if took > slowDiscovery {
		results = append(results, warning(fmt.Sprintf("the server of %s takes %s for its discovery, and kube-apiserver gives up after 5 s", apiService.Name, took.Round(100*time.Millisecond)), "see its log, and what it waits for").
			by(e.logs(ctx, b)))
	}
	known, err := e.told(apiService)
	switch {
	case err != nil:
		return append(results, unread("the discovery of all groups", err)...)
	case known == nil:
		return append(results, failure("clients that discover all groups at once, such as kubectl, do not find "+apiService.Name, "see the log of the server for requests for /apis").by(e.logs(ctx, b)))
	case known.Freshness == apidiscoveryv2.DiscoveryFreshnessStale:
		return append(results, failure("what kube-apiserver tells clients of "+apiService.Name+" is stale, so that no namespace can be deleted, since the server does not answer requests for /apis", "see the log of the server for requests for /apis").
			by(e.logs(ctx, b)))
	}
	for _, resource := range list.APIResources {
		if !isName(resource.Name) {
			return append(results, failure(fmt.Sprintf("the server of %s has the resource %q in its discovery, which is no name of a resource", apiService.Name, resource.Name),
				"correct the server, and use the names that it has in no command").by(show))
		}
	}
	if len(list.APIResources) == 0 {
		return append(results, warning("the server of "+apiService.Name+" has no resource in it", "remove the APIService, unless the server is going to have some").by(show))
	}
	return results
}

// enumerated returns names for a sentence.
func enumerated(names sets.Set[string]) string {
	return cmp.Or(strings.Join(sets.List(names), ", "), "nothing")
}

// checkEndpoints looks for endpoints without an answer among several. Each request goes to one of
// them.
func (e *examination) checkEndpoints(ctx context.Context, apiService *apiregistrationv1.APIService, took time.Duration) []Finding {
	b := backendOf(apiService)
	addresses, err := e.resolve(ctx, b)
	if err != nil || len(addresses) < 2 || took > slowDiscovery {
		return nil
	}
	failed := 0
	var last error
	for range probes {
		if _, _, err := e.discover(ctx, apiService); apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) {
			failed, last = failed+1, err
		}
	}
	if failed == 0 || failed == probes {
		return nil
	}
	return []Finding{failure(fmt.Sprintf("%d of %d requests for the discovery of %s fail (%v), so that one of the %d endpoints of %s does not answer", failed, probes, apiService.Name, last, len(addresses), b),
		"see which of the pods is in trouble, and why it is ready nevertheless: "+strings.Join(addresses, ", ")).by(e.around(ctx, b))}
}

// checkPrecedence checks the priorities that decide between groups and between versions.
func (e *examination) checkPrecedence(ctx context.Context) []Finding {
	list, err := e.aggregator.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return unread("the APIServices", err)
	}
	all, err := e.allGroups()
	if err != nil {
		return unread("the discovery of all groups", err)
	}
	return orOK(precedence(e.apiServices, list.Items, all.Items), "clients choose groups and versions as one expects")
}

// precedence finds groups that come before one of Kubernetes' with the same names, and unstable
// versions that come before stable ones. The commands can be run in any order, and again.
func precedence(own []*apiregistrationv1.APIService, all []apiregistrationv1.APIService, groups []apidiscoveryv2.APIGroupDiscovery) (results []Finding) {
	builtIn := map[string]int32{}
	for _, apiService := range all {
		if apiService.Spec.Service == nil && apiService.Labels[cluster.ManagedLabel] == "onstart" {
			builtIn[apiService.Spec.Group] = max(builtIn[apiService.Spec.Group], apiService.Spec.GroupPriorityMinimum)
		}
	}
	names := map[string]sets.Set[string]{}
	for _, group := range groups {
		names[group.Name] = callable(group.Versions)
	}
	set := func(apiService *apiregistrationv1.APIService, field string, value int32) string {
		return kubectl("patch", "apiservice", apiService.Name, "--type=merge", fmt.Sprintf(`--patch={"spec":{%q:%d}}`, field, value))
	}
	for _, apiService := range own {
		spec := apiService.Spec
		before, common, lowest := sets.New[string](), sets.New[string](), spec.GroupPriorityMinimum
		for group, priority := range builtIn {
			if shared := names[spec.Group].Intersection(names[group]); group != spec.Group && priority <= spec.GroupPriorityMinimum && len(shared) > 0 {
				before.Insert(group)
				common, lowest = common.Union(shared), min(lowest, priority-1)
			}
		}
		if len(before) > 0 {
			results = append(results, warning(fmt.Sprintf("by its groupPriorityMinimum, %s comes before %s, so that kubectl takes %s for its resources", apiService.Name, enumerated(before), enumerated(common)), "lower it").
				by(set(apiService, "groupPriorityMinimum", lowest)))
		}
		var after []*apiregistrationv1.APIService
		least := spec.VersionPriority
		for _, other := range own {
			if other.Spec.Group == spec.Group && !stable.MatchString(spec.Version) && stable.MatchString(other.Spec.Version) && other.Spec.VersionPriority < spec.VersionPriority {
				after, least = append(after, other), min(least, other.Spec.VersionPriority)
			}
		}
		if len(after) > 0 { // Of versions with the same priority, clients prefer the stable one.
			results = append(results, warning(fmt.Sprintf("by its versionPriority, clients prefer %s to %s, which is stable", apiService.Name, listed(after)), "lower it").
				by(set(apiService, "versionPriority", least)))
		}
	}
	return results
}

var stable = regexp.MustCompile(`^v\d+$`)

// callable returns the names that clients may use for resources.
func callable(versions []apidiscoveryv2.APIVersionDiscovery) sets.Set[string] {
	names := sets.New[string]()
	for _, version := range versions {
		for _, resource := range version.Resources {
			names.Insert(resource.Resource, resource.SingularResource)
			names.Insert(resource.ShortNames...)
		}
	}
	return names.Delete("")
}

// listing is what became of a list of a resource.
type listing struct {
	resource metav1.APIResource
	of       *apiregistrationv1.APIService
	took     time.Duration
	// err is set if it failed, refused if the server refused what kube-apiserver allows, and hidden
	// if kube-apiserver refused it.
	err             error
	refused, hidden bool
}

func (l *listing) path() string { return pathOf(l.of) + "/" + l.resource.Name }

// listAll returns a function that lists one object of each resource that this user may list, once.
func (e *examination) listAll(ctx context.Context) func() ([]listing, error) {
	return sync.OnceValues(func() ([]listing, error) {
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		return e.list(ctx)
	})
}

func (e *examination) list(ctx context.Context) (all []listing, err error) {
	for _, apiService := range e.apiServices {
		list, _, err := e.discover(ctx, apiService)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", apiService.Name, err)
		}
		for _, resource := range list.APIResources {
			if slices.Contains(resource.Verbs, "list") && isName(resource.Name) {
				all = append(all, listing{resource: resource, of: apiService})
			}
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(listsAtOnce)
	for i := range all {
		group.Go(func() (err error) {
			l := &all[i]
			for range 2 { // A busy moment is no fault.
				began := time.Now()
				_, l.err = e.kube.Discovery().RESTClient().Get().AbsPath(l.path()).Param("limit", "1").
					SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json").DoRaw(ctx)
				if l.took = time.Since(began); l.err != nil || l.took < slowList {
					break
				}
			}
			if apierrors.IsForbidden(l.err) {
				l.refused, err = e.selfAllowed(ctx, &authorizationv1.ResourceAttributes{Verb: "list", Group: l.of.Spec.Group, Version: l.of.Spec.Version, Resource: l.resource.Name})
				l.hidden = !l.refused
			}
			return err
		})
	}
	err = group.Wait()
	return slices.DeleteFunc(all, func(l listing) bool { return l.hidden }), err
}

// checkLists lists one object of each resource. Some controllers list all resources.
func (e *examination) checkLists(ctx context.Context) []Finding {
	all, err := e.listings()
	if err != nil {
		return unread("what this user may list", err)
	}
	if len(all) == 0 {
		return []Finding{skipped("this user may list no resource of the server")}
	}
	return orOK(e.badLists(ctx, all), "%s can be listed", plural(len(all), "resource"))
}

// badLists returns a finding for each version and each kind of fault, with the first message.
func (e *examination) badLists(ctx context.Context, all []listing) (results []Finding) {
	for _, apiService := range e.apiServices {
		matching := func(matches func(listing) bool) (names string, first listing) {
			for _, l := range slices.Backward(all) {
				if l.of == apiService && matches(l) {
					names, first = strings.TrimSuffix(l.resource.Name+", "+names, ", "), l
				}
			}
			return names, first
		}
		logs := e.logs(ctx, backendOf(apiService))
		if names, first := matching(func(l listing) bool { return l.refused }); names != "" {
			results = append(results, failure(fmt.Sprintf("the server refuses to list %s of %s, although kube-apiserver lets this user do that (%v)", names, apiService.Name, first.err),
				"see the log of the server for why, such as that it may not create subjectaccessreviews").by(logs))
		}
		if names, first := matching(func(l listing) bool { return l.err != nil && !l.refused }); names != "" {
			consequence := ""
			if sets.New(first.resource.Verbs...).HasAll("delete", "watch") {
				consequence = ", so that no namespace can be deleted, and the garbage collector and quotas wait for it"
			}
			results = append(results, failure(fmt.Sprintf("%s of %s can't be listed (%v)%s", names, apiService.Name, first.err, consequence), "see the log of the server").by(kubectl("get", "--raw="+first.path()+"?limit=1")))
		}
		if names, first := matching(func(l listing) bool { return l.err == nil && l.took >= slowList }); names != "" {
			results = append(results, warning(fmt.Sprintf("a list of one object takes %s for %s of %s", first.took.Round(100*time.Millisecond), names, apiService.Name), "see the log of the server, and what it waits for").by(logs))
		}
	}
	return results
}

// checkDefinitions looks for CustomResourceDefinitions whose objects clients can't reach. The
// server has their version, but not their resource.
func (e *examination) checkDefinitions(ctx context.Context) []Finding {
	var results []Finding
	if e.foreign && len(e.managed) > 0 {
		results = append(results, failure("kube-apiserver is about to reset "+strings.Join(e.managed, ", ")+", or delete it, because of the label "+cluster.ManagedLabel+" of a CustomResourceDefinition", "remove the label").
			by(kubectl(slices.Concat([]string{"label", "apiservice"}, e.managed, []string{cluster.ManagedLabel + "-"})...)))
	}
	content, err := e.kube.Discovery().RESTClient().Get().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").Do(ctx).Raw()
	if err != nil {
		return append(results, unread("the CustomResourceDefinitions", err)...)
	}
	var definitions apiextensionsv1.CustomResourceDefinitionList
	if err := json.Unmarshal(content, &definitions); err != nil {
		return append(results, unread("the CustomResourceDefinitions", err)...)
	}
	for _, apiService := range e.apiServices {
		known, err := e.told(apiService)
		if err != nil || known == nil || known.Freshness == apidiscoveryv2.DiscoveryFreshnessStale {
			continue // What is stale may be nothing.
		}
		for _, definition := range definitions.Items {
			var served []string // By kube-apiserver.
			for _, version := range definition.Spec.Versions {
				if version.Served && version.Name != cluster.BypassVersion {
					served = append(served, version.Name)
				}
			}
			version := apiService.Spec.Version
			if definition.Spec.Group != apiService.Spec.Group || !slices.Contains(cluster.ServedVersions(&definition, served...), version) {
				continue
			}
			if apiService.Labels[cluster.RegisteredLabel] != "" && slices.Contains(served, version) && definition.Annotations[keys.CopyAnnotation] == "" {
				results = append(results, warning(fmt.Sprintf("kube-apiserver itself serves the version %s of the CustomResourceDefinition %s: while it starts, it does not find objects that the server has, and the garbage collector may delete their dependents", version, definition.Name),
					"register the group again, by the same \"crd-apiserver register\" as before; before Kubernetes 1.36, after each time that the definition is applied"))
			}
			if !namesIn(known).Has(definition.Spec.Names.Plural) {
				results = append(results, failure(fmt.Sprintf("the CustomResourceDefinition %s defines a version that %s has a server for, which has no such resource, so that its objects can't be reached", definition.Name, apiService.Name),
					"move the definition to a group or a version of its own").by(kubectl("get", "customresourcedefinition", definition.Name, "--output=yaml")).since(definition.CreationTimestamp))
			}
		}
	}
	return orOK(results, "no CustomResourceDefinition is in the way")
}
