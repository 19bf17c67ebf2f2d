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

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	libraryoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/storage"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// stores returns where and how the objects of the cluster's definitions are stored.
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
		// Fields that no version has are pruned as objects are read, as in kube-apiserver.
		store.Codec, store.Strict = options.StorageConfig.Codec, options.StorageConfig.Codec
		store.Transformer = options.StorageConfig.Transformer
		store.Encryption = storage.EncryptionOf(store.Transformer)
		stores = append(stores, store)
	}
	return stores, nil
}
