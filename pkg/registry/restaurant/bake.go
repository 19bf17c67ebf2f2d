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

package restaurant

import (
	"fmt"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

func bake() registry.Action[*restaurant.Pizza, *restaurant.Bake] {
	return registry.Action[*restaurant.Pizza, *restaurant.Bake]{
		New: func() *restaurant.Bake { return &restaurant.Bake{} },
		Do: func(p *restaurant.Pizza, bake *restaurant.Bake) error {
			missing := p.Spec.Replicas - p.Status.Replicas
			if missing <= 0 {
				return fmt.Errorf("%d of %d pizzas are baked already", p.Status.Replicas, p.Spec.Replicas)
			}
			bake.Status.Baked = min(bake.Spec.Count, missing)
			p.Status.Replicas += bake.Status.Baked
			return nil
		},
	}
}
