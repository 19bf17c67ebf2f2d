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
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// On a healthy installation, the doctor finds nothing wrong, and looks at everything. Before a group has been moved, it
// says no more than that.
func TestDoctor(t *testing.T) {
	const group = "examined.example.com"
	definition := widgets(group, false)
	content, err := json.Marshal(definition)
	require.NoError(t, err)
	apply(t, content)
	examine := func(usual string, want ...string) {
		t.Helper()
		args := append([]string{"doctor", "--kubeconfig=" + cp.Kubeconfig(), "--groups=" + group, "--output=json"}, framework.EtcdFlags(t, cp, framework.CRDServerEtcd, "")...)
		controlplane.Eventually(t, func() error {
			code, stdout, stderr := framework.ToolOf(t, cp, "crd-apiserver", args...)
			var output struct {
				Results []struct{ Check, Status, Cause, Fix string }
			}
			require.NoError(t, json.Unmarshal([]byte(stdout), &output), "%s%s", stdout, stderr)
			var found, looked []string
			for _, result := range output.Results {
				switch result.Status {
				case "ok":
					looked = append(looked, result.Check)
				case usual:
				default:
					found = append(found, result.Status+" "+result.Check+": "+result.Cause)
				}
			}
			if code != 0 || !slices.Equal(found, want) {
				return fmt.Errorf("code %d, %q", code, found)
			}
			if usual == "ok" {
				require.Subset(t, looked, []string{"service", "certificate", "availability"})
			}
			return nil
		})
	}
	examine("skipped", "warning apiservices: kube-apiserver serves v1."+group+" itself, from CustomResourceDefinitions")
	require.NoError(t, framework.RegisterCRDServer(t.Context(), cp, server, group))
	awaitServed(t, group, definition.Spec.Versions[0].Name)
	examine("ok")
	unhide(t, group)
	examine("ok", "warning definitions: kube-apiserver itself serves the version v1 of the CustomResourceDefinition widgets."+group+
		": while it starts, it does not find objects that the server has, and the garbage collector may delete their dependents")
}
