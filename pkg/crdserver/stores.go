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

package crdserver

import (
	"context"
	"fmt"
	"path"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	library "k8s.io/apiextensions-apiserver/pkg/apiserver"
	libraryvalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	libraryoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// stores returns the keys and the encodings of the objects of the cluster's definitions.
func (o *Options) stores(ctx context.Context, config *apiserver.Config) ([]keys.Objects, error) {
	client, err := clientset.NewForConfig(config.Generic.ClientConfig)
	if err != nil {
		return nil, err
	}
	list, err := client.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the CustomResourceDefinitions: %w", err)
	}
	objects := libraryoptions.NewCRDRESTOptionsGetter(*config.Etcd, config.Generic.ResourceTransformers, nil)
	var stores []keys.Objects
	for _, definition := range list.Items {
		if !slices.Contains(o.Groups, definition.Spec.Group) {
			continue
		}
		store := keys.Objects{
			GroupResource: schema.GroupResource{Group: definition.Spec.Group, Resource: definition.Spec.Names.Plural},
			Kind:          definition.Spec.Names.Kind,
			Namespaced:    definition.Spec.Scope == apiextensionsv1.NamespaceScoped,
		}
		for _, version := range definition.Spec.Versions {
			store.Versions = append(store.Versions, version.Name)
			if version.Storage {
				store.StorageVersion = version.Name
			}
		}
		options, err := objects.GetRESTOptions(store.GroupResource, nil)
		if err != nil {
			return nil, err
		}
		store.Prefix = path.Join("/", options.StorageConfig.Prefix, options.ResourcePrefix) + "/"
		// As in kube-apiserver, reading an object prunes the fields that no version has.
		store.Codec, store.Strict = options.StorageConfig.Codec, options.StorageConfig.Codec
		store.Transformer = options.StorageConfig.Transformer
		if store.Validate, err = validation(&definition); err != nil {
			return nil, fmt.Errorf("the schema of %s: %w", definition.Name, err)
		}
		stores = append(stores, store)
	}
	return stores, nil
}

// validation returns a function that validates objects by the schemas of a definition, as this
// server does. A kube-apiserver of another release may have stored invalid objects. Before 1.36, it
// did not limit integers of the format int32.
func validation(definition *apiextensionsv1.CustomResourceDefinition) (func(context.Context, runtime.Object, string) field.ErrorList, error) {
	validators := map[schema.GroupVersion]libraryvalidation.SchemaValidator{}
	for _, version := range definition.Spec.Versions {
		if version.Schema == nil {
			continue
		}
		converted := &apiextensions.CustomResourceValidation{}
		if err := library.Scheme.Convert(version.Schema, converted, nil); err != nil {
			return nil, err
		}
		validator, _, err := libraryvalidation.NewSchemaValidator(converted.OpenAPIV3Schema)
		if err != nil {
			return nil, err
		}
		validators[schema.GroupVersion{Group: definition.Spec.Group, Version: version.Name}] = validator
	}
	return func(_ context.Context, object runtime.Object, version string) field.ErrorList {
		gv := schema.GroupVersion{Group: definition.Spec.Group, Version: version}
		content, ok := object.(*unstructured.Unstructured)
		if !ok || content.GetAPIVersion() != gv.String() {
			return nil // Converting it may take a webhook.
		}
		return libraryvalidation.ValidateCustomResource(nil, content.UnstructuredContent(), validators[gv])
	}, nil
}
