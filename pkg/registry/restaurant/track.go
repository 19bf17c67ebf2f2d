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
	"time"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

func track() registry.Stream[*restaurant.Pizza, *restaurant.PizzaTrackOptions] {
	return registry.Stream[*restaurant.Pizza, *restaurant.PizzaTrackOptions]{
		NewOptions: func() *restaurant.PizzaTrackOptions {
			return &restaurant.PizzaTrackOptions{TimeoutSeconds: restaurant.DefaultTrackSeconds}
		},
		Follow: func(options *restaurant.PizzaTrackOptions) time.Duration {
			if !options.Follow {
				return 0
			}
			return time.Duration(options.TimeoutSeconds) * time.Second
		},
		Line: func(p *restaurant.Pizza) (line string, last bool) {
			line = fmt.Sprintf("%d of %d baked", p.Status.Replicas, p.Spec.Replicas)
			if p.Status.Replicas >= p.Spec.Replicas {
				return line + ": ready", true
			}
			return line, false
		},
	}
}
