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
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/testutil"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// monitoringKinds has the kinds of the Prometheus Operator until the test ends.
func monitoringKinds(t *testing.T) {
	t.Helper()
	const file = "--filename=testdata/monitoring-crds.yaml"
	kubectl(t, "apply", file)
	t.Cleanup(func() {
		_, err := tryKubectl(context.Background(), "delete", file)
		require.NoError(t, err)
	})
	kubectl(t, "wait", "--for=condition=Established", "--timeout="+controlplane.Patience.String(), file)
}

// testMetrics reads metrics as Prometheus does, and looks for those that the alerts ask for.
// "make nightly SUITE=dashboard" looks for the dashboard's metrics.
func (ha *highAvailability) testMetrics(t *testing.T) {
	published := series{}
	for _, server := range ha.servers {
		published.add(t, scrape(t, server))
	}
	published.add(t, get(t, http.DefaultClient, fmt.Sprintf("http://localhost:%d/metrics", ha.port(t, "etcd-0", "2381"))))
	admin, err := rest.HTTPClientFor(cp.RESTConfig())
	require.NoError(t, err)
	published.add(t, get(t, admin, cp.KubeAPIServer.URL()+"/metrics"))

	published.add(t, kubeStateMetrics)
	published.add(t, embeddedMetrics)

	rules, alerts := alertRules(t)
	for name, expression := range rules {
		t.Run(name, func(t *testing.T) { published.check(t, expression) })
	}

	document, err := os.ReadFile(filepath.Join(root, "docs", "operations", "runbooks.md"))
	require.NoError(t, err)
	var documented []string
	for _, heading := range regexp.MustCompile(`(?m)^### ([A-Z][A-Za-z]+)$`).FindAllStringSubmatch(string(document), -1) {
		documented = append(documented, heading[1])
	}
	// The last one is crd-apiserver's.
	require.ElementsMatch(t, append(alerts, "CustomResourcesWithoutDefinition"), documented, "Every alert is documented.")
}

// kubeStateMetrics are of the CronJobs of the components "doctor" and "backup-etcd", as documented in
// https://github.com/kubernetes/kube-state-metrics/blob/main/docs/metrics/workload/cronjob-metrics.md.
const kubeStateMetrics = `
kube_cronjob_created{namespace="restaurant-system",cronjob="doctor"} 1.7e+09
kube_cronjob_status_last_successful_time{namespace="restaurant-system",cronjob="doctor"} 1.7e+09
kube_cronjob_created{namespace="restaurant-system",cronjob="backup"} 1.7e+09
kube_cronjob_status_last_schedule_time{namespace="restaurant-system",cronjob="backup"} 1.7e+09
kube_cronjob_status_last_successful_time{namespace="restaurant-system",cronjob="backup"} 1.7e+09
`

// embeddedMetrics are the metrics of a server with an embedded etcd.
const embeddedMetrics = `
apiserver_embedded_etcd_quota_bytes{server="apiserver"} 2.1e+09
`

// scrape returns the metrics of a replica, read as the ServiceMonitor tells Prometheus to.
func scrape(t *testing.T, server *controlplane.Component) string {
	t.Helper()
	monitor, err := dynamic.NewForConfigOrDie(cp.RESTConfig()).Resource(schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: "servicemonitors"}).
		Namespace(systemNamespace).Get(t.Context(), "apiserver", metav1.GetOptions{})
	require.NoError(t, err)
	endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
	require.NoError(t, err)
	field := func(path ...string) string {
		value, found, err := unstructured.NestedString(endpoints[0].(map[string]any), path...)
		require.NoError(t, err)
		require.True(t, found, path)
		return value
	}
	config, err := cp.RESTConfigFor(serviceaccount.MakeUsername("monitoring", "prometheus-k8s"), serviceaccount.MakeGroupNames("monitoring")...)
	require.NoError(t, err)
	configMap, err := framework.Kube(cp).CoreV1().ConfigMaps(systemNamespace).Get(t.Context(), field("tlsConfig", "ca", "configMap", "name"), metav1.GetOptions{})
	require.NoError(t, err)
	config.CAData = []byte(configMap.Data[field("tlsConfig", "ca", "configMap", "key")])
	config.ServerName = field("tlsConfig", "serverName")
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	return get(t, client, server.URL()+"/metrics")
}

func get(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	response, err := client.Get(url)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", body)
	return string(body)
}

// series are the labels of all series of each metric.
type series map[string][]map[string]string

func (s series) add(t *testing.T, exposition string) {
	t.Helper()
	parsed := testutil.NewMetrics()
	require.NoError(t, testutil.ParseMetrics(exposition, &parsed))
	for name, samples := range parsed {
		for _, sample := range samples {
			labels := map[string]string{}
			for label, value := range sample.Metric {
				labels[string(label)] = string(value)
			}
			s[name] = append(s[name], labels)
		}
	}
}

var (
	selector = regexp.MustCompile(`([a-z_][a-z0-9_]*)\{([^}]*)\}`)
	matcher  = regexp.MustCompile(`([a-z_]+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	grouping = regexp.MustCompile(`by \(([^)]*)\)`)
)

// check looks for every metric of an expression, with the labels that it is selected and
// grouped by.
func (s series) check(t *testing.T, expression string) {
	t.Helper()
	selectors := selector.FindAllStringSubmatch(expression, -1)
	require.NotEmpty(t, selectors, "%s selects no metric by its labels.", expression)
	for _, selected := range selectors {
		metric, labels := selected[1], selected[2]
		if metric == "up" {
			continue // Prometheus itself makes it.
		}
		candidates := s[metric]
		require.NotEmpty(t, candidates, "Nobody publishes %s.", metric)
		for _, match := range matcher.FindAllStringSubmatch(labels, -1) {
			label, operator, value := match[1], match[2], match[3]
			if label == "job" {
				require.Contains(t, []string{"extension-apiserver", "extension-apiserver-etcd"}, value)
				continue
			}
			if label == "namespace" || label == "apiserver" {
				continue // As the job, Prometheus adds them.
			}
			pattern := regexp.MustCompile("^(?:" + value + ")$")
			if operator == "=" || operator == "!=" {
				pattern = regexp.MustCompile("^" + regexp.QuoteMeta(value) + "$")
			}
			require.Contains(t, candidates[0], label, metric)
			if label == "code" {
				continue // Failures are not to be seen here.
			}
			candidates = slices.DeleteFunc(slices.Clone(candidates), func(labels map[string]string) bool {
				return pattern.MatchString(labels[label]) != (operator[0] == '=')
			})
			require.NotEmpty(t, candidates, "No %s has %s.", metric, match[0])
		}
		for _, labels := range grouping.FindAllStringSubmatch(expression, -1) {
			for label := range strings.SplitSeq(labels[1], ", ") {
				// Prometheus adds the pod, its namespace and the server.
				if label != "pod" && label != "namespace" && label != "apiserver" {
					require.Contains(t, candidates[0], label, metric)
				}
			}
		}
	}
}

// alertRules returns the expressions of all alerts by their names and severities, and the names in order.
func alertRules(t *testing.T) (expressions map[string]string, names []string) {
	t.Helper()
	expressions = map[string]string{}
	for _, object := range render(t, kustomization(t, "overlays/standalone", []string{"components/monitoring"}, "")) {
		if object.GetKind() != "PrometheusRule" {
			continue
		}
		groups, _, err := unstructured.NestedSlice(object.Object, "spec", "groups")
		require.NoError(t, err)
		for _, group := range groups {
			for _, entry := range group.(map[string]any)["rules"].([]any) {
				rule := entry.(map[string]any)
				name := rule["alert"].(string)
				runbook, _, err := unstructured.NestedString(rule, "annotations", "runbook_url")
				require.NoError(t, err)
				require.Equal(t, "https://restaurant.programming-kubernetes.info/apiserver/blob/main/docs/operations/runbooks.md#"+strings.ToLower(name), runbook)
				severity, _, err := unstructured.NestedString(rule, "labels", "severity")
				require.NoError(t, err)
				expressions[name+" "+severity] = rule["expr"].(string)
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	require.NotEmpty(t, names)
	return expressions, names
}
