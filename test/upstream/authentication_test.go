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

package upstream

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes/fake"
	certutil "k8s.io/client-go/util/cert"
)

// certificateAuthority makes a certificate authority and a certificate of a user.
func certificateAuthority(t *testing.T, name string) (bundle []byte, certificate *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "ca"}, key)
	if err != nil {
		t.Fatal(err)
	}
	if bundle, err = certutil.EncodeCertificates(ca); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return bundle, certificate
}

func TestUserWithCertificateActsAsFrontProxy(t *testing.T) {
	bundle, alice := certificateAuthority(t, "alice")
	ca, err := dynamiccertificates.NewStaticCAContent("ca", bundle)
	if err != nil {
		t.Fatal(err)
	}
	authenticator, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		ClientCertificateCAContentProvider: ca,
		RequestHeaderConfig: &authenticatorfactory.RequestHeaderConfig{
			UsernameHeaders:     headerrequest.StaticStringSlice{"X-Remote-User"},
			UIDHeaders:          headerrequest.StaticStringSlice{},
			GroupHeaders:        headerrequest.StaticStringSlice{"X-Remote-Group"},
			ExtraHeaderPrefixes: headerrequest.StaticStringSlice{},
			CAContentProvider:   ca,
			AllowedClientNames:  headerrequest.StaticStringSlice{},
		},
	}.New()
	if err != nil {
		fixed(t, "one certificate authority for users and front proxies is refused: %v", err)
		return
	}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{alice}}
	req.Header.Set("X-Remote-User", "admin")
	response, ok, err := authenticator.AuthenticateRequest(req)
	if err != nil || !ok || response.User.GetName() != "admin" {
		fixed(t, "the user alice is not taken for the front proxy of admin, but for %v (%v)", response, err)
	}
}

// newAuthentication returns options that read what kube-apiserver has published.
func newAuthentication(t *testing.T, published map[string]string) *genericoptions.DelegatingAuthenticationOptions {
	t.Helper()
	kubeAPIServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"apiVersion":"v1","kind":"ConfigMap","data":{`)
		separator := ""
		for key, value := range published {
			fmt.Fprintf(w, "%s%q:%q", separator, key, value)
			separator = ","
		}
		fmt.Fprint(w, "}}")
	}))
	t.Cleanup(kubeAPIServer.Close)
	options := genericoptions.NewDelegatingAuthenticationOptions()
	options.RemoteKubeConfigFile = writeFile(t, fmt.Sprintf(
		"{apiVersion: v1, kind: Config, clusters: [{name: a, cluster: {server: %q}}], contexts: [{name: a, context: {cluster: a}}], current-context: a}", kubeAPIServer.URL))
	return options
}

func TestServerWithoutFrontProxyStarts(t *testing.T) {
	options := newAuthentication(t, nil)
	info, serving := genericapiserver.AuthenticationInfo{}, &genericapiserver.SecureServingInfo{}
	if err := options.ApplyTo(&info, serving, nil); err != nil {
		fixed(t, "without a certificate authority of front proxies there is an error: %v", err)
	}
}

func TestAnonymousCanNotBeTurnedOff(t *testing.T) {
	options := newAuthentication(t, nil)
	options.Anonymous = &apiserver.AnonymousAuthConfig{Enabled: false}
	info, serving := genericapiserver.AuthenticationInfo{}, &genericapiserver.SecureServingInfo{}
	if err := options.ApplyTo(&info, serving, nil); err != nil {
		t.Fatal(err)
	}
	response, ok, err := info.Authenticator.AuthenticateRequest(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if err != nil || !ok || response.User.GetName() != user.Anonymous {
		fixed(t, "DelegatingAuthenticationOptions.Anonymous turns anonymous requests off: %v (%v)", response, err)
	}
}

func TestClientCAIsUnknownWhenServingBegins(t *testing.T) {
	bundle, _ := certificateAuthority(t, "alice")
	published := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "extension-apiserver-authentication"},
		Data:       map[string]string{"client-ca-file": string(bundle)},
	}
	ca, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca", published.Namespace, published.Name, "client-ca-file", fake.NewClientset(published))
	if err != nil {
		t.Fatal(err)
	}
	// The server calls it before it accepts connections.
	if err := ca.RunOnce(t.Context()); err != nil {
		fixed(t, "ConfigMapCAController.RunOnce returns an error before it has read a certificate: %v", err)
	}
	if len(ca.CurrentCABundleContent()) > 0 {
		fixed(t, "ConfigMapCAController.RunOnce reads the certificates")
	}
}
