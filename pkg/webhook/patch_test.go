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
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPatch(t *testing.T) {
	for name, test := range map[string]struct {
		sent, before, after string
		want                string
	}{
		"nothing":                       {`{"a":1}`, `{"a":1}`, `{"a":1}`, ``},
		"what got a default":            {`{}`, `{"a":1}`, `{"a":1}`, ``},
		"a field that is missing":       {`{}`, `{}`, `{"a":1}`, `[{"op":"add","path":"/a","value":1}]`},
		"a field that is replaced":      {`{"a":1}`, `{"a":1}`, `{"a":2}`, `[{"op":"add","path":"/a","value":2}]`},
		"a field further in":            {`{"a":{"b":1}}`, `{"a":{"b":1}}`, `{"a":{"b":1,"c":2}}`, `[{"op":"add","path":"/a/c","value":2}]`},
		"in what is missing":            {`{}`, `{"a":{"b":1}}`, `{"a":{"b":1,"c":2}}`, `[{"op":"add","path":"/a","value":{"b":1,"c":2}}]`},
		"in what is null":               {`{"a":null}`, `{"a":{}}`, `{"a":{"c":2}}`, `[{"op":"add","path":"/a","value":{"c":2}}]`},
		"a list":                        {`{"a":[]}`, `{"a":[]}`, `{"a":["x","y"]}`, `[{"op":"add","path":"/a","value":["x","y"]}]`},
		"zero":                          {`{"a":1}`, `{"a":1}`, `{"a":0}`, `[{"op":"add","path":"/a","value":0}]`},
		"a field that is removed":       {`{"a":{"b":1}}`, `{"a":{"b":1}}`, `{"a":{}}`, `[{"op":"remove","path":"/a/b"}]`},
		"a default that is removed":     {`{"a":{}}`, `{"a":{"b":1}}`, `{"a":{}}`, ``},
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
