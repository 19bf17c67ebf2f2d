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

package doctor

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// TestWatch has the doctor print everything once, and then what has changed.
func TestWatch(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, framework.Program(t, cp, "apiserver"), "doctor", "--watch=1s", "--output=json", "--kubeconfig="+cp.Kubeconfig())
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	printed := json.NewDecoder(stdout)
	next := func() []finding {
		t.Helper()
		var output struct {
			Time    time.Time
			Results []finding
		}
		require.NoError(t, printed.Decode(&output), stderr.String())
		require.WithinDuration(t, time.Now(), output.Time, controlplane.Patience)
		return output.Results
	}

	require.Equal(t, "ok", statuses(next())["apiservices"])
	framework.RegisterAtEnd(t, cp)
	require.NoError(t, apiServices().Delete(t.Context(), "v1alpha1."+groupName, metav1.DeleteOptions{}))
	for found := next(); ; found = next() {
		got := statuses(found)
		require.NotContains(t, got, "kube-apiserver", "It has not changed.")
		if got["apiservices"] == "warning" {
			break
		}
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait(), stderr.String())
}
