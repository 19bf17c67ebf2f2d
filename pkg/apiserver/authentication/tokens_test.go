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
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	testclock "k8s.io/utils/clock/testing"
)

// reviewed counts the tokens that it is asked about, of which one is valid.
type reviewed struct{ asked int }

const (
	validToken = "valid"
	// certificate is a header in place of one.
	certificate = "Certificate"
)

func (r *reviewed) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	as := func(name string) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, true, nil
	}
	if name := req.Header.Get(certificate); name != "" {
		return as(name)
	}
	token := tokenOf(req)
	if token == "" {
		return as(user.Anonymous)
	}
	r.asked++
	if token != validToken {
		return nil, false, nil
	}
	req.Header.Del(authorizationHeader)
	return as("anna")
}

// What random tokens cost kube-apiserver is bounded for each client and for all, whoever has a
// credential that is valid is not in the way of others, nor they in hers.
func TestBoundTokens(t *testing.T) {
	const perClient = 2
	now := testclock.NewFakePassiveClock(time.Unix(1_000_000, 0))
	delegate := &reviewed{}
	refused := 0
	bound := newTokenBound(delegate, perClient, func(context.Context) { refused++ }, now)
	tokens := 0
	request := func(client, token string, header http.Header) (string, error) {
		req, err := http.NewRequest(http.MethodGet, "/", nil)
		require.NoError(t, err)
		req.RemoteAddr = client
		for name, values := range header {
			req.Header[name] = values
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		response, ok, err := bound.AuthenticateRequest(req)
		if !ok {
			return "", err
		}
		return response.User.GetName(), err
	}
	flood := func(client string, requests int) {
		for range requests {
			tokens++
			name, _ := request(client, fmt.Sprint("random-", tokens), nil)
			require.Empty(t, name)
		}
	}
	expect := func(asked, refusals int) {
		t.Helper()
		require.Equal(t, asked, delegate.asked, "tokens that were asked about")
		require.Equal(t, refusals, refused, "requests that were refused without")
		delegate.asked, refused = 0, 0
	}

	name, err := request("10.0.0.1:1", validToken, nil)
	require.NoError(t, err)
	require.Equal(t, "anna", name)
	expect(1, 0)

	flood("10.0.0.1:2", 100)
	expect(perClient*tokenBurst-1, 100-perClient*tokenBurst+1)
	_, err = request("10.0.0.1:3", "another", nil)
	require.ErrorIs(t, err, errTooManyTokens)
	_, err = request("10.0.0.1:3", "", http.Header{protocolHeader: {"a, " + bearerPrefix + "another"}})
	require.ErrorIs(t, err, errTooManyTokens, "A WebSocket may have a token as well.")
	expect(0, 2)

	// What is known to be valid, or needs no token, goes on.
	for name, test := range map[string]struct {
		token  string
		header http.Header
	}{
		"anna":         {validToken, nil},
		"berta":        {"", http.Header{certificate: {"berta"}}},
		"clara":        {"random", http.Header{certificate: {"clara"}}},
		user.Anonymous: {"", nil},
	} {
		got, err := request("10.0.0.1:4", test.token, test.header)
		require.NoError(t, err)
		require.Equal(t, name, got)
	}
	expect(1, 0)

	now.SetTime(now.Now().Add(time.Second))
	flood("10.0.0.1:5", 10)
	expect(perClient, 10-perClient)

	// All of the clients together.
	now.SetTime(now.Now().Add(time.Hour))
	for client := range 2 * allTokens {
		flood(fmt.Sprintf("10.0.1.%d:1", client), perClient*tokenBurst)
	}
	expect(allTokens*tokenBurst, (2*perClient-1)*allTokens*tokenBurst)
	got, err := request("10.0.0.9:1", validToken, nil)
	require.NoError(t, err)
	require.Equal(t, "anna", got)
}
