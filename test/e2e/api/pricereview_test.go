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
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// review is a question about toppings.
func review(toppings ...restaurantv1.PizzaTopping) *restaurantv1.PriceReview {
	return &restaurantv1.PriceReview{Spec: restaurantv1.PriceReviewSpec{Toppings: toppings}}
}

// priced creates a topping of the test with a price, and returns its name.
func priced(t *testing.T, suffix, cost string) string {
	t.Helper()
	s := newSubject(t, "Topping", "v1")
	object := s.New(suffix)
	object.Object["spec"] = map[string]any{"cost": cost}
	created, err := s.Client().Create(t.Context(), object, metav1.CreateOptions{})
	require.NoError(t, err)
	return created.GetName()
}

func TestPriceReview(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	// Each is asked for at once, when no cache may know it yet.
	cheap, dear := priced(t, "cheap", "0.50"), priced(t, "dear", "12")
	for name, test := range map[string]struct {
		review *restaurantv1.PriceReview
		want   restaurantv1.PriceReviewStatus
	}{
		"one":      {review(restaurantv1.PizzaTopping{Name: cheap}), restaurantv1.PriceReviewStatus{Cost: ptr.To(resource.MustParse("500m"))}},
		"quantity": {review(restaurantv1.PizzaTopping{Name: cheap, Quantity: ptr.To[int32](3)}, restaurantv1.PizzaTopping{Name: dear}), restaurantv1.PriceReviewStatus{Cost: ptr.To(resource.MustParse("13500m"))}},
		"missing": {
			review(restaurantv1.PizzaTopping{Name: "no-such-b"}, restaurantv1.PizzaTopping{Name: dear}, restaurantv1.PizzaTopping{Name: "no-such-a"}),
			restaurantv1.PriceReviewStatus{MissingToppings: []string{"no-such-b", "no-such-a"}},
		},
		"an answer that is sent along": {
			&restaurantv1.PriceReview{
				Spec:   restaurantv1.PriceReviewSpec{Toppings: []restaurantv1.PizzaTopping{{Name: dear}}},
				Status: restaurantv1.PriceReviewStatus{Cost: ptr.To(resource.MustParse("1")), MissingToppings: []string{"x"}},
			},
			restaurantv1.PriceReviewStatus{Cost: ptr.To(resource.MustParse("12"))},
		},
		"a name": {
			&restaurantv1.PriceReview{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: restaurantv1.PriceReviewSpec{Toppings: []restaurantv1.PizzaTopping{{Name: dear}}}},
			restaurantv1.PriceReviewStatus{Cost: ptr.To(resource.MustParse("12"))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, dryRun := range [][]string{nil, {metav1.DryRunAll}} {
				answer, err := framework.Restaurant(cp).RestaurantV1().PriceReviews().Create(t.Context(), test.review, metav1.CreateOptions{DryRun: dryRun})
				require.NoError(t, err)
				require.Equal(t, test.want.MissingToppings, answer.Status.MissingToppings)
				if test.want.Cost == nil {
					require.Nil(t, answer.Status.Cost)
				} else {
					require.Equal(t, test.want.Cost.String(), answer.Status.Cost.String())
				}
				require.Equal(t, test.review.Name, answer.Name)
			}
		})
	}
	answer, err := etcdOf(t, cp.APIServer).Get(t.Context(), "/registry/restaurant.programming-kubernetes.info/pricereviews")
	require.NoError(t, err)
	require.Empty(t, answer.Kvs)
}

func TestBadPriceReviews(t *testing.T) {
	t.Parallel()
	var many []restaurantv1.PizzaTopping
	for i := range restaurant.MaxToppings + 1 {
		many = append(many, restaurantv1.PizzaTopping{Name: fmt.Sprintf("topping-%d", i)})
	}
	for name, test := range map[string]struct {
		review *restaurantv1.PriceReview
		cause  metav1.StatusCause
	}{
		"no toppings":    {review(), metav1.StatusCause{Type: metav1.CauseTypeFieldValueRequired, Message: "Required value", Field: "spec.toppings"}},
		"too many":       {review(many...), metav1.StatusCause{Type: metav1.CauseTypeTooMany, Message: "Too many: 65: must have at most 64 items", Field: "spec.toppings"}},
		"twice the same": {review(restaurantv1.PizzaTopping{Name: "a"}, restaurantv1.PizzaTopping{Name: "a"}), metav1.StatusCause{Type: metav1.CauseTypeFieldValueDuplicate, Message: `Duplicate value: {"name":"a","quantity":1}`, Field: "spec.toppings[1]"}},
		"no name":        {review(restaurantv1.PizzaTopping{}), metav1.StatusCause{Type: metav1.CauseTypeFieldValueRequired, Message: "Required value", Field: "spec.toppings[0].name"}},
		"a quantity of 11": {
			review(restaurantv1.PizzaTopping{Name: "a", Quantity: ptr.To[int32](11)}),
			metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Message: "Invalid value: 11: must be less than or equal to 10", Field: "spec.toppings[0].quantity"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := framework.Restaurant(cp).RestaurantV1().PriceReviews().Create(t.Context(), test.review, metav1.CreateOptions{})
			status := framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
			require.Equal(t, []metav1.StatusCause{test.cause}, status.Details.Causes)
			require.Equal(t, "PriceReview", status.Details.Kind)
			require.Empty(t, status.Details.Name)
		})
	}
}

// TestPriceReviewByKubectl shows the answer to who has only kubectl, and that nothing
// else can be done with questions.
func TestPriceReviewByKubectl(t *testing.T) {
	t.Parallel()
	dear := priced(t, "dear", "12")
	file := filepath.Join(t.TempDir(), "review.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`apiVersion: restaurant.programming-kubernetes.info/v1
kind: PriceReview
spec:
  toppings:
    - name: `+dear+`
      quantity: 2
    - name: no-such
`), 0o600))
	output, err := cp.Kubectl(t.Context(), "create", "--filename="+file, "--output=jsonpath={.status}").CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.JSONEq(t, `{"missingToppings":["no-such"]}`, string(output))

	output, err = cp.Kubectl(t.Context(), "create", "--filename=../../../artifacts/examples/reviews/pricereview.yaml", "--output=yaml").CombinedOutput()
	require.NoError(t, err, "%s", output)
	// The tests' toppings cost 1 each.
	require.Contains(t, string(output), "\nstatus:\n  cost: \"4\"\n")

	for _, verb := range []string{"get", "delete --all"} {
		output, err := cp.Kubectl(t.Context(), append(strings.Fields(verb), "pricereviews")...).CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(output), "the server does not allow this method on the requested resource")
	}
	output, err = cp.Kubectl(t.Context(), "get", "restaurant", "--all-namespaces").CombinedOutput()
	require.NoError(t, err, "%s", output)
}

// A question that is none is refused, and there is nothing that could be read, changed
// or deleted.
func TestRefusedPriceReviews(t *testing.T) {
	const (
		protobuf = "application/vnd.kubernetes.protobuf"
		reviews  = "{root}/pricereviews"
	)
	ask := func(body string) badRequest { return createAt(reviews, body) }
	spec := `"spec":{"toppings":[{"name":"tomato"}]}`
	requests := map[string]badRequest{
		"metadata/a name in upper case": ask(`{"metadata":{"name":"A"},`+spec+`}`).gets(422, `metadata.name: Invalid value: "A": …`),
		"metadata/a bad label":          ask(`{"metadata":{"labels":{"a b":"c"}},`+spec+`}`).gets(422, `metadata.labels: Invalid value: "a b": …`),
		"metadata/resourceVersion":      ask(`{"metadata":{"resourceVersion":"1"},`+spec+`}`).gets(422, `metadata.resourceVersion: Invalid value: "1": must not be set on objects to be created`),
		"spec/a string":                 ask(`{"spec":"tomato"}`).gets(400),
		"spec/names only":               ask(`{"spec":{"toppings":["tomato"]}}`).gets(400),
		"spec/a huge quantity":          ask(`{"spec":{"toppings":[{"name":"a","quantity":1e999999999}]}}`).gets(400),
		"spec/unknown field":            createAt(reviews+"?fieldValidation=Strict", `{"spec":{"count":1,"toppings":[]}}`).gets(400),
		"JSON/another kind":             ask(`{"apiVersion":"{version}","kind":"Pizza",` + spec + `}`).gets(400),
		"JSON/another version":          ask(`{"apiVersion":"{group}/v1beta1","kind":"PriceReview",` + spec + `}`).gets(400),
		"JSON/cut off":                  ask(`{"spec":`).gets(400),
		"JSON/nothing":                  ask("").gets(400),
		"YAML/cut off":                  ask("spec: {").as("application/yaml").gets(400),
		"protobuf/nothing":              ask("").as(protobuf).gets(400),
		"protobuf/an empty one":         ask(envelope("PriceReview", "")).as(protobuf).gets(422, "spec.toppings: Required value"),
		"protobuf/garbage":              ask(envelope("PriceReview", "\x93\x1e\xb0\x77")).as(protobuf).gets(400),
		"text":                          ask("{}").as("text/plain").gets(415),
		"Accept":                        ask(`{` + spec + `}`).accepting("text/html").gets(406),
		"dryRun":                        createAt(reviews+"?dryRun=yes", `{`+spec+`}`).gets(422, `dryRun: Unsupported value: ["yes"]: supported values: "All"`),
		"method/list":                   get(reviews).gets(405),
		"method/watch":                  get(reviews + "?watch=true").gets(405),
		"method/get":                    get(reviews + "/a").gets(404),
		"method/update":                 replaceAt(reviews+"/a", "{}").gets(404),
		"method/patch":                  patchAt(reviews+"/a", types.MergePatchType, "{}").gets(404),
		"method/delete":                 remove(reviews+"/a", "").gets(404),
		"method/delete all":             remove(reviews, "").gets(405),
		"path/in a namespace":           createAt("{root}/namespaces/{namespace}/pricereviews", `{`+spec+`}`).gets(404),
	}
	for name, request := range requests {
		requests[name] = request.except("v1beta1", "v1alpha1")
	}
	requireRefused(t, requests)
}

// A question is written down like all else that is asked for.
func TestPriceReviewIsAudited(t *testing.T) {
	t.Parallel()
	client, err := rest.HTTPClientFor(framework.Config(cp))
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, cp.APIServer.URL()+"/apis/restaurant.programming-kubernetes.info/v1/pricereviews",
		strings.NewReader(`{"spec":{"toppings":[{"name":"tomato"}]}}`))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusCreated, response.StatusCode)
	event := audited(t, response.Header.Get(auditv1.HeaderAuditID))
	require.Equal(t, "create", event.Verb)
	require.Equal(t, &auditv1.ObjectReference{APIGroup: restaurant.GroupName, APIVersion: "v1", Resource: "pricereviews"}, event.ObjectRef)
}
