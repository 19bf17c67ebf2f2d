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
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	command "restaurant.programming-kubernetes.info/apiserver/pkg/cmd/doctor"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// finding is a line of the plugin's.
type finding struct {
	Server, Check, Status, Cause, Since, Fix, Command string
}

func (f finding) String() string {
	return strings.Join([]string{f.Server, f.Status + " " + f.Check, f.Cause, f.Fix, f.Command}, " | ")
}

// examine runs the plugin and returns what is not as it should be.
func examine(args ...string) (wrong []finding, err error) {
	plugin := command.NewPlugin()
	var out bytes.Buffer
	plugin.SetOut(&out)
	plugin.SetErr(io.Discard)
	plugin.SetArgs(append([]string{"--kubeconfig=" + cp.Kubeconfig(), "--output=json"}, args...))
	failed := plugin.ExecuteContext(context.Background())
	var output struct{ Results []finding }
	if err := json.Unmarshal(out.Bytes(), &output); err != nil {
		return nil, fmt.Errorf("%w: %w", failed, err)
	}
	failures := false
	for _, found := range output.Results {
		failures = failures || found.Status == "failure"
		if found.Status == "warning" || found.Status == "failure" {
			wrong = append(wrong, found)
		}
	}
	if failures != (failed != nil) {
		err = fmt.Errorf("the exit code does not tell of failures: %w", failed)
	}
	return wrong, err
}

// wanted is what is to be found, of a server. Cause and command are regular expressions.
type wanted struct {
	status, check, cause, command string
	of                            *server
}

// requireFindings waits until exactly what is wanted is found.
func requireFindings(t *testing.T, since bool, want ...wanted) (found []finding) {
	t.Helper()
	controlplane.Eventually(t, func() (err error) {
		if found, err = examine(); err != nil {
			return err
		}
		if len(found) != len(want) {
			return fmt.Errorf("got %d findings, want %d: %v", len(found), len(want), found)
		}
		for i, want := range want {
			of := fmt.Sprintf("Service %s/%s: ", want.of.namespace, want.of.name)
			if got := found[i]; !strings.HasPrefix(got.Server, of) || got.Status != want.status || got.Check != want.check || !regexp.MustCompile(want.cause).MatchString(got.Cause) || !regexp.MustCompile("^"+want.command+"$").MatchString(got.Command) {
				return fmt.Errorf("got %s, want %s%+v", got, of, want)
			}
		}
		if since != (len(found) > 0 && found[0].Since != "") {
			return fmt.Errorf("since when is known or not: %+v", found)
		}
		return nil
	})
	return found
}

// fault is something that is wrong.
type fault struct {
	server *server
	// objects are applied, and commands of kubectl run after that.
	objects  string
	commands []string
	// outside changes where connections lead; afterwards they lead to the server again.
	outside func(t *testing.T, s *server)
	// want is what is found, of the server if of no other.
	want []wanted
	// repaired is set if the first command that is found is all that it takes, besides what is outside.
	repaired bool
	// since is set if it is known when it began.
	since bool
	// short is set for what "make test" has, too.
	short bool
}

func TestFaults(t *testing.T) {
	for _, server := range servers() {
		report(t, server, true, "")
	}
	requireFindings(t, false)
	before, err := take(t.Context())
	require.NoError(t, err)
	for name, test := range faults(t) {
		if testing.Short() && !test.short {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() {
				require.NoError(t, test.server.relay.lead(test.server.backend()))
				controlplane.Eventually(t, func() error { return before.restore(context.Background()) })
				requireFindings(t, false)
			})
			test.seed(t)
			for i := range test.want {
				if test.want[i].of == nil {
					test.want[i].of = test.server
				}
			}
			found := requireFindings(t, test.since, test.want...)
			if test.repaired {
				require.NoError(t, test.server.relay.lead(test.server.backend()))
				shell(t, found[0].Command)
				requireFindings(t, false)
			}
		})
	}
}

func (f *fault) seed(t *testing.T) {
	t.Helper()
	if f.outside != nil {
		f.outside(t, f.server)
	}
	if f.objects != "" {
		apply := cp.Kubectl(t.Context(), "apply", "--server-side", "--force-conflicts", "--filename=-")
		apply.Stdin = strings.NewReader(f.objects)
		output, err := apply.CombinedOutput()
		require.NoError(t, err, "%s", output)
	}
	for _, line := range f.commands {
		shell(t, "kubectl "+line)
	}
}

// nowhere has a Service lead to nobody.
func nowhere(t *testing.T, s *server) {
	t.Helper()
	require.NoError(t, s.relay.lead(""))
}

// silent has connections get no answer.
func silent(t *testing.T, s *server) {
	t.Helper()
	require.NoError(t, s.relay.lead(silence))
}

// shows has another certificate be served.
func shows(issuer *controlplane.CA, certificate controlplane.Certificate) func(*testing.T, *server) {
	return func(t *testing.T, s *server) {
		t.Helper()
		require.NoError(t, s.relay.lead(serve(t, issuer, certificate, http.NotFoundHandler())))
	}
}

// answers has another server answer, with a certificate that is trusted.
func answers(handler http.HandlerFunc) func(*testing.T, *server) {
	return func(t *testing.T, s *server) {
		t.Helper()
		require.NoError(t, s.relay.lead(serve(t, cp.PKI.ServingCA, controlplane.Certificate{Hosts: []string{s.host()}}, handler)))
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// serve serves until the test ends, and returns the address.
func serve(t *testing.T, issuer *controlplane.CA, certificate controlplane.Certificate, handler http.Handler) string {
	t.Helper()
	issued, err := issuer.Issue(certificate)
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(issued.Cert, issued.Key)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	server.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}
