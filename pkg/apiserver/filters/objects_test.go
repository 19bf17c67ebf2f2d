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
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/testing/requests"
)

func TestBoundMetadata(t *testing.T) {
	codecs := requests.NewCodecs()
	json, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		t.Fatal("there is no serializer for JSON")
	}
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
			obj, _, err := BoundObjects(codecs, bounds).DecoderToVersion(decode, example.SchemeGroupVersion).Decode([]byte(body), nil, nil)
			requireError(t, err, test.want)
			if (obj == nil) != (test.want != "") {
				t.Errorf("got object %v", obj)
			}
		})
	}
}

func TestTooManyElements(t *testing.T) {
	codecs := requests.NewCodecs()
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		t.Fatal("there is no serializer for protobuf")
	}
	bounds := limits.DefaultBounds()
	decoder := BoundObjects(codecs, bounds).DecoderToVersion(info.Serializer, example.SchemeGroupVersion)
	for name, test := range map[string]struct {
		finalizers int
		want       string
	}{
		// A pod has some others.
		"at the limit": {bounds.BodyElements - 20, ""},
		"too many":     {bounds.BodyElements + 2, "all lists and objects together must not have more than 20000 elements"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &examplev1.Pod{ObjectMeta: metav1.ObjectMeta{Finalizers: make([]string, test.finalizers)}}
			body, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, examplev1.SchemeGroupVersion), pod)
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = decoder.Decode(body, nil, nil)
			requireError(t, err, test.want)
		})
	}
}

// requireError fails unless the error has this message, or is none if that is empty.
func requireError(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		require.NoError(t, err)
		return
	}
	require.EqualError(t, err, want)
}
