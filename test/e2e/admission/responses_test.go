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

package admission

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

var (
	uidPattern    = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	schemePattern = regexp.MustCompile(`in scheme \\?"[^"]*"`)
	timePattern   = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
)

// withoutAccidents replaces what differs from one request to the next, and from one
// version of the library to the next.
func withoutAccidents(text string) string {
	text = schemePattern.ReplaceAllString(uidPattern.ReplaceAllString(text, "UID"), "in scheme SCHEME")
	return timePattern.ReplaceAllString(text, "TIME")
}

// TestMalformedResponses shows what a webhook's answer must not be. The error is one of the
// webhook that its failure policy can ignore, or one of the patch, which can't be ignored.
func TestMalformedResponses(t *testing.T) {
	framework.Long(t, "dozens of webhooks")
	s := newScopeWithReferences(t)
	const (
		invalid     = "received invalid webhook response: "
		failed      = "failed to call webhook: "
		undecodable = "received undecodable patch in webhook response: "
		noPatch     = invalid + "validating webhook may not return response.patch"
		noPatchType = invalid + "validating webhook may not return response.patchType"
		patchOnly   = `"allowed":true,"patch":"W10="` // An empty list.
	)
	cases := map[string]struct {
		answer string
		// want is the error about the webhook, and validating that about a validating
		// one, if it is not the same.
		want, validating string
		// ofPatch is set for an error in what the patch does.
		ofPatch bool
	}{
		"nothing":          {answer: ``, want: failed + "0-length response with status code: 200 and content type: application/json"},
		"text":             {answer: `pizza`, want: failed + "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }"},
		"half a response":  {answer: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"UID","all`, want: failed + "couldn't get version/kind; json parse error: unexpected end of JSON input"},
		"an empty object":  {answer: `{}`, want: invalid + "webhook response was absent"},
		"no response":      {answer: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, want: invalid + "webhook response was absent"},
		"no api version":   {answer: `{"kind":"AdmissionReview","response":{"uid":"UID","allowed":true}}`, want: invalid + "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=AdmissionReview"},
		"no kind":          {answer: `{"apiVersion":"admission.k8s.io/v1","response":{"uid":"UID","allowed":true}}`, want: invalid + "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got admission.k8s.io/v1, Kind="},
		"another kind":     {answer: `{"apiVersion":"v1","kind":"Pod"}`, want: failed + `no kind "Pod" is registered for version "v1" in scheme SCHEME`},
		"another version":  {answer: `{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","response":{"uid":"UID","allowed":true}}`, want: failed + "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion"},
		"no known version": {answer: `{"apiVersion":"admission.k8s.io/v2","kind":"AdmissionReview","response":{"uid":"UID","allowed":true}}`, want: failed + `no kind "AdmissionReview" is registered for version "admission.k8s.io/v2" in scheme SCHEME`},
		"no uid":           {answer: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"allowed":true}}`, want: invalid + `expected response.uid="UID", got ""`},
		"another uid":      {answer: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"other","allowed":true}}`, want: invalid + `expected response.uid="UID", got "other"`},
		"another type":     {answer: review(`"allowed":"yes"`), want: failed + "json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool"},

		"a patch without a type":    {answer: review(patchOnly), want: invalid + "webhook returned response.patch but not response.patchType", validating: noPatch},
		"a type without a patch":    {answer: review(`"allowed":true,"patchType":"JSONPatch"`), want: invalid + "webhook returned response.patchType but not response.patch", validating: noPatchType},
		"an empty patch type":       {answer: review(patchOnly + `,"patchType":""`), want: invalid + `webhook returned invalid response.patchType of ""`, validating: noPatch},
		"a patch not in base64":     {answer: review(`"allowed":true,"patchType":"JSONPatch","patch":"[]"`), want: failed + "illegal base64 data at input byte 0"},
		"a patch that is text":      {answer: patched(`pizza`), want: undecodable + "invalid character 'p' looking for beginning of value", validating: noPatch},
		"a patch that is an object": {answer: patched(`{}`), want: undecodable + "json: cannot unmarshal object into Go value of type jsonpatch.Patch", validating: noPatch},
		"another patch type": {
			answer: strings.Replace(patched(`[{"op":"remove","path":"/spec/replicas"}]`), "JSONPatch", "MergePatch", 1),
			want:   `unsupported patch type "MergePatch"`, validating: noPatch,
		},

		"an unknown operation":      {answer: patched(`[{"op":"bake","path":"/spec/replicas"}]`), want: "Unexpected kind: bake", validating: noPatch, ofPatch: true},
		"a patch of what is absent": {answer: patched(`[{"op":"remove","path":"/spec/crust"}]`), want: "error in remove for path: '/spec/crust': Unable to remove nonexistent key: crust: missing value", validating: noPatch, ofPatch: true},
		"a patch whose test fails":  {answer: patched(`[{"op":"test","path":"/spec/replicas","value":2}]`), want: "testing value /spec/replicas failed: test failed", validating: noPatch, ofPatch: true},
	}
	texts, clients := map[string]string{}, map[string]admissionregistrationv1.WebhookClientConfig{}
	server := s.respond(func(name string, _ *admissionv1.AdmissionRequest) string { return texts[name] })
	for name, test := range cases {
		texts[slug(name)] = test.answer
		clients[name] = at(server, slug(name))
	}
	s.registerCases("CREATE", clients)
	for name, test := range cases {
		for _, v := range variants {
			t.Run(name+"/"+v.sort+"/"+string(v.failurePolicy), func(t *testing.T) {
				want, ofPatch := test.want, test.ofPatch
				if v.sort == "validating" && test.validating != "" {
					want, ofPatch = test.validating, false
				}
				err := s.createForCase(t, v.of(name))
				if v.failurePolicy == admissionregistrationv1.Ignore && !ofPatch {
					require.NoError(t, err)
					return
				}
				if !ofPatch {
					want = fmt.Sprintf("failed calling webhook %q: %s", v.of(name), want)
				}
				status := framework.RequireStatus(t, err, http.StatusInternalServerError, metav1.StatusReasonInternalError)
				require.Equal(t, "Internal error occurred: "+want, withoutAccidents(status.Message))
			})
		}
	}
}

// TestWebhookDenials shows that a refusal is what the webhook says it is, but always
// a failure with a code that is one.
func TestWebhookDenials(t *testing.T) {
	s := newScopeWithReferences(t)
	cases := map[string]struct {
		result string
		// want has the message without the webhook's name.
		want metav1.Status
	}{
		"no result":           {`null`, metav1.Status{Code: 400, Message: "without explanation"}},
		"an empty result":     {`{}`, metav1.Status{Code: 400, Message: "without explanation"}},
		"a message":           {`{"message":"closed"}`, metav1.Status{Code: 400, Message: "closed"}},
		"a reason":            {`{"reason":"Forbidden"}`, metav1.Status{Code: 400, Reason: metav1.StatusReasonForbidden, Message: "Forbidden"}},
		"a reason of its own": {`{"reason":"Closed","message":"at noon","code":451}`, metav1.Status{Code: 451, Reason: "Closed", Message: "at noon"}},
		"a success":           {`{"status":"Success","code":200,"message":"fine"}`, metav1.Status{Code: 400, Message: "fine"}},
		"a redirect":          {`{"code":302,"message":"go away"}`, metav1.Status{Code: 400, Message: "go away"}},
		"a server error":      {`{"code":503,"reason":"ServiceUnavailable","message":"later"}`, metav1.Status{Code: 503, Reason: metav1.StatusReasonServiceUnavailable, Message: "later"}},
		"details": {
			`{"code":422,"reason":"Invalid","message":"no","details":{"name":"a","group":"b","kind":"c","uid":"d","causes":[{"reason":"FieldValueInvalid","message":"too hot","field":"spec.oven"}]}}`,
			metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid, Message: "no", Details: &metav1.StatusDetails{
				Name: "a", Group: "b", Kind: "c", UID: "d",
				Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Message: "too hot", Field: "spec.oven"}},
			}},
		},
	}
	texts, clients := map[string]string{}, map[string]admissionregistrationv1.WebhookClientConfig{}
	server := s.respond(func(name string, _ *admissionv1.AdmissionRequest) string { return texts[name] })
	for name, test := range cases {
		texts[slug(name)] = review(`"allowed":false,"status":` + test.result)
		clients[name] = at(server, slug(name))
	}
	s.registerCases("CREATE", clients)
	for name, test := range cases {
		// A webhook's refusal holds under each failure policy.
		for _, v := range variants {
			t.Run(name+"/"+v.sort+"/"+string(v.failurePolicy), func(t *testing.T) {
				status := framework.RequireStatus(t, s.createForCase(t, v.of(name)), test.want.Code, test.want.Reason)
				want := test.want
				want.TypeMeta = status.TypeMeta
				want.Status = metav1.StatusFailure
				separator := ": "
				if want.Message == "without explanation" {
					separator = " "
				}
				want.Message = fmt.Sprintf("admission webhook %q denied the request%s%s", v.of(name), separator, want.Message)
				require.Equal(t, want, status)
			})
		}
	}
}

// patchAnnotation has the JSON patch for an object.
const patchAnnotation = "admission-test-patch"

func withPatch(object *unstructured.Unstructured, operations string) *unstructured.Unstructured {
	object.SetAnnotations(map[string]string{patchAnnotation: operations})
	return object
}

// registerPatching registers a webhook for objects in the test's namespace that
// patches them as their annotation says.
func (s *scope) registerPatching(rules ...admissionregistrationv1.RuleWithOperations) {
	s.t.Helper()
	mutating := s.webhook(func(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(request.Object.Raw, &object); err != nil {
			return deny(http.StatusBadRequest, err.Error())(request)
		}
		if operations := object.Annotations[patchAnnotation]; operations != "" {
			return patch(operations)(request)
		}
		return allow(request)
	}).mutating(rules...)
	mutating.ObjectSelector, mutating.NamespaceSelector = nil, s.Selector()
	s.registerEverywhere("patching", []admissionregistrationv1.MutatingWebhook{mutating}, nil)
}

// TestPatches shows what each operation of a JSON patch makes of a pizza. Defaults are
// applied afterwards: those of the version, and the toppings of PizzaToppings, which runs
// again.
func TestPatches(t *testing.T) {
	s := newScopeWithReferences(t)
	s.registerPatching(onPizzas("CREATE"))
	const (
		mozzarella = `{"name":"mozzarella","quantity":1}`
		unchanged  = `{"replicas":2,"toppings":[` + mozzarella + `]}`
		defaults   = `{"replicas":1,"toppings":[` + mozzarella + `,{"name":"tomato","quantity":1},{"name":"salami","quantity":1}]}`
	)
	for name, test := range map[string]struct {
		// patch is for a pizza with two replicas, mozzarella, and the label from. TOMATO
		// is a topping in the version.
		patch string
		// spec is the outcome in v1.
		spec   string
		labels map[string]string
		// versions are all if they are not said.
		versions []string
	}{
		"add":           {patch: `[{"op":"add","path":"/metadata/labels/to","value":"there"}]`, spec: unchanged, labels: map[string]string{"from": "here", "to": "there"}},
		"remove":        {patch: `[{"op":"remove","path":"/metadata/labels/from"}]`, spec: unchanged},
		"replace":       {patch: `[{"op":"replace","path":"/spec/replicas","value":7}]`, spec: `{"replicas":7,"toppings":[` + mozzarella + `]}`, labels: map[string]string{"from": "here"}},
		"move":          {patch: `[{"op":"move","from":"/metadata/labels/from","path":"/metadata/labels/to"}]`, spec: unchanged, labels: map[string]string{"to": "here"}},
		"copy":          {patch: `[{"op":"copy","from":"/metadata/labels/from","path":"/metadata/labels/to"}]`, spec: unchanged, labels: map[string]string{"from": "here", "to": "here"}},
		"test":          {patch: `[{"op":"test","path":"/spec/replicas","value":2},{"op":"remove","path":"/metadata/labels/from"}]`, spec: unchanged},
		"append":        {patch: `[{"op":"add","path":"/spec/toppings/-","value":TOMATO}]`, spec: `{"replicas":2,"toppings":[` + mozzarella + `,{"name":"tomato","quantity":1}]}`, labels: map[string]string{"from": "here"}},
		"prepend":       {patch: `[{"op":"add","path":"/spec/toppings/0","value":TOMATO}]`, spec: `{"replicas":2,"toppings":[{"name":"tomato","quantity":1},` + mozzarella + `]}`, labels: map[string]string{"from": "here"}},
		"nothing":       {patch: `[]`, spec: unchanged, labels: map[string]string{"from": "here"}},
		"unknown field": {patch: `[{"op":"add","path":"/spec/crust","value":"thin"}]`, spec: unchanged, labels: map[string]string{"from": "here"}},

		"no replicas":    {patch: `[{"op":"remove","path":"/spec/replicas"},{"op":"remove","path":"/metadata/labels/from"}]`, spec: `{"replicas":1,"toppings":[` + mozzarella + `]}`},
		"null replicas":  {patch: `[{"op":"replace","path":"/spec/replicas","value":null},{"op":"remove","path":"/metadata/labels/from"}]`, spec: `{"replicas":1,"toppings":[` + mozzarella + `]}`},
		"no quantity":    {patch: `[{"op":"remove","path":"/spec/toppings/0/quantity"},{"op":"remove","path":"/metadata/labels/from"}]`, spec: unchanged, versions: []string{"v1beta1", "v1"}},
		"no toppings":    {patch: `[{"op":"replace","path":"/spec","value":{"toppings":[]}},{"op":"remove","path":"/metadata/labels/from"}]`, spec: defaults},
		"no spec at all": {patch: `[{"op":"remove","path":"/spec"},{"op":"remove","path":"/metadata/labels/from"}]`, spec: defaults},
	} {
		if test.versions == nil {
			test.versions = framework.Versions()
		}
		for _, version := range test.versions {
			t.Run(name+"/"+version, func(t *testing.T) {
				tomato := `{"name":"tomato"}`
				if version == "v1alpha1" {
					tomato = `"tomato"`
				}
				pizza := withPatch(s.pizza(version, slug(name)+"-"+version), strings.ReplaceAll(test.patch, "TOMATO", tomato))
				pizza.SetLabels(map[string]string{"from": "here"})
				require.NoError(t, unstructured.SetNestedField(pizza.Object, int64(2), "spec", "replicas"))
				created, err := s.pizzas(version).Create(t.Context(), pizza, metav1.CreateOptions{})
				require.NoError(t, err)

				stored, err := s.pizzas("v1").Get(t.Context(), created.GetName(), metav1.GetOptions{})
				require.NoError(t, err)
				spec, err := json.Marshal(stored.Object["spec"])
				require.NoError(t, err)
				require.JSONEq(t, test.spec, string(spec))
				require.Equal(t, test.labels, stored.GetLabels())
				require.Equal(t, created.GetLabels(), stored.GetLabels())
			})
		}
	}
}

// TestPatchesAreValidated shows that a webhook's changes of a pizza are validated
// like a user's.
func TestPatchesAreValidated(t *testing.T) {
	s := newScopeWithReferences(t)
	s.registerPatching(onPizzas("CREATE", "UPDATE"))
	lists, maps := framework.Versions()[:1], framework.Versions()[1:]
	for name, test := range map[string]struct {
		patch    string
		versions []string
		want     metav1.StatusCause
	}{
		"replicas": {
			`[{"op":"replace","path":"/spec/replicas","value":1001}]`, framework.Versions(),
			metav1.StatusCause{Type: "FieldValueInvalid", Field: "spec.replicas", Message: "Invalid value: 1001: must be less than or equal to 1000"},
		},
		"a quantity": {
			`[{"op":"replace","path":"/spec/toppings/0/quantity","value":11}]`, maps,
			metav1.StatusCause{Type: "FieldValueInvalid", Field: "spec.toppings[0].quantity", Message: "Invalid value: 11: must be less than or equal to 10"},
		},
		"a topping twice": {
			`[{"op":"add","path":"/spec/toppings/-","value":{"name":"mozzarella"}}]`, maps,
			metav1.StatusCause{Type: "FieldValueDuplicate", Field: "spec.toppings[1]", Message: `Duplicate value: {"name":"mozzarella","quantity":1}`},
		},
		"an unknown topping in a list": {
			`[{"op":"replace","path":"/spec/toppings/0","value":"unknown"}]`, lists,
			metav1.StatusCause{Type: "FieldValueNotFound", Field: "spec.toppings[unknown]", Message: `Not found: "unknown"`},
		},
		"an unknown topping in a map": {
			`[{"op":"replace","path":"/spec/toppings/0","value":{"name":"unknown"}}]`, maps,
			metav1.StatusCause{Type: "FieldValueNotFound", Field: "spec.toppings[unknown]", Message: `Not found: "unknown"`},
		},
		"a label": {
			`[{"op":"add","path":"/metadata/labels/a","value":"b c"}]`, framework.Versions(),
			metav1.StatusCause{Type: "FieldValueInvalid", Field: "metadata.labels", Message: `Invalid value: "b c": ` + utilvalidation.IsValidLabelValue("b c")[0]},
		},
		"a finalizer": {
			`[{"op":"add","path":"/metadata/finalizers","value":["b c"]}]`, framework.Versions(),
			metav1.StatusCause{Type: "FieldValueInvalid", Field: "metadata.finalizers", Message: `Invalid value: "b c": ` + utilvalidation.IsQualifiedName("b c")[0]},
		},
	} {
		for _, version := range test.versions {
			suffix := slug(name) + "-" + version
			t.Run(name+"/"+version, func(t *testing.T) {
				want := &metav1.StatusDetails{Name: s.Name(suffix), Group: restaurant.GroupName, Kind: "Pizza", Causes: []metav1.StatusCause{test.want}}
				pizzas := s.pizzas(version)
				_, err := pizzas.Create(t.Context(), withPatch(s.pizza(version, suffix), test.patch), metav1.CreateOptions{})
				require.Equal(t, want, framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid).Details)

				_, err = pizzas.Update(t.Context(), withPatch(s.createPizza(version, suffix), test.patch), metav1.UpdateOptions{})
				require.Equal(t, want, framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid).Details)
			})
		}
	}
}

// TestPatchesOfMetadata shows which metadata a webhook can change, and that it can't
// make an object another one: as kube-apiserver lets it.
func TestPatchesOfMetadata(t *testing.T) {
	s := newScopeWithReferences(t)
	s.registerPatching(onPizzas("CREATE", "UPDATE"))
	const (
		taken     = "what the webhook says"
		kept      = "what it was before"
		invalid   = `Pizza.restaurant.programming-kubernetes.info "NAME" is invalid: `
		nameless  = `Pizza.restaurant.programming-kubernetes.info "" is invalid: `
		elsewhere = "the namespace of the provided object does not match the namespace sent on the request"
	)
	// The changes of a field, and its value in the end.
	for change, want := range map[string]struct{ create, update string }{
		`labels: {"a":"b"}`:             {taken, taken},
		`annotations: {"a":"b"}`:        {taken, taken},
		`finalizers: ["example.com/a"]`: {taken, taken},
		`ownerReferences: [{"apiVersion":"v1","kind":"Pod","name":"a","uid":"b"}]`: {taken, taken},
		`managedFields: null`: {taken, taken},

		`name: "another"`:      {taken, `Pizza.restaurant.programming-kubernetes.info "another" is invalid: metadata.name: Invalid value: "another": field is immutable`},
		`name: null`:           {nameless + "metadata.name: Required value: name or generateName is required", nameless + `[metadata.name: Required value: name or generateName is required, metadata.name: Invalid value: "": field is immutable]`},
		`namespace: "default"`: {elsewhere, elsewhere},
		`namespace: null`:      {kept, kept},
		`uid: "a"`:             {kept, invalid + `metadata.uid: Invalid value: "a": field is immutable`},
		`generation: 7`:        {kept, kept},
		`creationTimestamp: "2020-01-01T00:00:00Z"`: {kept, kept},
		`managedFields: [{"fieldsType":"none"}]`:    {kept, kept},
		`deletionTimestamp: "2020-01-01T00:00:00Z"`: {taken, invalid + `metadata.deletionTimestamp: Invalid value: "2020-01-01T00:00:00Z": field is immutable`},
	} {
		t.Run(change, func(t *testing.T) {
			field, value, _ := strings.Cut(change, ": ")
			operations := fmt.Sprintf(`[{"op":"add","path":"/metadata/%s","value":%s}]`, field, value)
			suffix := strings.ToLower(field) + fmt.Sprintf("-%d", len(value))
			for _, kind := range []servedKind{pizzaKind, pizzaKind.reference()} {
				outcome := func(object *unstructured.Unstructured, err error) string {
					if err != nil {
						return asRestaurant.Replace(strings.ReplaceAll(err.Error(), object.GetName(), "NAME"))
					}
					after, err := json.Marshal(object.Object["metadata"].(map[string]any)[field])
					require.NoError(t, err)
					if string(after) == value {
						return taken
					}
					return kept
				}
				client := kind.client(s, framework.Config(cp), "v1")
				object := withPatch(kind.object(s, "v1", suffix), operations)
				created, err := client.Create(t.Context(), object, metav1.CreateOptions{})
				if err != nil {
					created = object
				}
				require.Equal(t, want.create, outcome(created, err), "%s %s", kind.kind, "created")

				object = kind.object(s, "v1", suffix+"-updated")
				object, err = client.Create(t.Context(), object, metav1.CreateOptions{})
				require.NoError(t, err)
				updated, err := client.Update(t.Context(), withPatch(object, operations), metav1.UpdateOptions{})
				if err != nil {
					updated = object
				}
				require.Equal(t, want.update, outcome(updated, err), "%s %s", kind.kind, "updated")
			}
		})
	}
}

// TestPatchesOfSubresources shows that a webhook can change of a status and of a
// scale what a user can, in all versions.
func TestPatchesOfSubresources(t *testing.T) {
	s := newScope(t)
	mutating := s.webhook(func(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		// Each pizza has the patch as an annotation, which its scale does not have.
		pizza, err := s.pizzas("v1").Get(t.Context(), request.Name, metav1.GetOptions{})
		if err != nil {
			return deny(http.StatusInternalServerError, err.Error())(request)
		}
		return patch(pizza.GetAnnotations()[patchAnnotation])(request)
	}).mutating(rule(on("UPDATE"), "pizzas/status", "pizzas/scale"))
	mutating.ObjectSelector, mutating.NamespaceSelector = nil, s.Selector()
	s.registerMutating("subresources", mutating)

	for name, test := range map[string]struct {
		subresource, patch string
		// want are replicas in spec and status, or an error.
		want string
	}{
		"status":              {"status", `[{"op":"replace","path":"/status/replicas","value":3}]`, "1 and 3"},
		"no status":           {"status", `[{"op":"remove","path":"/status"}]`, "1 and 0"},
		"an invalid status":   {"status", `[{"op":"replace","path":"/status/replicas","value":-1}]`, `Pizza.restaurant.programming-kubernetes.info "NAME" is invalid: status.replicas: Invalid value: -1: must be greater than or equal to 0`},
		"spec in the status":  {"status", `[{"op":"replace","path":"/spec/replicas","value":3}]`, "1 and 2"},
		"label in the status": {"status", `[{"op":"remove","path":"/metadata/labels"}]`, "1 and 2"},
		"scale":               {"scale", `[{"op":"replace","path":"/spec/replicas","value":3}]`, "3 and 0"},
		"no scale":            {"scale", `[{"op":"remove","path":"/spec"}]`, "0 and 0"},
		"an invalid scale":    {"scale", `[{"op":"replace","path":"/spec/replicas","value":1001}]`, `Pizza.restaurant.programming-kubernetes.info "NAME" is invalid: spec.replicas: Invalid value: 1001: must be less than or equal to 1000`},
		"status in the scale": {"scale", `[{"op":"replace","path":"/status/replicas","value":3}]`, "2 and 0"},
		"uid of the scale":    {"scale", `[{"op":"replace","path":"/metadata/uid","value":"another"}]`, `Operation cannot be fulfilled on pizzas.restaurant.programming-kubernetes.info "NAME": the uid of the Scale is another, but the object's is UID`},
		"kind of the scale":   {"scale", `[{"op":"replace","path":"/kind","value":"Job"}]`, `Internal error occurred: no kind "Job" is registered for version "autoscaling/v1" in scheme SCHEME`},
	} {
		for _, version := range framework.Versions() {
			t.Run(name+"/"+version, func(t *testing.T) {
				client := s.pizzas(version)
				pizza, err := client.Create(t.Context(), withPatch(s.pizza(version, slug(name)+"-"+version), test.patch), metav1.CreateOptions{})
				require.NoError(t, err)
				change := fmt.Sprintf(`{%q:{"replicas":2}}`, map[string]string{"status": "status", "scale": "spec"}[test.subresource])
				_, err = client.Patch(t.Context(), pizza.GetName(), types.MergePatchType, []byte(change), metav1.PatchOptions{}, test.subresource)
				var outcome string
				if err != nil {
					outcome = withoutAccidents(strings.ReplaceAll(err.Error(), pizza.GetName(), "NAME"))
				} else {
					after, err := framework.Restaurant(cp).RestaurantV1().Pizzas(s.Namespace).Get(t.Context(), pizza.GetName(), metav1.GetOptions{})
					require.NoError(t, err)
					outcome = fmt.Sprintf("%d and %d", *after.Spec.Replicas, after.Status.Replicas)
					require.Equal(t, s.Labels(), after.Labels)
				}
				require.Equal(t, test.want, outcome)
			})
		}
	}
}

// TestPatchOfDeletion shows that there is nothing to patch in what is deleted.
func TestPatchOfDeletion(t *testing.T) {
	s := newScope(t)
	webhook := s.webhook(patch(`[{"op":"add","path":"/metadata/labels/a","value":"b"}]`))
	mutating := webhook.mutating(rule(on("DELETE"), "pizzas"))
	mutating.FailurePolicy = ptr.To(admissionregistrationv1.Ignore)
	s.registerMutating("deletion", mutating)
	pizza := s.createPizza("v1", "kept")
	err := s.pizzas("v1").Delete(t.Context(), pizza.GetName(), metav1.DeleteOptions{})
	status := framework.RequireStatus(t, err, http.StatusInternalServerError, metav1.StatusReasonInternalError)
	require.Equal(t, `Internal error occurred: admission webhook "mutating.example.com" attempted to modify the object, which is not supported for this operation`, status.Message)
}

// TestWebhookWarnings shows that warnings reach users, whether or not the request is
// allowed. All of them do, but each once, and shortened if they are too many.
func TestWebhookWarnings(t *testing.T) {
	s := newScope(t)
	warn := func(allowed bool, warnings ...string) answer {
		return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return &admissionv1.AdmissionResponse{Allowed: allowed, Warnings: warnings}
		}
	}
	long := strings.Repeat("é", 3000)
	mutating := s.webhook(warn(true, "hot", "\"quoted\", and ünïcode", "")).mutating(rule(on("CREATE"), "pizzas"))
	validating := s.webhook(warn(true, "hot", "sharp")).validating(rule(on("CREATE"), "pizzas"))
	denying := s.webhook(warn(false, "not today")).validating(rule(on("UPDATE"), "pizzas"))
	denying.Name = "denying.example.com"
	verbose := s.webhook(warn(true, "a"+long, "b"+long, "short")).validating(rule(on("DELETE"), "pizzas"))
	verbose.Name = "verbose.example.com"
	s.registerMutating("warnings", mutating)
	s.registerValidating("warnings", validating, denying, verbose)

	var got warnings
	config := framework.Config(cp)
	config.WarningHandler = &got
	client := versioned.NewForConfigOrDie(config).RestaurantV1().Pizzas(s.Namespace)
	pizza := &restaurantv1.Pizza{ObjectMeta: metav1.ObjectMeta{Name: s.Name("client"), Labels: s.Labels()}}
	_, err := client.Create(t.Context(), pizza, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"hot", `"quoted", and ünïcode`, "sharp"}, got.take())
	_, err = client.Patch(t.Context(), pizza.Name, types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{})
	framework.RequireStatus(t, err, http.StatusBadRequest, "")
	require.Equal(t, []string{"not today"}, got.take())
	require.NoError(t, client.Delete(t.Context(), pizza.Name, metav1.DeleteOptions{}))
	require.Equal(t, []string{"a" + long[:2*255], "b" + long[:2*255], "short"}, got.take())

	// kubectl prints them before what it has to say itself.
	file := filepath.Join(t.TempDir(), "pizza.yaml")
	content, err := json.Marshal(s.pizza("v1", "kubectl"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, content, 0o600))
	for _, step := range []struct {
		args           []string
		stdout, stderr string
	}{
		{[]string{"create", "--filename=" + file}, "pizza.restaurant.programming-kubernetes.info/" + s.Name("kubectl") + " created\n", "Warning: hot\nWarning: \"quoted\", and ünïcode\nWarning: sharp\n"},
		{[]string{"patch", "--filename=" + file, "--type=merge", `--patch={"spec":{"replicas":2}}`}, "", "Warning: not today\nError from server: admission webhook \"denying.example.com\" denied the request without explanation\n"},
		{[]string{"delete", "--filename=" + file}, fmt.Sprintf("pizza.restaurant.programming-kubernetes.info %q deleted from %s namespace\n", s.Name("kubectl"), s.Namespace), "Warning: a" + long[:2*255] + "\nWarning: b" + long[:2*255] + "\nWarning: short\n"},
	} {
		cmd := cp.Kubectl(t.Context(), step.args...)
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run() // Its output says whether it has failed.
		require.Equal(t, step.stderr, stderr.String())
		require.Equal(t, step.stdout, stdout.String())
	}
}

// warnings are those of one answer.
type warnings struct{ texts []string }

func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.texts = append(w.texts, text) }

func (w *warnings) take() []string {
	texts := w.texts
	w.texts = nil
	return texts
}
