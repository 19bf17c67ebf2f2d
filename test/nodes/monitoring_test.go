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

package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheusv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// testMonitoring lets Prometheus, run by its Operator, watch servers that work, then none, and then
// servers again.
func (o *operations) testMonitoring(t *testing.T) {
	began := time.Now()
	prometheus := o.startPrometheus(t)
	controlplane.Eventually(t, func() error { return o.scrapes(t, prometheus) })
	controlplane.Eventually(t, func() error { return o.evaluates(t, prometheus) })
	controlplane.Eventually(t, func() error { return calm(t, prometheus) })
	require.Empty(t, fired(t, prometheus, began))
	t.Logf("Prometheus watches what is installed after %.0f s", time.Since(began).Seconds())

	const alert = "APIServerDown"
	o.Run(t, "kubectl scale --namespace restaurant-system deployment/apiserver --replicas=0")
	// The alert itself waits for two minutes.
	for _, state := range []prometheusv1.AlertState{prometheusv1.AlertStatePending, prometheusv1.AlertStateFiring} {
		o.awaitAlert(t, prometheus, alert, state)
	}
	o.Run(t, "kubectl scale --namespace restaurant-system deployment/apiserver --replicas=3")
	o.rolledOut(t)
	o.awaitAlert(t, prometheus, alert, prometheusv1.AlertStateInactive)
	require.Equal(t, []string{alert}, fired(t, prometheus, began))
	o.awaitCalm(t)
}

// prometheusOperator is the module of the Prometheus Operator, which reads the objects of the
// component "monitoring".
const prometheusOperator = "github.com/prometheus-operator/prometheus-operator"

// monitoringKinds returns the files with definitions of the kinds that the Prometheus Operator
// reads.
func monitoringKinds(t *testing.T) (files []string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "-C", filepath.Join(root, "hack", "tools", "prometheus-operator"), "mod", "download", "-json", prometheusOperator)
	output, err := command.Output()
	require.NoError(t, err, "%s", output)
	var module struct{ Dir string }
	require.NoError(t, json.Unmarshal(output, &module))
	for _, plural := range []string{"podmonitors", "probes", "prometheuses", "prometheusrules", "servicemonitors"} {
		files = append(files, filepath.Join(module.Dir, "example", "prometheus-operator-crd", "monitoring.coreos.com_"+plural+".yaml"))
	}
	return files
}

// startPrometheus starts Prometheus for one test, and returns its API.
func (o *operations) startPrometheus(t *testing.T) prometheusv1.API {
	t.Helper()
	images := map[string]string{}
	for _, name := range []string{"prometheus", "prometheus-operator", "prometheus-config-reloader"} {
		images["registry.example.com/"+name+":test"] = archive(name)
	}
	o.cluster.Nodes[0].importImages(t, images)
	manifest, err := filepath.Abs("testdata/prometheus.yaml")
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.Background() // The test's own is over.
		if t.Failed() {
			output, err := o.Try(ctx, `kubectl get pods,prometheuses --namespace monitoring --output=wide
kubectl describe pods --namespace monitoring | tail --lines=100
kubectl logs --namespace monitoring deployment/prometheus-operator --tail=30
kubectl logs --namespace monitoring prometheus-k8s-0 --all-containers --prefix --tail=30`)
			t.Log(output, err)
		}
		output, err := o.Try(ctx, "kubectl delete --ignore-not-found --timeout=10m --filename="+manifest)
		require.NoError(t, err, output)
	})
	o.Run(t, "kubectl apply --filename="+manifest+`
kubectl wait --namespace monitoring --for=create --timeout=3m statefulset/prometheus-k8s
kubectl rollout status --namespace monitoring --timeout=3m statefulset/prometheus-k8s`)
	config := o.cluster.RESTConfig()
	transport, err := rest.TransportFor(config)
	require.NoError(t, err)
	client, err := api.NewClient(api.Config{
		Address:      config.Host + "/api/v1/namespaces/monitoring/services/prometheus-operated:web/proxy",
		RoundTripper: transport,
	})
	require.NoError(t, err)
	return prometheusv1.NewAPI(client)
}

// scrapes returns an error unless Prometheus reads exactly the metrics of all servers and members
// of etcd.
func (o *operations) scrapes(t *testing.T, prometheus prometheusv1.API) error {
	t.Helper()
	want := map[string]bool{}
	for name, job := range map[string]string{"restaurant-apiserver": "extension-apiserver", "etcd": "extension-apiserver-etcd"} {
		for _, pod := range o.pods(t, name) {
			want[job+" "+pod.Namespace+" "+pod.Name] = true
		}
	}
	targets, err := prometheus.Targets(t.Context())
	if err != nil {
		return err
	}
	got := map[string]bool{}
	for _, target := range targets.Active {
		if target.Health != prometheusv1.HealthGood {
			return fmt.Errorf("%s is %s: %s", target.ScrapeURL, target.Health, target.LastError)
		}
		got[fmt.Sprintf("%s %s %s", target.Labels["job"], target.Labels["namespace"], target.Labels["pod"])] = true
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("the targets are %v instead of %v", got, want)
	}
	return nil
}

// evaluates returns an error unless Prometheus evaluates exactly the rules of the component.
func (o *operations) evaluates(t *testing.T, prometheus prometheusv1.API) error {
	t.Helper()
	want := strings.Fields(o.Run(t, "kubectl get prometheusrules --namespace restaurant-system --output=jsonpath='{.items[*].spec.groups[*].rules[*].alert}'"))
	require.NotEmpty(t, want)
	rules, err := prometheus.Rules(t.Context(), nil)
	if err != nil {
		return err
	}
	var got []string
	for _, group := range rules.Groups {
		for _, entry := range group.Rules {
			rule, isAlert := entry.(prometheusv1.AlertingRule)
			if !isAlert || rule.Health != prometheusv1.RuleHealthGood {
				return fmt.Errorf("%s: %v", group.Name, entry)
			}
			got = append(got, rule.Name)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Errorf("the rules are %v instead of %v", got, want)
	}
	return nil
}

// awaitAlert waits until an alert has a state.
func (o *operations) awaitAlert(t *testing.T, prometheus prometheusv1.API, name string, want prometheusv1.AlertState) {
	t.Helper()
	began := time.Now()
	controlplane.Eventually(t, func() error {
		all, err := prometheus.Alerts(t.Context())
		if err != nil {
			return err
		}
		state := prometheusv1.AlertStateInactive
		for _, alert := range all.Alerts {
			if string(alert.Labels["alertname"]) == name {
				state = alert.State
			}
		}
		if state != want {
			return fmt.Errorf("%s is %s instead of %s", name, state, want)
		}
		return nil
	})
	t.Logf("%s is %s after %.0f s", name, want, time.Since(began).Seconds())
}

// calm returns an error if an alert is pending or firing. It ignores alerts of slowness, since this
// machine may be busy.
func calm(t *testing.T, prometheus prometheusv1.API) error {
	t.Helper()
	all, err := prometheus.Alerts(t.Context())
	if err != nil {
		return err
	}
	for _, alert := range all.Alerts {
		if !strings.HasSuffix(string(alert.Labels["alertname"]), "Slow") {
			return fmt.Errorf("%s is %s: %s", alert.Labels, alert.State, alert.Annotations["summary"])
		}
	}
	return nil
}

// fired returns the alerts that have fired since a time.
func fired(t *testing.T, prometheus prometheusv1.API, since time.Time) (names []string) {
	t.Helper()
	series, _, err := prometheus.Series(t.Context(), []string{`ALERTS{alertstate="firing"}`}, since, time.Now())
	require.NoError(t, err)
	for _, labels := range series {
		names = append(names, string(labels["alertname"]))
	}
	return names
}
