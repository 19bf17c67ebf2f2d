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
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/component-base/featuregate"
)

// own returns a plugin that does nothing.
func own(name string) Plugin {
	return Plugin{Name: name, Register: func(plugins *admission.Plugins) { plugins.Register(name, nil) }}
}

func names(plugins []Plugin) []string {
	var names []string
	for _, plugin := range plugins {
		names = append(names, plugin.Name)
	}
	return names
}

// The order is a promise: users may rely on the objects that webhooks see.
func TestOrder(t *testing.T) {
	for name, test := range map[string]struct {
		own, want []string
	}{
		"no plugins of the groups": {nil, []string{
			"NamespaceLifecycle",
			"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook",
			"ResourceQuota",
		}},
		"own plugins come before what judges their result": {[]string{"Second", "First"}, []string{
			"NamespaceLifecycle",
			"Second", "First",
			"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook",
			"ResourceQuota",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var groups []Plugin
			for _, name := range test.own {
				groups = append(groups, own(name))
			}
			plugins := Plugins(groups...)
			if diff := cmp.Diff(test.want, names(plugins)); diff != "" {
				t.Errorf("unexpected plugins (-want +got):\n%s", diff)
			}
			options := Options(plugins)
			if diff := cmp.Diff(test.want, options.RecommendedPluginOrder); diff != "" {
				t.Errorf("unexpected order in the options (-want +got):\n%s", diff)
			}
			if errs := options.Validate(); len(errs) > 0 {
				t.Errorf("invalid options: %v", errs)
			}
		})
	}
}

// If this fails, a new version of k8s.io/apiserver has other plugins. Decide about
// their place in Plugins, and whether they are on.
func TestLibraryHasNoOtherPlugins(t *testing.T) {
	want := []string{
		"NamespaceLifecycle",
		"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook",
	}
	library := genericoptions.NewAdmissionOptions()
	if diff := cmp.Diff(want, library.RecommendedPluginOrder); diff != "" {
		t.Errorf("k8s.io/apiserver recommends other plugins than it did (-before +now):\n%s", diff)
	}
	if len(library.DefaultOffPlugins) > 0 {
		t.Errorf("the library turns off %v", sets.List(library.DefaultOffPlugins))
	}
	registered := admission.NewPlugins()
	genericapiserver.RegisterAllAdmissionPlugins(registered)
	ours := sets.New(Options(Plugins()).Plugins.Registered()...)
	if diff := cmp.Diff(sets.New(registered.Registered()...).Insert(resourcequota.PluginName), ours); diff != "" {
		t.Errorf("the library registers other plugins than this server (-library +ours):\n%s", diff)
	}
}

func TestReads(t *testing.T) {
	reader := own("Reader")
	reader.DefaultOff = true
	reader.Reads = []schema.GroupResource{{Resource: "namespaces"}, {Group: "example.com", Resource: "things"}}
	const registration = ".admissionregistration.k8s.io"
	all := []string{
		"namespaces",
		"mutatingadmissionpolicies" + registration, "mutatingadmissionpolicybindings" + registration,
		"services", "mutatingwebhookconfigurations" + registration,
		"validatingadmissionpolicies" + registration, "validatingadmissionpolicybindings" + registration,
		"validatingwebhookconfigurations" + registration,
		"resourcequotas",
	}
	for name, test := range map[string]struct {
		enable, disable []string
		want            []string
	}{
		"by default":                      {nil, nil, all},
		"an own plugin that is turned on": {[]string{"Reader"}, nil, append([]string{"namespaces", "things.example.com"}, all[1:]...)},
		"one of two that read services": {nil, []string{"MutatingAdmissionWebhook"}, []string{
			"namespaces",
			"mutatingadmissionpolicies" + registration, "mutatingadmissionpolicybindings" + registration,
			"validatingadmissionpolicies" + registration, "validatingadmissionpolicybindings" + registration,
			"services", "validatingwebhookconfigurations" + registration,
			"resourcequotas",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			plugins := Plugins(reader)
			options := Options(plugins)
			options.EnablePlugins, options.DisablePlugins = test.enable, test.disable
			var got []string
			for _, resource := range Reads(plugins, options) {
				got = append(got, resource.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("unexpected resources (-want +got):\n%s", diff)
			}
		})
	}
}

// A plugin whose feature is off would silently admit everything.
func TestValidateFeatures(t *testing.T) {
	for name, test := range map[string]struct {
		enabled  bool
		disabled []string
		want     string
	}{
		"on":                      {true, nil, ""},
		"off":                     {false, nil, "the admission plugin MutatingAdmissionPolicy would not enforce anything, since --feature-gates or --emulated-version turns the feature MutatingAdmissionPolicy off: add --feature-gates=MutatingAdmissionPolicy=true, or do without it by --disable-admission-plugins=MutatingAdmissionPolicy"},
		"off, as the plugin":      {false, []string{"MutatingAdmissionPolicy"}, ""},
		"off, and another plugin": {false, []string{"ResourceQuota"}, "the admission plugin MutatingAdmissionPolicy would not enforce anything, since --feature-gates or --emulated-version turns the feature MutatingAdmissionPolicy off: add --feature-gates=MutatingAdmissionPolicy=true, or do without it by --disable-admission-plugins=MutatingAdmissionPolicy"},
	} {
		t.Run(name, func(t *testing.T) {
			gate := featuregate.NewFeatureGate()
			if err := gate.Add(map[featuregate.Feature]featuregate.FeatureSpec{features.MutatingAdmissionPolicy: {Default: test.enabled, PreRelease: featuregate.Beta}}); err != nil {
				t.Fatal(err)
			}
			plugins := Plugins()
			options := Options(plugins)
			options.DisablePlugins = test.disabled
			got := ""
			for _, err := range ValidateFeatures(plugins, options, gate) {
				got += err.Error()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
