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
	"crypto/x509"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/transport"
)

// FrontProxy believes request headers only while no user's certificate could pass for a front
// proxy's. This is also checked before the server starts, but certificate authorities can be
// rotated while it runs. Without headers, the sender is authenticated by its certificate.
// kube-apiserver is then a user without permissions, so that all requests it forwards are
// refused.
// Upstream fault 29.
type FrontProxy struct {
	authenticator.Request
	// headers believes request headers of any client.
	headers authenticator.Request
	config  *authenticatorfactory.RequestHeaderConfig
	// clientCAs are the certificate authorities of users and of front proxies.
	clientCAs dynamiccertificates.CAContentProvider
	// overlapping is the subject of a certificate authority of both, or nil.
	overlapping atomic.Pointer[string]
}

// NewFrontProxy guards k8s.io/apiserver's authenticator of request headers. The client CAs
// are the certificate authorities of users and of front proxies together.
func NewFrontProxy(delegate authenticator.Request, config *authenticatorfactory.RequestHeaderConfig, clientCAs dynamiccertificates.CAContentProvider) *FrontProxy {
	headers := headerrequest.NewDynamic(config.UsernameHeaders, config.UIDHeaders, config.GroupHeaders, config.ExtraHeaderPrefixes)
	f := &FrontProxy{Request: delegate, headers: group.NewAuthenticatedGroupAdder(headers), config: config, clientCAs: clientCAs}
	clientCAs.AddListener(f)
	f.Enqueue()
	return f
}

// Enqueue is called when a certificate authority has changed.
func (f *FrontProxy) Enqueue() {
	// A bundle that can't be read is not in use.
	proxies, _ := certutil.ParseCertsPEM(f.config.CAContentProvider.CurrentCABundleContent())
	users, _ := certutil.ParseCertsPEM(f.clientCAs.CurrentCABundleContent())
	// Each CA of front proxies is in the other list once. If it is there twice, it is also one of
	// users.
	for _, proxy := range proxies {
		if i := slices.IndexFunc(users, func(ca *x509.Certificate) bool { return ca.Equal(proxy) }); i >= 0 {
			users = slices.Delete(users, i, i+1)
		}
	}
	subject, overlaps := Overlap(proxies, users)
	if !overlaps {
		f.overlapping.Store(nil)
		return
	}
	f.overlapping.Store(&subject)
	if err := f.Check(); err != nil {
		klog.ErrorS(err, "Requests from kube-apiserver are refused from now on")
	}
}

// Check returns an error if request headers are not believed.
func (f *FrontProxy) Check() error {
	subject := f.overlapping.Load()
	if subject == nil || len(f.config.AllowedClientNames.Value()) > 0 {
		return nil
	}
	return OverlapError(*subject)
}

// AuthenticateRequest returns the user of a request. ByFrontProxy reports whether a front proxy has
// named that user.
func (f *FrontProxy) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if f.Check() != nil {
		req = req.Clone(req.Context())
		headerrequest.ClearAuthenticationHeaders(req.Header, f.config.UsernameHeaders, f.config.UIDHeaders, f.config.GroupHeaders, f.config.ExtraHeaderPrefixes)
	}
	if !f.namesUser(req) {
		return f.Request.AuthenticateRequest(req)
	}
	delegate := f.Request
	if f.Sends(req) {
		delegate = f.headers
	}
	response, ok, err := delegate.AuthenticateRequest(req)
	// The authenticator of the headers removes them when it has believed them, and no
	// other does.
	if ok && !f.namesUser(req) {
		response.User = FrontProxied{response.User}
	}
	return response, ok, err
}

func (f *FrontProxy) namesUser(req *http.Request) bool {
	return slices.ContainsFunc(f.config.UsernameHeaders.Value(), func(name string) bool { return req.Header.Get(name) != "" })
}

// Sends reports whether a front proxy has sent a request, with or without headers that name a user.
// A connection's certificate is verified once a minute, since its signature is a sixth of the work for a get. No
// request is from a front proxy if the FrontProxy is nil.
func (f *FrontProxy) Sends(req *http.Request) bool {
	if f == nil || req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return false
	}
	certificate := req.TLS.PeerCertificates[0]
	if names := f.config.AllowedClientNames.Value(); len(names) > 0 && !slices.Contains(names, certificate.Subject.CommonName) {
		return false
	}
	options, ok := f.config.CAContentProvider.VerifyOptions()
	if !ok || f.Check() != nil {
		return false
	}
	if transport.Trusted(req) && time.Now().Before(certificate.NotAfter) {
		return true
	}
	options.Intermediates = x509.NewCertPool()
	for _, intermediate := range req.TLS.PeerCertificates[1:] {
		options.Intermediates.AddCert(intermediate)
	}
	if _, err := certificate.Verify(options); err != nil {
		return false
	}
	transport.Trust(req)
	return true
}

// FrontProxied is a user named by a front proxy.
type FrontProxied struct {
	user.Info
}

// ByFrontProxy reports whether a front proxy has named the user. It has then authorized the request
// that it forwards.
func ByFrontProxy(info user.Info) bool {
	_, ok := info.(FrontProxied)
	return ok
}
