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

package dashboard

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// target is a query of a panel.
type target struct{ Expr, LegendFormat string }

var (
	labelValues = regexp.MustCompile(`^label_values\((.+), *(\w+)\)$`)
	legendLabel = regexp.MustCompile(`{{ *(\w+) *}}`)
)

// waitForPanels waits until each query of the dashboard has been answered with a number. Every label
// that a legend names has to be there: Grafana leaves out those that a series lacks.
func waitForPanels(t *testing.T, prometheus string) {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []target
		}
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
	}
	content, err := os.ReadFile(root + "artifacts/deploy/components/monitoring/apiserver.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &dashboard))

	variables := []string{"$__rate_interval", fmt.Sprintf("%ds", 4*interval)}
	for _, variable := range dashboard.Templating.List {
		if variable.Type == "datasource" {
			continue
		}
		parts := labelValues.FindStringSubmatch(variable.Query)
		require.NotNil(t, parts, variable.Query)
		var values []string
		controlplane.Eventually(t, func() error {
			if err := ask(prometheus+"/api/v1/label/"+parts[2]+"/values", url.Values{"match[]": {parts[1]}}, &values); err != nil {
				return err
			}
			if len(values) == 0 {
				return fmt.Errorf("the variable %s has no value", variable.Name)
			}
			return nil
		})
		variables = append(variables, "$"+variable.Name, values[0])
	}
	expand := strings.NewReplacer(variables...)

	answered := map[target]bool{}
	controlplane.Eventually(t, func() error {
		var faults []error
		for _, panel := range dashboard.Panels {
			require.NotEmpty(t, panel.Targets, panel.Title)
			for _, target := range panel.Targets {
				if answered[target] {
					continue
				}
				if err := target.ask(prometheus, expand.Replace(target.Expr)); err != nil {
					faults = append(faults, fmt.Errorf("the panel %q: %w", panel.Title, err))
					continue
				}
				answered[target] = true
			}
		}
		return errors.Join(faults...)
	})
}

// ask returns an error unless the query has a number as an answer.
func (q target) ask(prometheus, query string) error {
	var vector struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	if err := ask(prometheus+"/api/v1/query", url.Values{"query": {query}}, &vector); err != nil {
		return err
	}
	numbers := 0
	for _, series := range vector.Result {
		for _, label := range legendLabel.FindAllStringSubmatch(q.LegendFormat, -1) {
			if series.Metric[label[1]] == "" {
				return fmt.Errorf("the legend %s names a label that %v lacks", q.LegendFormat, series.Metric)
			}
		}
		if number, err := strconv.ParseFloat(fmt.Sprint(series.Value[1]), 64); err == nil && !math.IsNaN(number) && !math.IsInf(number, 0) {
			numbers++
		}
	}
	if numbers == 0 {
		return fmt.Errorf("no numbers for %s", query)
	}
	return nil
}

// ask asks Prometheus.
func ask(address string, parameters url.Values, into any) error {
	response, err := http.Get(address + "?" + parameters.Encode())
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var body struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
		return err
	}
	if body.Status != "success" {
		return fmt.Errorf("no answer to %s: %s", parameters, body.Error)
	}
	return json.Unmarshal(body.Data, into)
}
