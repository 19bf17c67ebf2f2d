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

package deploy

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// TestChartModes changes each value in each mode. The objects change, too, or the schema refuses the value.
func TestChartModes(t *testing.T) {
	framework.Long(t, "Helm is built, and runs hundreds of times")
	modes := map[string][]string{ // And the components that they have.
		"standalone":    {"webhook", "monitoring", "doctor", "backup"},
		"ha":            {"webhook", "monitoring", "doctor", "backup"},
		"external-etcd": {"webhook", "monitoring", "doctor"},
		"none":          {"webhook"},
	}
	for _, name := range []string{restaurantChart, crdChart} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chart := newChart(t, name)
			defaults := program(t, chart.env, chart.helm, "show", "values", chart.dir)
			values, used := map[string]bool{}, map[string]bool{}
			var ignored []string
			for mode, components := range modes {
				if name == crdChart && mode == "none" {
					continue
				}
				var standard map[string]any
				require.NoError(t, yaml.Unmarshal([]byte(defaults), &standard))
				for _, component := range components {
					if of, has := standard[component].(map[string]any); has {
						of["enabled"] = true
						if component == "backup" {
							standard["restore"] = "store" // By rclone.
						}
					}
				}
				if name == crdChart {
					standard["groups"] = []string{"a.example.com"}
				}
				if mode == "external-etcd" {
					standard["etcd"].(map[string]any)["servers"] = []string{"https://a:2379"}
				}
				delete(standard, "mode")
				content, err := yaml.Marshal(standard)
				require.NoError(t, err)
				file := framework.File(t, string(content))
				template := func(flags ...string) (stdout, stderr string, err error) {
					args := []string{"template", "release", chart.dir, "--values=" + file, "--set=mode=" + mode}
					return tryProgram(t.Context(), chart.env, chart.helm, append(args, flags...)...)
				}
				objects, stderr, err := template()
				require.NoError(t, err, stderr)
				for path, value := range changes(standard, "") {
					values[path] = true
					content, err := json.Marshal(value)
					require.NoError(t, err)
					changed, stderr, err := template("--set-json=" + strings.ReplaceAll(path[1:], "/", ".") + "=" + string(content))
					switch {
					case err != nil:
						require.Contains(t, stderr, "at '"+path+"': ", mode)
					case changed == objects:
						ignored = append(ignored, mode+" "+path)
					default:
						used[path] = true
					}
				}
			}
			require.Empty(t, ignored)
			require.Equal(t, values, used) // Each has a use in a mode.
		})
	}
}

// changes returns another value for each of values by its path. Maps that Kubernetes or users define are values.
func changes(values map[string]any, prefix string) map[string]any {
	another := map[string]any{
		"replicas": 5, "quotaBytes": 4294967296, "runAsUser": 1000, "size": "3Gi", "digest": "sha256:" + strings.Repeat("5", 64), "pullPolicy": "Always",
		"schedule": "@daily", "interval": "1m", "runbooks": "https://wiki.example.com", "maxUnavailable": 2,
		"restore":                   "stdin",
		"resources":                 map[string]any{"limits": map[string]any{"memory": "5Gi"}},
		"affinity":                  map[string]any{"nodeAffinity": map[string]any{}},
		"dnsConfig":                 map[string]any{"nameservers": []string{"192.0.2.53"}},
		"topologySpreadConstraints": []any{map[string]any{"topologyKey": "rack"}},
		"tolerations":               []any{map[string]any{"operator": "Exists"}},
		"extraArgs":                 []string{"--v=7"},
		"groups":                    []string{"another.example.com"},
		"servers":                   []string{"https://another:2379"},
	}
	changed := map[string]any{}
	for key, value := range values {
		path := prefix + "/" + key
		if replacement, found := another[key]; found {
			changed[path] = replacement
			continue
		}
		switch value := value.(type) {
		case bool:
			changed[path] = !value
		case []any:
			changed[path] = []any{map[string]any{"name": "another"}}
		case map[string]any:
			if len(value) == 0 {
				changed[path] = map[string]any{"another": "value"}
			}
			maps.Copy(changed, changes(value, path))
		default:
			changed[path] = "another"
		}
	}
	return changed
}

// podTemplates returns the pod templates of workloads, CronJobs, Jobs and tests by name.
func podTemplates(t *testing.T, objects []*unstructured.Unstructured) map[string]corev1.PodTemplateSpec {
	t.Helper()
	found := map[string]corev1.PodTemplateSpec{}
	for _, object := range objects {
		path := map[string][]string{
			"Deployment": {"spec", "template"}, "StatefulSet": {"spec", "template"}, "Job": {"spec", "template"},
			"CronJob": {"spec", "jobTemplate", "spec", "template"}, "Pod": {},
		}[object.GetKind()]
		if path == nil {
			continue
		}
		content, _, err := unstructured.NestedMap(object.Object, path...)
		require.NoError(t, err)
		delete(content, "apiVersion")
		delete(content, "kind")
		template := corev1.PodTemplateSpec{}
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, &template, true), identity(object))
		found[object.GetName()] = template
	}
	return found
}

// TestChartRefusals has values refused that a mode has no use for, or that are none.
func TestChartRefusals(t *testing.T) {
	framework.Long(t, "Helm is built")
	const external = "mode=external-etcd,etcd.servers={https://a:2379},"
	for name, cases := range map[string]map[string]struct{ set, want string }{
		restaurantChart: {
			"an unknown value":       {"server.flags={--v=2}", "additional properties 'flags' not allowed"},
			"another chart's value":  {"groups={a.example.com}", "additional properties 'groups' not allowed"},
			"no size":                {"storage.size=large", "'large' does not match pattern"},
			"root":                   {"runAsUser=0", "minimum: got 0, want 1"},
			"no servers":             {"mode=external-etcd", "minItems: got 0, want 1"},
			"no backup of its etcd":  {external + "backup.enabled=true", "at '/backup/enabled': value must be false"},
			"a store without backup": {"backup.store=true", "at '/backup/enabled': value must be true"},
			"no restore of its etcd": {external + "restore=stdin", "at '/restore': value must be 'none'"},
			"two of one":             {"server.replicas=2", "at '/server/replicas': value must be one of <nil>, 1"},
			"nothing":                {"mode=none", "at '/webhook/enabled': value must be true"},
			"no flag":                {"server.extraArgs={v=2}", "'v=2' does not match pattern"},
			"a tag and a digest":     {"image.tag=v0.37.1,image.digest=sha256:" + strings.Repeat("5", 64), `the tag v0.37.1 of the image registry.example.org/a/apiserver would be ignored, since it has a digest: set one of them`},
		},
		crdChart: {
			"no groups":             {"mode=ha", "minItems: got 0, want 1"},
			"another chart's value": {"groups={a.example.com},webhook.enabled=true", "additional properties 'webhook' not allowed"},
		},
	} {
		chart := newChart(t, name)
		for refused, test := range cases {
			t.Run(name+" "+refused, func(t *testing.T) {
				_, stderr, err := tryProgram(t.Context(), chart.env, chart.helm, "template", "release", chart.dir, "--set="+test.set)
				require.Error(t, err)
				require.Contains(t, stderr, test.want)
			})
		}
	}
}
