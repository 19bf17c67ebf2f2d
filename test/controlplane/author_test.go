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

package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cmd/server"
	"restaurant.programming-kubernetes.info/apiserver/pkg/groups/restaurant"
)

// inProcess runs the server of this module in the process of the test.
func inProcess(ctx context.Context, flags []string) error {
	cmd := server.NewCommand(ctx, "apiserver", restaurant.Group())
	cmd.SetArgs(flags)
	return cmd.ExecuteContext(ctx)
}

var toppings = schema.GroupVersionResource{Group: "restaurant.programming-kubernetes.info", Version: "v1", Resource: "toppings"}

func TestServerInTheProcessOfTheTest(t *testing.T) {
	config := Config{}
	config.ControllerManager.Off = true
	config.APIServer.Run = inProcess
	cp := ForTest(t, config)
	require.Equal(t, os.Getpid(), cp.APIServer.PID())
	require.NoError(t, cp.Apply(t.Context(), "../../artifacts/examples"))

	cook, err := cp.RESTConfigForServiceAccount("kitchen", "cook")
	require.NoError(t, err)
	_, err = dynamicFor(t, cp).Resource(toppings).Get(t.Context(), "tomato", metav1.GetOptions{})
	require.NoError(t, err)
	_, err = dynamic.NewForConfigOrDie(cook).Resource(toppings).Get(t.Context(), "tomato", metav1.GetOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, `User "system:serviceaccount:kitchen:cook" cannot get resource "toppings"`)

	// The server stops, and its objects stay.
	cp.APIServer.Kill()
	require.Zero(t, cp.APIServer.PID())
}

func TestServerInTheProcessThatFails(t *testing.T) {
	if testing.Short() {
		t.Skip("long: it has a control plane of its own")
	}
	config := Config{Dir: t.TempDir()}
	config.ControllerManager.Off = true
	config.APIServer.Run = func(context.Context, []string) error { return fmt.Errorf("no flour") }
	_, err := Start(t.Context(), config)
	require.ErrorContains(t, err, "apiserver did not become ready: apiserver ended by itself, with no flour")
}

func TestApply(t *testing.T) {
	cp := ForTest(t, bare(""))
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	write("1-oven.yaml", `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: ovens.bakery.example.com}, spec: {
		group: bakery.example.com, scope: Cluster, names: {kind: Oven, plural: ovens},
		versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`)
	write("2-ovens.json", `{"apiVersion": "bakery.example.com/v1", "kind": "Oven", "metadata": {"name": "stone"}}`)
	write("README.md", "no object")
	require.NoError(t, cp.Apply(t.Context(), dir))
	ovens := schema.GroupVersionResource{Group: "bakery.example.com", Version: "v1", Resource: "ovens"}
	_, err := dynamicFor(t, cp).Resource(ovens).Get(t.Context(), "stone", metav1.GetOptions{})
	require.NoError(t, err)

	require.ErrorContains(t, cp.Apply(t.Context(), t.TempDir()), "there are no objects in the YAML and JSON files")
	require.ErrorContains(t, cp.Apply(t.Context(), filepath.Join(dir, "3.yaml")), "no such file")
	write("invalid.yaml", `{apiVersion: v1, kind: ConfigMap, metadata: {name: A_B}}`)
	require.ErrorContains(t, cp.Apply(t.Context(), filepath.Join(dir, "invalid.yaml")), `cannot apply ConfigMap A_B: ConfigMap "A_B" is invalid`)

	// A webhook that this test serves.
	url, err := cp.ServeHTTPS(http.HandlerFunc(refuse))
	require.NoError(t, err)
	ca, err := json.Marshal(cp.PKI.ServingCA.CertPEM())
	require.NoError(t, err)
	webhook := filepath.Join(t.TempDir(), "webhook.yaml")
	require.NoError(t, os.WriteFile(webhook, fmt.Appendf(nil, `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: ovens}, webhooks: [{
		name: ovens.bakery.example.com, admissionReviewVersions: [v1], sideEffects: None, clientConfig: {url: %q, caBundle: %s},
		rules: [{operations: [DELETE], apiGroups: [bakery.example.com], apiVersions: [v1], resources: [ovens]}]}]}`, url+"/validate", ca), 0o600))
	require.NoError(t, cp.Apply(t.Context(), webhook))
	Eventually(t, func() error {
		err := dynamicFor(t, cp).Resource(ovens).Delete(t.Context(), "stone", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return fmt.Errorf("the webhook is not called yet")
		}
		require.ErrorContains(t, err, "it is hot")
		return nil
	})
}

// refuse is a webhook that denies everything.
func refuse(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "it is hot"}}
	if err := json.NewEncoder(w).Encode(review); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func TestTimeouts(t *testing.T) {
	if testing.Short() {
		t.Skip("long: timeouts are waited for")
	}
	config := bare(t.TempDir())
	config.Timeouts.Ready = time.Nanosecond
	_, err := Start(t.Context(), config)
	require.ErrorContains(t, err, "etcd did not become ready: 1ns are over")

	var defaults Config
	require.NoError(t, defaults.complete())
	require.Equal(t, Timeouts{Ready: 5 * time.Minute, Stop: 2 * time.Minute}, defaults.Timeouts)
}

func dynamicFor(t *testing.T, cp *ControlPlane) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(cp.RESTConfig())
	require.NoError(t, err)
	return client
}
