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

// Package groups lists the API groups that the server serves.
package groups

import (
	"restaurant.programming-kubernetes.info/apiserver/pkg/groups/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// All returns the groups that cmd/apiserver serves. A new group is a line here.
func All() []registry.Group {
	return []registry.Group{
		restaurant.Group(),
	}
}
