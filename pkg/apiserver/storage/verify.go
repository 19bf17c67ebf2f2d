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
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// NewVerifier returns a function that finds out whether a server could serve a value in etcd. It
// decrypts and decodes the value, and converts it to every version of its group. The function
// returns the resource, or "" if the value is not an object.
//
// Objects that are not of groups in Go are only decoded and compared with their keys, since it
// takes more than etcd to convert them.
func (o Config) NewVerifier(ctx context.Context) (func(key string, stored []byte) (resource string, err error), error) {
	scheme := runtime.NewScheme()
	registry.InstallMeta(scheme)
	root := path.Join("/", o.Etcd.StorageConfig.Prefix) + "/"
	prefixes := map[string]schema.GroupResource{}
	for _, group := range o.Groups {
		if err := group.InstallTypes(scheme); err != nil {
			return nil, err
		}
		for resource, prefix := range group.StoragePrefixes() {
			prefixes[path.Join(root, prefix)+"/"] = resource
		}
	}
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	transformers := encryptionconfig.StaticTransformers{}
	if file := o.Etcd.EncryptionProviderConfigFilepath; file != "" {
		encryption, err := encryptionconfig.LoadEncryptionConfig(ctx, file, false, o.Name)
		if err != nil {
			return nil, fmt.Errorf("--encryption-provider-config %s can't be used: %w", file, err)
		}
		transformers = encryption.Transformers
	}
	return func(key string, stored []byte) (string, error) {
		for prefix, resource := range prefixes {
			if strings.HasPrefix(key, prefix) {
				content, err := openStored(ctx, transformers.TransformerForResource(resource), key, stored)
				if err == nil {
					err = verifyStored(scheme, decoder, content)
				}
				return resource.String(), err
			}
		}
		place := strings.Split(strings.TrimPrefix(key, root), "/")
		// The server's own values in etcd are not in groups that are domains.
		if !o.Custom || !strings.HasPrefix(key, root) || len(place) < 3 || !strings.Contains(place[0], ".") {
			return "", nil
		}
		resource := schema.GroupResource{Group: place[0], Resource: place[1]}
		content, err := openStored(ctx, transformers.TransformerForResource(resource), key, stored)
		if err == nil {
			err = verifyCustom(resource, place[2:], content)
		}
		return resource.String(), err
	}, nil
}

// openStored returns a stored value without its checksum and its encryption.
func openStored(ctx context.Context, transformer value.Transformer, key string, stored []byte) ([]byte, error) {
	content, err := etcd.OpenValue(key, stored)
	if err != nil {
		return nil, err
	}
	if content, _, err = transformer.TransformFromStorage(ctx, content, value.DefaultContext(key)); err != nil {
		return nil, fmt.Errorf("it can't be decrypted, see --encryption-provider-config: %w", err)
	}
	return content, nil
}

// verifyCustom verifies a custom resource that is stored at a place: its namespace, if it has one,
// and its name.
func verifyCustom(resource schema.GroupResource, place []string, content []byte) error {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(content); err != nil {
		return fmt.Errorf("it can't be decoded: %w", err)
	}
	if group := object.GroupVersionKind().Group; group != resource.Group {
		return fmt.Errorf("it is an object of the group %q", group)
	}
	if name := path.Join(object.GetNamespace(), object.GetName()); name != path.Join(place...) {
		return fmt.Errorf("it is the object %s", name)
	}
	return nil
}

func verifyStored(scheme *runtime.Scheme, decoder runtime.Decoder, content []byte) error {
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
