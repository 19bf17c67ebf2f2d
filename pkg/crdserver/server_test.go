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
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
)

// Slow readers of lists with ten seats each once kept others waiting for seconds.
func TestSeatsOfLists(t *testing.T) {
	for name, test := range map[string]struct {
		stats storage.Stats
		query string
		want  uint64
	}{
		"no objects":         {storage.Stats{}, "", 1},
		"few":                {storage.Stats{ObjectCount: 10, EstimatedAverageObjectSizeBytes: 1000}, "", 1},
		"some":               {storage.Stats{ObjectCount: 150, EstimatedAverageObjectSizeBytes: 1000}, "", 2},
		"many":               {storage.Stats{ObjectCount: 1_000_000, EstimatedAverageObjectSizeBytes: 1000}, "", 2},
		"with a selector":    {storage.Stats{ObjectCount: 5000, EstimatedAverageObjectSizeBytes: 1000}, "?labelSelector=a%3Db", 2},
		"of an old revision": {storage.Stats{ObjectCount: 5000, EstimatedAverageObjectSizeBytes: 1000}, "?resourceVersion=7&resourceVersionMatch=Exact", 2},
		"one of many":        {storage.Stats{ObjectCount: 5000, EstimatedAverageObjectSizeBytes: 1000}, "?limit=1", 1},
		"a large one":        {storage.Stats{ObjectCount: 1, EstimatedAverageObjectSizeBytes: 1_400_000}, "", 2},
		"of unknown size":    {storage.Stats{ObjectCount: 5000}, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			tracker := flowcontrolrequest.NewStorageObjectCountTracker()
			fewSeats{tracker}.Set("widgets.example.com", test.stats)
			estimate := flowcontrolrequest.NewWorkEstimator(tracker.Get, nil, flowcontrolrequest.DefaultWorkEstimatorConfig(), func(string) uint64 { return 50 })
			req := httptest.NewRequest(http.MethodGet, "/"+test.query, nil)
			req = req.WithContext(genericapirequest.WithRequestInfo(t.Context(), &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "list", APIGroup: "example.com", Resource: "widgets"}))
			require.Equal(t, test.want, estimate(req, "", "").InitialSeats)
		})
	}
}
