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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/install"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
)

func TestTooManyOwners(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme)
	json, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		t.Fatal("there is no serializer for JSON")
	}
	for name, test := range map[string]struct {
		owners int
		extra  string
		strict bool
		want   string
	}{
		"as many as may be":             {maxOwners, "", false, ""},
		"one more":                      {maxOwners + 1, "", false, "metadata.ownerReferences: must have at most 256 items, not 257"},
		"one more and an unknown field": {maxOwners + 1, `,"nonsense":1`, true, "metadata.ownerReferences: must have at most 256 items, not 257"},
	} {
		t.Run(name, func(t *testing.T) {
			owner := `{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"b"}`
			body := fmt.Sprintf(`{"apiVersion":"restaurant.programming-kubernetes.info/v1","kind":"Topping","metadata":{"name":"a","ownerReferences":[%s]}%s}`,
				strings.Join(strings.Split(strings.Repeat(owner+" ", test.owners-1)+owner, " "), ","), test.extra)
			decode := runtime.Decoder(json.Serializer)
			if test.strict {
				decode = json.StrictSerializer
			}
			obj, _, err := BoundObjects(codecs).DecoderToVersion(decode, restaurant.SchemeGroupVersion).Decode([]byte(body), nil, nil)
			if test.want != "" {
				if err == nil || err.Error() != test.want || obj != nil {
					t.Errorf("got %v and error %v, want only %q", obj, err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := len(obj.(metav1.Object).GetOwnerReferences()); got != test.owners {
				t.Errorf("got %d owners, want %d", got, test.owners)
			}
		})
	}
}

func TestTooManyElements(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme)
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		t.Fatal("there is no serializer for protobuf")
	}
	decoder := BoundObjects(codecs).DecoderToVersion(info.Serializer, restaurant.SchemeGroupVersion)
	decode := func(finalizers int) error {
		topping := &restaurantv1.Topping{ObjectMeta: metav1.ObjectMeta{Finalizers: make([]string, finalizers)}}
		body, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, restaurantv1.SchemeGroupVersion), topping)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = decoder.Decode(body, nil, nil)
		return err
	}
	if err := decode(maxElements - 10); err != nil { // A topping has a few others.
		t.Error(err)
	}
	const want = "all lists and objects together must not have more than 20000 elements"
	if err := decode(maxElements + 2); err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
}
