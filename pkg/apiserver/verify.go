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

package apiserver

import (
	"context"
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// NewStoredVerifier returns a function that finds out whether a server with these flags could
// serve what etcd has under a key: whether it can be decrypted, decoded, and converted to
// every version of its group. It returns the resource, or "" for what is not an object of the
// groups.
func (o CompletedOptions) NewStoredVerifier(ctx context.Context) (func(key string, stored []byte) (resource string, err error), error) {
	scheme := runtime.NewScheme()
	registry.InstallMeta(scheme)
	prefixes := map[string]schema.GroupResource{}
	for _, group := range o.groups {
		if err := group.InstallTypes(scheme); err != nil {
			return nil, err
		}
		for resource, prefix := range group.StoragePrefixes() {
			prefixes[path.Join("/", o.Etcd.StorageConfig.Prefix, prefix)+"/"] = resource
		}
	}
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	transformers := map[schema.GroupResource]value.Transformer{}
	if file := o.Etcd.EncryptionProviderConfigFilepath; file != "" {
		encryption, err := encryptionconfig.LoadEncryptionConfig(ctx, file, false, o.name)
		if err != nil {
			return nil, fmt.Errorf("--encryption-provider-config %s can't be used: %w", file, err)
		}
		static := encryptionconfig.StaticTransformers(encryption.Transformers)
		for _, resource := range prefixes {
			transformers[resource] = static.TransformerForResource(resource)
		}
	}
	return func(key string, stored []byte) (string, error) {
		for prefix, resource := range prefixes {
			if strings.HasPrefix(key, prefix) {
				return resource.String(), verifyStored(ctx, scheme, decoder, transformers[resource], key, stored)
			}
		}
		return "", nil
	}, nil
}

func verifyStored(ctx context.Context, scheme *runtime.Scheme, decoder runtime.Decoder, transformer value.Transformer, key string, stored []byte) error {
	content, err := etcd.OpenValue(key, stored)
	if err != nil {
		return err
	}
	if transformer != nil {
		if content, _, err = transformer.TransformFromStorage(ctx, content, value.DefaultContext(key)); err != nil {
			return fmt.Errorf("it can't be decrypted, see --encryption-provider-config: %w", err)
		}
	}
	object, gvk, err := decoder.Decode(content, nil, nil)
	if err != nil {
		return fmt.Errorf("it can't be decoded: %w", err)
	}
	internal, err := scheme.ConvertToVersion(object, schema.GroupVersion{Group: gvk.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		return fmt.Errorf("it can't be converted: %w", err)
	}
	for _, version := range scheme.PrioritizedVersionsForGroup(gvk.Group) {
		if _, err := scheme.ConvertToVersion(internal, version); err != nil {
			return fmt.Errorf("it can't be converted to %s: %w", version, err)
		}
	}
	return nil
}
