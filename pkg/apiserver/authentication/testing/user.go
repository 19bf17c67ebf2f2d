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

// Package testing makes users for tests that depend on how a user was authenticated.
package testing

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/authentication"
)

// NamedByFrontProxy returns a user of this name that a front proxy has named, see
// authentication.ByFrontProxy.
func NamedByFrontProxy(t testing.TB, name string) user.Info {
	t.Helper()
	none, names := headerrequest.StaticStringSlice{}, headerrequest.StaticStringSlice{"X-Remote-User"}
	config := &authenticatorfactory.RequestHeaderConfig{
		UsernameHeaders: names, UIDHeaders: none, GroupHeaders: none, ExtraHeaderPrefixes: none, CAContentProvider: noCA{}, AllowedClientNames: none,
	}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	req.Header.Set("X-Remote-User", name)
	response, ok, err := authentication.NewFrontProxy(headerrequest.NewDynamic(names, none, none, none), config, noCA{}).AuthenticateRequest(req)
	if !ok || err != nil {
		t.Fatalf("%s is not known: %v", name, err)
	}
	return response.User
}

// noCA is a bundle without certificates.
type noCA struct {
	dynamiccertificates.CAContentProvider
}

func (noCA) CurrentCABundleContent() []byte           { return nil }
func (noCA) AddListener(dynamiccertificates.Listener) {}
