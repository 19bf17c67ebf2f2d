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
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
)

// ValidateEncryption returns the errors of the file of --encryption-provider-config. The
// library reports them only after everything that the server waits for. It silently leaves
// resources unencrypted that the file does not name.
// Upstream fault 36.
func (o Config) ValidateEncryption() error {
	path := o.Etcd.EncryptionProviderConfigFilepath
	if path == "" {
		return nil
	}
	configuration, err := readEncryptionConfiguration(path, o.Etcd.EncryptionProviderConfigAutomaticReload)
	if err == nil {
		stored := sets.New[schema.GroupResource]()
		for _, group := range o.Groups {
			stored = stored.Union(sets.KeySet(group.StoragePrefixes()))
		}
		open := sets.New[string]()
		if o.Custom {
			open.Insert(o.CustomGroups()...)
		}
		err = validateEncryptedResources(configuration, stored, open)
	}
	if err != nil {
		return fmt.Errorf("--encryption-provider-config %s can't be used: %w", path, err)
	}
	return nil
}

func readEncryptionConfiguration(path string, reload bool) (*apiserver.EncryptionConfiguration, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	configuration := &apiserver.EncryptionConfiguration{}
	if err := runtime.DecodeInto(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), content, configuration); err != nil {
		return nil, fmt.Errorf("it must hold an EncryptionConfiguration of apiserver.config.k8s.io/v1: %w", err)
	}
	return configuration, validation.ValidateEncryptionConfiguration(configuration, reload).ToAggregate()
}

// validateEncryptedResources returns an error if the configuration names no stored
// resource, or names one that this server does not store. In an open group any resource can
// be stored.
// Upstream fault 37.
func validateEncryptedResources(configuration *apiserver.EncryptionConfiguration, stored sets.Set[schema.GroupResource], open sets.Set[string]) error {
	groups, names := sets.New("*").Union(open), sets.New[string]()
	for group := range open {
		names.Insert("*." + group)
	}
	for resource := range stored {
		groups.Insert(resource.Group)
		names.Insert(resource.String())
	}
	effective := false
	for i, entry := range configuration.Resources {
		for j, name := range entry.Resources {
			resource := schema.ParseGroupResource(name)
			if !groups.Has(resource.Group) {
				continue // It is for another server that has the same file.
			}
			if resource.Resource != "*" && !stored.Has(resource) && !open.Has(resource.Group) {
				return fmt.Errorf("resources[%d].resources[%d] is %q, but this server stores %s only: correct or remove it", i, j, name, list(names))
			}
			effective = true
		}
	}
	if !effective {
		return fmt.Errorf("nothing would be encrypted, since it names nothing that this server stores: add %s, or \"*.*\" for everything", list(names))
	}
	return nil
}

func list(names sets.Set[string]) string { return strings.Join(sets.List(names), ", ") }
