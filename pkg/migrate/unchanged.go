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

package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
)

// digestsOf returns hashes of the fields of a definition's spec, and its UID.
func digestsOf(definition *unstructured.Unstructured) (map[string]string, error) {
	spec, _, err := unstructured.NestedMap(definition.Object, "spec")
	if err != nil {
		return nil, err
	}
	// Certificates are renewed, which changes nothing about the objects.
	unstructured.RemoveNestedField(spec, "conversion", "webhook", "clientConfig", "caBundle")
	digests := map[string]string{"metadata.uid": string(definition.GetUID())}
	for field, value := range spec {
		data, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(data)
		digests["spec."+field] = hex.EncodeToString(sum[:16])
	}
	return digests, nil
}

// unchanged returns an error unless the definitions are those with which the migration has begun. The
// plan was about these, and the objects were copied for them.
func (s *session) unchanged(ctx context.Context) error {
	if s.state.Definitions == nil {
		return nil // An older release has begun it.
	}
	found, err := s.definitions(ctx)
	if err != nil {
		return err
	}
	now := map[string]map[string]string{}
	var changes []string
	for _, d := range found {
		now[d.Name] = d.digests
		if d.DeletionTimestamp != nil {
			changes = append(changes, d.Name+" is being deleted")
		}
	}
	for _, name := range sets.List(sets.KeySet(now).Union(sets.KeySet(s.state.Definitions))) {
		before, known := s.state.Definitions[name]
		after, exists := now[name]
		switch {
		case !exists:
			changes = append(changes, name+" is gone")
		case !known:
			changes = append(changes, name+" is new")
		case !maps.Equal(before, after):
			changes = append(changes, name+" has another "+strings.Join(differing(before, after), ", "))
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return fmt.Errorf("the CustomResourceDefinitions of %s have changed since the migration began: %s; clients use them as before: "+
		"change them back and run this again, or run \"migrate abort\", and then plan and run a migration of what they define now", s.state.Group, strings.Join(changes, "; "))
}

// differing are the keys whose values differ.
func differing(before, after map[string]string) (keys []string) {
	for key := range sets.KeySet(before).Union(sets.KeySet(after)) {
		if before[key] != after[key] {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
