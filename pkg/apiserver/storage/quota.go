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

package storage

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
)

//nolint:gochecknoglobals // As Kubernetes declares its metrics.
var quota = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace:      "apiserver",
	Subsystem:      "embedded_etcd",
	Name:           "quota_bytes",
	Help:           "How large the database of the embedded etcd may become, in bytes: --etcd-quota-backend-bytes.",
	StabilityLevel: metrics.ALPHA,
}, []string{"server"})

// PublishQuota publishes how large the database of a server's own etcd may become, which alerts
// compare with apiserver_storage_size_bytes.
func PublishQuota(name string, embedded etcd.Config) {
	_ = legacyregistry.Register(quota) // A process with several servers has it already.
	quota.WithLabelValues(name).Set(float64(embedded.QuotaBytes))
}
