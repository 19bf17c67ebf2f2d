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
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// listed returns the suffixes of the names that a list has.
func (s subject) listed(t *testing.T, options metav1.ListOptions) []string {
	t.Helper()
	if options.LabelSelector == "" {
		options.LabelSelector = s.All().LabelSelector
	}
	list, err := s.Client().List(t.Context(), options)
	require.NoError(t, err)
	names := []string{}
	for _, item := range list.Items {
		names = append(names, strings.TrimPrefix(item.GetName(), s.Name("")))
	}
	return names
}

func TestListByField(t *testing.T) {
	forEachSubject(t, func(t *testing.T, s subject) {
		for _, name := range []string{"a", "b"} {
			s.Create(t, name)
		}
		cases := map[string][]string{
			"metadata.name=" + s.Name("a"):  {"a"},
			"metadata.name!=" + s.Name("a"): {"b"},
			"metadata.name=a":               {},
		}
		known := `["metadata.name"]`
		if s.Kind == "Pizza" {
			known = `["metadata.name" "metadata.namespace" "spec.replicas" "spec.toppings" "status.cost" "status.replicas"]`
			b, err := s.Client().Get(t.Context(), s.Name("b"), metav1.GetOptions{})
			require.NoError(t, err)
			s.change(t, b)
			b, err = s.Client().Update(t.Context(), b, metav1.UpdateOptions{})
			require.NoError(t, err)
			b.Object["status"] = newStatus(2)
			_, err = s.Client().UpdateStatus(t.Context(), b, metav1.UpdateOptions{})
			require.NoError(t, err)
			for selector, want := range map[string][]string{
				"metadata.namespace=" + s.Namespace:    {"a", "b"},
				"metadata.namespace=other":             {},
				"spec.replicas=1":                      {"a"},
				"spec.replicas=2":                      {"b"},
				"spec.replicas!=2":                     {"a"},
				"status.replicas=0":                    {"a"},
				"status.replicas=1":                    {"b"},
				"status.cost=":                         {"a"},
				"status.cost=2300m":                    {"b"},
				"spec.replicas=2,status.cost=2300m":    {"b"},
				"spec.replicas=1,status.cost=2300m":    {},
				"spec.toppings=tomato":                 {"a", "b"},
				"spec.toppings=tar":                    {},
				"spec.toppings=tomato,spec.replicas=2": {"b"},
				"spec.toppings!=tomato":                {},
				"spec.toppings!=tar":                   {"a", "b"},
			} {
				cases[selector] = want
			}
		}
		for selector, want := range cases {
			require.Equal(t, want, s.listed(t, metav1.ListOptions{FieldSelector: selector}), selector)
		}

		for _, selector := range []string{"spec.other=1", "metadata.uid=1", "spec.toppings.name=tomato"} {
			field, _, _ := strings.Cut(selector, "=")
			_, err := s.Client().List(t.Context(), metav1.ListOptions{FieldSelector: selector})
			require.Contains(t, framework.RequireStatus(t, err, 400, metav1.StatusReasonBadRequest).Message, `"`+field+`" is not a known field selector: only `+known)
		}
	})
}

const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"

func TestTableOfPizzas(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	for _, version := range framework.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := newSubject(t, "Pizza", version)
			s.Create(t, "a")
			v1 := s.in("v1")
			object := v1.New("b")
			object.Object["spec"] = map[string]any{"toppings": []any{portion("tomato", 1), portion("mozzarella", 2)}, "replicas": int64(5)}
			object, err := v1.Client().Create(t.Context(), object, metav1.CreateOptions{})
			require.NoError(t, err)
			object.Object["status"] = newStatus(1)
			object, err = v1.Client().UpdateStatus(t.Context(), object, metav1.UpdateOptions{})
			require.NoError(t, err)

			table := s.table(t, "?labelSelector="+s.All().LabelSelector)
			require.Equal(t, []string{"Name string name 0", "Toppings string  0", "Replicas string  0", "Cost string  0", "Age string  0",
				"Condition string  1", "Reason string  1"}, columns(table))
			require.Equal(t, [][]any{
				{s.Name("a"), "mozzarella,tomato", "0/1", "<unknown>", "AGE", "", ""},
				{s.Name("b"), "tomato,mozzarella×2", "1/5", "2.3", "AGE", "Priced", "ToppingsFound"},
			}, cells(t, table, 4))
			require.Equal(t, object.GetResourceVersion(), s.table(t, "/"+s.Name("b")).ResourceVersion)
			require.Equal(t, cells(t, table, 4)[1:], cells(t, s.table(t, "/"+s.Name("b")), 4))
		})
	}
}

func TestTablesOfToppingsAndScales(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	for _, version := range framework.Versions() {
		toppings, pizzas := newSubject(t, "Topping", version), newSubject(t, "Pizza", version)
		toppings.Create(t, "a")
		pizzas.Create(t, "a")
		table := toppings.table(t, "?labelSelector="+toppings.All().LabelSelector)
		require.Equal(t, []string{"Name string name 0", "Cost string  0", "Age string  0"}, columns(table))
		require.Equal(t, [][]any{{toppings.Name("a"), "1", "AGE"}}, cells(t, table, 2))
		table = pizzas.table(t, "/"+pizzas.Name("a")+"/scale")
		require.Equal(t, []string{"Name string name 0", "Desired integer  0", "Available integer  0", "Age string  0"}, columns(table))
		require.Equal(t, [][]any{{pizzas.Name("a"), 1.0, 0.0, "AGE"}}, cells(t, table, 3))
	}
}

// table asks for the test's objects, or one of them, as kubectl does.
func (s subject) table(t *testing.T, path string) *metav1.Table {
	t.Helper()
	var table metav1.Table
	body, err := framework.Kube(cp).Discovery().RESTClient().Get().RequestURI(s.Path()+path).SetHeader("Accept", asTable).DoRaw(t.Context())
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(body, &table))
	require.Equal(t, "meta.k8s.io/v1 Table", table.APIVersion+" "+table.Kind)
	return &table
}

// columns are name, type, format and priority of a table's columns.
func columns(table *metav1.Table) []string {
	var all []string
	for _, column := range table.ColumnDefinitions {
		all = append(all, strings.Join([]string{column.Name, column.Type, column.Format, string('0' + column.Priority)}, " "))
	}
	return all
}

// cells are a table's, but for the age, which must be one.
func cells(t *testing.T, table *metav1.Table, age int) [][]any {
	t.Helper()
	var all [][]any
	for _, row := range table.Rows {
		require.Regexp(t, "^[0-9ms]+$", row.Cells[age])
		all = append(all, slices.Concat(row.Cells[:age], []any{"AGE"}, row.Cells[age+1:]))
	}
	return all
}
