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

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/scheme"
	typed "restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/typed/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const (
	// clients write and read objectsPerEpoch toppings. Each epoch has its own, so that
	// the history of each stays short enough to be checked.
	clients         = 8
	objectsPerEpoch = 6
	// requestTimeout is when a client gives up on an answer, and watchTimeout when a
	// server ends a watch. retryPause is how long a client waits before it tries again.
	requestTimeout = 10 * time.Second
	watchTimeout   = time.Minute
	retryPause     = 50 * time.Millisecond
	// thinkTime is the longest pause between two requests of a client.
	thinkTime = 30 * time.Millisecond

	valueAnnotation = "faults.example.com/value"
)

// valueOf is what a client wrote.
func valueOf(topping *restaurantv1.Topping) int {
	value, err := strconv.Atoi(topping.Annotations[valueAnnotation])
	if err != nil {
		return -1 // Nobody has written that.
	}
	return value
}

// workload is clients that use the same objects at once.
type workload struct {
	servers []rest.Interface
	history *history
	epoch   atomic.Int64
	values  atomic.Int64
	// gate is held by each client for a step. Locking it keeps all from the next one.
	gate sync.RWMutex

	mu sync.Mutex
	// acknowledged are the writes that clients know to be stored, by revision.
	acknowledged map[uint64]string
}

func objectName(epoch int64, i int) string { return fmt.Sprintf("epoch-%d-%d", epoch, i) }

func newWorkload(configs []*rest.Config) (*workload, error) {
	w := &workload{history: &history{began: time.Now()}, acknowledged: map[uint64]string{}}
	for _, config := range configs {
		config = rest.CopyConfig(config)
		config.QPS = -1
		client, err := typed.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		w.servers = append(w.servers, client.RESTClient())
	}
	return w, nil
}

// run is one client.
func (w *workload) run(ctx context.Context, client int, random *rand.Rand) {
	for ctx.Err() == nil {
		w.step(ctx, client, random)
		framework.Pause(ctx, time.Duration(random.Int64N(int64(thinkTime))))
	}
}

// step sends one request, or reads an object and updates it.
func (w *workload) step(ctx context.Context, client int, random *rand.Rand) {
	w.gate.RLock()
	defer w.gate.RUnlock()
	name := objectName(w.epoch.Load(), random.IntN(objectsPerEpoch))
	server := w.servers[random.IntN(len(w.servers))]
	switch n := random.IntN(10); {
	case n == 0:
		w.request(ctx, server, client, request{verb: verbDelete, name: name}, "")
	case n < 3:
		w.request(ctx, server, client, request{verb: verbCreate, name: name, value: w.value()}, "")
	default:
		topping := w.request(ctx, server, client, request{verb: verbGet, name: name}, "")
		if topping == nil || n < 6 {
			return
		}
		// Perhaps by another server than the one that was asked.
		server = w.servers[random.IntN(len(w.servers))]
		w.request(ctx, server, client, request{verb: verbUpdate, name: name, value: w.value(), before: valueOf(topping)}, topping.ResourceVersion)
	}
}

func (w *workload) value() int { return int(w.values.Add(1)) }

// request sends a request once and notes what came of it. It returns what the server sent.
func (w *workload) request(ctx context.Context, server rest.Interface, client int, req request, revision string) *restaurantv1.Topping {
	cost := resource.MustParse("1")
	sent := &restaurantv1.Topping{
		ObjectMeta: metav1.ObjectMeta{
			Name: req.name, ResourceVersion: revision, Annotations: map[string]string{valueAnnotation: strconv.Itoa(req.value)},
		},
		Spec: restaurantv1.ToppingSpec{Cost: &cost},
	}
	var call *rest.Request
	switch req.verb {
	case verbGet:
		call = server.Get().Name(req.name)
	case verbCreate:
		call = server.Post().Body(sent)
	case verbUpdate:
		call = server.Put().Name(req.name).Body(sent)
	case verbDelete:
		call = server.Delete().Name(req.name)
	}
	call = call.Resource("toppings").VersionedParams(&metav1.GetOptions{}, scheme.ParameterCodec).MaxRetries(0)

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	called := w.history.now()
	result := call.Do(ctx)
	var got restaurantv1.Topping
	err := result.Error()
	if err == nil && req.verb != verbDelete {
		err = result.Into(&got)
	}
	if apierrors.IsTooManyRequests(err) || utilnet.IsConnectionRefused(err) {
		framework.Pause(ctx, retryPause)
		return nil // Nothing was done.
	}
	res := response{answer: answerTo(req, err)}
	if res.answer == answerOK && req.verb == verbGet {
		res.value = valueOf(&got)
	}
	w.history.add(client, called, req, res)
	if res.answer == answerUnknown {
		framework.Pause(ctx, retryPause)
	}
	if res.answer != answerOK || req.verb == verbDelete {
		return nil
	}
	if req.verb != verbGet {
		w.acknowledge(&got)
	}
	return &got
}

func (w *workload) acknowledge(topping *restaurantv1.Topping) {
	revision, err := strconv.ParseUint(topping.ResourceVersion, 10, 64)
	if err != nil {
		return // The watchers find what has no revision.
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acknowledged[revision] = topping.Name
}

// answerTo says what an error means. Only that which is about the object itself is certain.
func answerTo(req request, err error) answer {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return answerOK
	case !errors.As(err, &status) || status.Status().Details == nil || status.Status().Details.Name != req.name:
		return answerUnknown
	case apierrors.IsNotFound(err):
		return answerNotFound
	case apierrors.IsAlreadyExists(err) && req.verb == verbCreate:
		return answerExists
	case apierrors.IsConflict(err) && req.verb == verbUpdate:
		return answerConflict
	}
	return answerUnknown
}
