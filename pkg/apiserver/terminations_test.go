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
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics/legacyregistry"
)

// However many paths clients make up, there is one series for all of them.
func TestTerminations(t *testing.T) {
	boundTerminations(nil, runtime.NewScheme())
	metrics.Register()
	resolver := genericapirequest.RequestInfoFactory{APIPrefixes: sets.NewString("apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	for i := range 50 {
		for _, path := range []string{"/%d", "/apis/%d/v1/things", "/apis/example.com/v%d/things", "/apis/example.com/v1/%d", "/apis/example.com/v1/things/a/%d"} {
			req := httptest.NewRequest(http.MethodGet, fmt.Sprintf(path, i), nil)
			info, err := resolver.NewRequestInfo(req)
			if err != nil {
				t.Fatal(err)
			}
			metrics.RecordRequestTermination(req, info, metrics.APIServerComponent, http.StatusGatewayTimeout)
			metrics.RecordRequestAbort(req, info)
		}
	}
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]int{}
	for _, family := range families {
		series[family.GetName()] = len(family.GetMetric())
	}
	// Those of paths, of lists, and of an object's part.
	for _, name := range []string{"apiserver_request_terminations_total", "apiserver_request_aborts_total"} {
		if series[name] == 0 || series[name] > 5 {
			t.Errorf("%s has %d series", name, series[name])
		}
	}
}
