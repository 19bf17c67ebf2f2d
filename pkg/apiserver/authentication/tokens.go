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
	"fmt"
	"net/http"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

const (
	// allTokens is the number of unknown tokens per second for each of three classes of clients. The
	// classes are clients that present few tokens, others that have presented a valid one, and the
	// rest. Each has a quarter of tokenReviewQPS. The last quarter is for known tokens.
	allTokens = 50
	// A client that presents few tokens has fewTokens at once, and another one every fewPeriod seconds.
	// A flood from a hundred addresses takes a fifth of the bound for such clients.
	fewTokens, fewPeriod = 3, 10
	// turnsPerClient is a tenth of tokenReviewQPS. The known tokens of an address need TokenReviews, too, when the library's
	// cache has forgotten them.
	turnsPerClient = 20
	// tokenBurst is the number of seconds that a bucket can save up.
	tokenBurst = 10
	// knownTokens and tokenClients bound how many are remembered, the most recently used ones.
	knownTokens, tokenClients = 10_000, 10_000
)

var errTooManyTokens = errors.New("this client presents too many bearer tokens that are not known")

// BoundTokens bounds the TokenReviews that clients without credentials can cause. The server asks
// kube-apiserver about each bearer token that the library's cache does not have, and may be flooded
// with random ones.
//
// A client is an IP address or a prefix of 64 bits. It may present perClient tokens per second that
// have not been valid before, and ten times as many at once. All clients share a bound, too. The first
// tokens of each client have a bound of their own, which a flood can't use up. So have clients that
// have presented a valid token. Delegate is asked about turnsPerClient tokens of a client at once, and the client's others
// wait for these. Delegate is not asked about further tokens. Instead, refuse is called
// with the context of the request, which has to be that of WithTokenClients.
func BoundTokens(delegate authenticator.Token, perClient int, refuse func(context.Context)) authenticator.Token {
	return &tokenBound{
		Token:     delegate,
		perClient: perClient,
		refuse:    refuse,
		few:       bucket(allTokens),
		strangers: bucket(allTokens),
		users:     bucket(allTokens),
		clients:   lru.New(tokenClients),
		known:     lru.New(knownTokens),
		turns:     limits.NewTurns(turnsPerClient),
	}
}

func bucket(perSecond int) flowcontrol.PassiveRateLimiter {
	return flowcontrol.NewTokenBucketPassiveRateLimiter(float32(perSecond), perSecond*tokenBurst)
}

type tokenBound struct {
	authenticator.Token
	perClient int
	refuse    func(context.Context)

	// few, users and strangers are the buckets of the three classes of clients, see allTokens.
	few, users, strangers flowcontrol.PassiveRateLimiter
	// clients are the tokenClients, by their addresses.
	clients *lru.Cache
	// known are the hashes of tokens that have been valid.
	known *lru.Cache
	// turns are those of the tokens of an address that are asked about.
	turns *limits.Turns
}

type tokenClient struct {
	all, few flowcontrol.PassiveRateLimiter
	// valid is set by its first valid token.
	valid atomic.Bool
}

// AuthenticateToken returns the user of a token.
func (b *tokenBound) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	address, _ := ctx.Value(tokenClientKey{}).(string)
	hash, client := sha256.Sum256([]byte(token)), b.client(address)
	if _, known := b.known.Get(hash); !known && !b.mayAsk(client) {
		b.refuse(ctx)
		return nil, false, errTooManyTokens
	}
	end, err := b.turns.Take(ctx, address)
	if err != nil {
		return nil, false, fmt.Errorf("%d tokens of this client are asked about: %w", turnsPerClient, err)
	}
	defer end()
	response, ok, err := b.Token.AuthenticateToken(ctx, token)
	if ok {
		b.known.Add(hash, nil)
		client.valid.Store(true)
	}
	return response, ok, err
}

func (b *tokenBound) client(address string) *tokenClient {
	found, ok := b.clients.Get(address)
	if !ok {
		// Of two that are made at the same time, one is forgotten.
		found = &tokenClient{
			all: bucket(b.perClient),
			few: flowcontrol.NewTokenBucketPassiveRateLimiter(1./fewPeriod, fewTokens),
		}
		b.clients.Add(address, found)
	}
	return found.(*tokenClient)
}

// mayAsk tells whether kube-apiserver may be asked about a token.
func (b *tokenBound) mayAsk(client *tokenClient) bool {
	if !client.all.TryAccept() {
		return false
	}
	if client.few.TryAccept() && b.few.TryAccept() {
		return true
	}
	if client.valid.Load() {
		return b.users.TryAccept()
	}
	return b.strangers.TryAccept()
}

// tokenClientKey is the key of the client's address in the context of a request.
type tokenClientKey struct{}

// WithTokenClients returns an authenticator that tells BoundTokens the address of the client.
func WithTokenClients(delegate authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		return delegate.AuthenticateRequest(req.WithContext(context.WithValue(req.Context(), tokenClientKey{}, limits.ClientAddress(req.RemoteAddr))))
	})
}
