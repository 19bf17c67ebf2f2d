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

package apiserver

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
)

//nolint:gochecknoglobals // As Kubernetes declares its metrics.
var pluginEnabled = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace:      "apiserver",
	Subsystem:      "admission_plugin",
	Name:           "enabled",
	Help:           "1 for an admission plugin that a server runs, 0 for one that is off.",
	StabilityLevel: metrics.ALPHA,
}, []string{"server", "plugin"})

// AdmissionOff returns the names of the admission plugins that run by default, but not with
// these flags.
func (o CompletedOptions) AdmissionOff() (names []string) {
	for _, plugin := range o.plugins {
		if !plugin.DefaultOff && !admission.Enabled(plugin, o.Admission) {
			names = append(names, plugin.Name)
		}
	}
	return names
}

// reportPlugins publishes which admission plugins a server runs, and logs those that are off.
// Replicas with different plugins admit different objects.
func (o CompletedOptions) reportPlugins() {
	_ = legacyregistry.Register(pluginEnabled) // A process with several servers has it already.
	if off := o.AdmissionOff(); len(off) > 0 {
		klog.InfoS("Admission plugins are off: this server admits what they would refuse or change", "plugins", off)
	}
	for _, plugin := range o.plugins {
		value := 0.0
		if admission.Enabled(plugin, o.Admission) {
			value = 1
		}
		pluginEnabled.WithLabelValues(o.name, plugin.Name).Set(value)
	}
}
