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

// CopyAnnotation is what a CustomResourceDefinition says to a server that serves what it defines
// from a copy of it, while the objects move back to kube-apiserver.
const (
	CopyAnnotation = "crd-apiserver/copy"
	// CopyKept is its value while the server is to keep the copy that it has.
	CopyKept = "keep"
	// CopyNone is its value when the server is to serve it no longer. Objects stay in its etcd.
	CopyNone = "none"
)

// HistoryKey is the key in etcd of the revision at which the objects of a group were complete that
// were moved there from another etcd, or were moved away, as a decimal number. When it changes, the
// server ends all watches that began earlier, and it answers those that are to go on from an earlier
// revision with 410 Gone. The prefix is that of all keys of the server.
func HistoryKey(prefix, group string) string { return path.Join("/", prefix, "history") + "/" + group }

// Objects says where and how a server stores the objects of a resource.
type Objects struct {
	schema.GroupResource
	// Kind is that of the objects.
	Kind string
	// Namespaced objects have their namespace in their key.
	Namespaced bool
	// Servers are the addresses of the etcd that has the objects, if it is not that of all others.
	Servers []string
	// Versions are those in which the resource is served, the preferred one first.
	Versions []string
	// StorageVersion is the one in which objects are written to etcd.
	StorageVersion string
	// Prefix is what the keys of all objects begin with. It ends with a slash, and is
	// followed by the namespace, if there is one, and the name.
	Prefix string
	// Codec decodes objects of any version, and encodes them as they are stored.
	Codec runtime.Codec
	// Strict decodes as well, and returns an error for fields that the version lacks.
	Strict runtime.Decoder
	// Convert returns an error if a decoded object can't be converted to a version. It is nil if
	// others define how that is done.
	Convert func(object runtime.Object, version string) error
	// Validate returns what a create in a version would find wrong with a decoded object. It is nil if
	// others define what is valid.
	Validate func(ctx context.Context, object runtime.Object, version string) field.ErrorList
	// Transformer makes what is stored of what is encoded: it encrypts, and adds a checksum. Its
	// context is the object's key.
	Transformer value.Transformer
	// Encryption is the part of it that encrypts.
	Encryption value.Transformer
}

// Key is that of an object in etcd.
func (o *Objects) Key(namespace, name string) string {
	if o.Namespaced {
		return o.Prefix + namespace + "/" + name
	}
	return o.Prefix + name
}
