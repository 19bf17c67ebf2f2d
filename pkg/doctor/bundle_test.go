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
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// TestRedactText removes what is confidential from logs and metrics, and nothing else.
func TestRedactText(t *testing.T) {
	r := &redactor{}
	r.learn(corev1.Secret{Data: map[string][]byte{
		"key": []byte("known-value\n"), "short": []byte("true"),
		"tls.crt": []byte("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"),
	}})
	for name, test := range map[string]struct{ text, want string }{
		"a value of a Secret":            {"it is known-value.", "it is REDACTED."},
		"the same in base64":             {base64.StdEncoding.EncodeToString([]byte("known-value\n")), "REDACTED"},
		"a short value":                  {"that is true", "that is true"},
		"a certificate":                  {"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"},
		"a key":                          {"-----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY-----\nnext", "REDACTED\nnext"},
		"a key that is cut off":          {"-----BEGIN PRIVATE KEY-----\nMHcC", "REDACTED"},
		"a key in base64":                {"x: " + base64.StdEncoding.EncodeToString([]byte("-----BEGIN RSA PRIVATE KEY-----\nMHcC\n")), "x: REDACTED"},
		"a token":                        {"got eyJhbGciOiJSUzI1.eyJpc3MiOiJrdWJl.c2lnbmF0dXJl from", "got REDACTED from"},
		"a header":                       {`"Authorization: Bearer abc.def-123"`, `"Authorization: Bearer REDACTED"`},
		"a flag":                         {"--password=hunter2 --v=2", "--password=REDACTED --v=2"},
		"YAML":                           {"password: hunter2\nname: x", "password: REDACTED\nname: x"},
		"JSON":                           {`{"token": "hunter2", "name": "x"}`, `{"token": "REDACTED", "name": "x"}`},
		"a URL":                          {"postgres://user:hunter2@db:5432/x", "postgres://REDACTEDdb:5432/x"},
		"a query":                        {"/path?token=hunter2&limit=1", "/path?token=REDACTED&limit=1"},
		"a field that only begins so":    {"secret:\n  secretName: etcd-client", "secret:\n  secretName: etcd-client"},
		"a metric":                       {`authentication_token_cache_active_fetch_count{status="in_flight"} 0`, `authentication_token_cache_active_fetch_count{status="in_flight"} 0`},
		"an address and an ordinary log": {`https://10.0.0.1:6443 "Starting" version="v1.0.0"`, `https://10.0.0.1:6443 "Starting" version="v1.0.0"`},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, r.text(test.text)) })
	}
}

// TestRedactObject removes values by their names.
func TestRedactObject(t *testing.T) {
	object := func(data, password, variable any) map[string]any {
		return map[string]any{
			"kind": "Secret", "data": map[string]any{"key": data}, "password": password,
			"spec": map[string]any{"secretName": "x", "env": []any{
				map[string]any{"name": "DB_PASSWORD", "value": variable}, map[string]any{"name": "MODE", "value": "ha"},
				map[string]any{"name": "API_TOKEN", "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": "x"}}},
			}},
		}
	}
	got := object("hunter22", "hunter22", "hunter22")
	got["metadata"] = map[string]any{"managedFields": []any{}, "annotations": map[string]any{corev1.LastAppliedConfigAnnotation: "hunter22"}}
	want := object("REDACTED (8 characters)", "REDACTED", "REDACTED")
	want["metadata"] = map[string]any{"annotations": map[string]any{}}
	(&redactor{}).object(got)
	require.Equal(t, want, got)
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
	results := []Result{{"etcd", Finding{Failure, "the URL with " + planted + " does not answer", "start it"}}}
	require.NoError(t, WriteBundle(t.Context(), Config{Cluster: &rest.Config{Host: cluster.URL}, Namespace: "kitchen"}, results, &out))
	files := untar(t, &out)
	for name, content := range files {
		require.NotContains(t, content, planted, name)
		require.NotContains(t, content, encoded, name)
	}
	require.Equal(t, "failure  etcd  the URL with REDACTED does not answer: start it\n", files["findings.txt"])
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

// This user's credentials are for a server that the APIServices trust.
func TestMetricsOfAnybody(t *testing.T) {
	asked := false
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer server.Close()
	service := &apiregistrationv1.ServiceReference{Namespace: "default", Name: "server"}
	apiService := &apiregistrationv1.APIService{Spec: apiregistrationv1.APIServiceSpec{Service: service, InsecureSkipTLSVerify: true}}
	b := &bundle{examination: &examination{Config: Config{Cluster: &rest.Config{BearerToken: "secret"}}, registration: registration{apiServices: []*apiregistrationv1.APIService{apiService}}}}
	_, err := b.metrics(t.Context(), server.Listener.Addr().String(), newBackend("default", "server", nil))
	require.EqualError(t, err, "insecureSkipTLSVerify is set, so that anybody could get the credentials of this user")
	require.False(t, asked)
}
