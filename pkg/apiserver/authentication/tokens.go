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
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"
)

const (
	// tokenBurst is the number of seconds for which a client can save up tokens.
	tokenBurst = 10
	// knownTokens and tokenClients bound how many are remembered, the most recently used ones.
	knownTokens, tokenClients = 10_000, 10_000
)

var errTooManyTokens = errors.New("this client presents too many bearer tokens that are not known")

// BoundTokens bounds the TokenReviews that clients without credentials can cause. The server asks
// kube-apiserver about each bearer token that k8s.io/apiserver's cache does not have, and may be flooded
// with random ones.
//
// A client may present perClient tokens per second that have not been valid before, and ten times as many at once.
// Delegate is not asked about further tokens. ClientOf returns the client of a request by its context, and refuse is
// called with the context of a refused one.
func BoundTokens(delegate authenticator.Request, perClient int, clientOf func(context.Context) string, refuse func(context.Context)) authenticator.Request {
	clients, known := lru.New(tokenClients), lru.New(knownTokens)
	mayAsk := func(client any) bool {
		limiter, ok := clients.Get(client)
		if !ok { // Of two that are made at the same time, one is forgotten.
			limiter = flowcontrol.NewTokenBucketPassiveRateLimiter(float32(perClient), perClient*tokenBurst)
			clients.Add(client, limiter)
		}
		return limiter.(flowcontrol.PassiveRateLimiter).TryAccept()
	}
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		// Delegate removes tokens that are valid. WebSockets have theirs among the protocols.
		presented := strings.Join(slices.Concat(req.Header["Authorization"], req.Header["Sec-Websocket-Protocol"]), "\n")
		if presented == "" {
			return delegate.AuthenticateRequest(req)
		}
		hash := sha256.Sum256([]byte(presented))
		if _, ok := known.Get(hash); !ok && !mayAsk(clientOf(req.Context())) {
			refuse(req.Context())
			return nil, false, errTooManyTokens
		}
		response, ok, err := delegate.AuthenticateRequest(req)
		if ok && response.User.GetName() != user.Anonymous {
			known.Add(hash, nil)
		}
		return response, ok, err
	})
}
