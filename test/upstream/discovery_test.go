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

package upstream

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/client-go/discovery"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apiserver"
)

// kube-apiserver asks a server for the discovery of a version that it serves itself by now. It tells
// clients that the version is stale once the server is gone. Only the deletion of the APIService ends that.
func TestLocalVersionIsAskedOfItsFormerServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		merged := aggregated.NewResourceManager("apis")
		fresh := apidiscoveryv2.APIVersionDiscovery{Version: "v1", Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
		merged.WithSource(aggregated.CRDSource).AddGroupVersion("example.com", fresh)
		told := func() apidiscoveryv2.DiscoveryFreshness {
			t.Helper()
			req := httptest.NewRequest(http.MethodGet, "/apis", nil)
			req.Header.Set("Accept", discovery.AcceptV2)
			w := httptest.NewRecorder()
			merged.ServeHTTP(w, req)
			var list apidiscoveryv2.APIGroupDiscoveryList
			if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
				t.Fatal(err)
			}
			return list.Items[0].Versions[0].Freshness
		}
		gone := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
		manager := apiserver.NewDiscoveryManager(merged.WithSource(aggregated.AggregatorSource))
		go manager.Run(t.Context().Done(), nil)
		apiService := &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: "v1.example.com"},
			Spec:       apiregistrationv1.APIServiceSpec{Group: "example.com", Version: "v1", Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "server"}},
		}
		var got []apidiscoveryv2.DiscoveryFreshness
		observe := func() {
			time.Sleep(time.Hour) // The fake clock's.
			got = append(got, told())
		}
		manager.AddAPIService(apiService, gone)
		observe()
		local := apiService.DeepCopy()
		local.Spec.Service = nil
		manager.AddAPIService(local, gone)
		observe()
		manager.RemoveAPIService(apiService.Name)
		observe()
		const stale, current = apidiscoveryv2.DiscoveryFreshnessStale, apidiscoveryv2.DiscoveryFreshnessCurrent
		if diff := cmp.Diff([]apidiscoveryv2.DiscoveryFreshness{stale, stale, current}, got); diff != "" {
			fixed(t, "discovery of a version that led to a server, leads to none, and is deleted (-known +got):\n%s", diff)
		}
	})
}
