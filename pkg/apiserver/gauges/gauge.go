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

// Package gauges has metrics that the servers of a process share.
package gauges

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Shared returns a metric with labels. All servers of a process have one registry, and
// so share the metric that the first of them registers.
func Shared(options *metrics.GaugeOpts, labels ...string) (*metrics.GaugeVec, error) {
	gauge := metrics.NewGaugeVec(options, labels)
	err := legacyregistry.Register(gauge)
	var registered prometheus.AlreadyRegisteredError
	if !errors.As(err, &registered) {
		return gauge, err
	}
	existing, ok := registered.ExistingCollector.(*metrics.GaugeVec)
	if !ok {
		return nil, fmt.Errorf("the metric %s is registered already: %w", gauge.FQName(), err)
	}
	return existing, nil
}
