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

package webhook

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/transport"
)

// issue returns a certificate of the issuer, or of a new certificate authority if there is
// none.
func issue(t *testing.T, name string, issuer *x509.Certificate, issuerKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if issuer == nil {
		template.IsCA, template.BasicConstraintsValid, template.ExtKeyUsage = true, true, nil
		issuer, issuerKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), issuerKey)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return certificate, key
}

// Admission needs a client certificate. Conversions and health checks are for everybody.
func TestCallers(t *testing.T) {
	ca, caKey := issue(t, "callers", nil, nil)
	other, otherKey := issue(t, "callers", nil, nil)
	apiserver, _ := issue(t, "kube-apiserver", ca, caKey)
	somebody, _ := issue(t, "somebody", ca, caKey)
	forged, _ := issue(t, "kube-apiserver", other, otherKey)
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}), 0o600))
	const unproven = "send a client certificate of the certificate authority in --client-ca-file"
	for name, test := range map[string]struct {
		file        string
		names       []string
		path        string
		certificate *x509.Certificate
		code        int
		message     string
	}{
		"anybody":               {"", nil, "/admit", nil, 400, "the review has no request"},
		"no certificate":        {file, nil, "/admit", nil, 401, unproven},
		"none to validate":      {file, nil, "/validate", nil, 401, unproven},
		"a certificate":         {file, nil, "/validate", somebody, 400, "the review has no request"},
		"an allowed name":       {file, []string{"a", "kube-apiserver"}, "/admit", apiserver, 400, "the review has no request"},
		"another name":          {file, []string{"kube-apiserver"}, "/admit", somebody, 403, `"somebody" is not among --client-allowed-names`},
		"one of another issuer": {file, nil, "/admit", forged, 401, "the caller's credentials are not accepted: "},
		"a conversion":          {file, nil, "/convert", nil, 400, "the body is no ConversionReview"},
		"a health check":        {file, nil, "/readyz", nil, 200, "ok"},
	} {
		t.Run(name, func(t *testing.T) {
			options := NewOptions()
			options.ClientCAFile, options.ClientNames = test.file, test.names
			serving := &genericapiserver.SecureServingInfo{}
			callers, err := options.callers(serving, nil)
			require.NoError(t, err)
			require.Equal(t, test.file != "", serving.ClientCA != nil, "Clients are asked for certificates.")
			request := httptest.NewRequest(http.MethodPost, test.path, strings.NewReader(admissionKind+`}`))
			request.Header.Set("Content-Type", "application/json")
			request.TLS = &tls.ConnectionState{}
			if test.certificate != nil {
				request.TLS.PeerCertificates = []*x509.Certificate{test.certificate}
			}
			answer := httptest.NewRecorder()
			newHandler(t.Context(), inertWebhooks(), callers).ServeHTTP(answer, request)
			require.Equal(t, test.code, answer.Code, answer.Body)
			require.Contains(t, strings.ReplaceAll(answer.Body.String(), `\"`, `"`), test.message)
		})
	}
}

// reviewer answers TokenReviews: a token is a user's name, "bad" nobody's.
func reviewer(t *testing.T) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review authenticationv1.TokenReview
		assert.NoError(t, json.NewDecoder(req.Body).Decode(&review))
		if review.Spec.Token == "broken" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		review.Status.Authenticated = review.Spec.Token != "bad"
		review.Status.User.Username = review.Spec.Token
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

// A bearer token is as good as a certificate, if kube-apiserver says whose it is.
func TestCallersWithTokens(t *testing.T) {
	const allowed = "system:serviceaccount:kube-system:caller"
	options := NewOptions()
	options.ClientTokens, options.ClientNames = true, []string{allowed}
	serving := &genericapiserver.SecureServingInfo{}
	callers, err := options.callers(serving, reviewer(t))
	require.NoError(t, err)
	require.Nil(t, serving.ClientCA)
	handler := newHandler(t.Context(), inertWebhooks(), callers)
	for name, test := range map[string]struct {
		path, authorization string
		code                int
		message             string
	}{
		"allowed":            {"/validate", "Bearer " + allowed, 400, "the review has no request"},
		"somebody else":      {"/validate", "Bearer system:serviceaccount:default:default", 403, `"system:serviceaccount:default:default" is not among --client-allowed-names`},
		"a bad token":        {"/admit", "Bearer bad", 401, "the caller's credentials are not accepted: invalid bearer token"},
		"no answer":          {"/admit", "Bearer broken", 401, "the caller's credentials are not accepted: "},
		"no token":           {"/admit", "", 401, "send a bearer token"},
		"a name in a header": {"/admit", "Basic " + allowed, 401, "send a bearer token"},
		"a conversion":       {"/convert", "", 400, "the body is no ConversionReview"},
	} {
		t.Run(name, func(t *testing.T) {
			request := httptest.NewRequest(http.MethodPost, test.path, strings.NewReader(admissionKind+`}`))
			request.Header.Set("Content-Type", "application/json")
			if test.authorization != "" {
				request.Header.Set("Authorization", test.authorization)
			}
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, request)
			require.Equal(t, test.code, answer.Code, answer.Body)
			require.Contains(t, strings.ReplaceAll(answer.Body.String(), `\"`, `"`), test.message)
		})
	}
}

func TestCallersFlags(t *testing.T) {
	const (
		names  = "--client-allowed-names needs --client-ca-file or --client-tokens: without them, nobody is asked for a name"
		tokens = "--client-tokens needs --client-allowed-names: every pod of the cluster has a token"
	)
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"a name only":             {[]string{"--client-allowed-names=a"}, names},
		"a name and certificates": {[]string{"--client-allowed-names=a", "--client-ca-file=b"}, ""},
		"a name and tokens":       {[]string{"--client-allowed-names=a", "--client-tokens"}, ""},
		"tokens of anybody":       {[]string{"--client-tokens", "--client-ca-file=b"}, tokens},
		"none":                    {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			options := NewOptions()
			sections := options.Flags()
			require.NoError(t, sections.FlagSet("authentication").Parse(test.args))
			var got []string
			for _, err := range options.Validate() {
				if strings.HasPrefix(err.Error(), "--client-") {
					got = append(got, err.Error())
				}
			}
			require.Equal(t, test.want, strings.Join(got, ", "))
		})
	}
	options := NewOptions()
	options.ClientCAFile = "/missing"
	_, err := options.callers(&genericapiserver.SecureServingInfo{}, nil)
	require.ErrorContains(t, err, "reading the file of --client-ca-file")
}

// Callers that don't know the path get no answer, and their bodies are not read.
func TestCallersWithAPath(t *testing.T) {
	const path = "qwertyuiopasdfghjklzxcvbnm"
	file := filepath.Join(t.TempDir(), "path")
	write := func(content string) { require.NoError(t, os.WriteFile(file, []byte(content), 0o600)) }
	write(path + "\n")
	options := NewOptions()
	options.PathFile = file
	callers, err := options.callers(&genericapiserver.SecureServingInfo{}, nil)
	require.NoError(t, err)
	handler := newHandler(t.Context(), inertWebhooks(), callers)
	send := func(path string) (code int, answer string, read bool) {
		body := strings.NewReader(admissionKind + `}`)
		request := httptest.NewRequest(http.MethodPost, path, body)
		request.Header.Set("Content-Type", "application/json")
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, request)
		return response.Code, response.Body.String(), body.Len() == 0
	}
	for name, test := range map[string]struct {
		path string
		code int
	}{
		"admission":              {"/" + path + "/admit", 400}, // as the review has no request
		"validation":             {"/" + path + "/validate", 400},
		"conversion":             {"/" + path + "/convert", 400},
		"health":                 {"/readyz", 200},
		"no path":                {"/admit", 404},
		"a conversion without":   {"/convert", 404},
		"another path":           {"/" + strings.ToUpper(path) + "/validate", 404},
		"a part of it":           {"/" + path[1:] + "/validate", 404},
		"more than that":         {"/" + path + "X/validate", 404},
		"nothing below it":       {"/" + path, 404},
		"something else below":   {"/" + path + "/other", 404},
		"health below it":        {"/" + path + "/readyz", 404},
		"an escaped slash in it": {"/" + path + "%2Fvalidate", 400},
	} {
		t.Run(name, func(t *testing.T) {
			code, answer, read := send(test.path)
			require.Equal(t, test.code, code, answer)
			require.Equal(t, test.code == 400, read)
		})
	}

	write("abcdefghijklmnop")
	code, _, _ := send("/" + path + "/admit")
	require.Equal(t, 404, code)
	code, _, _ = send("/abcdefghijklmnop/admit")
	require.Equal(t, 400, code)
	write("")
	code, _, read := send("/admit")
	require.Equal(t, 500, code, "No path is not the empty path.")
	require.False(t, read)
	for content, want := range map[string]string{
		"":                    "must have one path of at least 16 small letters and digits",
		"ABCDEFGHIJKLMNOP":    "must have one path of at least 16 small letters and digits",
		"short":               "must have one path of at least 16 small letters and digits",
		"abcdefghijklmnop/..": "must have one path of at least 16 small letters and digits",
	} {
		write(content)
		_, err := options.callers(&genericapiserver.SecureServingInfo{}, nil)
		require.ErrorContains(t, err, want)
	}
	options.PathFile = "/missing"
	_, err = options.callers(&genericapiserver.SecureServingInfo{}, nil)
	require.ErrorContains(t, err, "reading the file of --path-file: open /missing")
}

// The address of a caller may have more connections than others: each review in work takes one.
func TestConnectionsOfCallers(t *testing.T) {
	const path = "qwertyuiopasdfghjklzxcvbnm"
	file := filepath.Join(t.TempDir(), "path")
	require.NoError(t, os.WriteFile(file, []byte(path), 0o600))
	for name, test := range map[string]struct {
		path string
		more bool
	}{
		"a caller":         {"/" + path + "/validate", true},
		"a health check":   {"/readyz", false},
		"of another path":  {"/validate", false},
		"of a part of one": {"/" + path[1:] + "/validate", false},
	} {
		t.Run(name, func(t *testing.T) {
			connections := transport.NewConnections(limits.Bounds{ConnectionsPerClient: 1})
			server := httptest.NewUnstartedServer(connections.Handler(newHandler(t.Context(), inertWebhooks(), callers{pathFile: file})))
			server.Listener = connections.Listener(server.Listener)
			server.StartTLS()
			defer server.Close()
			send := func() error {
				client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
				t.Cleanup(client.CloseIdleConnections)
				response, err := client.Get(server.URL + test.path)
				if err != nil {
					return err
				}
				_, err = io.Copy(io.Discard, response.Body) // Otherwise, the connection ends.
				return errors.Join(err, response.Body.Close())
			}
			require.NoError(t, send())
			require.Equal(t, test.more, send() == nil)
		})
	}
}
