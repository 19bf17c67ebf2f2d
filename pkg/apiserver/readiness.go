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

package apiserver

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
)

// storageReadiness returns a check that fails until the watch cache of every resource has
// once read and decoded all objects. A replica that can't, for example without an
// encryption key, gets no requests, and stops a rolling update. Unlike k8s.io/apiserver's hook
// of that name, the check waits without a limit and does not fail /livez.
func storageReadiness(groups []*genericapiserver.APIGroupInfo) healthz.HealthChecker {
	waiting := map[string]rest.StorageWithReadiness{}
	for _, group := range groups {
		for _, resources := range group.VersionedResourcesStorageMap {
			for resource, storage := range resources {
				// All versions of a resource have one cache.
				if storage, ok := storage.(rest.StorageWithReadiness); ok {
					waiting[resource+"."+group.PrioritizedVersions[0].Group] = storage
				}
			}
		}
	}
	var lock sync.Mutex
	return healthz.NamedCheck("storage-readiness", func(*http.Request) error {
		lock.Lock()
		defer lock.Unlock()
		var unready []string
		for resource, storage := range waiting {
			if err := storage.ReadinessCheck(); err != nil {
				unready = append(unready, fmt.Sprintf("%s: %v", resource, err))
			} else {
				delete(waiting, resource)
			}
		}
		if len(unready) > 0 {
			slices.Sort(unready)
			return fmt.Errorf("not yet read from etcd: %s", strings.Join(unready, ", "))
		}
		return nil
	})
}
