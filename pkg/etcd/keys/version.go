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

package keys

import (
	"bytes"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// protobufPrefix begins objects that are stored as protobuf. A runtime.Unknown follows.
const protobufPrefix = "k8s\x00"

// VersionOf returns the API version of a stored object that has been decrypted.
func VersionOf(data []byte) (string, error) {
	var kind schema.GroupVersionKind
	if encoded, is := bytes.CutPrefix(data, []byte(protobufPrefix)); is {
		var unknown runtime.Unknown
		if err := unknown.Unmarshal(encoded); err != nil {
			return "", fmt.Errorf("it is not an object as protobuf: %w", err)
		}
		kind = schema.FromAPIVersionAndKind(unknown.APIVersion, unknown.Kind)
	} else {
		found, err := json.DefaultMetaFactory.Interpret(data)
		if err != nil {
			return "", fmt.Errorf("it is not an object as JSON: %w", err)
		}
		kind = *found
	}
	if kind.Version == "" {
		return "", errors.New("it does not say its version")
	}
	return kind.Version, nil
}
