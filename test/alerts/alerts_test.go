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

// Package alerts tests the alerts of the components "monitoring" as operators test theirs: promtool
// evaluates them for time series that are given by hand.
package alerts

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

const (
	root      = "../.."
	scenarios = "scenarios.yaml"
	instances = "instances.yaml"
	page      = "docs/operations/runbooks.md"
	runbooks  = "https://restaurant.programming-kubernetes.info/apiserver/blob/main/" + page
)

// TestScenarios evaluates the rules in all scenarios.
func TestScenarios(t *testing.T) {
	promtool := program(t, "promtool")
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata")))
	for _, rules := range prometheusRules(t) {
		// JSON is YAML.
		require.NoError(t, os.WriteFile(filepath.Join(dir, rules.Metadata.Name+".yaml"), rules.Spec, 0o600))
	}
	for _, rules := range rulesOfInstance(t) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "trattoria-"+rules.Metadata.Name+".yaml"), rules.Spec, 0o600))
	}
	cmd := exec.CommandContext(t.Context(), promtool, "test", "rules", scenarios, instances)
	cmd.Dir = dir
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)
}

// program returns the path of one that the tests need.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(os.Getenv(controlplane.BinDirVariable), name))
	require.NoError(t, err)
	require.FileExists(t, path, `"make nightly SUITE=alerts" builds it`)
	return path
}

// rulesOfInstance returns the rules of an instance with other names, which does not serve the group.
func rulesOfInstance(t *testing.T) (all []prometheusRule) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	components, err := filepath.Abs(filepath.Join(root, "artifacts", "deploy", "components"))
	require.NoError(t, err)
	components, err = filepath.EvalSymlinks(components)
	require.NoError(t, err)
	components, err = filepath.Rel(dir, components)
	require.NoError(t, err)
	for file, content := range map[string]string{
		"kustomization.yaml": fmt.Sprintf("resources: [instance.yaml]\ncomponents: [%[1]s/monitoring, %[1]s/unregistered, %[1]s/instance]\n", components),
		"instance.yaml": `{apiVersion: v1, kind: ConfigMap, data: {name: trattoria, namespace: trattoria-system},
metadata: {name: instance, annotations: {config.kubernetes.io/local-config: "true"}}}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600))
	}
	output, err := exec.CommandContext(t.Context(), program(t, "kubectl"), "kustomize", dir).Output()
	require.NoError(t, err)
	for document := range strings.SplitSeq(string(output), "\n---\n") {
		var object struct {
			prometheusRule

			Kind string `json:"kind"`
		}
		require.NoError(t, yaml.Unmarshal([]byte(document), &object))
		if object.Kind == "PrometheusRule" {
			// The alert would name the wrong server.
			require.NotEqual(t, "apiservices", object.Metadata.Name)
			all = append(all, object.prometheusRule)
		}
	}
	require.NotEmpty(t, all)
	return all
}

// TestCompleteness finds for each alert a moment at which it fires, one at which it does not, and
// its runbook. Alerts name the server and its namespace.
func TestCompleteness(t *testing.T) {
	var file struct {
		Tests []struct {
			Moments []struct {
				Alert    string `json:"alertname"`
				Expected []struct {
					Labels map[string]string `json:"exp_labels"`
				} `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	content, err := os.ReadFile(filepath.Join("testdata", scenarios))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(content, &file))
	fires, waits := map[string]bool{}, map[string]bool{}
	for _, scenario := range file.Tests {
		for _, moment := range scenario.Moments {
			for _, expected := range moment.Expected {
				require.NotEmpty(t, expected.Labels["apiserver"], "%s does not name the server", moment.Alert)
				require.NotEmpty(t, expected.Labels["namespace"], "%s does not name the namespace", moment.Alert)
			}
			if len(moment.Expected) > 0 {
				fires[moment.Alert] = true
			} else {
				waits[moment.Alert] = true
			}
		}
	}
	document, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	links := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(document), -1) {
		links[runbooks+"#"+strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-")] = true
	}
	for _, rules := range prometheusRules(t) {
		for _, alert := range rules.alerts(t) {
			require.True(t, fires[alert.Name], "%s fires in no scenario", alert.Name)
			require.True(t, waits[alert.Name], "%s fires in each of its scenarios from the beginning", alert.Name)
			require.True(t, links[alert.Annotations["runbook_url"]], "the runbook of %s, %q, does not exist", alert.Name, alert.Annotations["runbook_url"])
		}
	}
}

// prometheusRule is an object of the Prometheus Operator.
type prometheusRule struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	// Spec is a file of rules, as Prometheus itself reads it.
	Spec json.RawMessage `json:"spec"`
}

// prometheusRules returns the rules of the components.
func prometheusRules(t *testing.T) (all []prometheusRule) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "artifacts", "*", "components", "monitoring", "prometheusrule*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		var rules prometheusRule
		require.NoError(t, yaml.Unmarshal(content, &rules))
		all = append(all, rules)
	}
	return all
}

type alert struct {
	Name        string            `json:"alert"`
	Annotations map[string]string `json:"annotations"`
}

func (r *prometheusRule) alerts(t *testing.T) (all []alert) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []alert `json:"rules"`
		} `json:"groups"`
	}
	require.NoError(t, json.Unmarshal(r.Spec, &file))
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}
