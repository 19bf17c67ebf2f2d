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

package filters

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/testing/requests"
)

func TestBoundMetadata(t *testing.T) {
	codecs := requests.NewCodecs()
	json, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	require.True(t, ok, "there is no serializer for JSON")
	bounds := limits.DefaultBounds()
	owners := func(n int) string {
		owner := `{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"b"}`
		return `"ownerReferences":[` + strings.TrimSuffix(strings.Repeat(owner+",", n), ",") + `]`
	}
	long := strings.Repeat("a", bounds.NameBytes+1)
	const tooMany = "metadata.ownerReferences: must have at most 256 items, not 257"
	for name, test := range map[string]struct {
		metadata, extra string
		strict          bool
		want            string
	}{
		"as many owners as may be":       {owners(bounds.Owners), "", false, ""},
		"an owner more":                  {owners(bounds.Owners + 1), "", false, tooMany},
		"one more and an unknown field":  {owners(bounds.Owners + 1), `,"nonsense":1`, true, tooMany},
		"a name as long as may be":       {fmt.Sprintf(`"name":%q`, long[1:]), "", false, ""},
		"a longer name":                  {fmt.Sprintf(`"name":%q`, long), "", false, "metadata.name: must have at most 1024 bytes, not 1025"},
		"a longer prefix of names":       {fmt.Sprintf(`"generateName":%q`, long), "", false, "metadata.generateName: must have at most 1024 bytes, not 1025"},
		"a longer name of its namespace": {fmt.Sprintf(`"namespace":%q`, long), "", false, "metadata.namespace: must have at most 1024 bytes, not 1025"},
	} {
		t.Run(name, func(t *testing.T) {
			body := fmt.Sprintf(`{"apiVersion":"example.apiserver.k8s.io/v1","kind":"Pod","metadata":{%s}%s}`, test.metadata, test.extra)
			decode := runtime.Decoder(json.Serializer)
			if test.strict {
				decode = json.StrictSerializer
			}
			obj, _, err := BoundObjects(codecs, bounds, nothingStored).DecoderToVersion(decode, example.SchemeGroupVersion).Decode([]byte(body), nil, nil)
			requireError(t, err, test.want)
			require.Equal(t, test.want != "", obj == nil, "got object %v", obj)
		})
	}
}

// Protobuf has managed fields as text. Indented, 80 kB of them that are nested 10,000 levels deep took 200 MB.
func TestDeepManagedFields(t *testing.T) {
	codecs := requests.NewCodecs()
	protobuf, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	require.True(t, ok, "there is no serializer for protobuf")
	bounds := limits.DefaultBounds()
	const tooLong = "metadata.managedFields: the paths of all fields together must not be longer than 8388608 bytes"
	for name, test := range map[string]struct {
		depth, entries int
		stored         bool
		want           string
	}{
		"none":                    {depth: 0, entries: 0},
		"a little":                {depth: 10, entries: 1},
		"much":                    {depth: 1000, entries: 1},
		"too much":                {depth: 9990, entries: 1, want: tooLong},
		"too much together":       {depth: 1000, entries: 5, want: tooLong},
		"many that are not deep":  {depth: 3, entries: 2000},
		"too much that is stored": {depth: 9990, entries: 1, stored: true},
	} {
		t.Run(name, func(t *testing.T) {
			object := &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
			for range test.entries {
				fields := strings.Repeat(`{"f:a":`, test.depth) + "{}" + strings.Repeat("}", test.depth)
				object.ManagedFields = append(object.ManagedFields, metav1.ManagedFieldsEntry{Manager: "a", FieldsV1: metav1.NewFieldsV1(fields)})
			}
			body, err := runtime.Encode(codecs.EncoderForVersion(protobuf.Serializer, examplev1.SchemeGroupVersion), object)
			require.NoError(t, err)
			stored := nothingStored
			if test.stored {
				stored = func(schema.GroupVersionKind, string, string) metav1.Object { return object }
			}
			_, _, err = BoundObjects(codecs, bounds, stored).DecoderToVersion(protobuf.Serializer, example.SchemeGroupVersion).Decode(body, nil, nil)
			requireError(t, err, test.want)
		})
	}
}

func TestTooManyElements(t *testing.T) {
	codecs := requests.NewCodecs()
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	require.True(t, ok, "there is no serializer for protobuf")
	bounds := limits.DefaultBounds()
	decoder := BoundObjects(codecs, bounds, nothingStored).DecoderToVersion(info.Serializer, example.SchemeGroupVersion)
	for name, test := range map[string]struct {
		finalizers int
		want       string
	}{
		// A pod has some others.
		"at the limit": {bounds.BodyElements - 20, ""},
		"too many":     {bounds.BodyElements + 2, "must not have more than 20000 elements"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &examplev1.Pod{ObjectMeta: metav1.ObjectMeta{Finalizers: make([]string, test.finalizers)}}
			body, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, examplev1.SchemeGroupVersion), pod)
			require.NoError(t, err)
			_, _, err = decoder.Decode(body, nil, nil)
			requireError(t, err, test.want)
		})
	}
}

func nothingStored(schema.GroupVersionKind, string, string) metav1.Object { return nil }

// An object that is larger in etcd than the bounds allow may stay so, but not grow. Otherwise clients
// could not remove its finalizers.
func TestBoundsOfStoredObjects(t *testing.T) {
	codecs := requests.NewCodecs()
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	require.True(t, ok)
	bounds := limits.DefaultBounds()
	pod := func(owners, annotations, managed int) *examplev1.Pod {
		made := &examplev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one", OwnerReferences: make([]metav1.OwnerReference, owners), Annotations: map[string]string{}}}
		for i := range annotations {
			made.Annotations[fmt.Sprint("a", i)] = ""
		}
		fields := "{" + strings.TrimSuffix(strings.Repeat(`"f:a":{},`, managed), ",") + "}"
		made.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(fields)}}
		return made
	}
	for name, test := range map[string]struct {
		stored, now *examplev1.Pod
		want        string
	}{
		"as many owners":            {pod(300, 0, 1), pod(300, 0, 1), ""},
		"fewer owners":              {pod(300, 0, 1), pod(299, 0, 1), ""},
		"an owner more":             {pod(300, 0, 1), pod(301, 0, 1), "metadata.ownerReferences: must have at most 300 items, not 301"},
		"as many elements":          {pod(0, 25_000, 1), pod(0, 25_000, 1), ""},
		"fewer elements":            {pod(0, 25_000, 1), pod(0, 24_999, 1), ""},
		"an element more":           {pod(0, 25_000, 1), pod(0, 25_001, 1), "must not have more than 25018 elements"},
		"a stored one that is less": {pod(1, 1, 1), pod(0, 25_000, 1), "must not have more than 20000 elements"},
		"nothing stored":            {nil, pod(0, 25_000, 1), "must not have more than 20000 elements"},
		// An object that a client was allowed to create can be changed, although its fields are managed.
		"elements and their managers":    {nil, pod(0, 15_000, 15_000), ""},
		"as many managed fields":         {pod(0, 1, 25_000), pod(0, 1, 25_000), ""},
		"a managed field more":           {pod(0, 1, 25_000), pod(0, 1, 25_001), "metadata.managedFields: all lists and objects together must not have more than 25000 elements"},
		"managed fields of the stored":   {pod(0, 25_000, 1), pod(0, 1, 25_000), "metadata.managedFields: all lists and objects together must not have more than 20000 elements"},
		"elements of the managed fields": {pod(0, 1, 25_000), pod(0, 25_000, 1), "must not have more than 20000 elements"},
	} {
		t.Run(name, func(t *testing.T) {
			decoder := BoundObjects(codecs, bounds, func(kind schema.GroupVersionKind, namespace, name string) metav1.Object {
				require.Equal(t, examplev1.SchemeGroupVersion.WithKind("Pod"), kind)
				require.Equal(t, "default/one", namespace+"/"+name)
				if test.stored == nil {
					return nil
				}
				stored, _, err := codecs.DecoderToVersion(info.Serializer, example.SchemeGroupVersion).Decode(encoded(t, codecs, info, test.stored), nil, nil)
				require.NoError(t, err)
				return stored.(metav1.Object)
			}).DecoderToVersion(info.Serializer, example.SchemeGroupVersion)
			_, _, err := decoder.Decode(encoded(t, codecs, info, test.now), nil, nil)
			requireError(t, err, test.want)
		})
	}
}

func encoded(t *testing.T, codecs runtime.NegotiatedSerializer, info runtime.SerializerInfo, pod *examplev1.Pod) []byte {
	t.Helper()
	body, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, examplev1.SchemeGroupVersion), pod)
	require.NoError(t, err)
	return body
}

// requireError fails unless the error contains want, or is none if that is empty.
func requireError(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		require.NoError(t, err)
		return
	}
	require.ErrorContains(t, err, want)
}
