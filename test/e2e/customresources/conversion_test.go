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
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// convertingWebhook converts all but what is called "stuck", while it is broken.
func convertingWebhook(t *testing.T, broken *atomic.Bool) *apiextensionsv1.CustomResourceConversion {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review apiextensionsv1.ConversionReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		response := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
		for _, object := range review.Request.Objects {
			content := &unstructured.Unstructured{}
			_ = content.UnmarshalJSON(object.Raw)
			if broken.Load() && content.GetName() == "stuck" {
				response.ConvertedObjects = nil
				response.Result = metav1.Status{Status: metav1.StatusFailure, Message: "the object stuck has no colour"}
				break
			}
			content.SetAPIVersion(review.Request.DesiredAPIVersion)
			raw, _ := content.MarshalJSON()
			response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Raw: raw})
		}
		review.Request, review.Response = nil, response
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	url := server.URL + "/convert"
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig: &apiextensionsv1.WebhookClientConfig{
				URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
		},
	}
}

// An object that its webhook can't convert is in the way of lists in other versions only, as in
// kube-apiserver. The error names it, and it can be deleted in the version that it is stored in, also after
// a restart.
func TestObjectThatIsNotConverted(t *testing.T) {
	framework.Long(t, "a server restarts")
	t.Parallel()
	const group = "converted.example.com"
	var broken atomic.Bool
	converting, err := framework.NewCRDServer(cp, "crd-apiserver-converting", []string{group})
	require.NoError(t, err)
	require.NoError(t, converting.Start(t.Context()))
	ns := framework.Namespace(t, cp)
	definition := widgets(group, true)
	definition.Spec.Conversion = convertingWebhook(t, &broken)
	defineAt(t, converting, definition)
	for _, name := range []string{"fine", "stuck"} {
		controlplane.Eventually(t, func() error {
			_, err := widgetsIn(group, "v1", ns).Create(t.Context(), widget(group, "v1", name, 1), metav1.CreateOptions{})
			return err
		})
	}
	client, err := dynamicREST(framework.Config(cp))
	require.NoError(t, err)
	list := func(version string) error {
		return client.Get().AbsPath("/apis", group, version, "namespaces", ns, "widgets").MaxRetries(0).Do(t.Context()).Error()
	}
	change := func(version, name string) error {
		_, err := widgetsIn(group, version, ns).Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"size":2}}`), metav1.PatchOptions{})
		return err
	}
	controlplane.Eventually(t, func() error { return list("v2") })
	broken.Store(true)
	const why = "the object stuck has no colour"
	for _, when := range []string{"before", "after"} {
		require.NoError(t, list("v1"), when)
		for _, name := range []string{"fine", "stuck"} {
			_, err := widgetsIn(group, "v1", ns).Get(t.Context(), name, metav1.GetOptions{})
			require.NoError(t, err, when)
			require.NoError(t, change("v1", name), when)
		}
		_, err := widgetsIn(group, "v2", ns).Get(t.Context(), "fine", metav1.GetOptions{})
		require.NoError(t, err, when)
		require.ErrorContains(t, change("v2", "stuck"), why, when)
		err = list("v2")
		require.ErrorContains(t, err, "/"+ns+"/stuck", when)
		require.ErrorContains(t, err, why, when)
		if when == "before" {
			require.NoError(t, converting.Restart(t.Context()))
		}
	}
	require.NoError(t, widgetsIn(group, "v1", ns).Delete(t.Context(), "stuck", metav1.DeleteOptions{}))
	controlplane.Eventually(t, func() error { return list("v2") })
}
