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
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInUse(t *testing.T) {
	three := []string{"default/a", "default/b", "default/c"}
	for want, test := range map[string]struct {
		count   int
		visible []string
	}{
		"1 pass refers to it by spec.stationName":                                                          {1, nil},
		"1 pass refers to it by spec.stationName: default/a":                                               {1, three[:1]},
		"2 passes refer to it by spec.stationName":                                                         {2, nil},
		"2 passes refer to it by spec.stationName: default/a and 1 more":                                   {2, three[:1]},
		"3 passes refer to it by spec.stationName: default/a, default/b, default/c":                        {3, three},
		"100 passes refer to it by spec.stationName: default/a, default/b, default/c and 97 more":          {100, three},
		"more than 100 passes refer to it by spec.stationName: default/a, default/b, default/c and others": {101, three},
		"more than 100 passes refer to it by spec.stationName":                                             {101, nil},
	} {
		require.Equal(t, want, inUse(test.count, "pass", "passes", "spec.stationName", test.visible))
	}
}
