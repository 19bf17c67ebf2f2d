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
	"context"
	"reflect"
	"testing"

	componentbaseconfig "k8s.io/component-base/config"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

type controllerFunc func(context.Context)

func (f controllerFunc) Run(ctx context.Context) { f(ctx) }

type noInformers struct{ registry.Informers }

func (noInformers) WaitForCacheSync(<-chan struct{}) map[reflect.Type]bool { return nil }

// runAlways returns controllers that run without an election.
func runAlways(t *testing.T, run func(context.Context)) *controllers {
	t.Helper()
	c, err := newControllers(map[string]registry.Runtime{"": {Informers: noInformers{}, Controllers: []registry.Controller{controllerFunc(run)}}},
		componentbaseconfig.LeaderElectionConfiguration{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A replica that loses its lease and gets it back starts its controllers when they have stopped.
func TestLeadsAgain(t *testing.T) {
	started, stop := make(chan struct{}), make(chan struct{})
	c := runAlways(t, func(ctx context.Context) {
		started <- struct{}{}
		<-ctx.Done()
		<-stop
	})
	first, lose := context.WithCancel(t.Context())
	go c.run(first)
	<-started
	lose()
	second, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.run(second)
	}()
	select {
	case <-started:
		t.Fatal("the controllers run twice")
	case stop <- struct{}{}:
	}
	<-started
	end()
	stop <- struct{}{}
	<-ended
}

// A replica that loses its lease at once calls lead when nothing waits for it any more.
func TestLeadsTooLate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	runAlways(t, func(context.Context) { t.Error("the controller runs") }).lead(ctx)
}
