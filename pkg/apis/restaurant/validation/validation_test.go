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

package validation_test

import (
	"fmt"
	"math"
	"math/rand"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/fuzzer"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/install"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/validation"
)

var versions = []string{"v1", "v1beta1", "v1alpha1"}

func TestValidatePizza(t *testing.T) {
	sixtyFive := numbered(65)
	longName := strings.Repeat("a", 254)
	condition := metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Baked", LastTransitionTime: metav1.Unix(1, 0),
	}

	for name, test := range map[string]struct {
		change func(*restaurant.Pizza)
		// want are the errors of every version. WantAlpha, unless nil, replaces them for
		// v1alpha1.
		want, wantAlpha []string
	}{
		"smallest": {
			change: func(p *restaurant.Pizza) {
				p.Spec.Replicas = 0
				p.Spec.Toppings = toppings(restaurant.PizzaTopping{Name: "tomato", Quantity: 1})
			},
		},
		"largest": {
			change: func(p *restaurant.Pizza) {
				p.Spec.Replicas = 1000
				p.Spec.Toppings = numbered(64)
				for i := range p.Spec.Toppings {
					p.Spec.Toppings[i].Quantity = 10
				}
				p.Status = restaurant.PizzaStatus{
					Replicas:           math.MaxInt32,
					Cost:               resource.NewQuantity(restaurant.MaxPizzaCost, resource.DecimalSI),
					ObservedGeneration: math.MaxInt64,
					Conditions:         []metav1.Condition{condition},
				}
			},
		},
		"negative replicas": {
			change: func(p *restaurant.Pizza) { p.Spec.Replicas = -1 },
			want:   []string{`spec.replicas: Invalid value: -1: must be greater than or equal to 0`},
		},
		"too many replicas": {
			change: func(p *restaurant.Pizza) { p.Spec.Replicas = 1001 },
			want:   []string{`spec.replicas: Invalid value: 1001: must be less than or equal to 1000`},
		},
		"no toppings": {
			change: func(p *restaurant.Pizza) { p.Spec.Toppings = nil },
			want:   []string{`spec.toppings: Required value`},
		},
		"an empty list of toppings": {
			change: func(p *restaurant.Pizza) { p.Spec.Toppings = toppings() },
			want:   []string{`spec.toppings: Required value`},
		},
		"too many toppings": {
			change:    func(p *restaurant.Pizza) { p.Spec.Toppings = sixtyFive },
			want:      []string{`spec.toppings: Too many: 65: must have at most 64 items`},
			wantAlpha: []string{`spec.toppings: Invalid value: must not have more than 64 different toppings`},
		},
		"a topping twice": {
			change: func(p *restaurant.Pizza) {
				p.Spec.Toppings = toppings(
					restaurant.PizzaTopping{Name: "tomato", Quantity: 1},
					restaurant.PizzaTopping{Name: "salami", Quantity: 1},
					restaurant.PizzaTopping{Name: "tomato", Quantity: 2})
			},
			want:      []string{`spec.toppings[2]: Duplicate value: {"name":"tomato","quantity":2}`},
			wantAlpha: []string{`spec.toppings: Invalid value: "tomato": must not be listed more than 10 times`},
		},
		"no name": {
			change:    func(p *restaurant.Pizza) { p.Spec.Toppings[1].Name = "" },
			want:      []string{`spec.toppings[1].name: Required value`},
			wantAlpha: []string{`spec.toppings: Invalid value: "": ` + notASubdomain},
		},
		"a name in capitals": {
			change: func(p *restaurant.Pizza) {
				p.Spec.Toppings[1].Name = "Tomato"
				p.Spec.Toppings[1].Quantity = 3
			},
			want:      []string{`spec.toppings[1].name: Invalid value: "Tomato": ` + notASubdomain},
			wantAlpha: []string{`spec.toppings: Invalid value: "Tomato": ` + notASubdomain},
		},
		"a name too long": {
			change:    func(p *restaurant.Pizza) { p.Spec.Toppings[0].Name = longName },
			want:      []string{`spec.toppings[0].name: Invalid value: "` + longName + `": must be no more than 253 bytes`},
			wantAlpha: []string{`spec.toppings: Invalid value: "` + longName + `": must be no more than 253 bytes`},
		},
		"quantity zero": {
			change:    func(p *restaurant.Pizza) { p.Spec.Toppings[0].Quantity = 0 },
			want:      []string{`spec.toppings[0].quantity: Invalid value: 0: must be greater than or equal to 1`},
			wantAlpha: []string{`spec.toppings: Invalid value: "mozzarella": must not be listed more than 10 times`},
		},
		"quantity too high": {
			change:    func(p *restaurant.Pizza) { p.Spec.Toppings[0].Quantity = 11 },
			want:      []string{`spec.toppings[0].quantity: Invalid value: 11: must be less than or equal to 10`},
			wantAlpha: []string{`spec.toppings: Invalid value: "mozzarella": must not be listed more than 10 times`},
		},
		"the highest quantity there is": {
			change:    func(p *restaurant.Pizza) { p.Spec.Toppings[0].Quantity = math.MaxInt32 },
			want:      []string{`spec.toppings[0].quantity: Invalid value: 2147483647: must be less than or equal to 10`},
			wantAlpha: []string{`spec.toppings: Invalid value: "mozzarella": must not be listed more than 10 times`},
		},
		"several faults at once": {
			change: func(p *restaurant.Pizza) {
				p.Spec.Replicas = -5
				p.Spec.Toppings[0].Quantity = -1
				p.Spec.Toppings[1].Name = "!"
			},
			want: []string{
				`spec.replicas: Invalid value: -5: must be greater than or equal to 0`,
				`spec.toppings[0].quantity: Invalid value: -1: must be greater than or equal to 1`,
				`spec.toppings[1].name: Invalid value: "!": ` + notASubdomain,
			},
			wantAlpha: []string{
				`spec.replicas: Invalid value: -5: must be greater than or equal to 0`,
				`spec.toppings: Invalid value: "mozzarella": must not be listed more than 10 times`,
				`spec.toppings: Invalid value: "!": ` + notASubdomain,
			},
		},
		"negative numbers in the status": {
			change: func(p *restaurant.Pizza) {
				p.Status.Replicas = -1
				p.Status.ObservedGeneration = -2
				p.Status.Cost = resource.NewMilliQuantity(-3, resource.DecimalSI)
			},
			want: []string{
				`status.replicas: Invalid value: -1: must be greater than or equal to 0`,
				`status.observedGeneration: Invalid value: -2: must be greater than or equal to 0`,
				`status.cost: Invalid value: "-3m": must be greater than or equal to 0`,
			},
		},
		"a cost that no pizza can have": {
			change: func(p *restaurant.Pizza) {
				p.Status.Cost = resource.NewQuantity(restaurant.MaxPizzaCost+1, resource.DecimalSI)
			},
			want: []string{`status.cost: Invalid value: "640000000001": must be less than or equal to 640000000000`},
		},
		"a condition twice": {
			change: func(p *restaurant.Pizza) { p.Status.Conditions = []metav1.Condition{condition, condition} },
			want:   []string{`status.conditions[1]: Duplicate value: "Ready"`},
		},
		"an empty condition": {
			change: func(p *restaurant.Pizza) { p.Status.Conditions = make([]metav1.Condition, 1) },
			want: []string{
				`status.conditions[0].type: Required value: is required`,
				`status.conditions[0].status: Required value`,
				`status.conditions[0].lastTransitionTime: Required value`,
				`status.conditions[0].reason: Required value`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pizza := validPizza()
			test.change(pizza)
			for _, err := range validation.ValidatePizza(pizza) {
				assert.False(t, err.CoveredByDeclarative, "no tag covers %q, and the server would log that one should", err.Field)
			}
			for _, version := range versions {
				want := test.want
				if version == "v1alpha1" && test.wantAlpha != nil {
					want = test.wantAlpha
				}
				assert.ElementsMatch(t, want, messages(validatePizza(version, "", pizza, nil)), "create in %s", version)

				// A change to what is invalid is refused no matter what was valid before.
				for _, subresource := range []string{"", "status", "scale"} {
					assert.ElementsMatch(t, want, messages(validatePizza(version, subresource, pizza, validPizza())), "update of %q in %s", subresource, version)
				}
			}
		})
	}
}

// An object that was stored under looser rules can still be changed elsewhere.
func TestUnchangedFaultsDoNotBlockUpdates(t *testing.T) {
	old := validPizza()
	old.Spec.Replicas = 5000
	old.Spec.Toppings[0].Quantity = 20

	for _, version := range versions {
		pizza := old.DeepCopy()
		pizza.Labels = map[string]string{"season": "winter"}
		assert.Empty(t, validatePizza(version, "", pizza, old), version)

		pizza.Spec.Replicas = 5001
		assert.Equal(t, []string{`spec.replicas: Invalid value: 5001: must be less than or equal to 1000`},
			messages(validatePizza(version, "", pizza, old)), version)
	}
}

func TestValidateTopping(t *testing.T) {
	for name, test := range map[string]struct {
		cost *resource.Quantity
		want []string
	}{
		"free":           {cost: new(resource.MustParse("0"))},
		"a billionth":    {cost: new(resource.MustParse("1n"))},
		"most expensive": {cost: new(resource.MustParse("1G"))},
		"missing": {
			want: []string{`spec.cost: Required value`},
		},
		"negative": {
			cost: new(resource.MustParse("-1n")),
			want: []string{`spec.cost: Invalid value: "-1n": must be greater than or equal to 0`},
		},
		"too expensive": {
			cost: new(resource.MustParse("1000000000.000000001")),
			want: []string{`spec.cost: Invalid value: "1000000000000000001n": must be less than or equal to 1000000000`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			topping := &restaurant.Topping{Spec: restaurant.ToppingSpec{Cost: test.cost}}
			valid := &restaurant.Topping{Spec: restaurant.ToppingSpec{Cost: new(resource.MustParse("1.50"))}}
			for _, version := range versions {
				assert.ElementsMatch(t, test.want, messages(validateTopping(version, topping, nil)), "create in %s", version)
				assert.ElementsMatch(t, test.want, messages(validateTopping(version, topping, valid)), "update in %s", version)
			}
		})
	}
}

// Objects of the fuzzer are valid in every version.
func TestFuzzedObjectsAreValid(t *testing.T) {
	seed := time.Now().UnixNano()
	filler := fuzzer.New(rand.NewSource(seed), serializer.NewCodecFactory(scheme))
	for range 1000 {
		pizza, topping := &restaurant.Pizza{}, &restaurant.Topping{}
		filler.Fill(pizza)
		filler.Fill(topping)
		for _, version := range versions {
			require.Empty(t, validatePizza(version, "", pizza, nil), "seed %d, %s", seed, version)
			require.Empty(t, validateTopping(version, topping, nil), "seed %d, %s", seed, version)
		}
	}
}

// v1alpha1 cannot express every invalid list of toppings. All versions are about the same
// stored object, so that a pizza must be valid in all of them or in none.
func TestVersionsAgreeOnWhatIsValid(t *testing.T) {
	seed := time.Now().UnixNano()
	random := rand.New(rand.NewSource(seed))
	names := []string{"", "UPPER", "mozzarella", "salami", "tomato", "olive", "basil", "egg", "ham"}
	quantities := []int32{math.MinInt32, -1, 0, 11, math.MaxInt32}

	valid, invalid := 0, 0
	for range 20_000 {
		pizza := validPizza()
		pizza.Spec.Toppings = numbered(random.Intn(10) * random.Intn(9))
		for range 1 + random.Intn(3) {
			topping := restaurant.PizzaTopping{Name: names[random.Intn(len(names))], Quantity: 1 + random.Int31n(10)}
			if random.Intn(5) == 0 {
				topping.Quantity = quantities[random.Intn(len(quantities))]
			}
			pizza.Spec.Toppings = append(pizza.Spec.Toppings, topping)
		}
		random.Shuffle(len(pizza.Spec.Toppings), func(i, j int) {
			pizza.Spec.Toppings[i], pizza.Spec.Toppings[j] = pizza.Spec.Toppings[j], pizza.Spec.Toppings[i]
		})

		alpha, stable := validatePizza("v1alpha1", "", pizza, nil), validatePizza("v1", "", pizza, nil)
		require.Equal(t, len(stable) == 0, len(alpha) == 0,
			"seed %d: toppings %v\nv1: %v\nv1alpha1: %v", seed, pizza.Spec.Toppings, stable, alpha)
		if len(stable) == 0 {
			valid++
		} else {
			invalid++
		}
	}
	assert.Greater(t, valid, 1000, "too few valid pizzas for the test to mean something")
	assert.Greater(t, invalid, 1000, "too few invalid pizzas for the test to mean something")
}

const notASubdomain = `a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', ` +
	`and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is ` +
	`'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`

var scheme = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return scheme
}()

func validPizza() *restaurant.Pizza {
	return &restaurant.Pizza{
		ObjectMeta: metav1.ObjectMeta{Name: "margherita", Namespace: "default"},
		Spec: restaurant.PizzaSpec{
			Replicas: 1,
			Toppings: toppings(
				restaurant.PizzaTopping{Name: "mozzarella", Quantity: 2},
				restaurant.PizzaTopping{Name: "tomato", Quantity: 1}),
		},
	}
}

func toppings(toppings ...restaurant.PizzaTopping) []restaurant.PizzaTopping {
	return toppings
}

func numbered(count int) []restaurant.PizzaTopping {
	result := make([]restaurant.PizzaTopping, count)
	for i := range result {
		result[i] = restaurant.PizzaTopping{Name: fmt.Sprintf("topping-%d", i), Quantity: 1}
	}
	return result
}

func validatePizza(version, subresource string, pizza, old *restaurant.Pizza) field.ErrorList {
	errs := validation.ValidatePizza(pizza)
	if old == nil {
		return validateDeclaratively(version, subresource, pizza, nil, errs)
	}
	return validateDeclaratively(version, subresource, pizza, old, errs)
}

func validateTopping(version string, topping, old *restaurant.Topping) field.ErrorList {
	errs := validation.ValidateTopping(topping)
	if old == nil {
		return validateDeclaratively(version, "", topping, nil, errs)
	}
	return validateDeclaratively(version, "", topping, old, errs)
}

// validateDeclaratively validates like the generic registry after the hand-written
// validation.
func validateDeclaratively(version, subresource string, obj, old runtime.Object, errs field.ErrorList) field.ErrorList {
	ctx := genericapirequest.WithRequestInfo(genericapirequest.NewContext(), &genericapirequest.RequestInfo{
		APIGroup: restaurant.GroupName, APIVersion: version, Subresource: subresource,
	})
	op := operation.Update
	if old == nil {
		op = operation.Create
	}
	return rest.DeclarativeValidation{Scheme: scheme}.
		ValidateDeclaratively(ctx, obj, old, errs, op, rest.DeclarativeValidationConfig{})
}

func messages(errs field.ErrorList) []string {
	var result []string
	for _, err := range errs {
		result = append(result, err.Error())
	}
	return result
}
