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
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/metrics"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/gauges"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
)

// PublishQuota publishes how large the database of a server's own etcd may become. Alerts compare
// the metric with apiserver_storage_size_bytes. It returns a function that takes the metric back.
func PublishQuota(name string, embedded etcd.Config) (func(), error) {
	quota, err := gauges.Shared(&metrics.GaugeOpts{
		Namespace:      "apiserver",
		Subsystem:      "embedded_etcd",
		Name:           "quota_bytes",
		Help:           "How large the database of the embedded etcd may become, in bytes: --etcd-quota-backend-bytes.",
		StabilityLevel: metrics.ALPHA,
	}, "server")
	if err != nil {
		return nil, err
	}
	quota.WithLabelValues(name).Set(float64(embedded.QuotaBytes))
	return func() { quota.Delete(map[string]string{"server": name}) }, nil
}

// InstallSnapshots makes a server of a name save snapshots of its own etcd.
func InstallSnapshots(server *genericapiserver.GenericAPIServer, name string, embedded etcd.Config) error {
	latest, err := gauges.Shared(&metrics.GaugeOpts{
		Namespace:      "apiserver",
		Subsystem:      "embedded_etcd",
		Name:           "snapshot_timestamp_seconds",
		Help:           "When the latest snapshot of --snapshot-schedule was complete, in seconds since 1970; 0 if none has been since the start.",
		StabilityLevel: metrics.ALPHA,
	}, "server")
	if err != nil {
		return err
	}
	return server.AddPostStartHook("save-snapshots", func(hook genericapiserver.PostStartHookContext) error {
		gauge := latest.WithLabelValues(name)
		gauge.Set(0)
		go func() {
			defer latest.Delete(map[string]string{"server": name})
			if err := embedded.SaveSnapshots(hook, func(at time.Time) { gauge.Set(float64(at.Unix())) }); err != nil {
				utilruntime.HandleErrorWithContext(hook, err, "No snapshots are saved any more")
			}
		}()
		return nil
	})
}
