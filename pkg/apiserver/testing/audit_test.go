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

package testing

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: None, users: [system:apiserver]}
  - {level: Metadata, resources: [{group: workshop.example.com}]}
  - {level: None}
`

// TestAudit compares the answers to clients with the recorded ones, when the cluster can or
// can't be asked about requests.
func TestAudit(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "audit.log")
	server := start(t, "--audit-policy-file="+file(t, auditPolicy), "--audit-log-path="+log, "--run-controllers=false")
	create(t, server.ClientConfig, "drill")
	server.Cluster.Allow(func(review authorizationv1.SubjectAccessReviewSpec) bool { return review.User == "reader" })

	type record struct {
		User string
		Code int32
	}
	want := []record{{"admin", 201}}
	for _, test := range []struct {
		user string
		// down is whether the cluster answers no review.
		down       bool
		code       int
		reason     metav1.StatusReason
		message    string
		retryAfter string
	}{
		{user: "reader", code: 200},
		{user: "stranger", code: 403, reason: metav1.StatusReasonForbidden,
			message: `machines.workshop.example.com "drill" is forbidden: User "stranger" cannot get resource "machines" in API group "workshop.example.com" in the namespace "default"`},
		{user: "late", down: true, code: 503, reason: metav1.StatusReasonServiceUnavailable, retryAfter: "1",
			message: "kube-apiserver can't be asked whether this request is allowed"},
	} {
		server.Cluster.Fail(func(req *http.Request) int {
			if test.down && path.Base(req.URL.Path) == "subjectaccessreviews" {
				return http.StatusServiceUnavailable
			}
			return 0
		})
		status, answered := answer(t, server.UserConfig(t, test.user), machinesPath+"/drill")
		require.Equal(t, test.code, answered.code)
		require.Equal(t, test.retryAfter, answered.Get("Retry-After"))
		require.Equal(t, test.reason, status.Reason)
		require.Equal(t, test.message, status.Message)
		want = append(want, record{test.user, int32(test.code)})
	}
	require.NoError(t, server.Stop(), "All events are recorded until then.")

	written, err := os.Open(log)
	require.NoError(t, err)
	defer written.Close()
	var got []record
	for lines := bufio.NewScanner(written); lines.Scan(); {
		var event auditv1.Event
		require.NoError(t, json.Unmarshal(lines.Bytes(), &event))
		got = append(got, record{event.User.Username, event.ResponseStatus.Code})
	}
	require.Equal(t, want, got)
}

type answered struct {
	http.Header
	code int
}

// answer returns how a GET fails, if it does. Other clients would wait and try again.
func answer(t *testing.T, config *rest.Config, path string) (metav1.Status, answered) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	var status metav1.Status
	if response.StatusCode != http.StatusOK {
		require.NoError(t, json.NewDecoder(response.Body).Decode(&status))
	}
	return status, answered{response.Header, response.StatusCode}
}
