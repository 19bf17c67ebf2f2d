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
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// generatedConversion is code that conversion-gen generates for types it can't
// convert.
const generatedConversion = `package v1alpha1

func autoConvert_v1alpha1_BreadSpec_To_bakery_BreadSpec(in *BreadSpec, out *bakery.BreadSpec, s conversion.Scope) error {
	// WARNING: in.Milled requires manual conversion: does not exist in peer-type
	// WARNING: in.Shelf requires manual conversion: does not exist in peer-type
	return nil
}

func autoConvert_v1alpha1_Bread_To_bakery_Bread(in *Bread, out *bakery.Bread, s conversion.Scope) error {
	if err := Convert_v1alpha1_BreadSpec_To_bakery_BreadSpec(&in.Spec, &out.Spec, s); err != nil {
		return err
	}
	return v1.Convert_Pointer_int32_To_int32(&in.Replicas, &out.Replicas, s)
}

func autoConvert_bakery_BreadStatus_To_v1alpha1_BreadStatus(in *bakery.BreadStatus, out *BreadStatus, s conversion.Scope) error {
	in, out := &in.Flours, &out.Flours
	*out = make([]string, len(*in))
	for i := range *in {
		// FIXME: Provide conversion function to convert bakery.Flour to string
		compileErrorOnMissingConversion()
	}
	return nil
}
`

func TestMissingConversions(t *testing.T) {
	const dir = "pkg/apis/bakery/v1alpha1"
	module := fstest.MapFS{dir + "/zz_generated.conversion.go": {Data: []byte(generatedConversion)}}
	missing, err := missingConversions(module, dir)
	require.NoError(t, err)
	list := "  " + dir + "/conversion.go: write func Convert_Slice_bakery_Flour_To_Slice_string(in *[]bakery.Flour, out *[]string, s conversion.Scope) error, and the reverse"
	require.Equal(t, []string{
		"  " + dir + "/conversion.go: write func Convert_v1alpha1_BreadSpec_To_bakery_BreadSpec(in *BreadSpec, out *bakery.BreadSpec, s conversion.Scope) error, " +
			"which calls autoConvert_v1alpha1_BreadSpec_To_bakery_BreadSpec and then converts Milled, Shelf",
		list,
	}, missing)

	module[dir+"/conversion.go"] = &fstest.MapFile{Data: []byte("package v1alpha1\n\nfunc Convert_v1alpha1_BreadSpec_To_bakery_BreadSpec() {}\n")}
	missing, err = missingConversions(module, dir)
	require.NoError(t, err)
	require.Equal(t, []string{list}, missing)
}
