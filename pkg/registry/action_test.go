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

package registry

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
)

// If an Action may have been executed, no client is told to repeat it.
func TestUnknownOutcome(t *testing.T) {
	resource := schema.GroupResource{Group: "example.com", Resource: "things"}
	timeout := apierrors.NewServerTimeout(resource, "update", 1)
	conflict := apierrors.NewConflict(resource, "a", errors.New("it has changed"))
	for name, test := range map[string]struct {
		done bool
		err  error
		want string
	}{
		"nothing was written":           {false, timeout, timeout.Error()},
		"it may have been written":      {true, timeout, `Timeout: etcd has not answered in time, so that it is not known whether the action has been executed: read things.example.com "a" before you send it again`},
		"it certainly was not written":  {true, conflict, conflict.Error()},
		"another error, before it was":  {false, conflict, conflict.Error()},
		"an error that is not a status": {true, errors.New("broken"), "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			type object = *metav1.PartialObjectMetadata
			rest := &actionREST[object, object]{of: Parent[object]{Store: &genericregistry.Store{DefaultQualifiedResource: resource}}}
			e := &execution[object, object]{rest: rest, done: test.done, action: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
			err := e.failure(test.err)
			if err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
			if _, repeat := apierrors.SuggestsClientDelay(err); repeat && test.done {
				t.Error("clients would repeat the Action")
			}
		})
	}
}
