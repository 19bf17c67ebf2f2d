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

package admission

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/apiserver/pkg/features"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/component-base/featuregate"
)

// Plugin is an admission plugin that operators can enable and disable by its name.
type Plugin struct {
	Name string
	// Register registers the plugin's factory.
	Register func(*admission.Plugins)
	// DefaultOff plugins run only if they are enabled by a flag.
	DefaultOff bool
	// Reads are the resources of the cluster that the plugin lists and watches.
	Reads []schema.GroupResource
	// Feature is the feature gate that the plugin needs, if any.
	Feature featuregate.Feature
}

// Plugins returns all plugins in the order of their execution, with the groups' own
// plugins. All mutating plugins run before all validating ones. A group's own defaults
// come before the cluster's webhooks and policies, which judge the object as it will be
// stored. Quota is last, as it must not count objects that another plugin refuses.
func Plugins(own ...Plugin) []Plugin {
	namespaces := schema.GroupResource{Resource: "namespaces"}
	services := schema.GroupResource{Resource: "services"}
	registration := func(resource string) schema.GroupResource {
		return schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: resource}
	}
	return slices.Concat(
		[]Plugin{{
			Name:     lifecycle.PluginName,
			Register: lifecycle.Register,
			Reads:    []schema.GroupResource{namespaces},
		}},
		own,
		[]Plugin{{
			Name:     mutatingpolicy.PluginName,
			Register: registerMutatingPolicies,
			Reads:    []schema.GroupResource{namespaces, registration("mutatingadmissionpolicies"), registration("mutatingadmissionpolicybindings")},
			Feature:  features.MutatingAdmissionPolicy,
		}, {
			Name:     mutatingwebhook.PluginName,
			Register: mutatingwebhook.Register,
			Reads:    []schema.GroupResource{namespaces, services, registration("mutatingwebhookconfigurations")},
		}, {
			Name:     validatingpolicy.PluginName,
			Register: validatingpolicy.Register,
			Reads:    []schema.GroupResource{namespaces, registration("validatingadmissionpolicies"), registration("validatingadmissionpolicybindings")},
		}, {
			Name:     validatingwebhook.PluginName,
			Register: validatingwebhook.Register,
			Reads:    []schema.GroupResource{namespaces, services, registration("validatingwebhookconfigurations")},
		}, {
			Name:     resourcequota.PluginName,
			Register: resourcequota.Register,
			Reads:    []schema.GroupResource{{Resource: "resourcequotas"}},
		}},
	)
}

// Options returns the options of an admission chain with these plugins and its flags.
func Options(plugins []Plugin) *genericoptions.AdmissionOptions {
	options := genericoptions.NewAdmissionOptions()
	options.Plugins = admission.NewPlugins()
	options.RecommendedPluginOrder = nil
	for _, plugin := range plugins {
		plugin.Register(options.Plugins)
		options.RecommendedPluginOrder = append(options.RecommendedPluginOrder, plugin.Name)
		if plugin.DefaultOff {
			options.DefaultOffPlugins.Insert(plugin.Name)
		}
	}
	return options
}

// Enabled reports whether the options enable a plugin.
func Enabled(plugin Plugin, options *genericoptions.AdmissionOptions) bool {
	disabled := options.DefaultOffPlugins.Union(sets.New(options.DisablePlugins...)).Difference(sets.New(options.EnablePlugins...))
	return !disabled.Has(plugin.Name)
}

// ValidateFeatures returns an error for each enabled plugin that would do nothing. This
// server would silently admit requests that kube-apiserver, or another replica, refuses.
func ValidateFeatures(plugins []Plugin, options *genericoptions.AdmissionOptions, gate featuregate.FeatureGate) (errs []error) {
	for _, plugin := range plugins {
		if plugin.Feature != "" && !gate.Enabled(plugin.Feature) && Enabled(plugin, options) {
			errs = append(errs, fmt.Errorf("the admission plugin %s would not enforce anything, since --feature-gates or --emulated-version turns the feature %s off: add --feature-gates=%s=true, or do without it by --disable-admission-plugins=%s",
				plugin.Name, plugin.Feature, plugin.Feature, plugin.Name))
		}
	}
	return errs
}

// Reads returns the resources of the cluster that the plugins enabled by the
// options list and watch.
func Reads(plugins []Plugin, options *genericoptions.AdmissionOptions) []schema.GroupResource {
	var resources []schema.GroupResource
	for _, plugin := range plugins {
		if !Enabled(plugin, options) {
			continue
		}
		for _, resource := range plugin.Reads {
			if !slices.Contains(resources, resource) {
				resources = append(resources, resource)
			}
		}
	}
	return resources
}
