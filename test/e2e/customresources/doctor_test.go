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

package customresources

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// On a healthy installation, the doctor finds nothing wrong, and looks at everything.
func TestDoctor(t *testing.T) {
	const group = "examined.example.com"
	define(t, widgets(group, false))
	args := append([]string{"doctor", "--kubeconfig=" + cp.Kubeconfig(), "--groups=" + group, "--output=json"}, framework.EtcdFlags(t, cp, framework.CRDServerEtcd, "")...)
	controlplane.Eventually(t, func() error {
		_, stdout, stderr := framework.ToolOf(t, cp, "crd-apiserver", args...)
		var output struct {
			Results []struct{ Check, Status, Cause, Fix string }
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &output), "%s%s", stdout, stderr)
		for _, result := range output.Results {
			if result.Status != "ok" {
				return fmt.Errorf("%+v", result)
			}
		}
		return nil
	})
}
