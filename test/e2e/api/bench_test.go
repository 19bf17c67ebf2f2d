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

package api

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// These depend on where objects are stored, for "make nightly SUITE=bench-kine". "make bench" compares servers.

// BenchmarkCreate creates pizzas from 8 clients on each processor.
func BenchmarkCreate(b *testing.B) {
	client := framework.Restaurant(cp).RestaurantV1().Pizzas(framework.Namespace(b, cp))
	var created atomic.Int64
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, err := client.Create(b.Context(), framework.Pizza("created-"+strconv.FormatInt(created.Add(1), 10)), metav1.CreateOptions{})
			assert.NoError(b, err)
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
}

// BenchmarkWatch is how long after a write is sent the event of it arrives.
func BenchmarkWatch(b *testing.B) {
	client := framework.Restaurant(cp).RestaurantV1().Pizzas(framework.Namespace(b, cp))
	w, err := client.Watch(b.Context(), metav1.ListOptions{})
	require.NoError(b, err)
	defer w.Stop()
	for i := 0; b.Loop(); i++ {
		_, err := client.Create(b.Context(), framework.Pizza("watched-"+strconv.Itoa(i)), metav1.CreateOptions{})
		require.NoError(b, err)
		event := <-w.ResultChan()
		require.Equal(b, "watched-"+strconv.Itoa(i), event.Object.(metav1.Object).GetName())
	}
}
