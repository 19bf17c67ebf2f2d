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
package attacks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// While a hundred addresses present random tokens, each client that has not been seen before may present
// a valid one.
func TestFirstTokensDuringAFlood(t *testing.T) {
	framework.Long(t, "TestFreshTokensBesideAFlood of pkg/apiserver/authentication is the short one")
	const flooding, innocent, perAddress = 100, 60, 20
	_, long := perAttack(t)
	tokens := make([]string, flooding+innocent)
	for i := range tokens {
		token, err := framework.Kube(cp).CoreV1().ServiceAccounts(attackedNamespace).CreateToken(t.Context(), account+"0", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		require.NoError(t, err)
		tokens[i] = token.Status.Token
	}
	config := rest.AnonymousClientConfig(framework.ConfigFor(t, cp, server.Component, ""))
	trust, err := rest.TLSConfigFor(config)
	require.NoError(t, err)
	present := func(ctx context.Context, client *http.Client, token string) (code int, err error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+attackedPath+"/target", nil)
		if err != nil {
			return 0, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := client.Do(request)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	from := func(address string) *http.Client {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
		transport := &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: trust.Clone(), ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	for name, insiders := range map[string]bool{"by strangers": false, "by users": true} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var all sync.WaitGroup
			defer all.Wait()
			defer stop()
			var sent, refused, number atomic.Int64
			for i := range flooding {
				all.Go(func() {
					client := from(fmt.Sprintf("127.1.%d.%d", len(name), i+1))
					if insiders {
						_, _ = present(ctx, client, tokens[i]) // The flood is the same without it.
					}
					for tick := time.NewTicker(time.Second / perAddress); ctx.Err() == nil; <-tick.C {
						code, err := present(ctx, client, fmt.Sprint("random-", number.Add(1)))
						if err == nil {
							sent.Add(1)
						}
						if code == http.StatusTooManyRequests {
							refused.Add(1)
						}
					}
				})
			}
			controlplane.Eventually(t, func() error { // The saved tokens are used up.
				if refused.Load() == 0 {
					return errors.New("nothing is refused")
				}
				return nil
			})
			codes, slowest := map[int]int{}, time.Duration(0)
			for i := range innocent {
				began := time.Now()
				code, err := present(t.Context(), from(fmt.Sprintf("127.2.%d.%d", len(name), i+1)), tokens[flooding+i])
				require.NoError(t, err)
				codes[code]++
				slowest = max(slowest, time.Since(began))
			}
			t.Logf("the flood: %d tokens, %d refused; the others: %v, max. %s", sent.Load(), refused.Load(), codes, slowest)
			require.Equal(t, map[int]int{http.StatusOK: innocent}, codes)
			if long {
				require.LessOrEqual(t, slowest, 2*time.Second)
			}
		})
	}
}
