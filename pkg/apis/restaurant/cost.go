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
	"k8s.io/apimachinery/pkg/api/resource"
)

// BoundCost returns a cost that is cheap to handle. Every conversion to an
// internal type calls it, as a cost comes from outside and is compared with the
// stored one first.
//
// Comparing "1e999999999" with anything takes minutes and gigabytes, as both
// numbers are written out first. Some larger numbers panic
// (kubernetes/kubernetes#142013 changes that in a later release of apimachinery).
// For such a number BoundCost returns one with the same sign that is just as
// invalid. It returns nil and any other cost unchanged.
// Upstream fault 8.
func BoundCost(cost *resource.Quantity) *resource.Quantity {
	const tooMuch = 1000 * MaxPizzaCost

	if cost == nil || cheapToHandle(*cost) {
		return cost
	}
	return resource.NewQuantity(int64(cost.Sign())*tooMuch, resource.DecimalSI)
}

func cheapToHandle(cost resource.Quantity) bool {
	const maxScale, maxBits = 18, 128

	decimal := cost.AsDec()
	scale := decimal.Scale()
	return -maxScale <= scale && scale <= maxScale && decimal.UnscaledBig().BitLen() <= maxBits
}
