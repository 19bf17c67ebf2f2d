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

package crdserver

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// leftoverMetric is how many objects there are of definitions that the cluster does not have
// any more, as of the last count.
type leftoverMetric struct{ objects *metrics.GaugeVec }

// newLeftoverMetric registers the metric, which all servers of a process share.
func newLeftoverMetric() (*leftoverMetric, error) {
	objects := metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace:      "customresources",
		Name:           "deleted_definition_objects",
		Help:           "Objects that are served although their CustomResourceDefinition has been deleted in the cluster.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"definition"})
	err := legacyregistry.Register(objects)
	var registered prometheus.AlreadyRegisteredError
	if !errors.As(err, &registered) {
		return &leftoverMetric{objects}, err
	}
	existing, ok := registered.ExistingCollector.(*metrics.GaugeVec)
	if !ok {
		return nil, fmt.Errorf("the metric %s is registered already: %w", objects.FQName(), err)
	}
	return &leftoverMetric{existing}, nil
}

func (m *leftoverMetric) set(definition string, count int64) {
	m.objects.WithLabelValues(definition).Set(float64(count))
}

func (m *leftoverMetric) forget(definition string) {
	m.objects.Delete(map[string]string{"definition": definition})
}
