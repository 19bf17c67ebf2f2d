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

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
)

// admissionRequest is a request about a pizza with the objects as they are sent.
func admissionRequest(operation admissionv1.Operation, version, object, oldObject string) *admissionv1.AdmissionRequest {
	request := &admissionv1.AdmissionRequest{
		UID:       "u-1",
		Kind:      metav1.GroupVersionKind{Group: group, Version: version, Kind: "Pizza"},
		Resource:  metav1.GroupVersionResource{Group: group, Version: version, Resource: "pizzas"},
		Name:      "a",
		Operation: operation,
	}
	if object != "" {
		request.Object.Raw = []byte(object)
	}
	if oldObject != "" {
		request.OldObject.Raw = []byte(oldObject)
	}
	return request
}

// ask sends a request in a review of v1.
func ask(t *testing.T, hooks Webhooks, path string, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	review := admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request}
	body, err := json.Marshal(review)
	require.NoError(t, err)
	code, answer := post(t, server(t, hooks).URL+path, string(body))
	require.Equal(t, 200, code, answer)
	var answered admissionv1.AdmissionReview
	require.NoError(t, json.Unmarshal([]byte(answer), &answered))
	require.Equal(t, review.TypeMeta, answered.TypeMeta)
	require.Nil(t, answered.Request)
	return answered.Response
}

// refusal is the answer with a Status.
func refusal(code int32, reason metav1.StatusReason, message string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: "u-1", Result: &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

func TestAdmit(t *testing.T) {
	hooks := inertWebhooks()
	hooks.Mutate = func(_ context.Context, request *Request) error {
		pizza := request.New.(*restaurant.Pizza)
		switch len(pizza.Spec.Toppings) {
		case 0:
			pizza.Spec.Toppings = []restaurant.PizzaTopping{{Name: "tomato", Quantity: 2}}
		case 2:
			return apierrors.NewForbidden(restaurant.Resource("pizzas"), "a", errors.New("two are one too many"))
		case 3:
			return errors.New("out of order")
		}
		return nil
	}
	tomatoes := `[{"op":"add","path":"/spec/toppings","value":[{"name":"tomato","quantity":2}]}]`
	for name, test := range map[string]struct {
		operation       admissionv1.Operation
		version, object string
		wantPatch       string
		want            *admissionv1.AdmissionResponse
	}{
		"v1":                 {admissionv1.Create, "v1", object("v1", "Pizza", named+`,"spec":{"replicas":2}`), tomatoes, nil},
		"v1alpha1":           {admissionv1.Create, "v1alpha1", object("v1alpha1", "Pizza", named+`,"spec":{"toppings":null}`), `[{"op":"add","path":"/spec/toppings","value":["tomato","tomato"]}]`, nil},
		"without a spec":     {admissionv1.Update, "v1alpha1", object("v1alpha1", "Pizza", named), `[{"op":"add","path":"/spec","value":{"replicas":1,"toppings":["tomato","tomato"]}}]`, nil},
		"with what is there": {admissionv1.Update, "v1", object("v1", "Pizza", named+`,"spec":{"toppings":[{"name":"salami"}]},"future":1`), ``, nil},
		"without an object":  {admissionv1.Delete, "v1", ``, ``, nil},
		"options to connect": {admissionv1.Connect, "v1", `{"apiVersion":"` + group + `/v1","kind":"GetOptions"}`, ``, nil},
		"refused with a Status": {admissionv1.Create, "v1alpha1", object("v1alpha1", "Pizza", `"spec":{"toppings":["a","b"]}`), ``, &admissionv1.AdmissionResponse{UID: "u-1", Result: &metav1.Status{
			Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden, Message: `pizzas.` + group + ` "a" is forbidden: two are one too many`,
			Details: &metav1.StatusDetails{Group: group, Kind: "pizzas", Name: "a"},
		}}},
		"refused with an error": {admissionv1.Create, "v1alpha1", object("v1alpha1", "Pizza", `"spec":{"toppings":["a","b","c"]}`), ``, &admissionv1.AdmissionResponse{UID: "u-1", Result: &metav1.Status{
			Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonInternalError, Message: `Internal error occurred: out of order`,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: "out of order"}}},
		}}},
		"a version of the future": {admissionv1.Create, "v2", object("v2", "Pizza", named), ``, refusal(400, metav1.StatusReasonBadRequest, `the object can't be read: the version "`+group+`/v2" is not known`)},
		"a cost that takes minutes": {admissionv1.Create, "v1", object("v1", "Pizza", `"status":{"cost":"1e-999999999"}`), ``,
			refusal(400, metav1.StatusReasonBadRequest, `the object can't be read: a number has more than 256 characters, or an exponent below -999 or of more than 9 digits, or of more than 3 after 18 digits: 1e-999999999`)},
	} {
		t.Run(name, func(t *testing.T) {
			if test.want == nil {
				test.want = &admissionv1.AdmissionResponse{UID: "u-1", Allowed: true}
				if test.wantPatch != "" {
					test.want.Patch, test.want.PatchType = []byte(test.wantPatch), new(admissionv1.PatchTypeJSONPatch)
				}
			}
			assert.Equal(t, test.want, ask(t, hooks, "/admit", admissionRequest(test.operation, test.version, test.object, "")))
		})
	}
}

// The objects of a request arrive in the internal version, with defaults.
func TestRequest(t *testing.T) {
	var got *Request
	hooks := inertWebhooks()
	hooks.Validate = func(_ context.Context, request *Request) error {
		got = request
		return nil
	}
	before, after := object("v1alpha1", "Pizza", `"spec":{"toppings":["a"]}`), object("v1", "Pizza", `"spec":{"toppings":[{"name":"a","quantity":2}],"replicas":5}`)
	ask(t, hooks, "/validate", admissionRequest(admissionv1.Update, "v1", after, before))
	require.Equal(t, admissionv1.Update, got.Operation)
	require.Equal(t, restaurant.PizzaSpec{Toppings: []restaurant.PizzaTopping{{Name: "a", Quantity: 2}}, Replicas: 5}, got.New.(*restaurant.Pizza).Spec)
	require.Equal(t, restaurant.PizzaSpec{Toppings: []restaurant.PizzaTopping{{Name: "a", Quantity: 1}}, Replicas: 1}, got.Old.(*restaurant.Pizza).Spec)

	ask(t, hooks, "/validate", admissionRequest(admissionv1.Delete, "v1", "", before))
	require.Nil(t, got.New)
	require.NotNil(t, got.Old)

	got = nil
	scale := admissionRequest(admissionv1.Update, "v1", `{"apiVersion":"autoscaling/v1","kind":"Scale"}`, `{}`)
	scale.Kind = metav1.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
	require.True(t, ask(t, hooks, "/validate", scale).Allowed, "Of another group nothing is known, so there is nothing to say.")
	require.Nil(t, got)
}

func TestValidate(t *testing.T) {
	hooks := inertWebhooks()
	hooks.ValidateObject = func(obj runtime.Object) field.ErrorList {
		if obj.(*restaurant.Pizza).Spec.Replicas == 7 {
			return field.ErrorList{field.Forbidden(field.NewPath("spec", "replicas"), "not seven")}
		}
		return nil
	}
	hooks.Validate = func(_ context.Context, request *Request) error {
		if request.Operation == admissionv1.Delete {
			return apierrors.NewForbidden(restaurant.Resource("pizzas"), request.Name, errors.New("it is eaten"))
		}
		return nil
	}
	invalid := func(message string, causes ...metav1.StatusCause) *admissionv1.AdmissionResponse {
		response := refusal(422, metav1.StatusReasonInvalid, `Pizza.`+group+` "a" is invalid: `+message)
		response.Result.Details = &metav1.StatusDetails{Group: group, Kind: "Pizza", Name: "a", Causes: causes}
		return response
	}
	cause := func(of metav1.CauseType, path, message string) metav1.StatusCause {
		return metav1.StatusCause{Type: of, Field: path, Message: message}
	}
	valid := object("v1", "Pizza", named+`,"spec":{"toppings":[{"name":"a"}]}`)
	tooMany := object("v1", "Pizza", named+`,"spec":{"toppings":[{"name":"a"}],"replicas":1001}`)
	for name, test := range map[string]struct {
		request *admissionv1.AdmissionRequest
		want    *admissionv1.AdmissionResponse
	}{
		"valid":                           {admissionRequest(admissionv1.Create, "v1", valid, ""), &admissionv1.AdmissionResponse{UID: "u-1", Allowed: true}},
		"an update of something else":     {admissionRequest(admissionv1.Update, "v1", tooMany, tooMany), &admissionv1.AdmissionResponse{UID: "u-1", Allowed: true}},
		"an update that makes it invalid": {admissionRequest(admissionv1.Update, "v1", tooMany, valid), invalid("spec.replicas: Invalid value: 1001: must be less than or equal to 1000", cause(metav1.CauseTypeFieldValueInvalid, "spec.replicas", "Invalid value: 1001: must be less than or equal to 1000"))},
		"invalid in two ways": {
			admissionRequest(admissionv1.Create, "v1beta1", object("v1beta1", "Pizza", named+`,"spec":{"replicas":7,"toppings":[{"name":"a","quantity":11}]}`), ""),
			invalid(`[spec.replicas: Forbidden: not seven, spec.toppings[0].quantity: Invalid value: 11: must be less than or equal to 10]`,
				cause("FieldValueForbidden", "spec.replicas", "Forbidden: not seven"),
				cause(metav1.CauseTypeFieldValueInvalid, "spec.toppings[0].quantity", "Invalid value: 11: must be less than or equal to 10")),
		},
		"the path is the version's": {
			admissionRequest(admissionv1.Create, "v1alpha1", object("v1alpha1", "Pizza", named+`,"spec":{"toppings":["a","a","a","a","a","a","a","a","a","a","a"]}`), ""),
			invalid(`spec.toppings: Invalid value: "a": must not be listed more than 10 times`, cause(metav1.CauseTypeFieldValueInvalid, "spec.toppings", `Invalid value: "a": must not be listed more than 10 times`)),
		},
		"not to be deleted": {admissionRequest(admissionv1.Delete, "v1", "", valid), &admissionv1.AdmissionResponse{UID: "u-1", Result: &metav1.Status{
			Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden, Message: `pizzas.` + group + ` "a" is forbidden: it is eaten`,
			Details: &metav1.StatusDetails{Group: group, Kind: "pizzas", Name: "a"},
		}}},
		"an old object that can't be read": {admissionRequest(admissionv1.Delete, "v1", "", `{"kind":"Pizza"}`),
			refusal(400, metav1.StatusReasonBadRequest, `the oldObject can't be read: the version "" is not known`)},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, ask(t, hooks, "/validate", test.request))
		})
	}
}

// Both versions of the review have the same fields, so that one type reads both.
func TestAdmissionReviewV1beta1(t *testing.T) {
	hooks := inertWebhooks()
	hooks.Mutate = func(_ context.Context, request *Request) error {
		require.Equal(t, schema.GroupVersionResource{Group: group, Version: "v1", Resource: "pizzas"}, schema.GroupVersionResource(*request.RequestResource))
		require.True(t, *request.DryRun)
		request.New.(*restaurant.Pizza).Spec.Replicas++
		return nil
	}
	request := &admissionv1beta1.AdmissionRequest{
		UID:             "u-1",
		Kind:            metav1.GroupVersionKind{Group: group, Version: "v1", Kind: "Pizza"},
		RequestResource: &metav1.GroupVersionResource{Group: group, Version: "v1", Resource: "pizzas"},
		Operation:       admissionv1beta1.Create,
		DryRun:          new(true),
		Object:          runtime.RawExtension{Raw: []byte(object("v1", "Pizza", `"spec":{"replicas":5}`))},
	}
	typeMeta := metav1.TypeMeta{APIVersion: "admission.k8s.io/v1beta1", Kind: "AdmissionReview"}
	body, err := json.Marshal(&admissionv1beta1.AdmissionReview{TypeMeta: typeMeta, Request: request})
	require.NoError(t, err)
	code, answer := post(t, server(t, hooks).URL+"/admit", string(body))
	require.Equal(t, 200, code, answer)
	var got admissionv1beta1.AdmissionReview
	require.NoError(t, json.Unmarshal([]byte(answer), &got))
	require.Equal(t, admissionv1beta1.AdmissionReview{TypeMeta: typeMeta, Response: &admissionv1beta1.AdmissionResponse{
		UID: "u-1", Allowed: true, PatchType: new(admissionv1beta1.PatchTypeJSONPatch), Patch: []byte(`[{"op":"add","path":"/spec/replicas","value":6}]`),
	}}, got)
}

func TestPatch(t *testing.T) {
	for name, test := range map[string]struct {
		sent, before, after string
		want                string
	}{
		"nothing":                       {`{"a":1}`, `{"a":1}`, `{"a":1}`, ``},
		"what got a default":            {`{}`, `{"a":1}`, `{"a":1}`, ``},
		"a field that is missing":       {`{}`, `{}`, `{"a":1}`, `[{"op":"add","path":"/a","value":1}]`},
		"a field further in":            {`{"a":{"b":1}}`, `{"a":{"b":1}}`, `{"a":{"b":1,"c":2}}`, `[{"op":"add","path":"/a/c","value":2}]`},
		"in what is missing":            {`{}`, `{"a":{"b":1}}`, `{"a":{"b":1,"c":2}}`, `[{"op":"add","path":"/a","value":{"b":1,"c":2}}]`},
		"a list":                        {`{"a":[]}`, `{"a":[]}`, `{"a":["x","y"]}`, `[{"op":"add","path":"/a","value":["x","y"]}]`},
		"a field that is removed":       {`{"a":{"b":1}}`, `{"a":{"b":1}}`, `{"a":{}}`, `[{"op":"remove","path":"/a/b"}]`},
		"a key with a slash":            {`{"a":{"x/y~z":1}}`, `{"a":{"x/y~z":1}}`, `{"a":{"x/y~z":2}}`, `[{"op":"add","path":"/a/x~1y~0z","value":2}]`},
		"what is unknown":               {`{"a":{"b":1,"new":1}}`, `{"a":{"b":1}}`, `{"a":{"b":2}}`, `[{"op":"add","path":"/a/b","value":2}]`},
		"two fields":                    {`{"b":1}`, `{"b":1}`, `{"a":1,"b":2}`, `[{"op":"add","path":"/a","value":1},{"op":"add","path":"/b","value":2}]`},
		"what has been written another": {`{"a":"1.50","b":1}`, `{"a":"1500m","b":1}`, `{"a":"1500m","b":2}`, `[{"op":"add","path":"/b","value":2}]`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := patch(parse(t, test.sent), parse(t, test.before), parse(t, test.after))
			require.NoError(t, err)
			assert.Equal(t, test.want, string(got))
		})
	}
}

func parse(t *testing.T, text string) (content map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &content))
	return content
}
