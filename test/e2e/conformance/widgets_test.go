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

package conformance

import (
	"context"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// Both groups have the same kind. kube-apiserver serves one of them, and crd-apiserver the other.
const (
	definedGroup = "defined.example.com"
	servedGroup  = "served.example.com"
)

// widgets is the definition of the kind in a group.
const widgets = `
metadata: {name: widgets.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wg], categories: [examined]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 0, maximum: 100}
              colour: {type: string, default: red}
              replicas: {type: integer}
              note: {type: string, nullable: true}
              ports:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [number]
                items:
                  type: object
                  required: [number]
                  properties: {number: {type: integer}, name: {type: string}}
          status:
            type: object
            properties:
              replicas: {type: integer}
              conditions:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [type]
                items:
                  type: object
                  required: [type, status]
                  properties:
                    type: {type: string}
                    status: {type: string}
                    reason: {type: string}
                    message: {type: string}
                    lastTransitionTime: {type: string, format: date-time}
`

// widget is an example of the kind.
func widget(group string) string {
	return fmt.Sprintf("apiVersion: %s/v1\nkind: Widget\nspec: {size: 3, replicas: 1, ports: [{number: 80, name: web}]}", group)
}

// defineKinds defines widgets in both groups. crd-apiserver serves one of them.
func defineKinds(ctx context.Context, cp *controlplane.ControlPlane) error {
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, group := range []string{definedGroup, servedGroup} {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(widgets, "GROUP", group)), definition); err != nil {
			return err
		}
		beta := definition.Spec.Versions[0]
		beta.Name, beta.Storage = "v1beta1", false
		definition.Spec.Versions = append(definition.Spec.Versions, beta)
		definitions = append(definitions, definition)
	}
	client := apiextensions.NewForConfigOrDie(framework.Config(cp)).ApiextensionsV1().CustomResourceDefinitions()
	for _, definition := range definitions {
		if _, err := client.Create(ctx, definition, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	server, err := framework.StartCRDServer(ctx, cp, controlplane.ComponentConfig{}, servedGroup)
	if err != nil {
		return err
	}
	return framework.RegisterCRDServer(ctx, cp, server, servedGroup)
}

// waitForOpenAPI waits until kube-apiserver has read the OpenAPI documents of all servers. It does so
// in its own time.
func waitForOpenAPI(ctx context.Context, cp *controlplane.ControlPlane) error {
	for _, group := range []string{definedGroup, servedGroup, restaurant.GroupName} {
		if err := framework.AwaitOpenAPI(ctx, cp, group+"/v1"); err != nil {
			return err
		}
	}
	return nil
}
