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

package encodedcache

import (
	"bytes"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage/cacher"
)

// object is a custom resource in JSON, with what a watch cache asks for, or decoded.
type object struct {
	// Unstructured is nil while the object is encoded.
	*unstructured.Unstructured
	json     string
	revision uint64
	// The strings of the key, the labels and the fields are parts of the JSON as far as they stand in it.
	key            string
	labels, fields map[string]string
}

// encode encodes an object as the encoder of k8s.io/apiextensions-apiserver does.
func encode(config *cacher.Config, decoded *unstructured.Unstructured) (*object, error) {
	data, err := decoded.MarshalJSON()
	if err != nil {
		return nil, err
	}
	o := &object{json: string(bytes.TrimSpace(data))}
	if o.revision, err = config.Versioner.ObjectResourceVersion(decoded); err != nil {
		return nil, err
	}
	if o.key, err = config.KeyFunc(decoded); err != nil {
		return nil, err
	}
	labels, fields, err := config.GetAttrsFunc(decoded)
	if err != nil {
		return nil, err
	}
	o.labels, o.fields = o.share(labels), o.share(fields)
	return o, nil
}

// share returns a map with strings that are parts of the JSON.
func (o *object) share(set map[string]string) map[string]string {
	if len(set) == 0 {
		return nil
	}
	shared := make(map[string]string, len(set))
	for key, value := range set {
		shared[o.part(key)] = o.part(value)
	}
	return shared
}

func (o *object) part(text string) string {
	if begin := strings.Index(o.json, text); begin >= 0 {
		return o.json[begin : begin+len(text)]
	}
	return text
}

// decode returns the object as a map, which the caller must not change.
func (o *object) decode() (*unstructured.Unstructured, error) {
	if o.Unstructured != nil {
		return o.Unstructured, nil
	}
	decoded := &unstructured.Unstructured{}
	err := decoded.UnmarshalJSON([]byte(o.json))
	return decoded, err
}

// DeepCopyObject copies what can be changed.
func (o *object) DeepCopyObject() runtime.Object {
	copied := *o
	if o.Unstructured != nil {
		copied.Unstructured = o.DeepCopy()
	}
	return &copied
}

// GetName returns the name.
func (o *object) GetName() string {
	if o.Unstructured != nil {
		return o.Unstructured.GetName()
	}
	return o.fields["metadata.name"]
}

// GetNamespace returns the namespace.
func (o *object) GetNamespace() string {
	if o.Unstructured != nil {
		return o.Unstructured.GetNamespace()
	}
	return o.fields["metadata.namespace"]
}

// GetResourceVersion returns the version.
func (o *object) GetResourceVersion() string {
	if o.Unstructured != nil {
		return o.Unstructured.GetResourceVersion()
	}
	return strconv.FormatUint(o.revision, 10)
}

// SetResourceVersion changes the version. The Cacher gives a deleted object the version of its deletion.
func (o *object) SetResourceVersion(version string) {
	if o.Unstructured == nil {
		if o.GetResourceVersion() == version {
			return
		}
		decoded, err := o.decode()
		if err != nil {
			return // It has been encoded here.
		}
		o.Unstructured, o.json = decoded, ""
	}
	o.Unstructured.SetResourceVersion(version)
}

// objects is a list of objects.
type objects struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []object
}

// DeepCopyObject copies the list but not its objects, which never change.
func (l *objects) DeepCopyObject() runtime.Object {
	copied := *l
	return &copied
}

// size returns the bytes of the objects that are encoded.
func (l *objects) size() (bytes int64) {
	for i := range l.Items {
		bytes += int64(len(l.Items[i].json))
	}
	return bytes
}

// Encoded marks a list that takes no memory to be written.
func (*objects) Encoded() {}

// storedObject is an object as it is in etcd. Of its metadata, it has its resourceVersion.
type storedObject struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	data []byte
}

// DeepCopyObject copies the object but not its data, which never change.
func (o *storedObject) DeepCopyObject() runtime.Object {
	copied := *o
	return &copied
}

// storedList is a list of objects as they are in etcd.
type storedList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []storedObject
}

// DeepCopyObject copies the list but not its objects.
func (l *storedList) DeepCopyObject() runtime.Object {
	copied := *l
	return &copied
}
