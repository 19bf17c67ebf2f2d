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

package webhook

import (
	"fmt"
	"net/http"
	"slices"

	"golang.org/x/sync/semaphore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
)

const (
	// admissionsInWork and conversionsInWork are how many bytes the bodies of all reviews
	// of a kind may have that are in work at once. Others wait for their turn.
	admissionsInWork  = 64 << 20
	conversionsInWork = 128 << 20
)

// callers are who may ask for admission: anybody, if there is no authenticator, or else who
// has one of the names, or any name if there are none.
type callers struct {
	authenticator authenticator.Request
	names         []string
	// ways are in which callers prove who they are.
	ways string
}

func (c callers) authenticated(next http.Handler) http.Handler {
	if c.authenticator == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		caller, ok, err := c.authenticator.AuthenticateRequest(req)
		switch {
		case err != nil:
			refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, fmt.Sprintf("the caller's credentials are not accepted: %v", err))
		case !ok:
			refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "send "+c.ways)
		case len(c.names) > 0 && !slices.Contains(c.names, caller.User.GetName()):
			refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("%q is not among --client-allowed-names", caller.User.GetName()))
		default:
			next.ServeHTTP(w, req)
		}
	})
}

// inTurn lets requests wait while the bodies of others have all the bytes there are. One of
// unknown length counts as the longest.
func inTurn(next http.Handler, bodies *semaphore.Weighted, maxBody int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		size := req.ContentLength
		if size < 0 || size > maxBody {
			size = maxBody
		}
		if err := bodies.Acquire(req.Context(), size); err != nil {
			refuse(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "other reviews take all the memory that there is for them: try again")
			return
		}
		defer bodies.Release(size)
		next.ServeHTTP(w, req)
	})
}
