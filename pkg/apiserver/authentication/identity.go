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

package authentication

import (
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/client-go/util/flowcontrol"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/transport"
)

// Clients may have logsPerSecond errors logged, and logBurst at once. A flood would displace all others from the log.
const logsPerSecond, logBurst = 10, 100

// identified refuses requests without an identity, even if the cluster's rules allow them
// to everybody. These rules are meant for kube-apiserver, whose front proxy passes
// anonymous users on by name. Only the paths that need no authorization are open.
// Upstream fault 31.
type identified struct {
	authenticator.Request
	open authorizer.Authorizer
	// logs paces errors, since k8s.io/apiserver logs each one that it gets. It refuses requests without an error, too.
	logs flowcontrol.RateLimiter
}

// RequireIdentity returns an authenticator that refuses requests without an identity,
// except to the open paths. An error is about these paths.
func RequireIdentity(delegate authenticator.Request, openPaths []string) (authenticator.Request, error) {
	open, err := path.NewAuthorizer(openPaths)
	return &identified{delegate, open, flowcontrol.NewTokenBucketRateLimiter(logsPerSecond, logBurst)}, err
}

// AuthenticateRequest returns the user of a request.
func (a *identified) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	transport.GrowStack() // The goroutine of k8s.io/apiserver's timeout begins a few handlers before.
	response, ok, err := a.Request.AuthenticateRequest(req)
	if err != nil && !a.logs.TryAccept() {
		return nil, false, nil
	}
	if !ok || err != nil {
		return response, ok, err
	}
	// The front proxy may say that its client is anonymous.
	if response.User.GetName() == user.Anonymous && !ByFrontProxy(response.User) {
		decision, _, err := a.open.Authorize(req.Context(), authorizer.AttributesRecord{Path: req.URL.Path})
		if err != nil || decision != authorizer.DecisionAllow {
			return nil, false, err
		}
	}
	return response, true, nil
}
