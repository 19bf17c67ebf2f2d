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
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	unionauth "k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/util/flowcontrol"
)

const (
	perClient = 2
	// validToken begins all valid tokens.
	validToken = "valid"
)

// tokenServer reads tokens as the library does, and counts the questions to kube-apiserver.
type tokenServer struct {
	authenticator.Request
	asked, refused int
}

func newTokenServer(perClient int) *tokenServer {
	s := &tokenServer{}
	bound := BoundTokens(s, perClient, func(context.Context) { s.refused++ })
	s.Request = WithTokenClients(unionauth.New(bearertoken.New(bound), websocket.NewProtocolAuthenticator(bound)))
	return s
}

func (s *tokenServer) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	s.asked++
	if len(token) < len(validToken) || token[:len(validToken)] != validToken {
		return nil, false, nil
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: token}}, true, nil
}

// request tells whether a request with these headers is authenticated.
func (s *tokenServer) request(t *testing.T, client string, header http.Header) bool {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "/", nil)
	require.NoError(t, err)
	req.RemoteAddr, req.Header = client, header
	_, ok, _ := s.AuthenticateRequest(req)
	return ok
}

func (s *tokenServer) bearer(t *testing.T, client, token string) bool {
	t.Helper()
	return s.request(t, client, http.Header{"Authorization": {"Bearer " + token}})
}

func TestBoundTokens(t *testing.T) {
	const burst = perClient * tokenBurst
	upgrade := func(protocols string) http.Header {
		return http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}, "Sec-Websocket-Protocol": {protocols}}
	}
	protocol := func(token string) string {
		return "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token))
	}
	for name, test := range map[string]struct {
		header func(i int) http.Header
		asked  int
	}{
		"random":   {func(i int) http.Header { return http.Header{"Authorization": {fmt.Sprint("Bearer random-", i)}} }, burst},
		"the same": {func(int) http.Header { return http.Header{"Authorization": {"Bearer random"}} }, burst},
		"known":    {func(int) http.Header { return http.Header{"Authorization": {"Bearer " + validToken}} }, 100},
		"a tab after a known": {func(i int) http.Header {
			return http.Header{"Authorization": {fmt.Sprintf("Bearer other%s\t%d", validToken, i)}}
		}, burst},
		"a blank after a known": {
			func(i int) http.Header {
				return http.Header{"Authorization": {fmt.Sprintf("Bearer %s %d", validToken, i)}}
			}, 100,
		},
		"U+00A0 before":       {func(i int) http.Header { return http.Header{"Authorization": {fmt.Sprintf("Bearer \u00a0%d", i)}} }, burst},
		"U+0085 before":       {func(i int) http.Header { return http.Header{"Authorization": {fmt.Sprintf("Bearer \u0085%d", i)}} }, burst},
		"WebSockets":          {func(i int) http.Header { return upgrade(protocol(fmt.Sprint("random-", i)) + ", v4.channel.k8s.io") }, burst},
		"a WebSocket's known": {func(int) http.Header { return upgrade(protocol(validToken) + ", v4.channel.k8s.io") }, 100},
		"a known and another": {
			func(i int) http.Header {
				header := upgrade(protocol(fmt.Sprint("random-", i)) + ", v4.channel.k8s.io")
				header.Set("Authorization", "Bearer "+validToken)
				return header
			}, 100, // The known one is believed.
		},
		"no token": {func(int) http.Header { return http.Header{} }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newTokenServer(perClient)
				require.True(t, server.bearer(t, "10.0.0.9:1", validToken))
				server.asked = 0
				refusedRequests := 0
				for i := range 100 {
					if before := server.refused; !server.request(t, "10.0.0.1:1", test.header(i)) && server.refused > before {
						refusedRequests++
					}
				}
				require.Equal(t, test.asked, server.asked, "tokens that were asked about")
				if test.asked == burst {
					require.Positive(t, refusedRequests)
				} else {
					require.Zero(t, refusedRequests)
				}
			})
		})
	}
}

// Time gives tokens back.
func TestBoundTokensLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newTokenServer(perClient)
		flood := func(n int) {
			for i := range n {
				server.bearer(t, "10.0.0.1:1", fmt.Sprint("random-", i))
			}
		}
		flood(100)
		server.asked = 0
		time.Sleep(time.Second)
		flood(100)
		require.Equal(t, perClient, server.asked)
	})
}

// Tokens of innocent addresses are asked about during a flood, too. Those of ServiceAccounts change
// every hour, and each address has a first one.
func TestFreshTokensBesideAFlood(t *testing.T) {
	const seconds, flooding = 60, 100
	for name, test := range map[string]struct {
		// insiders are attackers that have a valid token, too.
		insiders bool
		// clients are the innocent addresses. Each presents one new valid token at a time.
		clients, each int
	}{
		"first tokens":                     {false, 4 * seconds, 1},
		"first tokens, beside insiders":    {true, 4 * seconds, 1},
		"a new one an hour":                {false, 60, 2},
		"a new one an hour, and insiders":  {true, 60, 2},
		"many users behind few addresses":  {false, 4, 60},
		"more of them than there may be":   {true, 4, fewTokens},
		"an address that a proxy has only": {false, 1, 240},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newTokenServer(10)
				random := rand.New(rand.NewPCG(1, 2))
				present := func(i int) bool {
					return server.bearer(t, fmt.Sprintf("10.0.%d.%d:1", i%test.clients/200, i%test.clients%200), fmt.Sprint(validToken, i))
				}
				if test.insiders {
					for i := range flooding {
						server.bearer(t, fmt.Sprintf("10.1.0.%d:1", i), validToken)
					}
				}
				accepted, presented, all := 0, 0, test.clients*test.each
				for tick := range 10 * seconds {
					time.Sleep(time.Second / 10)
					for range flooding {
						server.bearer(t, fmt.Sprintf("10.1.0.%d:1", random.IntN(flooding)), fmt.Sprint("random-", random.Uint64()))
					}
					for ; presented < all*(tick+1)/(10*seconds); presented++ {
						if present(presented) {
							accepted++
						}
					}
				}
				require.Equal(t, all, accepted)
			})
		})
	}
}

// Known tokens of one address do not take all TokenReviews. A user may have 2000 tokens of a ServiceAccount. In turn, they
// once let other addresses wait for two seconds, since the library's cache keeps an answer for ten.
func TestKnownTokensBesideOthers(t *testing.T) {
	const flood, longest = 375, 250 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		reviews := flowcontrol.NewTokenBucketRateLimiter(tokenReviewQPS, tokenReviewBurst)
		delegate := authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: token}}, true, reviews.Wait(ctx)
		})
		bound := BoundTokens(delegate, perClient, func(context.Context) {}).(*tokenBound)
		present := func(ctx context.Context, address string, n int64) {
			token := fmt.Sprint(address, n)
			bound.known.Add(sha256.Sum256([]byte(token)), nil)
			_, _, _ = bound.AuthenticateToken(context.WithValue(ctx, tokenClientKey{}, address), token)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var next atomic.Int64
		for range flood {
			go func() {
				for ctx.Err() == nil {
					present(ctx, "10.0.0.1", next.Add(1))
				}
			}()
		}
		time.Sleep(time.Minute)
		for n := range int64(20) {
			began := time.Now()
			present(ctx, "10.0.0.2", n)
			require.LessOrEqual(t, time.Since(began), longest)
		}
	})
}

// The library logs each error of an authenticator. A flood of bad tokens once had each of them logged.
func TestErrorsOfAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing, err := RequireIdentity(authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return nil, false, errTooManyTokens
		}), nil)
		require.NoError(t, err)
		logged := 0
		for range 1000 {
			_, ok, err := failing.AuthenticateRequest(nil)
			require.False(t, ok)
			if err != nil {
				logged++
			}
		}
		require.Equal(t, 100, logged)
	})
}
