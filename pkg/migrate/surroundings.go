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

package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
)

// checkDependents counts the objects that the moving ones own. It reads the metadata of all objects
// of the cluster. The garbage collector deletes owned objects if it loses sight of their owners.
func (p *plan) checkDependents(ctx context.Context, found []definition) error {
	kinds := sets.New[string]()
	for _, d := range found {
		kinds.Insert(d.Spec.Names.Kind)
	}
	resources, err := p.listable()
	if err != nil {
		return err
	}
	owned := map[string]int{}
	for _, resource := range resources {
		count, err := p.ownedBy(ctx, resource, kinds)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			p.notice(Unread, "", "the %s can't be read to find what the objects own: %v", resource.GroupResource(), err)
		case count > 0:
			owned[resource.GroupResource().String()] = count
		}
	}
	if len(owned) > 0 {
		p.notice(Dependents, "", "the objects own other objects, which stay: %s", counts(owned))
	}
	return nil
}

// listable returns all resources of the cluster that can be listed, each in one version.
func (p *plan) listable() ([]schema.GroupVersionResource, error) {
	_, lists, err := p.kube.Discovery().ServerGroupsAndResources()
	if failed := (*discovery.ErrGroupDiscoveryFailed)(nil); errors.As(err, &failed) {
		for version, err := range failed.Groups {
			p.notice(Unread, "", "the resources of %s can't be read to find what the objects own: %v", version, err)
		}
	} else if err != nil {
		return nil, fmt.Errorf("reading which resources the cluster has: %w", err)
	}
	known := map[schema.GroupResource]bool{}
	var resources []schema.GroupVersionResource
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			found := version.WithResource(resource.Name)
			if strings.Contains(resource.Name, "/") || !slices.Contains(resource.Verbs, "list") || known[found.GroupResource()] {
				continue
			}
			known[found.GroupResource()] = true
			resources = append(resources, found)
		}
	}
	return resources, nil
}

// ownedBy counts the objects of a resource that objects of these kinds of the group own.
func (p *plan) ownedBy(ctx context.Context, resource schema.GroupVersionResource, kinds sets.Set[string]) (count int, err error) {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		list, err := p.metadata.Resource(resource).List(ctx, options)
		if err != nil {
			if next := continueAfter(err); next != "" {
				options.Continue = next
				continue
			}
			return 0, err
		}
		for _, object := range list.Items {
			if slices.ContainsFunc(object.OwnerReferences, func(owner metav1.OwnerReference) bool {
				return schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group == p.config.Group && kinds.Has(owner.Kind)
			}) {
				count++
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return count, nil
		}
	}
}

// checkAdmission names the webhooks, policies and quotas that apply to writes now, and at the
// server.
func (p *plan) checkAdmission(ctx context.Context, found []definition) error {
	resources := sets.New[string]()
	for _, d := range found {
		resources.Insert(d.Spec.Names.Plural)
	}
	webhooks, err := admission.ListWebhooks(ctx, p.kube)
	if err != nil {
		return fmt.Errorf("reading the webhooks: %w", err)
	}
	var names []string
	for _, webhook := range webhooks {
		if admission.Concern(webhook.Rules, p.config.Group, resources.Has) {
			names = append(names, webhook.Name)
		}
	}
	if len(names) > 0 {
		p.notice(Webhooks, "let the server reach them, also through network policies: it asks them as kube-apiserver does", "webhooks are asked about writes: %s", strings.Join(names, ", "))
	}
	policies, err := admission.ListPolicies(ctx, p.kube)
	if err != nil {
		return fmt.Errorf("reading the policies: %w", err)
	}
	names = nil
	fix := ""
	for _, policy := range policies {
		if !admission.Concern(policy.Rules, p.config.Group, resources.Has) {
			continue
		}
		name := policy.Name
		if policy.Parameters != nil {
			name += " (with parameters)"
			fix = "bind a ClusterRole that allows get, list and watch of the parameters to the server's ServiceAccount: the server reads them itself"
		}
		names = append(names, name)
	}
	if len(names) > 0 {
		p.notice(Policies, fix, "policies apply to writes, now and at the server: %s", strings.Join(names, ", "))
	}
	return p.checkQuotas(ctx, resources, "", "quotas count the objects, now and at the server")
}

// checkQuotas names the quotas that count the objects.
func (p *plan) checkQuotas(ctx context.Context, resources sets.Set[string], fix, cause string) error {
	list, err := p.kube.CoreV1().ResourceQuotas(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("reading the quotas: %w", err)
	}
	var quotas []string
	for _, quota := range list.Items {
		for name := range quota.Spec.Hard {
			if of, counted := strings.CutPrefix(string(name), "count/"); counted && resources.Has(strings.TrimSuffix(of, "."+p.config.Group)) {
				quotas = append(quotas, quota.Namespace+"/"+quota.Name)
				break
			}
		}
	}
	if len(quotas) > 0 {
		p.notice(Quotas, fix, "%s: %s", cause, strings.Join(quotas, ", "))
	}
	return nil
}

// checkWatches reports how many clients watch. They have to list again when the objects have moved.
func (p *plan) checkWatches(ctx context.Context, _ []definition) error {
	data, err := p.metrics(ctx)
	if err != nil {
		p.notice(Unread, "", "the watches of the objects can't be read from the metrics of kube-apiserver: %v", err)
		return nil
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("reading the metrics of kube-apiserver: %w", err)
	}
	watches := map[string]int{}
	for _, metric := range families["apiserver_longrunning_requests"].GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		if count := int(metric.GetGauge().GetValue()); labels["group"] == p.config.Group && labels["verb"] == "WATCH" && count > 0 {
			watches[labels["resource"]+" in "+labels["version"]] += count
		}
	}
	if len(watches) > 0 {
		p.notice(Watches, "", "clients of the kube-apiserver that has answered watch, and will list again: %s", counts(watches))
	}
	return nil
}
