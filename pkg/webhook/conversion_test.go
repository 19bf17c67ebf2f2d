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
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// object is one of the group's, with some content behind apiVersion and kind.
func object(version, kind, content string) string {
	return fmt.Sprintf(`{"apiVersion":"%s/%s","kind":%q,%s}`, group, version, kind, content)
}

func conversionReviewOf(version, desired string, objects ...string) string {
	return fmt.Sprintf(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/%s","request":{"uid":"u-1","desiredAPIVersion":%q,"objects":[%s]}}`,
		version, desired, strings.Join(objects, ","))
}

const (
	named      = `"metadata":{"name":"a"}`
	noStatus   = `"status":{"replicas":0}`
	inV1       = named + `,"spec":{"replicas":3,"toppings":[{"name":"tomato","quantity":1},{"name":"mozzarella","quantity":2}]},` + noStatus
	inV1alpha1 = named + `,"spec":{"replicas":3,"toppings":["tomato","mozzarella","mozzarella"]},` + noStatus
	fullStatus = `"status":{"conditions":[{"lastTransitionTime":"2026-11-20T12:00:00Z","message":"m","reason":"R","status":"True","type":"Ready"}],` +
		`"cost":"3800m","observedGeneration":7,"replicas":2,"selector":"a=b"}`
	// These metadata include fields that no server of today knows.
	metadata = `"metadata":{"name":"a","namespace":"n","uid":"1","creationTimestamp":null,"generation":12345678901,"labels":{"l":"1"},"annotations":{"a":"1"},` +
		`"managedFields":[{"manager":"m","fieldsV1":{"f:spec":{"f:toppings":{"k:{\"name\":\"x\"}":{}}}}}],"future":{"b":1,"a":[null]}}`
)

func TestConvert(t *testing.T) {
	for name, test := range map[string]struct {
		desired       string
		objects, want []string
	}{
		"v1 to v1alpha1": {"v1alpha1", []string{object("v1", "Pizza", inV1)}, []string{object("v1alpha1", "Pizza", inV1alpha1)}},
		"v1alpha1 to v1": {"v1", []string{object("v1alpha1", "Pizza", inV1alpha1)}, []string{object("v1", "Pizza", inV1)}},
		"v1 to v1beta1":  {"v1beta1", []string{object("v1", "Pizza", inV1)}, []string{object("v1beta1", "Pizza", inV1)}},
		"a topping":      {"v1", []string{object("v1alpha1", "Topping", named+`,"spec":{"cost":"1.50"}`)}, []string{object("v1", "Topping", named+`,"spec":{"cost":"1500m"}`)}},
		"names in any order": {
			"v1",
			[]string{object("v1alpha1", "Pizza", named+`,"spec":{"replicas":1,"toppings":["b","a","b"]},`+noStatus)},
			[]string{object("v1", "Pizza", named+`,"spec":{"replicas":1,"toppings":[{"name":"b","quantity":2},{"name":"a","quantity":1}]},`+noStatus)},
		},
		"an unknown field": {"v1alpha1", []string{object("v1", "Topping", named+`,"spec":{"cost":"1","color":"red"}`)}, []string{object("v1alpha1", "Topping", named+`,"spec":{"cost":"1"}`)}},
		"the metadata":     {"v1alpha1", []string{object("v1", "Topping", metadata+`,"spec":{"cost":"1"}`)}, []string{object("v1alpha1", "Topping", metadata+`,"spec":{"cost":"1"}`)}},
		"many, in order": {
			"v1",
			[]string{object("v1alpha1", "Pizza", inV1alpha1), object("v1", "Topping", `"metadata":{"name":"b"},"spec":{"cost":"1.50"}`), object("v1beta1", "Topping", `"metadata":{"name":"c"},"spec":{}`), object("v1beta1", "Pizza", inV1)},
			[]string{object("v1", "Pizza", inV1), object("v1", "Topping", `"metadata":{"name":"b"},"spec":{"cost":"1.50"}`), object("v1", "Topping", `"metadata":{"name":"c"},"spec":{}`), object("v1", "Pizza", inV1)},
		},
		"a quantity out of range": {
			"v1alpha1",
			[]string{object("v1", "Pizza", named+`,"spec":{"replicas":1,"toppings":[{"name":"a","quantity":2147483647}]},`+noStatus)},
			[]string{object("v1alpha1", "Pizza", named+`,"spec":{"replicas":1,"toppings":["a`+strings.Repeat(`","a`, 10)+`"]},`+noStatus)},
		},
	} {
		for _, version := range []string{"v1", "v1beta1"} {
			t.Run(version+"/"+name, func(t *testing.T) {
				code, answer := post(t, server(t, inertWebhooks()).URL+"/convert", conversionReviewOf(version, group+"/"+test.desired, test.objects...))
				require.Equal(t, 200, code, answer)
				assert.JSONEq(t, fmt.Sprintf(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/%s","response":{"uid":"u-1","convertedObjects":[%s],"result":{"metadata":{},"status":"Success"}}}`,
					version, strings.Join(test.want, ",")), answer)
			})
		}
	}
}

func TestConvertRefused(t *testing.T) {
	good := object("v1", "Pizza", inV1)
	for name, test := range map[string]struct {
		desired string
		objects []string
		want    string
	}{
		"to an unknown version":   {group + "/v2", []string{good}, `request.desiredAPIVersion: the version "` + group + `/v2" is not known`},
		"to the internal version": {group + "/__internal", []string{good}, `request.desiredAPIVersion: the version "` + group + `/__internal" is not known`},
		"from the internal version": {group + "/v1", []string{object("__internal", "Pizza", named+`,"Spec":{"Replicas":1}`)},
			`request.objects[0]: the version "` + group + `/__internal" is not known`},
		"an unknown kind":     {group + "/v1", []string{object("v1beta1", "Calzone", named)}, `request.objects[0]: no kind "Calzone" is registered for version "` + group + `/v1beta1" in scheme`},
		"a list":              {group + "/v1", []string{object("v1beta1", "PizzaList", `"items":[`+good+`]`)}, `request.objects[0]: a PizzaList is not an object by itself`},
		"null":                {group + "/v1", []string{`null`}, `request.objects[0]: there is no object`},
		"a spec that is none": {group + "/v1", []string{object("v1alpha1", "Pizza", `"spec":"tomato"`)}, `request.objects[0]: json: cannot unmarshal string into Go struct field Pizza.spec of type v1alpha1.PizzaSpec`},
		"a cost that takes minutes": {group + "/v1", []string{good, good, object("v1alpha1", "Topping", named+`,"spec":{"cost":"1e-999999999"}`)},
			`request.objects[2]: a number has more than 256 characters`},
	} {
		t.Run(name, func(t *testing.T) {
			code, answer := post(t, server(t, inertWebhooks()).URL+"/convert", conversionReviewOf("v1", test.desired, test.objects...))
			require.Equal(t, 200, code, answer)
			var review apiextensionsv1.ConversionReview
			require.NoError(t, json.Unmarshal([]byte(answer), &review))
			require.Equal(t, "Failure", review.Response.Result.Status)
			require.True(t, strings.HasPrefix(review.Response.Result.Message, test.want), review.Response.Result.Message)
			require.EqualValues(t, "u-1", review.Response.UID)
			require.Empty(t, review.Response.ConvertedObjects, "Some were converted; all or none should be.")
		})
	}
}

// FuzzConvert fails on a panic, and on an object that is not converted exactly once.
func FuzzConvert(f *testing.F) {
	for _, seed := range []string{
		object("v1", "Pizza", inV1), object("v1alpha1", "Pizza", inV1alpha1), object("v1beta1", "Pizza", metadata+`,"spec":null,`+fullStatus),
		object("v1alpha1", "Topping", named+`,"spec":{"cost":"1e3"}`), object("v1", "Topping", `"metadata":null,"spec":{"cost":{}}`),
		object("v1", "PizzaList", `"items":[{}]`), object("v1", "WatchEvent", `"object":{}`), `null`, `[]`, `{"apiVersion":"a/b/c"}`, `{`,
	} {
		f.Add(seed, "v1")
		f.Add(seed, "v1alpha1")
	}
	c := converter{newCodec(inertWebhooks().Scheme)}
	f.Fuzz(func(t *testing.T, object, version string) {
		request := apiextensionsv1.ConversionRequest{DesiredAPIVersion: group + "/" + version}
		if json.Unmarshal([]byte("["+object+"]"), &request.Objects) != nil {
			return // Conversion gets valid JSON only.
		}
		converted, err := c.convertAll(&request)
		if err != nil {
			return
		}
		require.Len(t, converted, len(request.Objects))
		for _, object := range converted {
			decoded, got, err := c.codec.decode(object.Raw)
			require.NoError(t, err)
			require.NotNil(t, decoded)
			require.Equal(t, version, got.Version)
		}
	})
}
