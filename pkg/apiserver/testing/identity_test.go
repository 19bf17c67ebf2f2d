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

package testing

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/testing/cluster"
)

// asked returns the users that the cluster is asked about during a call.
func asked(server *Server, call func()) (users []string) {
	before := len(server.Cluster.Reviews())
	call()
	for _, review := range server.Cluster.Reviews()[before:] {
		users = append(users, review.User+" of "+strings.Join(review.Groups, ","))
	}
	return users
}

// asserting adds the headers of a front proxy that assert the identity of an administrator.
func asserting(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport.NewAuthProxyRoundTripper("admin", "", []string{"system:masters"}, nil, next)
	})
	return config
}

// TestIdentity checks the user that the server takes a request to be from.
func TestIdentity(t *testing.T) {
	t.Parallel()
	server := start(t, "--run-controllers=false")
	for _, user := range []string{"reader-by-token", "reader-by-token-with-headers"} {
		server.Cluster.AddToken("token-of-"+user, authenticationv1.UserInfo{Username: user, Groups: []string{"cooks"}})
	}
	impostor := rest.AnonymousClientConfig(server.ClientConfig)
	impostor.CertData, impostor.KeyData = server.Cluster.FrontProxy.ClientCertificate(t, "impostor")
	foreign := rest.AnonymousClientConfig(server.ClientConfig)
	foreign.CertData, foreign.KeyData = cluster.NewCA(t, "foreign").ClientCertificate(t, "foreign")
	for name, test := range map[string]struct {
		client *rest.Config
		// want is the user that the cluster is asked about.
		want string
		code int
	}{
		"a certificate": {server.UserConfig(t, "reader-by-certificate", "cooks"), "reader-by-certificate of cooks,system:authenticated", 404},
		"a token":       {server.TokenConfig("token-of-reader-by-token"), "reader-by-token of cooks,system:authenticated", 404},
		// All users are in a group of theirs, whatever the front proxy says.
		"a user that the front proxy names":      {server.FrontProxyConfig(t, "reader-by-proxy", "cooks"), "reader-by-proxy of cooks,system:authenticated", 404},
		"a front proxy that names nobody":        {server.FrontProxyConfig(t, ""), "", 401},
		"a certificate, and the headers":         {asserting(server.UserConfig(t, "reader-with-headers")), "reader-with-headers of system:authenticated", 404},
		"a token, and the headers":               {asserting(server.TokenConfig("token-of-reader-by-token-with-headers")), "reader-by-token-with-headers of cooks,system:authenticated", 404},
		"only the headers":                       {asserting(server.TokenConfig("")), "", 401},
		"a front proxy of a name that may not":   {asserting(impostor), "", 401},
		"a certificate of another authority":     {asserting(foreign), "", 401},
		"a token that the cluster does not know": {server.TokenConfig("guessed"), "", 401},
		"nobody":                                 {server.TokenConfig(""), "", 401},
		"an anonymous user of the front proxy":   {server.FrontProxyConfig(t, "system:anonymous", "system:unauthenticated"), "system:anonymous of system:unauthenticated", 404},
		"an administrator, without a review":     {server.UserConfig(t, "admin", "system:masters"), "", 404},
	} {
		t.Run(name, func(t *testing.T) {
			var code int
			users := asked(server, func() { _, code = get(t, test.client, machinesPath+"/none") })
			require.Equal(t, test.code, code)
			require.Equal(t, test.want, strings.Join(users, "; "))
		})
	}
}

// Random tokens do not make the cluster answer as many TokenReviews, and hinder nobody else.
func TestRandomTokens(t *testing.T) {
	t.Parallel()
	server := start(t, "--run-controllers=false", "--max-new-tokens-per-client=1")
	server.Cluster.AddToken("token-of-reader-by-token", authenticationv1.UserInfo{Username: "reader-by-token"})
	_, code := get(t, server.TokenConfig("token-of-reader-by-token"), machinesPath+"/none")
	require.Equal(t, 404, code)
	reviews := 0
	server.Cluster.Fail(func(req *http.Request) int {
		if strings.HasSuffix(req.URL.Path, "/tokenreviews") {
			reviews++
		}
		return 0
	})
	const requests = 100
	codes := map[int]int{}
	for n := range requests {
		// Unlike the authenticators of k8s.io/apiserver, it does not try again.
		client, err := rest.HTTPClientFor(server.TokenConfig(fmt.Sprint("guessed-", n)))
		require.NoError(t, err)
		response, err := client.Get(server.ClientConfig.Host + machinesPath)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		client.CloseIdleConnections()
		codes[response.StatusCode]++
		if response.StatusCode == http.StatusTooManyRequests {
			require.Equal(t, "1", response.Header.Get("Retry-After"))
		}
	}
	require.Equal(t, map[int]int{401: reviews, 429: requests - reviews}, codes)
	require.Less(t, reviews, requests)
	for name, client := range map[string]*rest.Config{
		"reader-by-certificate": server.UserConfig(t, "reader-by-certificate"),
		"reader-by-proxy":       server.FrontProxyConfig(t, "reader-by-proxy"),
		"reader-by-token":       server.TokenConfig("token-of-reader-by-token"),
	} {
		_, code := get(t, client, machinesPath+"/none")
		require.Equal(t, 404, code, name)
	}
}

// Only whether the server is well can be asked without an identity.
func TestOpenPaths(t *testing.T) {
	t.Parallel()
	server := start(t, "--run-controllers=false")
	// Clusters let everybody read some of these.
	for path, want := range map[string]int{
		"/livez": 200, "/readyz": 200, "/healthz": 200, "/readyz?verbose": 200,
		"/readyz/ping": 401, "/version": 401, "/openapi/v2": 401, "/apis": 401, groupPath: 401, "/metrics": 401, "/": 401,
	} {
		_, code := get(t, server.TokenConfig(""), path)
		require.Equal(t, want, code, path)
	}
}

// The certificate authorities of a server may be its own business.
func TestCertificateAuthoritiesFromFiles(t *testing.T) {
	t.Parallel()
	users, proxies := cluster.NewCA(t, "users"), cluster.NewCA(t, "proxies")
	of := cluster.Start(t)
	of.Users, of.FrontProxy = users, proxies
	of.Publish(nil)
	server := startWith(t, Config{Cluster: of, Flags: []string{
		"--client-ca-file=" + file(t, string(users.PEM())), "--requestheader-client-ca-file=" + file(t, string(proxies.PEM())),
		"--requestheader-allowed-names=" + cluster.FrontProxyName,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--authentication-skip-lookup", "--run-controllers=false",
	}})
	for name, client := range map[string]*rest.Config{
		"reader-by-certificate": server.UserConfig(t, "reader-by-certificate"),
		"reader-by-proxy":       server.FrontProxyConfig(t, "reader-by-proxy"),
	} {
		users := asked(server, func() { _, _ = get(t, client, machinesPath) })
		require.Equal(t, []string{name + " of system:authenticated"}, users)
	}
}

// Requests of one user that come at the same time have one review.
func TestReviewsAreShared(t *testing.T) {
	t.Parallel()
	server := start(t, "--run-controllers=false")
	server.Cluster.Allow(func(authorizationv1.SubjectAccessReviewSpec) bool {
		time.Sleep(time.Second)
		return true
	})
	before := len(server.Cluster.Reviews())
	client := server.UserConfig(t, "reader")
	var all sync.WaitGroup
	const requests = 16
	for range requests {
		all.Go(func() {
			answer, code := get(t, client, machinesPath)
			assert.Equal(t, 200, code, answer)
		})
	}
	all.Wait()
	// On a busy machine some come later.
	require.Less(t, len(server.Cluster.Reviews())-before, requests/2)
}

// TestReviews is about the reviews that the cluster is asked for before a request is
// answered.
func TestReviews(t *testing.T) {
	t.Parallel()
	server := start(t, "--run-controllers=false")
	create(t, server.ClientConfig, "drill")
	// One may read all machines, one only the drill, and one nothing.
	server.Cluster.Allow(func(review authorizationv1.SubjectAccessReviewSpec) bool {
		switch attributes := review.ResourceAttributes; review.User {
		case "reader", "reader-directly":
			return attributes != nil
		case "drill-reader", "drill-reader-directly":
			return attributes != nil && attributes.Name == "drill"
		}
		return false
	})
	const drill = machinesPath + "/drill"
	for name, test := range map[string]struct {
		client *rest.Config
		path   string
		want   []string
		code   int
	}{
		// kube-apiserver has authorized these already.
		"through kube-apiserver, any name":  {server.FrontProxyConfig(t, "reader"), drill, []string{"get machines"}, 200},
		"through kube-apiserver, this name": {server.FrontProxyConfig(t, "drill-reader"), drill, []string{"get machines", "get machines drill"}, 200},
		"through kube-apiserver, no name":   {server.FrontProxyConfig(t, "stranger"), drill, []string{"get machines", "get machines drill"}, 403},
		"directly, any name":                {server.UserConfig(t, "reader-directly"), drill, []string{"get machines drill"}, 200},
		"directly, this name":               {server.UserConfig(t, "drill-reader-directly"), drill, []string{"get machines drill"}, 200},
		"directly, no name":                 {server.UserConfig(t, "stranger-directly"), drill, []string{"get machines drill"}, 403},
		"a subresource":                     {server.UserConfig(t, "reader-directly"), drill + "/progress", []string{"get machines/progress drill"}, 200},
		"a list":                            {server.UserConfig(t, "reader-directly"), machinesPath, []string{"list machines"}, 200},
		"a path":                            {server.UserConfig(t, "stranger-directly"), "/metrics", []string{"get /metrics"}, 403},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(server.Cluster.Reviews())
			answer, code := get(t, test.client, test.path)
			require.Equal(t, test.code, code, answer)
			var got []string
			for _, review := range server.Cluster.Reviews()[before:] {
				if path := review.NonResourceAttributes; path != nil {
					got = append(got, path.Verb+" "+path.Path)
					continue
				}
				of := review.ResourceAttributes
				resource := strings.TrimSuffix(of.Resource+"/"+of.Subresource, "/")
				got = append(got, strings.TrimSpace(of.Verb+" "+resource+" "+of.Name))
			}
			require.Equal(t, test.want, got)
		})
	}
}
