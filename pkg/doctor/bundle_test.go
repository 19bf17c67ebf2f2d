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

package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// TestRedactText removes only confidential values from logs and metrics.
func TestRedactText(t *testing.T) {
	r := &redactor{}
	r.learn(corev1.Secret{Data: map[string][]byte{
		"key": []byte("known-value\n"), "short": []byte("true"),
		"file": []byte("[b2]\ntype = b2\nkey = K001confidential\nanother confidential line\n"), "quoted": []byte(`con"fidential`),
		"tls.crt": []byte("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"),
	}})
	certificate := base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"))
	for name, test := range map[string]struct{ text, want string }{
		"a value of a Secret":            {"it is known-value.", "it is REDACTED."},
		"the same in base64":             {base64.StdEncoding.EncodeToString([]byte("known-value\n")), "REDACTED"},
		"a short value":                  {"that is true", "that is true"},
		"a certificate":                  {"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"},
		"a key":                          {"-----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY-----\nnext", "REDACTED\nnext"},
		"a key that is cut off":          {"-----BEGIN PRIVATE KEY-----\nMHcC", "REDACTED"},
		"a key in base64":                {"x: " + base64.StdEncoding.EncodeToString([]byte("-----BEGIN RSA PRIVATE KEY-----\nMHcC\n")), "x: REDACTED"},
		"a token":                        {"got eyJhbGciOiJSUzI1.eyJpc3MiOiJrdWJl.c2lnbmF0dXJl from", "got REDACTED from"},
		"a header":                       {`"Authorization: Bearer abc.def-123" next`, `"Authorization: REDACTED" next`},
		"a header of a command":          {"curl -H 'authorization: Digest username=\"a\", response=\"b\"' x", "curl -H 'authorization: REDACTED' x"},
		"a header of another scheme":     {"Authorization: AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=c\nnext", "Authorization: REDACTED\nnext"},
		"a header in JSON":               {`{"Authorization":"Digest a=\"b\", c=\"d\"","x":"y"}`, `{"Authorization":"REDACTED","x":"y"}`},
		"cookies":                        {"Cookie: a=b; session=confidential\nSet-Cookie: c=d; Path=/", "Cookie: REDACTED\nSet-Cookie: REDACTED"},
		"a line of a Secret":             {"2026-11-29T10:00:00Z [b2]\n2026-11-29T10:00:00Z key = K001confidential\n2026-11-29T10:00:00Z another confidential line", "2026-11-29T10:00:00Z [b2]\n2026-11-29T10:00:00Z key = REDACTED\n2026-11-29T10:00:00Z REDACTED"},
		"a Secret's value in JSON":       {`{"x":"con\"fidential"}`, `{"x":"REDACTED"}`},
		"a Secret's value in a URL":      {"/x?y=con%22fidential", "/x?y=REDACTED"},
		"a key in a log":                 {"2026-11-29T10:00:00Z -----BEGIN PRIVATE KEY-----\n2026-11-29T10:00:00Z MIIEvQ\n2026-11-29T10:00:01Z q9wR1h\n2026-11-29T10:00:02Z -----END PRIVATE KEY-----\nnext", "2026-11-29T10:00:00Z REDACTED\nnext"},
		"a key without its beginning":    {"2026-11-29T10:00:00Z MIIEvQ\n2026-11-29T10:00:02Z -----END PRIVATE KEY-----\nnext", "REDACTED\nnext"},
		"a key in JSON":                  {`{"private_key": "-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----\n", "a": "b"}`, `{"private_key": "REDACTED\n", "a": "b"}`},
		"escaped quotes":                 {`{"password":"abc\"confidential","a":"b"}`, `{"password":"REDACTED","a":"b"}`},
		"escaped quotes in a string":     {`body="{\"password\":\"abc\\\"confidential\",\"a\":\"b\"}"`, `body="{\"password\":\"REDACTED\",\"a\":\"b\"}"`},
		"a string that is cut off":       {`{"password":"confidential and more`, `{"password":"REDACTED"`},
		"a list in YAML":                 {"passwords:\n- confidential1\n- confidential2\nname: x", "passwords: REDACTED\nname: x"},
		"a list in JSON":                 {`{"passwords": ["confidential1", "confidential2"], "a": "b"}`, `{"passwords": REDACTED, "a": "b"}`},
		"a list of references":           {"imagePullSecrets:\n- name: x\nsecrets:\n- name: y", "imagePullSecrets:\n- name: x\nsecrets:\n- name: y"},
		"a flag":                         {"--password=hunter2 --v=2", "--password=REDACTED --v=2"},
		"YAML":                           {"password: hunter2\nname: x", "password: REDACTED\nname: x"},
		"JSON":                           {`{"token": "hunter2", "name": "x"}`, `{"token": "REDACTED", "name": "x"}`},
		"a URL":                          {"postgres://user:con/fid@ential@db:5432/x https://ghp_16C7e42F@github.com/x", "postgres://REDACTEDdb:5432/x https://REDACTEDgithub.com/x"},
		"a flag with its value behind":   {"run --password hunter2 --v 2 --token-file /t", "run --password REDACTED --v 2 --token-file /t"},
		"a signed URL":                   {"url=https://x.example.com/b?sig=aGVsbG8%3D&token=hunter2&se=2", "url=https://x.example.com/b?sig=REDACTED&token=REDACTED&se=2"},
		"a value of several words":       {`passphrase: "correct horse" next`, `passphrase: "REDACTED" next`},
		"a flag in a value":              {`args="--password hunter2"`, `args="--password REDACTED"`},
		"arguments in JSON":              {`args: ["--password","hunter2", "--db-pass", 'hunter2', "--v", "2"]`, `args: ["--password","REDACTED", "--db-pass", 'REDACTED', "--v", "2"]`},
		"a block in YAML":                {"user: x\npassword: |-\n  hunter2\n  hunter3\nname: y", "user: x\npassword: REDACTED\nname: y"},
		"JSON in a log":                  {`"body={\"token\":\"hunter2\",\"a\":\"b\"}"`, `"body={\"token\":\"REDACTED\",\"a\":\"b\"}"`},
		"a key behind its certificate":   {base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\nMHcC\n")), "REDACTED"},
		"a certificate in base64":        {"caBundle: " + certificate, "caBundle: " + certificate},
		"files and durations":            {"--tls-private-key-file=/a --authentication-token-webhook-cache-ttl=10s --serving-ca-secret=REDACTED", "--tls-private-key-file=/a --authentication-token-webhook-cache-ttl=10s --serving-ca-secret=REDACTED"},
		"an address and an ordinary log": {`https://pkg.go.dev/k8s.io/api@v1 "Starting" version="v1.0.0" a@example.com`, `https://pkg.go.dev/k8s.io/api@v1 "Starting" version="v1.0.0" a@example.com`},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, r.text(test.text)) })
	}
}

// TestRedactObject removes values by their names.
func TestRedactObject(t *testing.T) {
	object := func(data, password any) map[string]any {
		return map[string]any{
			"kind": "Secret", "data": map[string]any{"key": data}, "password": password,
			"spec": map[string]any{"secretName": "x", "tokenExpirationSeconds": "1", "httpHeaders": []any{map[string]any{"name": "Authorization", "value": password}}},
		}
	}
	got := object("hunter22", "hunter22")
	got["metadata"] = map[string]any{"managedFields": []any{}, "annotations": map[string]any{corev1.LastAppliedConfigAnnotation: "hunter22"}}
	want := object("REDACTED (8 characters)", "REDACTED")
	want["metadata"] = map[string]any{"annotations": map[string]any{}}
	(&redactor{}).object(got)
	require.Equal(t, want, got)

	// Binary data can be a keystore, which no pattern finds.
	settings := map[string]any{"kind": "ConfigMap", "data": map[string]any{"mode": "fast"}, "binaryData": map[string]any{"store": "c2VjcmV0"}, "passwords": []any{"a", "b"}}
	(&redactor{}).object(settings)
	require.Equal(t, map[string]any{"kind": "ConfigMap", "data": map[string]any{"mode": "fast"}, "binaryData": map[string]any{"store": "REDACTED (8 characters)"}, "passwords": []any{"REDACTED", "REDACTED"}}, settings)
}

// TestRedactContainer keeps the variables that are known to be harmless, and no others.
func TestRedactContainer(t *testing.T) {
	container := func(value, argument string, extra ...any) map[string]any {
		var variables []any
		for _, name := range []string{
			"AWS_SECRET_ACCESS_KEY", "DB_PASS", "DB_PASSWORD", "SESSION_KEY", "AZURE_STORAGE_KEY", "PASSPHRASE", "MYSQL_PWD", "SECRET_ID", "APISERVERS", "OTEL_EXPORTER_OTLP_HEADERS", "MODE",
		} {
			variables = append(variables, map[string]any{"name": name, "value": value})
		}
		for name, value := range map[string]any{"GOMEMLIMIT": "1GiB"} {
			variables = append(variables, map[string]any{"name": name, "value": value})
		}
		return map[string]any{
			"env":     append(variables, extra...),
			"args":    []any{"--password", argument, "--db-pass", argument, "--v", "2", "--token-file", "/t", "--token", "--x"},
			"command": []any{"sh", "-c", "run --password " + argument},
		}
	}
	harmless := []any{
		map[string]any{"name": "POD_NAMESPACE", "value": "kitchen"},
		map[string]any{"name": "APISERVER_ETCD_SERVERS", "value": "https://etcd:2379"},
		map[string]any{"name": "CRD_APISERVER_SERVING_CA_SECRET", "value": "ca"},
		map[string]any{"name": "https_proxy", "value": "http://proxy:3128"},
		map[string]any{"name": "API_TOKEN", "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": "x"}}},
	}
	r, got := &redactor{}, container("hunter2", "hunter2", harmless...)
	r.object(got)
	got["command"] = []any{"sh", "-c", r.text(got["command"].([]any)[2].(string))}
	require.Equal(t, container(redacted, redacted, harmless...), got)
}

// TestBundle plants a secret wherever one can be, and finds it nowhere.
func TestBundle(t *testing.T) {
	const planted = "correct-horse-battery"
	encoded := base64.StdEncoding.EncodeToString([]byte(planted))
	answers := map[string]string{
		"/version": `{"gitVersion":"v1.37.1"}`,
		"/api/v1/namespaces/kitchen/secrets": `{"kind":"SecretList","apiVersion":"v1","items":[{"kind":"Secret","apiVersion":"v1",
			"metadata":{"name":"database"},"data":{"dsn":"` + encoded + `"}}]}`,
		"/api/v1/namespaces/kitchen/configmaps": `{"kind":"ConfigMapList","apiVersion":"v1","items":[{"kind":"ConfigMap","apiVersion":"v1",
			"metadata":{"name":"config","annotations":{"note":"` + encoded + `"}},"data":{"x":"dsn ` + planted + `"}}]}`,
		"/api/v1/namespaces/kitchen/pods": `{"kind":"PodList","apiVersion":"v1","items":[{"kind":"Pod","apiVersion":"v1",
			"metadata":{"name":"apiserver-0","namespace":"kitchen"},
			"spec":{"containers":[{"name":"apiserver","args":["--dsn=` + planted + `"],"ports":[{"name":"metrics","containerPort":2381}]}]},
			"status":{"containerStatuses":[{"name":"apiserver","restartCount":1}]}}]}`,
		"/api/v1/namespaces/kitchen/pods/apiserver-0/log":                        "it connects by " + planted + "\nand works\n",
		"/api/v1/namespaces/kitchen/pods/apiserver-0/log previous":               "it had connected by " + planted + "\n",
		"/api/v1/namespaces/kitchen/pods/http:apiserver-0:metrics/proxy/metrics": `connections{dsn="` + planted + `"} 1`,
	}
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if r.URL.Query().Get("previous") == "true" {
			path += " previous"
		}
		answer, found := answers[path]
		if !found {
			w.WriteHeader(http.StatusNotFound)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	defer cluster.Close()

	var out bytes.Buffer
	results := []Result{{"", "etcd", Finding{Status: Failure, Cause: "the URL with " + planted + " does not answer", Fix: "start it"}}}
	require.NoError(t, WriteBundle(t.Context(), Config{Cluster: &rest.Config{Host: cluster.URL}, Namespace: "kitchen"}, results, &out))
	files := untar(t, &out)
	for name, content := range files {
		require.NotContains(t, content, planted, name)
		require.NotContains(t, content, encoded, name)
	}
	require.Equal(t, "failure  etcd  the URL with REDACTED does not answer\n         fix: start it\n", files["findings.txt"])
	require.Equal(t, "it connects by REDACTED\nand works\n", files["logs/apiserver-0/apiserver.log"])
	require.Equal(t, "it had connected by REDACTED\n", files["logs/apiserver-0/apiserver.previous.log"])
	require.Equal(t, `connections{dsn="REDACTED"} 1`, files["metrics/apiserver-0.txt"])
	require.Contains(t, files["objects/pods.yaml"], "--dsn=REDACTED")
	require.Contains(t, files["objects/configmaps.yaml"], "dsn REDACTED")
	require.Contains(t, files["objects/secrets.yaml"], fmt.Sprintf("dsn: REDACTED (%d characters)", len(encoded)))
	require.JSONEq(t, answers["/version"], files["versions/kube-apiserver.json"])
	require.Contains(t, files, "versions/doctor.json")
	var missing []string
	for line := range strings.Lines(files["missing.txt"]) {
		name, _, _ := strings.Cut(line, ":")
		missing = append(missing, name)
	}
	require.Contains(t, missing, "objects/deployments.yaml")
	require.NotContains(t, missing, "objects/pods.yaml")

	require.ErrorContains(t, WriteBundle(t.Context(), Config{Cluster: &rest.Config{Host: cluster.URL}}, nil, io.Discard), "name it by --namespace")
}

// untar returns the files of an archive.
func untar(t *testing.T, archive io.Reader) map[string]string {
	t.Helper()
	compressed, err := gzip.NewReader(archive)
	require.NoError(t, err)
	files := map[string]string{}
	for reader := tar.NewReader(compressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		content, err := io.ReadAll(reader)
		require.NoError(t, err)
		files[header.Name] = string(content)
	}
}

// TestMetricsOfAServer gives a server a token that is valid for its metrics, but never the
// credentials of this user.
func TestMetricsOfAServer(t *testing.T) {
	for name, test := range map[string]struct {
		insecure bool
		token    string // The service account's, if there is one.
		sent     string
		missing  string
	}{
		"with a token":              {false, "short-lived", "Bearer short-lived", ""},
		"of anybody":                {true, "short-lived", "", "metrics/%s.txt: insecureSkipTLSVerify is set, so that anybody could get the token"},
		"without a service account": {false, "", "", "the metrics of the Service kitchen/server, which are read with a token of the service account doctor of the component doctor, since this user's credentials are for kube-apiserver only: the server could not find the requested resource (post serviceaccounts doctor)"},
	} {
		t.Run(name, func(t *testing.T) {
			sent := ""
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				sent += req.Header.Get("Authorization")
				_, _ = io.WriteString(w, "up 1")
			}))
			server.TLS = &tls.Config{Certificates: []tls.Certificate{selfSigned(t, "server.kitchen.svc")}}
			server.StartTLS()
			defer server.Close()
			cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if req.URL.Path != "/api/v1/namespaces/kitchen/serviceaccounts/doctor/token" || test.token == "" {
					w.WriteHeader(http.StatusNotFound)
					return
				}
				assert.Equal(t, "Bearer administrator", req.Header.Get("Authorization"))
				_, _ = io.WriteString(w, `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"`+test.token+`"}}`)
			}))
			defer cluster.Close()

			address := server.Listener.Addr().String()
			e, err := newExamination(t.Context(), Config{Cluster: &rest.Config{Host: cluster.URL, BearerToken: "administrator"}, Namespace: "kitchen", Address: address})
			require.NoError(t, err)
			spec := apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Namespace: "kitchen", Name: "server"}, InsecureSkipTLSVerify: test.insecure}
			if !test.insecure {
				spec.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			}
			e.apiServices = []*apiregistrationv1.APIService{{Spec: spec}}
			var out bytes.Buffer
			b := &bundle{examination: e, archive: tar.NewWriter(&out)}
			b.addMetrics(t.Context())
			require.Equal(t, test.sent, sent)
			if test.missing != "" {
				require.Equal(t, strings.ReplaceAll(test.missing, "%s", strings.ReplaceAll(address, ":", "-")), b.missing[0])
			} else {
				require.Contains(t, out.String(), "up 1")
			}
		})
	}
}

func selfSigned(t *testing.T, host string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
