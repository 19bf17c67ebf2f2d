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

package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// NameColumn is the column of metadata.name.
func NameColumn[O Object]() Column[O] {
	return Column[O]{
		metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]},
		func(o O) any { return o.GetName() },
	}
}

// AgeColumn is the column of the time since metadata.creationTimestamp.
func AgeColumn[O Object]() Column[O] {
	return Column[O]{
		metav1.TableColumnDefinition{Name: "Age", Type: "string", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]},
		func(o O) any { return table.ConvertToHumanReadableDateType(o.GetCreationTimestamp()) },
	}
}

// tableConvertor prints objects of one kind and lists of them.
type tableConvertor[O Object] []Column[O]

var _ rest.TableConvertor = tableConvertor[Object]{}

// table prints objects in the columns of the kind, or of its
// Definition.
func (s strategy[O]) table() rest.TableConvertor {
	if s.kind.Definition != nil && len(s.kind.Columns) == 0 {
		return definedTable[O]{s}
	}
	return tableConvertor[O](s.kind.Columns)
}

// cells is a row.
func (c tableConvertor[O]) cells(o O) []any {
	cells := make([]any, len(c))
	for i, column := range c {
		cells[i] = column.Cell(o)
	}
	return cells
}

// ConvertToTable makes a row of each object.
func (c tableConvertor[O]) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	rows, err := table.MetaToTableRow(obj, func(obj runtime.Object, _ metav1.Object, _, _ string) ([]any, error) {
		return c.cells(obj.(O)), nil
	})
	if err != nil {
		return nil, err
	}

	result := &metav1.Table{Rows: rows}
	switch obj := obj.(type) {
	case metav1.ListInterface:
		result.ResourceVersion = obj.GetResourceVersion()
		result.Continue = obj.GetContinue()
		result.RemainingItemCount = obj.GetRemainingItemCount()
	case metav1.Object:
		result.ResourceVersion = obj.GetResourceVersion()
	}
	if opt, ok := options.(*metav1.TableOptions); !ok || !opt.NoHeaders {
		for _, column := range c {
			result.ColumnDefinitions = append(result.ColumnDefinitions, column.TableColumnDefinition)
		}
	}
	return result, nil
}
