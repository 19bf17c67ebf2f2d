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
	"path"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestLocalPath(t *testing.T) {
	for group, want := range map[string]string{
		"argoproj.io":                            "/apis/io/v1/workflows.argoproj",
		"restaurant.programming-kubernetes.info": "/apis/info/v1/workflows.restaurant.programming-kubernetes",
		// Both groups may have moved.
		"acme.cert-manager.io": "/apis/io/v1/workflows.acme.cert-manager",
	} {
		resource := local(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "workflows"})
		assert.Equal(t, want, path.Join("/apis", resource.Group, resource.Version, resource.Resource))
	}
}
