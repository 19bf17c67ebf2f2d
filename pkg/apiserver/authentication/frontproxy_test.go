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
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// rotatedCA is a bundle that changes.
type rotatedCA struct {
	dynamiccertificates.CAContentProvider
	bundle    []byte
	listeners []dynamiccertificates.Listener
}

func (r *rotatedCA) CurrentCABundleContent() []byte { return r.bundle }

func (r *rotatedCA) Name() string { return "rotated" }

func (r *rotatedCA) AddListener(listener dynamiccertificates.Listener) {
	r.listeners = append(r.listeners, listener)
}

func (r *rotatedCA) rotate(bundles ...[]byte) {
	r.bundle = slices.Concat(bundles...)
	for _, listener := range r.listeners {
		listener.Enqueue()
	}
}

// TestRotatedFrontProxy believes the headers of a front proxy until a rotation makes
// its certificate authority that of users, too.
func TestRotatedFrontProxy(t *testing.T) {
	authority := func(name string) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: newCA(t, name, nil).certificate.Raw})
	}
	first, second, users := authority("first"), authority("second"), authority("users")
	proxies, clients := &rotatedCA{bundle: first}, &rotatedCA{bundle: users}
	var allowed []string
	names := headerrequest.StringSliceProviderFunc(func() []string { return allowed })
	none := headerrequest.StaticStringSlice{}
	proxy := NewFrontProxy(
		authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: req.Header.Get("X-Remote-User")}}, true, nil
		}),
		&authenticatorfactory.RequestHeaderConfig{
			UsernameHeaders: headerrequest.StaticStringSlice{"X-Remote-User"}, UIDHeaders: none, GroupHeaders: none, ExtraHeaderPrefixes: none,
			CAContentProvider: proxies, AllowedClientNames: names,
		},
		dynamiccertificates.NewUnionCAContentProvider(clients, proxies))

	for _, step := range []struct {
		name     string
		change   func()
		believed bool
	}{
		{"at the start", func() {}, true},
		{"two of the proxies", func() { proxies.rotate(first, second) }, true},
		{"another of the users", func() { clients.rotate(users, authority("more users")) }, true},
		{"the users get the second", func() { clients.rotate(users, second) }, false},
		{"unless names are allowed", func() { allowed = []string{"front-proxy-client"} }, true},
		{"which can be taken back", func() { allowed = nil }, false},
		{"the proxies have the first only", func() { proxies.rotate(first) }, true},
		{"the users have nothing else", func() { clients.rotate(first) }, false},
		{"the proxies leave it", func() { proxies.rotate(second) }, true},
		{"an empty bundle", func() { clients.rotate() }, true},
	} {
		step.change()
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.Header.Set("X-Remote-User", "anna")
		response, ok, err := proxy.AuthenticateRequest(req)
		require.NoError(t, err, step.name)
		require.True(t, ok, step.name)
		if step.believed {
			require.Equal(t, "anna", response.User.GetName(), step.name)
			require.NoError(t, proxy.Check(), step.name)
		} else {
			require.Empty(t, response.User.GetName(), step.name)
			require.ErrorContains(t, proxy.Check(), "overlap", step.name)
		}
		require.Equal(t, "anna", req.Header.Get("X-Remote-User"), "The request is somebody else's.")
	}
}
