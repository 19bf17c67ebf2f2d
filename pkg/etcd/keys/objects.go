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

// Package keys describes how a server stores objects in etcd, for tools that read or write
// etcd beside the server.
package keys

import (
	"context"
	"path"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage/value"
)

// CopyAnnotation is on a CustomResourceDefinition while its objects move back to kube-apiserver. It
// tells the server what to do with its copy of the definition.
const (
	CopyAnnotation = "crd-apiserver/copy"
	// CopyKept is its value while the server is to keep the copy that it has.
	CopyKept = "keep"
	// CopyNone is its value when the server is to serve it no longer. Objects stay in its etcd.
	CopyNone = "none"
)

// HistoryKey returns the key in etcd of the revision at the end of a move of a group's objects, from
// or to another etcd. The value is a decimal number. When it changes, the server ends all watches that
// began earlier. It answers watches from an earlier revision with 410 Gone. The prefix begins all
// keys of the server.
func HistoryKey(prefix, group string) string { return path.Join("/", prefix, "history") + "/" + group }

// Objects says where and how a server stores the objects of a resource.
type Objects struct {
	schema.GroupResource
	// Kind is the kind of the objects.
	Kind string
	// Namespaced objects have their namespace in their key.
	Namespaced bool
	// Servers are the addresses of the etcd that has the objects, if it is not the same as for all others.
	Servers []string
	// Versions are those that serve the resource, the preferred one first.
	Versions []string
	// StorageVersion is the version of objects that are written to etcd.
	StorageVersion string
	// Prefix begins the keys of all objects. It ends with a slash, and is followed by the namespace,
	// if there is one, and the name.
	Prefix string
	// Codec decodes objects of any version, and encodes them as they are stored.
	Codec runtime.Codec
	// Strict decodes as well, and returns an error for fields that the version lacks.
	Strict runtime.Decoder
	// Convert returns an error if a decoded object can't be converted to a version. It is nil if
	// conversions are defined elsewhere.
	Convert func(object runtime.Object, version string) error
	// Validate returns the errors that a create in a version would return for a decoded object. It is
	// nil if validity is defined elsewhere.
	Validate func(ctx context.Context, object runtime.Object, version string) field.ErrorList
	// Transformer makes a stored value of an encoded object: it encrypts, and adds a checksum. Its
	// context is the object's key.
	Transformer value.Transformer
	// Encryption is the part of it that encrypts.
	Encryption value.Transformer
}
