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
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

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

// Admission needs a client certificate or a token. Conversions and health checks are for everybody.
func TestCallers(t *testing.T) {
	client := func(name string) *x509.Certificate {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name}, key)
		require.NoError(t, err)
		return certificate
	}
	apiserver, somebody, forged := client("kube-apiserver"), client("somebody"), client("kube-apiserver")
	trusted, err := cert.EncodeCertificates(apiserver, somebody)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, trusted, 0o600))
	const (
		account    = "system:serviceaccount:kube-system:caller"
		noRequest  = "the review has no request"
		bad        = "the caller's credentials are not accepted: "
		unproven   = "send a client certificate of the certificate authority in --client-ca-file, or a bearer token if --client-tokens is set"
		notAllowed = " is not among --client-allowed-names"
	)
	var (
		anybody      = options{}
		certificates = options{clientCAFile: file}
		one          = options{clientCAFile: file, clientNames: []string{"a", "kube-apiserver"}}
		tokens       = options{clientTokens: true, clientNames: []string{account}}
	)
	cluster := reviewer(t)
	for name, test := range map[string]struct {
		options       options
		path          string
		certificate   *x509.Certificate
		authorization string
		code          int
		message       string
	}{
		"anybody":                   {anybody, "/admit", nil, "", 400, noRequest},
		"a certificate":             {certificates, "/validate", somebody, "", 400, noRequest},
		"an allowed name":           {one, "/admit", apiserver, "", 400, noRequest},
		"another name":              {one, "/admit", somebody, "", 403, `"somebody"` + notAllowed},
		"one of another issuer":     {certificates, "/admit", forged, "", 401, bad},
		"a conversion":              {certificates, "/convert", nil, "", 400, "the body is no ConversionReview"},
		"a token":                   {tokens, "/validate", nil, "Bearer " + account, 400, noRequest},
		"a token of somebody else":  {tokens, "/validate", nil, "Bearer default", 403, `"default"` + notAllowed},
		"a bad token":               {tokens, "/admit", nil, "Bearer bad", 401, bad + "invalid bearer token"},
		"a token without an answer": {tokens, "/admit", nil, "Bearer broken", 401, bad},
		"no token":                  {tokens, "/admit", nil, "", 401, unproven},
	} {
		t.Run(name, func(t *testing.T) {
			serving := &genericapiserver.SecureServingInfo{}
			callers, err := test.options.callers(serving, cluster)
			require.NoError(t, err)
			require.Equal(t, test.options.clientCAFile != "", serving.ClientCA != nil, "Clients are asked for certificates.")
			request := httptest.NewRequest(http.MethodPost, test.path, strings.NewReader(admissionKind+`}`))
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("Authorization", test.authorization)
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
			options := newOptions()
			sections := options.flags()
			require.NoError(t, sections.FlagSet("authentication").Parse(test.args))
			var got []string
			for _, err := range options.validate() {
				if strings.HasPrefix(err.Error(), "--client-") {
					got = append(got, err.Error())
				}
			}
			require.Equal(t, test.want, strings.Join(got, ", "))
		})
	}
	options := newOptions()
	options.clientCAFile = "/missing"
	_, err := options.callers(&genericapiserver.SecureServingInfo{}, nil)
	require.ErrorContains(t, err, "reading the file of --client-ca-file")
}

// Callers that don't know the path get no answer, and their bodies are not read.
func TestCallersWithAPath(t *testing.T) {
	const path = "qwertyuiopasdfghjklzxcvbnm"
	file := filepath.Join(t.TempDir(), "path")
	write := func(content string) { require.NoError(t, os.WriteFile(file, []byte(content), 0o600)) }
	write(path + "\n")
	options := newOptions()
	options.pathFile = file
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
		"conversion":             {"/" + path + "/convert", 400},
		"health":                 {"/readyz", 200},
		"a conversion without":   {"/convert", 404},
		"another path":           {"/" + strings.ToUpper(path) + "/validate", 404},
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
	options.pathFile = "/missing"
	_, err = options.callers(&genericapiserver.SecureServingInfo{}, nil)
	require.ErrorContains(t, err, "reading the file of --path-file: open /missing")
}
