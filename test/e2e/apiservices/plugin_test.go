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

package apiservices

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	command "restaurant.programming-kubernetes.info/apiserver/pkg/cmd/doctor"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// No credentials of the caller reach a server: all that a server sees comes from kube-apiserver's front proxy.
func TestCredentials(t *testing.T) {
	for _, line := range []string{"kubectl create serviceaccount caller --namespace=default", "kubectl create clusterrolebinding caller --clusterrole=cluster-admin --serviceaccount=default:caller"} {
		output, err := shell(t, line)
		require.NoError(t, err, "%s", output)
	}
	output, err := cp.Kubectl(t.Context(), "create", "token", "caller", "--namespace=default").Output()
	require.NoError(t, err)
	token := strings.TrimSpace(string(output))

	var mu sync.Mutex
	callers := map[string]int{}
	users := map[string]bool{}
	server := newScene(200)
	server.behaviour.seen = func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		for name, values := range r.Header {
			assert.NotEqual(t, "Authorization", name)
			assert.NotContains(t, strings.Join(values, " "), token, name)
		}
		caller := "nobody"
		if len(r.TLS.PeerCertificates) > 0 {
			caller = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		callers[caller]++
		users[r.Header.Get("X-Remote-User")] = true
	}
	require.NoError(t, server.create(t))
	t.Cleanup(func() {
		_, _ = shell(t, "kubectl delete serviceaccount caller --namespace=default; kubectl delete clusterrolebinding caller; kubectl delete --wait=false apiservice/"+server.apiServices[0].Name+" namespace/"+server.name)
	})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
		clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}], users: [{name: u, user: {token: %s}}]}`,
		cp.KubeAPIServer.URL(), base64.StdEncoding.EncodeToString(cp.PKI.ServingCA.CertPEM()), token), 0o600))
	controlplane.Eventually(t, func() error {
		found, err := examine("--kubeconfig="+kubeconfig, server.apiServices[0].Name)
		if len(found) > 0 {
			err = fmt.Errorf("found %v", found)
		}
		return err
	})

	mu.Lock()
	defer mu.Unlock()
	require.True(t, users["system:serviceaccount:default:caller"], "%v", users)
	require.Len(t, callers, 1, "%v", callers)
	require.Positive(t, callers["front-proxy-client"], "%v", callers)
}

func TestPlugin(t *testing.T) {
	server := newScene(201)
	require.NoError(t, server.create(t))
	name := server.apiServices[0].Name
	t.Cleanup(func() {
		_, _ = shell(t, "kubectl delete --wait=false apiservice/"+name+" namespace/"+server.name)
	})
	controlplane.Eventually(t, func() error {
		found, err := examine(name)
		if len(found) > 0 {
			err = fmt.Errorf("found %v", found)
		}
		return err
	})
	for title, test := range map[string]struct {
		args      []string
		out, fail string
	}{
		"names":                 {[]string{name}, "\nService " + server.name + "/server: " + name + "\n", ""},
		"an APIService of none": {[]string{"v1.nothing.example.com"}, "", `there is no APIService v1.nothing.example.com: "kubectl get apiservices" lists those that there are`},
		"one of kube-apiserver": {[]string{"v1.apps"}, "", "the APIService v1.apps leads to no server, since kube-apiserver serves it itself"},
		"a format that is none": {[]string{"--output=yaml"}, "", `--output must be "json" or left out, not "yaml"`},
		"a negative pause":      {[]string{"--watch=-1s"}, "", "--watch must be longer than nothing, for instance 5m"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Setenv("KUBECONFIG", cp.Kubeconfig())
			plugin := command.NewPlugin()
			var out bytes.Buffer
			plugin.SetOut(&out)
			plugin.SetErr(&bytes.Buffer{})
			plugin.SetArgs(test.args)
			err := plugin.ExecuteContext(t.Context())
			if test.fail != "" {
				require.EqualError(t, err, test.fail)
				return
			}
			require.NoError(t, err, out.String())
			require.Contains(t, out.String(), test.out)
		})
	}
}
