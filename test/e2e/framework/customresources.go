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

package framework

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// webhookService is the name of the webhook's Service in the manifests.
var webhookService = types.NamespacedName{Namespace: "restaurant-system", Name: "webhook"}

// NewWebhook adds a webhook that runs as in the manifests.
func NewWebhook(cp *controlplane.ControlPlane, name string, flags ...string) (*controlplane.Component, error) {
	return newWebhook(cp, name, controlplane.ComponentConfig{Flags: flags})
}

func newWebhook(cp *controlplane.ControlPlane, name string, config controlplane.ComponentConfig) (*controlplane.Component, error) {
	return cp.NewWebhook(name, controlplane.WebhookConfig{
		ComponentConfig: config,
		Service:         webhookService,
		Account:         types.NamespacedName{Namespace: webhookService.Namespace, Name: "webhook"},
	})
}

// DefineRestaurant installs the restaurant's CustomResourceDefinitions and starts their webhook. It
// returns when kube-apiserver serves both kinds.
func DefineRestaurant(ctx context.Context, cp *controlplane.ControlPlane, config controlplane.ComponentConfig) (*controlplane.Component, error) {
	webhook, err := newWebhook(cp, "webhook", config)
	if err != nil {
		return nil, err
	}
	manifests, err := Kustomize(ctx, cp, "artifacts/crd")
	if err != nil {
		return nil, err
	}
	if err := Apply(ctx, cp, CallAt(cp, webhook, manifests)); err != nil {
		return nil, err
	}
	var reason error
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, controlplane.Patience, true, func(ctx context.Context) (bool, error) {
		// This version needs no conversion.
		_, pizzas := Dynamic(cp).Resource(restaurantv1.SchemeGroupVersion.WithResource("pizzas")).List(ctx, metav1.ListOptions{})
		_, toppings := Dynamic(cp).Resource(restaurantv1.SchemeGroupVersion.WithResource("toppings")).List(ctx, metav1.ListOptions{})
		reason = errors.Join(pizzas, toppings)
		return reason == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("the custom resources are not served: %w", reason)
	}
	if err := webhook.Start(ctx); err != nil {
		return nil, err
	}
	return webhook, nil
}

// Kustomize returns the objects of a kustomization of this repository.
func Kustomize(ctx context.Context, cp *controlplane.ControlPlane, path string) ([]*unstructured.Unstructured, error) {
	output, err := cp.Kubectl(ctx, "kustomize", filepath.Join("..", "..", "..", path)).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, fmt.Errorf("kubectl kustomize %s: %s", path, exit.Stderr)
	}
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(output), len(output)+1); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
}

// CallAt makes kube-apiserver call the webhook's process, as an overlay would. It adds the port,
// the paths and the certificate authority to the objects. The Service is another name for
// localhost.
func CallAt(cp *controlplane.ControlPlane, webhook *controlplane.Component, objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	for _, object := range objects {
		switch object.GetKind() {
		case "Service":
			object.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "localhost"}
		case "CustomResourceDefinition":
			at(cp, webhook, "/convert", object.Object["spec"].(map[string]any)["conversion"].(map[string]any)["webhook"])
		case "MutatingWebhookConfiguration":
			at(cp, webhook, "/admit", object.Object["webhooks"].([]any)...)
		case "ValidatingWebhookConfiguration":
			at(cp, webhook, "/validate", object.Object["webhooks"].([]any)...)
		}
	}
	return objects
}

func at(cp *controlplane.ControlPlane, webhook *controlplane.Component, path string, callers ...any) {
	for _, caller := range callers {
		config := caller.(map[string]any)["clientConfig"].(map[string]any)
		config["caBundle"] = base64.StdEncoding.EncodeToString(cp.PKI.ServingCA.CertPEM())
		service := config["service"].(map[string]any)
		service["port"], service["path"] = int64(webhook.Port()), path
	}
}

// Apply applies objects by kubectl with strict validation.
func Apply(ctx context.Context, cp *controlplane.ControlPlane, objects []*unstructured.Unstructured) error {
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	for _, object := range objects {
		list.Items = append(list.Items, *object)
	}
	content, err := list.MarshalJSON()
	if err != nil {
		return err
	}
	cmd := cp.Kubectl(ctx, "apply", "--server-side", "--validate=strict", "--filename=-")
	cmd.Stdin = bytes.NewReader(content)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl apply: %w: %s", err, output)
	}
	return nil
}

// DeleteDefinition deletes a CustomResourceDefinition, and returns when it is gone.
func DeleteDefinition(t *testing.T, cp *controlplane.ControlPlane, name string) {
	t.Helper()
	definitions := apiextensions.NewForConfigOrDie(Config(cp)).ApiextensionsV1().CustomResourceDefinitions()
	require.NoError(t, definitions.Delete(t.Context(), name, metav1.DeleteOptions{}))
	controlplane.Eventually(t, func() error {
		definition, err := definitions.Get(t.Context(), name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		terminating := apihelpers.FindCRDCondition(definition, apiextensionsv1.Terminating)
		if terminating == nil || terminating.Reason != "InstanceDeletionFailed" {
			return fmt.Errorf("kube-apiserver still has the definition %s", name)
		}
		// kube-apiserver could not list the objects while its watch cache was filling. After that
		// condition it may not retry before its resync, five minutes later, unless the definition
		// changes.
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/again":%q}}}`, time.Now().Format(time.RFC3339Nano))
		_, err = definitions.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
		return errors.Join(fmt.Errorf("kube-apiserver could not delete the objects of %s: %s", name, terminating.Message), err)
	})
}
