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
	"encoding/base64"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	unionauth "k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/user"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

const (
	perClient = 2
	// validToken begins all valid tokens.
	validToken = "valid"
)

type clientKey struct{}

// tokenServer reads tokens as k8s.io/apiserver does, and counts the questions to kube-apiserver.
type tokenServer struct {
	authenticator.Request
	asked, refused int
}

func newTokenServer(perClient int) *tokenServer {
	s := &tokenServer{}
	clientOf := func(ctx context.Context) string { return limits.ClientAddress(ctx.Value(clientKey{}).(string)) }
	delegate := unionauth.New(bearertoken.New(s), websocket.NewProtocolAuthenticator(s))
	s.Request = BoundTokens(delegate, perClient, clientOf, func(context.Context) { s.refused++ })
	return s
}

func (s *tokenServer) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	s.asked++
	if len(token) < len(validToken) || token[:len(validToken)] != validToken {
		return nil, false, nil
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: token}}, true, nil
}

// request reports whether a request with these headers is authenticated.
func (s *tokenServer) request(t *testing.T, client string, header http.Header) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(context.WithValue(t.Context(), clientKey{}, client), http.MethodGet, "/", nil)
	require.NoError(t, err)
	req.Header = header
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
			}, burst,
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
			}, burst,
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

// Each client has tokens of its own: an IPv4 address, or the prefix of an IPv6 address.
func TestBoundTokensOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newTokenServer(perClient)
		for i := range 100 {
			server.bearer(t, fmt.Sprintf("[2001:db8::%x]:1", i), fmt.Sprint("random-", i))
		}
		require.Equal(t, perClient*tokenBurst, server.asked)
		require.False(t, server.bearer(t, "[2001:db8::]:1", validToken))
		require.True(t, server.bearer(t, "[2001:db8:0:1::]:1", validToken))
		require.True(t, server.bearer(t, "10.0.0.1:1", validToken+"2"))
	})
}

// k8s.io/apiserver logs each error of an authenticator. A flood of bad tokens once had each of them logged.
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
