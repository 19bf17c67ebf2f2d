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

package testing

import (
	"math/rand"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// RoundTrip checks that random objects of all kinds survive encoding and decoding in each version. It uses
// JSON, and protobuf if the type of the version has messages.
func RoundTrip(t *testing.T, install func(*runtime.Scheme), funcs fuzzer.FuzzerFuncs) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("Internal objects get no defaults. If the difference is the default of a field, set the field in the fuzzer functions.")
		}
	})
	scheme := runtime.NewScheme()
	install(scheme)
	withMessages, withoutMessages := map[schema.GroupVersionKind]bool{}, map[schema.GroupVersionKind]bool{}
	for kind := range scheme.AllKnownTypes() {
		if kind.Version == runtime.APIVersionInternal {
			continue
		}
		object, err := scheme.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		_, marshals := object.(runtime.ProtobufMarshaller)
		// Options of Streams have no metadata. They are sent in queries, and may have no methods but
		// TypeMeta's.
		if _, err := meta.CommonAccessor(object); marshals && err == nil {
			withMessages[kind] = true
		} else {
			withoutMessages[kind] = true
		}
	}
	codecs := serializer.NewCodecFactory(scheme)
	//nolint:gosec // G404: it makes objects, not secrets.
	filler := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, funcs), rand.NewSource(rand.Int63()), codecs)
	roundtrip.RoundTripTypes(t, scheme, codecs, filler, withoutMessages)
	roundtrip.RoundTripTypesWithoutProtobuf(t, scheme, codecs, filler, withMessages)
}
