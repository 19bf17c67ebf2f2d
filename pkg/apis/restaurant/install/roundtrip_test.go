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

package install_test

import (
	"math/rand"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/fuzzer"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/install"
)

// TestRoundTrip checks that encoding and decoding lose nothing, for every
// kind, version and encoding. An internal object passes through the version
// into bytes and back, with defaulting. A client gets its own object back,
// whatever that is.
func TestRoundTrip(t *testing.T) {
	scheme := newScheme()
	codecs := serializer.NewCodecFactory(scheme, serializer.WithSerializer(cbor.NewSerializerInfo))

	var encodings []string
	for _, encoding := range codecs.SupportedMediaTypes() {
		encodings = append(encodings, encoding.MediaTypeSubType)
	}
	require.ElementsMatch(t, []string{"json", "yaml", "vnd.kubernetes.protobuf", "cbor"}, encodings)

	for _, gvk := range externalKinds(t, scheme) {
		server, client := map[string]runtime.Codec{}, map[string]runtime.Codec{}
		for _, encoding := range codecs.SupportedMediaTypes() {
			name, s := encoding.MediaTypeSubType, encoding.Serializer
			server[name] = codecs.CodecForVersions(s, s, gvk.GroupVersion(), runtime.InternalGroupVersioner)
			client[name] = runtime.NewCodec(s, s)
		}
		t.Run(gvk.Version+"."+gvk.Kind+"/server", func(t *testing.T) {
			t.Parallel()
			roundTrip(t, scheme, restaurant.SchemeGroupVersion.WithKind(gvk.Kind), server)
		})
		t.Run(gvk.Version+"."+gvk.Kind+"/client", func(t *testing.T) {
			t.Parallel()
			roundTrip(t, scheme, gvk, client)
		})
	}
}

func roundTrip(t *testing.T, scheme *runtime.Scheme, gvk schema.GroupVersionKind, codecs map[string]runtime.Codec) {
	seed := seed(t)
	filler := fuzzer.New(rand.NewSource(seed), serializer.NewCodecFactory(scheme))
	filled := fields{}
	for range iterations(t) {
		original, err := scheme.New(gvk)
		require.NoError(t, err)
		filler.Fill(original)
		filled.add("", reflect.ValueOf(original))
		if gvk.Version != runtime.APIVersionInternal {
			original.GetObjectKind().SetGroupVersionKind(gvk)
		}

		for encoding, codec := range codecs {
			before := original.DeepCopyObject()
			data, err := runtime.Encode(codec, original)
			require.NoError(t, err, "seed %d, %s", seed, encoding)
			if !equality.Semantic.DeepEqual(before, original) {
				require.Fail(t, "encoding has changed the object", "seed %d, %s:\n%s", seed, encoding, cmp.Diff(before, original))
			}

			decoded, err := runtime.Decode(codec, data)
			require.NoError(t, err, "seed %d, %s", seed, encoding)
			if !equality.Semantic.DeepEqual(original, decoded) {
				require.Fail(t, "the object is not what it was", "seed %d, %s:\n%s", seed, encoding, cmp.Diff(original, decoded))
			}
		}
	}
	assert.Empty(t, filled.empty(), "seed %d: these fields were never filled, so the test says nothing about them", seed)
}

// iterations is the number of objects of a kind in each round trip. "make
// test-fuzz" asks for thousands, which would take too long with the race
// detector.
func iterations(t *testing.T) int {
	value, found := os.LookupEnv("FUZZ_ITERATIONS")
	if !found {
		return 100
	}
	iterations, err := strconv.Atoi(value)
	require.NoError(t, err, "FUZZ_ITERATIONS must be a number")
	require.Positive(t, iterations, "FUZZ_ITERATIONS must let the test test something")
	return iterations
}

// seed differs from run to run; FUZZ_SEED repeats a failed one.
func seed(t *testing.T) int64 {
	value, found := os.LookupEnv("FUZZ_SEED")
	if !found {
		return time.Now().UnixNano()
	}
	seed, err := strconv.ParseInt(value, 10, 64)
	require.NoError(t, err, "FUZZ_SEED must be the seed that a failed test has printed")
	return seed
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return scheme
}

// externalKinds finds the group's kinds in the scheme, so that a new kind or
// version is tested without being listed here.
func externalKinds(t *testing.T, scheme *runtime.Scheme) []schema.GroupVersionKind {
	var internal, external []schema.GroupVersionKind
	for gvk, goType := range scheme.AllKnownTypes() {
		switch {
		case !isOurs(goType): // such as ListOptions, which every group has
		case gvk.Version == runtime.APIVersionInternal:
			internal = append(internal, gvk)
		default:
			external = append(external, gvk)
		}
	}

	for _, gvk := range internal {
		assert.True(t, slices.ContainsFunc(external, func(e schema.GroupVersionKind) bool { return e.Kind == gvk.Kind }),
			"%s is in no version", gvk.Kind)
	}
	for _, gv := range scheme.PrioritizedVersionsForGroup(restaurant.GroupName) {
		assert.True(t, slices.ContainsFunc(external, func(e schema.GroupVersionKind) bool { return e.GroupVersion() == gv }),
			"%s has no kinds", gv)
	}
	require.NotEmpty(t, internal)
	require.NotEmpty(t, external)
	return external
}

func isOurs(goType reflect.Type) bool {
	return strings.HasPrefix(goType.PkgPath(), reflect.TypeFor[restaurant.Pizza]().PkgPath())
}

// fields records by path which fields of the group's objects, and of their
// conditions, had values.
type fields map[string]bool

func (f fields) add(path string, value reflect.Value) {
	switch {
	case value.Type() == reflect.TypeFor[metav1.TypeMeta]():
		return
	case value.Kind() == reflect.Pointer && !value.IsNil():
		f.add(path, value.Elem())
		return
	case value.Kind() == reflect.Slice:
		for i := range value.Len() {
			f.add(path+"[]", value.Index(i))
		}
	case isOurs(value.Type()) || value.Type() == reflect.TypeFor[metav1.Condition]():
		for i := range value.NumField() {
			f.add(path+"."+value.Type().Field(i).Name, value.Field(i))
		}
		return
	}
	f[path] = f[path] || !value.IsZero()
}

func (f fields) empty() []string {
	var paths []string
	for path, filled := range f {
		if !filled {
			paths = append(paths, path)
		}
	}
	return paths
}
