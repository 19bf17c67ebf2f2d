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
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

type storageWithReadiness struct {
	rest.Storage
	err error
}

func (s *storageWithReadiness) ReadinessCheck() error { return s.err }

// A resource has to be ready once: what comes later is reported by the checks of etcd.
func TestStorageReadiness(t *testing.T) {
	breads, ovens := &storageWithReadiness{}, &storageWithReadiness{}
	check := storageReadiness([]*genericapiserver.APIGroupInfo{{
		PrioritizedVersions: []schema.GroupVersion{{Group: "bakery.example.com", Version: "v1"}},
		VersionedResourcesStorageMap: map[string]map[string]rest.Storage{
			"v1":       {"breads": breads, "ovens": ovens},
			"v1alpha1": {"breads": breads},
		},
	}})
	for _, step := range []struct {
		breads, ovens error
		want          string
	}{
		{errors.New("no key"), errors.New("no etcd"), "not yet read from etcd: breads.bakery.example.com: no key, ovens.bakery.example.com: no etcd"},
		{errors.New("no key"), nil, "not yet read from etcd: breads.bakery.example.com: no key"},
		{errors.New("no key"), errors.New("no etcd"), "not yet read from etcd: breads.bakery.example.com: no key"},
		{nil, errors.New("no etcd"), ""},
		{errors.New("no key"), errors.New("no etcd"), ""},
	} {
		breads.err, ovens.err = step.breads, step.ovens
		got := ""
		if err := check.Check(nil); err != nil {
			got = err.Error()
		}
		if got != step.want {
			t.Errorf("got %q, want %q", got, step.want)
		}
	}
}
