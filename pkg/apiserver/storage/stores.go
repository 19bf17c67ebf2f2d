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

package storage

import (
	"context"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/value"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// Stores returns where and how each resource of the groups in Go is stored, and the encryption of any
// resource. In config, it sets only the parts that concern etcd.
func (o Config) Stores(config *genericapiserver.Config, scheme *runtime.Scheme, codecs serializer.CodecFactory) ([]keys.Objects, *genericoptions.EtcdOptions, func(schema.GroupResource) value.Transformer, error) {
	options := *o.Etcd
	options.SkipHealthEndpoints = true
	factory, transformers, err := o.applyStored(&options, config, scheme, codecs)
	if err != nil {
		return nil, nil, nil, err
	}
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	var stores []keys.Objects
	for _, group := range o.Groups {
		for _, kind := range group.Kinds {
			described := kind.Describe()
			if !described.Stored {
				continue
			}
			store := keys.Objects{
				GroupResource: schema.GroupResource{Group: group.Name, Resource: described.Resource},
				Namespaced:    described.Namespaced,
				Strict:        strict.UniversalDecoder(schema.GroupVersion{Group: group.Name, Version: runtime.APIVersionInternal}),
			}
			kinds, _, err := scheme.ObjectKinds(described.New())
			if err != nil {
				return nil, nil, nil, err
			}
			store.Kind = kinds[0].Kind
			for _, version := range scheme.PrioritizedVersionsForGroup(group.Name) {
				if scheme.Recognizes(version.WithKind(store.Kind)) {
					store.Versions = append(store.Versions, version.Version)
				}
			}
			rest, err := config.RESTOptionsGetter.GetRESTOptions(store.GroupResource, described.New())
			if err != nil {
				return nil, nil, nil, err
			}
			store.Prefix = path.Join("/", rest.StorageConfig.Prefix, rest.ResourcePrefix) + "/"
			if servers := rest.StorageConfig.Transport.ServerList; !slices.Equal(servers, options.StorageConfig.Transport.ServerList) {
				store.Servers = servers
			}
			store.Codec = rest.StorageConfig.Codec
			version, err := factory.ResourceEncodingConfig.StorageEncodingFor(store.GroupResource)
			if err != nil {
				return nil, nil, nil, err
			}
			store.StorageVersion = version.Version
			store.Convert = func(object runtime.Object, version string) error {
				_, err := scheme.ConvertToVersion(object.DeepCopyObject(), schema.GroupVersion{Group: group.Name, Version: version})
				return err
			}
			if described.Validate != nil {
				store.Validate = func(ctx context.Context, object runtime.Object, version string) field.ErrorList {
					return described.Validate(ctx, scheme, schema.GroupVersion{Group: group.Name, Version: version}, object)
				}
			}
			store.Transformer = rest.StorageConfig.Transformer
			store.Encryption = transformers.encryptionOf(store.GroupResource)
			stores = append(stores, store)
		}
	}
	return stores, &options, transformers.encryptionOf, nil
}
