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
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

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
	return s.suffixes(list.Items)
}

func (s subject) suffixes(items []unstructured.Unstructured) []string {
	names := []string{}
	for _, item := range items {
		names = append(names, strings.TrimPrefix(item.GetName(), s.Name("")))
	}
	return names
}

func TestListByLabel(t *testing.T) {
	forEachSubject(t, func(t *testing.T, s subject) {
		for name, size := range map[string]string{"a": "small", "b": "large", "c": ""} {
			object := s.New(name)
			object.SetLabels(map[string]string{framework.Label: s.ID, "size": size})
			if name == "c" {
				object.SetLabels(map[string]string{framework.Label: s.ID})
			}
			_, err := s.Client().Create(t.Context(), object, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		for selector, want := range map[string][]string{
			"size":                   {"a", "b"},
			"!size":                  {"c"},
			"size=small":             {"a"},
			"size!=small":            {"b", "c"},
			"size in (small, large)": {"a", "b"},
			"size notin (large)":     {"a", "c"},
			"size=none":              {},
		} {
			got := s.listed(t, metav1.ListOptions{LabelSelector: s.All().LabelSelector + "," + selector})
			require.Equal(t, want, got, selector)
		}
	})
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
			unknown := `"` + field + `" is not a known field selector: only ` + known
			_, err := s.Client().List(t.Context(), metav1.ListOptions{FieldSelector: selector})
			require.Contains(t, framework.RequireStatus(t, err, 400, metav1.StatusReasonBadRequest).Message, unknown)
			_, err = s.Client().Watch(t.Context(), metav1.ListOptions{FieldSelector: selector})
			require.Contains(t, framework.RequireStatus(t, err, 400, metav1.StatusReasonBadRequest).Message, unknown)
			err = s.Client().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: selector})
			require.Contains(t, framework.RequireStatus(t, err, 400, metav1.StatusReasonBadRequest).Message, unknown)
		}
		require.Equal(t, []string{"a", "b"}, s.listed(t, metav1.ListOptions{}))
	})
}

func TestListOfAllNamespaces(t *testing.T) {
	t.Parallel()
	for _, version := range framework.Versions() {
		one, two := newSubject(t, "Pizza", version), newSubject(t, "Pizza", version)
		two.ID = one.ID
		want := []string{one.Create(t, "a").GetNamespace(), two.Create(t, "b").GetNamespace()}
		everywhere := one
		everywhere.Namespace = ""
		list, err := everywhere.Client().List(t.Context(), one.All())
		require.NoError(t, err)
		var got []string
		for _, item := range list.Items {
			got = append(got, item.GetNamespace())
		}
		require.ElementsMatch(t, want, got)
		require.Equal(t, []string{"b"}, one.suffixes(two.list(t, metav1.ListOptions{}).Items))
	}
}

// list returns the test's objects, and with the options those that match.
func (s subject) list(t *testing.T, options metav1.ListOptions) *unstructured.UnstructuredList {
	t.Helper()
	list, err := s.Client().List(t.Context(), options)
	require.NoError(t, err)
	return list
}

// Pages together are the list as it was at the first page, whatever happens in
// between, and in whichever version the next one is asked for.
func TestPages(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	for _, version := range framework.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := newSubject(t, "Pizza", version)
			for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
				s.Create(t, name)
			}
			first := s.list(t, metav1.ListOptions{Limit: 3})
			require.Equal(t, []string{"a", "b", "c"}, s.suffixes(first.Items))
			require.EqualValues(t, 4, *first.GetRemainingItemCount())
			require.NotEmpty(t, first.GetContinue())

			require.NoError(t, s.Client().Delete(t.Context(), s.Name("e"), metav1.DeleteOptions{}))
			s.Create(t, "h")
			for _, next := range framework.Versions() {
				second := s.in(next).list(t, metav1.ListOptions{Limit: 3, Continue: first.GetContinue()})
				require.Equal(t, []string{"d", "e", "f"}, s.suffixes(second.Items))
				require.Equal(t, first.GetResourceVersion(), second.GetResourceVersion())
				require.EqualValues(t, 1, *second.GetRemainingItemCount())
				last := s.list(t, metav1.ListOptions{Limit: 3, Continue: second.GetContinue()})
				require.Equal(t, []string{"g"}, s.suffixes(last.Items))
				require.Equal(t, first.GetResourceVersion(), last.GetResourceVersion())
				require.Nil(t, last.GetRemainingItemCount())
				require.Empty(t, last.GetContinue())
			}

			// How many more match a selector is not known without looking at them.
			selected := s.list(t, metav1.ListOptions{Limit: 2, LabelSelector: s.All().LabelSelector})
			require.Equal(t, []string{"a", "b"}, s.suffixes(selected.Items))
			require.Nil(t, selected.GetRemainingItemCount())
			rest := s.list(t, metav1.ListOptions{Continue: selected.GetContinue(), LabelSelector: s.All().LabelSelector})
			require.Equal(t, []string{"c", "d", "f", "g", "h"}, s.suffixes(rest.Items))

			whole := s.list(t, metav1.ListOptions{Limit: 7})
			require.Len(t, whole.Items, 7)
			require.Empty(t, whole.GetContinue())
		})
	}
}

func TestPagesOfToppings(t *testing.T) {
	t.Parallel()
	s := newSubject(t, "Topping", "v1")
	for _, name := range []string{"a", "b", "c"} {
		s.Create(t, name)
	}
	var got []string
	options := s.All()
	for options.Limit = 1; ; {
		page := s.list(t, options)
		require.LessOrEqual(t, len(page.Items), 1)
		got = append(got, s.suffixes(page.Items)...)
		if options.Continue = page.GetContinue(); options.Continue == "" {
			break
		}
	}
	require.Equal(t, []string{"a", "b", "c"}, got)
}

func TestResourceVersionMatch(t *testing.T) {
	forEachSubject(t, func(t *testing.T, s subject) {
		first := s.Create(t, "a").GetResourceVersion()
		second := s.Create(t, "b").GetResourceVersion()
		require.NoError(t, s.Client().Delete(t.Context(), s.Name("a"), metav1.DeleteOptions{}))
		// This is answered from a cache that has seen all of it, which later answers
		// of any age are from, too.
		require.Equal(t, []string{"b"}, s.listed(t, metav1.ListOptions{}))
		const exact, notOlder = metav1.ResourceVersionMatchExact, metav1.ResourceVersionMatchNotOlderThan

		for name, test := range map[string]struct {
			options metav1.ListOptions
			want    []string
		}{
			"the newest, in pages":    {metav1.ListOptions{Limit: 10}, []string{"b"}},
			"not older":               {metav1.ListOptions{ResourceVersion: second, ResourceVersionMatch: notOlder}, []string{"b"}},
			"not older, by default":   {metav1.ListOptions{ResourceVersion: second}, []string{"b"}},
			"not older than anything": {metav1.ListOptions{ResourceVersion: "0", ResourceVersionMatch: notOlder}, []string{"b"}},
			"any":                     {metav1.ListOptions{ResourceVersion: "0"}, []string{"b"}},
			"exactly the first":       {metav1.ListOptions{ResourceVersion: first, ResourceVersionMatch: exact}, []string{"a"}},
			"exactly the second":      {metav1.ListOptions{ResourceVersion: second, ResourceVersionMatch: exact}, []string{"a", "b"}},
			"exactly, in pages":       {metav1.ListOptions{ResourceVersion: second, ResourceVersionMatch: exact, Limit: 10}, []string{"a", "b"}},
			"exactly, by default with pages": {
				metav1.ListOptions{ResourceVersion: second, Limit: 10}, []string{"a", "b"},
			},
		} {
			require.Equal(t, test.want, s.listed(t, test.options), name)
		}

		for name, test := range map[string]struct {
			options metav1.ListOptions
			fields  []string
		}{
			"a match without a version":    {metav1.ListOptions{ResourceVersionMatch: exact}, []string{"resourceVersionMatch"}},
			"exactly anything":             {metav1.ListOptions{ResourceVersion: "0", ResourceVersionMatch: exact}, []string{"resourceVersionMatch"}},
			"an unknown match":             {metav1.ListOptions{ResourceVersion: first, ResourceVersionMatch: "Nearly"}, []string{"resourceVersionMatch"}},
			"a match with a continuation":  {metav1.ListOptions{ResourceVersion: first, ResourceVersionMatch: exact, Continue: "x"}, []string{"resourceVersionMatch"}},
			"initial events of a list":     {metav1.ListOptions{SendInitialEvents: new(true)}, []string{"sendInitialEvents"}},
			"a match in a watch":           {metav1.ListOptions{Watch: true, ResourceVersion: first, ResourceVersionMatch: notOlder}, []string{"resourceVersionMatch"}},
			"initial events without match": {metav1.ListOptions{Watch: true, SendInitialEvents: new(true)}, []string{"resourceVersionMatch"}},
		} {
			_, err := s.Client().List(t.Context(), test.options)
			if test.options.Watch {
				_, err = s.Client().Watch(t.Context(), test.options)
			}
			status := framework.RequireStatus(t, err, 422, metav1.StatusReasonInvalid)
			var fields []string
			for _, cause := range status.Details.Causes {
				fields = append(fields, cause.Field)
			}
			require.Equal(t, test.fields, fields, name)
		}

		for _, resourceVersion := range []string{"", "0", second} {
			read, err := s.Client().Get(t.Context(), s.Name("b"), metav1.GetOptions{ResourceVersion: resourceVersion})
			require.NoError(t, err)
			require.Equal(t, second, read.GetResourceVersion())
		}
	})
}

// get asks for the test's objects, or one of them, in the way that the headers say.
func (s subject) get(t *testing.T, path string, headers map[string]string) (*http.Response, []byte) {
	t.Helper()
	config := framework.Config(cp)
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	if path == "" {
		path = "?labelSelector=" + s.All().LabelSelector
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+s.Path()+path, http.NoBody)
	require.NoError(t, err)
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response, body
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

			table := s.table(t, "")
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

func TestTableOfToppings(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	for _, version := range framework.Versions() {
		s := newSubject(t, "Topping", version)
		s.Create(t, "a")
		table := s.table(t, "")
		require.Equal(t, []string{"Name string name 0", "Cost string  0", "Age string  0"}, columns(table))
		require.Equal(t, [][]any{{s.Name("a"), "1", "AGE"}}, cells(t, table, 2))
	}
}

func TestTableOfScale(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	for _, version := range framework.Versions() {
		s := newSubject(t, "Pizza", version)
		s.Create(t, "a")
		table := s.table(t, "/"+s.Name("a")+"/scale")
		require.Equal(t, []string{"Name string name 0", "Desired integer  0", "Available integer  0", "Age string  0"}, columns(table))
		require.Equal(t, [][]any{{s.Name("a"), 1.0, 0.0, "AGE"}}, cells(t, table, 3))
	}
}

func (s subject) table(t *testing.T, path string) *metav1.Table {
	t.Helper()
	response, body := s.get(t, path, map[string]string{"Accept": asTable})
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", body)
	var table metav1.Table
	require.NoError(t, json.Unmarshal(body, &table))
	require.Equal(t, "meta.k8s.io/v1 Table", table.APIVersion+" "+table.Kind)
	require.NotEmpty(t, table.ResourceVersion)
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
