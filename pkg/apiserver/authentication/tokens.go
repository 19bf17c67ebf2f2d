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
	"net"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// allTokens is how many unknown tokens in a second the server asks about, whoever
	// presents them: half of the TokenReviews that it may make, so that there are others
	// for the tokens that it knows.
	allTokens = 100
	// tokenBurst is for how many seconds a client may save up its tokens.
	tokenBurst = 10
	// knownTokens and tokenClients are how many of them are remembered, those that have been
	// used last.
	knownTokens, tokenClients = 10_000, 10_000

	authorizationHeader, protocolHeader = "Authorization", "Sec-Websocket-Protocol"
	// bearerPrefix is how a token begins that a WebSocket brings as a protocol.
	bearerPrefix = "base64url.bearer.authorization.k8s.io." //nolint:gosec // G101: it is no credential.
)

var errTooManyTokens = errors.New("this client presents too many bearer tokens that are not known")

// BoundTokens bounds what clients without credentials can make kube-apiserver do: it is asked
// about each bearer token that the cache of the library does not have, and may be flooded with
// random ones. A client, which is an IP address, may present so many tokens in a second that
// have not been valid before, and some more once; all clients together, half as many as there
// may be TokenReviews. Other tokens are not asked about, and refuse is called with the context
// of the request, unless the client has another credential that is valid.
func BoundTokens(delegate authenticator.Request, perClient int, refuse func(context.Context)) authenticator.Request {
	return newTokenBound(delegate, perClient, refuse, clock.RealClock{})
}

func newTokenBound(delegate authenticator.Request, perClient int, refuse func(context.Context), now clock.PassiveClock) *tokenBound {
	return &tokenBound{
		Request:   delegate,
		perClient: perClient,
		refuse:    refuse,
		clock:     now,
		all:       bucket(allTokens, now),
		clients:   lru.New(tokenClients),
		known:     lru.New(knownTokens),
	}
}

func bucket(perSecond int, now clock.PassiveClock) flowcontrol.PassiveRateLimiter {
	return flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(float32(perSecond), perSecond*tokenBurst, now)
}

type tokenBound struct {
	authenticator.Request
	perClient int
	refuse    func(context.Context)
	clock     clock.PassiveClock

	all flowcontrol.PassiveRateLimiter
	// clients are the buckets of IP addresses.
	clients *lru.Cache
	// known are the hashes of tokens that have been valid.
	known *lru.Cache
}

// AuthenticateRequest returns who makes the request.
func (b *tokenBound) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	token := tokenOf(req)
	if token == "" {
		return b.Request.AuthenticateRequest(req)
	}
	hash := sha256.Sum256([]byte(token))
	if _, known := b.known.Get(hash); !known && !b.mayAsk(req) {
		return b.withoutToken(req)
	}
	response, ok, err := b.Request.AuthenticateRequest(req)
	// A token that was believed is removed from the request.
	if ok && tokenOf(req) == "" {
		b.known.Add(hash, nil)
	}
	return response, ok, err
}

// mayAsk tells whether kube-apiserver may be asked about a token.
func (b *tokenBound) mayAsk(req *http.Request) bool {
	address, _, err := net.SplitHostPort(req.RemoteAddr)
	if err != nil {
		address = req.RemoteAddr
	}
	found, ok := b.clients.Get(address)
	if !ok {
		// Of two that are made at the same time, one is forgotten.
		found = bucket(b.perClient, b.clock)
		b.clients.Add(address, found)
	}
	return found.(flowcontrol.PassiveRateLimiter).TryAccept() && b.all.TryAccept()
}

// withoutToken believes the certificate of a client, or refuses the request.
func (b *tokenBound) withoutToken(req *http.Request) (*authenticator.Response, bool, error) {
	req.Header.Del(authorizationHeader)
	req.Header.Del(protocolHeader)
	response, ok, err := b.Request.AuthenticateRequest(req)
	if err == nil && ok && response.User.GetName() != user.Anonymous {
		return response, ok, nil
	}
	b.refuse(req.Context())
	return nil, false, errTooManyTokens
}

// tokenOf returns what may be a bearer token, or "".
func tokenOf(req *http.Request) string {
	fields := strings.Fields(req.Header.Get(authorizationHeader))
	if len(fields) > 1 && strings.EqualFold(fields[0], "bearer") {
		return fields[1]
	}
	for _, protocols := range req.Header[protocolHeader] {
		if _, token, ok := strings.Cut(protocols, bearerPrefix); ok {
			return token
		}
	}
	return ""
}
