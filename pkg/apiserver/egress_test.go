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

package apiserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/server/egressselector"
)

// egressFile writes an EgressSelectorConfiguration of these selections.
func egressFile(t *testing.T, selections string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "egress.yaml")
	content := "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections: " + selections
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestEgressSelectorErrors(t *testing.T) {
	for name, test := range map[string]struct {
		selections string
		// want is the text after the flag. If it is empty, nothing is wrong.
		want string
	}{
		"nothing":         {"", ""},
		"no selection":    {"[]", ""},
		"directly":        {"[{name: cluster, connection: {proxyProtocol: Direct}}]", ""},
		"a field":         {"[{names: cluster}]", `strict decoding error: unknown field "egressSelections[0].names"`},
		"a name":          {"[{name: nodes, connection: {proxyProtocol: Direct}}]", `service.connection: Unsupported value: "nodes": supported values: "cluster", "controlplane", "etcd"`},
		"no transport":    {"[{name: cluster, connection: {proxyProtocol: GRPC}}]", `service.connection.transport: Required value: transport must be set for GRPC`},
		"TCP without TLS": {"[{name: cluster, connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://proxy:8131'}}}}]", `egress selection "cluster": a proxy that is reached by TCP needs a tlsConfig and a url that begins with https://`},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, err := range parse(t, "--egress-selector-config-file="+egressFile(t, test.selections)).Validate() {
				got = append(got, err.Error())
			}
			want := ""
			if test.want != "" {
				want = "--egress-selector-config-file: " + test.want
			}
			if strings.Join(got, "\n") != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// Networks that are not selected are reached directly, and an embedded etcd always is. An
// error says which selection it comes from.
func TestEgressLookup(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "missing.sock")
	proxy := "connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: " + socket + "}}}"
	file := egressFile(t, "[{name: ControlPlane, "+proxy+"}, {name: etcd, "+proxy+"}]")
	options := parse(t, "--egress-selector-config-file="+file, "--etcd-servers=https://127.0.0.1:1")
	for network, selected := range map[egressselector.EgressType]bool{
		egressselector.ControlPlane: true,
		egressselector.Etcd:         true,
		egressselector.Cluster:      false,
	} {
		dial, err := options.Egress(network.AsNetworkContext())
		if err != nil {
			t.Fatal(err)
		}
		if (dial != nil) != selected {
			t.Errorf("%s has a dialer: %t, want %t", network, dial != nil, selected)
		}
		if dial == nil {
			continue
		}
		_, err = dial(t.Context(), "tcp", "127.0.0.1:1")
		want := fmt.Sprintf("by the egress selection %q of --egress-selector-config-file: dial unix %s: connect: no such file or directory", network, socket)
		if err == nil || err.Error() != want {
			t.Errorf("got the error %v, want %s", err, want)
		}
	}
	if parse(t, "--egress-selector-config-file="+file).Etcd.StorageConfig.Transport.EgressLookup != nil {
		t.Error("the socket of the embedded etcd is reached by a dialer")
	}
}
