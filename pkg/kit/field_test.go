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

package kit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/pkg/kit"
)

func TestParseField(t *testing.T) {
	for text, test := range map[string]struct {
		goName, goType, tag string
		tags                []string
		err                 string
	}{
		"stationName=string": {
			goName: "StationName", goType: "string", tag: "`json:\"stationName,omitempty\" protobuf:\"bytes,0,opt,name=stationName\"`",
			tags: []string{"+optional", "+k8s:optional", "+k8s:maxLength=256"},
		},
		"mode=string,required,immutable": {
			goName: "Mode", goType: "string", tag: "`json:\"mode\" protobuf:\"bytes,0,opt,name=mode\"`",
			tags: []string{"+required", "+k8s:required", "+k8s:immutable", "+k8s:maxLength=256"},
		},
		"doors=int32":          {goName: "Doors", goType: "int32", tag: "`json:\"doors,omitempty\" protobuf:\"varint,0,opt,name=doors\"`", tags: []string{"+optional", "+k8s:optional"}},
		"doors=int32,required": {goName: "Doors", goType: "*int32", tag: "`json:\"doors,omitempty\" protobuf:\"varint,0,opt,name=doors\"`", tags: []string{"+required", "+k8s:required"}},
		"names=strings,required": {
			goName: "Names", goType: "[]string", tag: "`json:\"names\" protobuf:\"bytes,0,rep,name=names\"`",
			tags: []string{"+required", "+k8s:required", "+listType=set", "+k8s:listType=set", "+k8s:maxItems=100"},
		},
		"start":               {err: `the field "start" has no type: write NAME=TYPE with one of bool, duration, int-or-string, int32, int64, quantity, string, strings, time`},
		"start=date":          {err: `the field "start=date" has no type: write NAME=TYPE with one of bool, duration, int-or-string, int32, int64, quantity, string, strings, time`},
		"start=time,optional": {err: `the field "start=time,optional" has an unknown property "optional": use required and immutable`},
		"size=string":         {err: `"size" can't be the name of a field, since types have a method Size: choose another, such as sizeValue`},
		"Start=time":          {err: `"Start" can't be the name of a field: use letters and digits, beginning with a small letter`},
	} {
		t.Run(text, func(t *testing.T) {
			field, err := kit.ParseField(text)
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.goName, field.GoName())
			require.Equal(t, test.goType, field.GoType())
			require.Equal(t, test.tag, field.StructTag())
			require.Equal(t, test.tags, field.Tags())
		})
	}
}
