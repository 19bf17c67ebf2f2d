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

package codegen

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestImportName(t *testing.T) {
	name, err := importName([]string{".", "/import"}, "/import/example.com/bakery/generated.proto")
	require.NoError(t, err)
	require.Equal(t, "example.com/bakery/generated.proto", name)
	_, err = importName([]string{".", "/import"}, "/elsewhere/generated.proto")
	require.EqualError(t, err, "/elsewhere/generated.proto is in none of the directories ., /import")
}
