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

package conformance

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/conformance"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// TestBesideController examines pizzas while a controller writes to each: no check takes that for a difference.
func TestBesideController(t *testing.T) {
	framework.Long(t, "TestRestaurant examines pizzas without a controller")
	ctx, cancel := context.WithCancel(t.Context())
	written := make(chan int64)
	go func() { written <- control(ctx) }()
	conformance.Test(t, cp.RESTConfig(), pizzas(t))
	cancel()
	require.Positive(t, <-written, "writes of the controller")
}

// TestBesideDeploymentController does the same with Deployments and their own controller.
func TestBesideDeploymentController(t *testing.T) {
	framework.Long(t, "kube-apiserver is not ours")
	cp.ControllerManager.SetFlags("--controllers=*")
	require.NoError(t, cp.ControllerManager.Restart(t.Context()))
	t.Cleanup(func() {
		cp.ControllerManager.SetFlags(withoutDeployments)
		require.NoError(t, cp.ControllerManager.Restart(context.WithoutCancel(t.Context())))
	})
	conformance.Test(t, cp.RESTConfig(), deployments(t))
}

// control writes to each pizza ten times, as fast as it can, and returns how often it did.
func control(ctx context.Context) int64 {
	config := framework.Config(cp)
	config.QPS = -1
	pizzas := dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{Group: restaurant.GroupName, Version: "v1", Resource: "pizzas"})
	events, err := pizzas.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return 0
	}
	defer events.Stop()
	var written atomic.Int64
	var writers errgroup.Group
	writers.SetLimit(atOnce)
	for event := range events.ResultChan() {
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type == watch.Deleted {
			continue
		}
		writes, _ := strconv.Atoi(object.GetAnnotations()["example.com/writes"])
		if writes == 10 {
			continue
		}
		writers.Go(func() error {
			annotated := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/writes":"%d"}}}`, writes+1)
			observed := fmt.Appendf(nil, `{"status":{"observedGeneration":%d}}`, object.GetGeneration()+int64(writes))
			client, options := pizzas.Namespace(object.GetNamespace()), metav1.PatchOptions{FieldManager: "controller"}
			_, err := client.Patch(ctx, object.GetName(), types.MergePatchType, observed, options, "status")
			if err == nil {
				_, err = client.Patch(ctx, object.GetName(), types.MergePatchType, annotated, options)
			}
			if err == nil { // Else the object has gone.
				written.Add(1)
			}
			return nil
		})
	}
	_ = writers.Wait()
	return written.Load()
}
