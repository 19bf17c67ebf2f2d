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

package filters

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
)

// impersonation is the prefix of all headers that name another user.
const impersonation = "Impersonate-"

// checkDirect leaves impersonation and audit IDs to the front proxy.
//
// It refuses impersonation by other clients. The library asks for two SubjectAccessReviews of
// each such request before priority and fairness. With them, a user without any permission could
// keep this server from all others. It also drops audit IDs, since a client could take the one of
// another request.
func checkDirect(req *http.Request) error {
	for name := range req.Header {
		if strings.HasPrefix(name, impersonation) {
			return &apierrors.StatusError{ErrStatus: metav1.Status{
				Status:  metav1.StatusFailure,
				Code:    http.StatusForbidden,
				Reason:  metav1.StatusReasonForbidden,
				Message: "this server impersonates nobody: send the request to kube-apiserver, which does, and forwards it",
			}}
		}
	}
	req.Header.Del(auditinternal.HeaderAuditID)
	return nil
}
