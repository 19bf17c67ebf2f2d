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

package observability

import (
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// An admin can change the verbosity while the server runs, and a stranger can't.
func TestVerbosityIsChanged(t *testing.T) {
	t.Parallel()
	server := framework.NewServer(t, cp, framework.Flags())
	require.NoError(t, server.Start(t.Context()))
	code, err := codeOf(framework.ConfigFor(t, cp, server, "stranger"), "PUT", "/debug/flags/v", "6")
	require.NoError(t, err)
	require.Equal(t, 403, code)
	code, err = codeOf(framework.AdminConfig(t, cp, server), "PUT", "/debug/flags/v", "6")
	require.NoError(t, err)
	require.Equal(t, 200, code)
	framework.Get(t, cp, server, "/version")
	framework.WaitForLog(t, server, `"HTTP" verb="GET" URI="/version"`)
}
