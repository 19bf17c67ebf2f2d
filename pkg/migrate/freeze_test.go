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
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Writes are frozen if the policy refuses them, whatever else is in their way, and are not frozen if
// only something else is.
func TestTriedWrites(t *testing.T) {
	etcd := newMigration(t).config.Etcd
	status := func(code int, reason metav1.StatusReason, message string) answer {
		body, err := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message})
		require.NoError(t, err)
		return answered(code, http.Header{"Content-Type": {"application/json"}}, string(body))
	}
	frozen := status(http.StatusForbidden, metav1.StatusReasonForbidden, "ValidatingAdmissionPolicy 'migrate.example.com' with binding 'migrate.example.com' denied request: wait")
	other := status(http.StatusForbidden, metav1.StatusReasonForbidden, "ValidatingAdmissionPolicy 'migrate.example.com.bypass' with binding 'migrate.example.com.bypass' denied request: no")
	invalid := status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "spec.size: Required value")
	done := answered(http.StatusOK, http.Header{"Content-Type": {"application/json"}}, "{}")
	const refused = "ValidatingAdmissionPolicy 'migrate.example.com' with binding 'migrate.example.com' denied request: wait"
	for name, test := range map[string]struct {
		answers         []answer
		denied, allowed string
	}{
		"frozen":                             {[]answer{frozen}, "", refused},
		"frozen, and an object is not valid": {[]answer{invalid, frozen}, "", refused},
		"not frozen":                         {[]answer{done, done}, "things.example.com can still be written", ""},
		"another policy":                     {[]answer{other, other}, "ValidatingAdmissionPolicy 'migrate.example.com.bypass' with binding 'migrate.example.com.bypass' denied request: no", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := usualScene().migration(t, etcd)
			for _, check := range []struct {
				of   func() error
				want string
			}{
				{func() error { return m.denied(t.Context()) }, test.denied},
				{func() error { return m.allowed(t.Context()) }, test.allowed},
			} {
				m.kube = kubernetes.NewForConfigOrDie(&rest.Config{Transport: &answers{left: test.answers}})
				if check.want == "" {
					require.NoError(t, check.of())
				} else {
					require.EqualError(t, check.of(), check.want)
				}
			}
		})
	}
}
