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

package customresources

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// A custom resource has no protobuf. The other objects in requests about it have.
func TestProtobuf(t *testing.T) {
	t.Parallel()
	const group, anyProtobuf = "protobuf.example.com", "k8s\x00\x0a\x00"
	ns := framework.Namespace(t, cp)
	define(t, widgets(group, false))
	create(t, group, "v1", ns, "one")
	create(t, group, "v1", ns, "two")
	encode := func(object runtime.Object) string {
		info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
		require.True(t, ok)
		content, err := runtime.Encode(info.Serializer, object)
		require.NoError(t, err)
		return string(content)
	}
	options := encode(&metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}})
	scale := encode(&autoscalingv1.Scale{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: ns},
		Spec:       autoscalingv1.ScaleSpec{Replicas: 3},
	})
	stranger := framework.ConfigFor(t, cp, server, "stranger")
	direct := framework.AdminConfig(t, cp, server)
	for _, test := range []struct {
		name, method, path, contentType, body string
		config                                *rest.Config
		code                                  int
	}{
		{"create", http.MethodPost, "", runtime.ContentTypeProtobuf, anyProtobuf, direct, 415},
		{"create by a stranger", http.MethodPost, "", runtime.ContentTypeProtobuf, anyProtobuf, stranger, 403},
		{"patch of the status", http.MethodPatch, "/one/status", runtime.ContentTypeProtobuf, anyProtobuf, direct, 415},
		{"update of the scale", http.MethodPut, "/one/scale", runtime.ContentTypeProtobuf, scale, direct, 200},
		{"delete with options that are none", http.MethodDelete, "/two", runtime.ContentTypeProtobuf, "{}", direct, 400},
		{"delete", http.MethodDelete, "/two", runtime.ContentTypeProtobuf, options, direct, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			url := test.config.Host + "/apis/" + group + "/v1/namespaces/" + ns + "/widgets" + test.path
			request, err := http.NewRequestWithContext(t.Context(), test.method, url, bytes.NewReader([]byte(test.body)))
			require.NoError(t, err)
			request.Header.Set("Content-Type", test.contentType)
			response, err := framework.HTTPClient(t, test.config).Do(request)
			require.NoError(t, err)
			defer response.Body.Close()
			content, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.Equal(t, test.code, response.StatusCode, "%s", content)
		})
	}
}
