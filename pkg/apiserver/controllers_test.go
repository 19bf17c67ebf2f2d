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

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

type unexpectedController struct{ t *testing.T }

func (c unexpectedController) Run(context.Context) { c.t.Error("the controller runs") }

type noInformers struct{ registry.Informers }

func (noInformers) WaitForCacheSync(<-chan struct{}) map[reflect.Type]bool { return nil }

// A replica that loses its lease at once calls lead when nothing waits for it any more.
func TestLeadsTooLate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := &controllers{runtimes: map[string]registry.Runtime{"": {Informers: noInformers{}, Controllers: []registry.Controller{unexpectedController{t}}}}}
	c.lead(ctx)
}
