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

package framework

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
)

// TestServedIsCompared shows that paths and answers of other resources are found.
func TestServedIsCompared(t *testing.T) {
	const path, pizza = "/apis/" + restaurant.GroupName + "/v1/namespaces/a/pizzas/b", `{"apiVersion":"restaurant.programming-kubernetes.info/v1","kind":"Pizza","metadata":{"namespace":"a","name":"b"}}`
	for name, test := range map[string]struct {
		path, resource, subresource, answer string
		want                                string
	}{
		"the same":            {path, "pizzas", "", pizza, ""},
		"with slashes":        {path + "//", "pizzas", "", pizza, ""},
		"its status":          {path + "/status", "pizzas", "status", pizza, ""},
		"its scale":           {path + "/scale", "pizzas", "scale", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"namespace":"a","name":"b"}}`, ""},
		"a table":             {path, "pizzas", "", `{"apiVersion":"meta.k8s.io/v1","kind":"Table","metadata":{}}`, ""},
		"another path":        {path + "b", "pizzas", "", pizza, "its path is not " + path},
		"another subresource": {path + "/status", "pizzas", "", pizza, "its path is not " + path},
		"another kind":        {path, "pizzas", "", `{"apiVersion":"restaurant.programming-kubernetes.info/v1","kind":"Topping","metadata":{}}`, "restaurant.programming-kubernetes.info/Topping was answered"},
		"another group":       {path, "pizzas", "", `{"apiVersion":"apps/v1","kind":"Pizza","metadata":{"namespace":"a","name":"b"}}`, "apps/Pizza was answered"},
		"another name":        {path, "pizzas", "", strings.Replace(pizza, `"b"`, `"c"`, 1), "a/c was answered"},
		"another namespace":   {path, "pizzas", "", strings.Replace(pizza, `"a"`, `"c"`, 1), "c/b was answered"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := compareServed(auditv1.Event{
				Verb: "get", RequestURI: test.path,
				ObjectRef: &auditv1.ObjectReference{
					APIGroup: restaurant.GroupName, APIVersion: "v1", Namespace: "a", Name: "b", Resource: test.resource, Subresource: test.subresource,
				},
				ResponseObject: &runtime.Unknown{Raw: []byte(test.answer)},
			})
			got := ""
			if err != nil {
				got = err.Error()
			}
			require.Equal(t, test.want, got)
		})
	}
}
