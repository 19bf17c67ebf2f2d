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

package migration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// After a command has been killed while clients can't write, the server lets them, without another command.
// No write is lost that was acknowledged, and the objects are where clients use them.
func TestEndedProcess(t *testing.T) {
	framework.Long(t, "TestRecover of pkg/migrate is the short one")
	t.Parallel()
	for name, newCluster := range map[string]func(*testing.T) *cluster{"to custom resources": newDefinedCluster, "to types": newCluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newCluster(t).endProcesses(t)
		})
	}
}

func (c *cluster) endProcesses(t *testing.T) {
	t.Helper()
	manifests, account := "crd-apiserver", framework.CRDServer()
	var back []string
	if c.binary == "apiserver" {
		manifests, account.Namespace, account.Name = "deploy", serverNamespace, "apiserver"
		back = c.kubeEtcd(t)
	}
	grant := func() {
		framework.Kubectl(t, c.ControlPlane, "apply", "--filename=../../../artifacts/"+manifests+"/components/migrate/rbac.yaml")
	}
	grant()
	// As in a pod of the server.
	kubeconfig, err := c.KubeconfigFor("system:serviceaccount:"+account.Namespace+":"+account.Name, "system:serviceaccounts", "system:serviceaccounts:"+account.Namespace, "system:authenticated")
	require.NoError(t, err)
	c.flags = append(c.flags, "--kubeconfig="+kubeconfig)
	etcd := c.etcd(t)
	before := c.everything(t)
	writers := c.startWriters(t)
	const frozen = " are equal"
	switched := map[string]string{"run": " leads to the server", "back": " is given back to kube-apiserver"}

	// The server only takes the process for ended when the lease has.
	c.killIn(t, frozen, "run")
	framework.Kubectl(t, c.ControlPlane, "delete", "--filename=../../../artifacts/"+manifests+"/components/migrate/rbac.yaml")
	endLease(t, etcd)
	controlplane.Eventually(t, func() error {
		log, err := os.ReadFile(c.server.LogFile())
		if err == nil && !strings.Contains(string(log), "this server is no cluster administrator") {
			err = fmt.Errorf("the server does not say why it does nothing")
		}
		return err
	})
	require.Equal(t, "Freezing", stateOf(t, etcd).Phase)
	grant()
	c.requireRecovered(t, etcd, writers, "Copying")
	// A minute, and what it takes to end the freeze.
	c.killIn(t, frozen, "run")
	c.requireRecovered(t, etcd, writers, "Copying")

	for _, way := range []struct {
		command, aborted, end string
		args                  []string
	}{{"run", "", "Moved", nil}, {"back", "Moved", "Returned", back}} {
		for _, test := range []struct{ line, want string }{
			{frozen, "Copying"}, {"Switching", way.aborted}, {switched[way.command], way.aborted}, {"Aborting", way.aborted}, {"Releasing", way.end},
		} {
			t.Logf("%s: %s", way.command, test.line)
			if test.line == "Aborting" {
				c.killIn(t, switched[way.command], way.command, way.args...)
				c.killAborting(t, etcd)
			} else {
				c.killIn(t, test.line, way.command, way.args...)
			}
			endLease(t, etcd)
			c.requireRecovered(t, etcd, writers, test.want)
		}
	}
	for _, command := range []string{"finish", "run"} {
		code, _, stderr := c.migrate(t, command)
		require.Equal(t, 0, code, stderr)
	}
	writers.stop()
	found := c.everything(t)
	for i := range writers.uids {
		delete(found, "pizzas/"+metav1.NamespaceDefault+"/"+writtenBy(i))
	}
	require.Empty(t, cmp.Diff(before, found))
}

// killAborting kills a command that aborts the migration.
func (c *cluster) killAborting(t *testing.T, etcd *clientv3.Client) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), framework.Program(t, c.ControlPlane, c.binary), c.args("abort")...)
	require.NoError(t, cmd.Start())
	controlplane.Eventually(t, func() error {
		if phase := stateOf(t, etcd).Phase; phase != "Aborting" {
			return fmt.Errorf("the phase is %s", phase)
		}
		return nil
	})
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
}

// stateOf returns the state of the migration in the server's etcd, which is empty if there is none.
func stateOf(t *testing.T, etcd *clientv3.Client) (state struct {
	Phase string
	Lease clientv3.LeaseID
}) {
	t.Helper()
	response, err := etcd.Get(t.Context(), "/registry/migrations/"+restaurant.GroupName)
	require.NoError(t, err)
	if len(response.Kvs) > 0 {
		require.NoError(t, json.Unmarshal(response.Kvs[0].Value, &state))
	}
	return state
}

// endLease does what etcd does a minute after a process has ended.
func endLease(t *testing.T, etcd *clientv3.Client) {
	t.Helper()
	_, err := etcd.Revoke(t.Context(), stateOf(t, etcd).Lease)
	require.NoError(t, err)
}

// requireRecovered requires that the migration comes to a phase by itself, that clients can write then,
// and that nothing is left of the freeze.
func (c *cluster) requireRecovered(t *testing.T, etcd *clientv3.Client, writers *writers, phase string) {
	t.Helper()
	began := time.Now()
	controlplane.Eventually(t, func() error {
		if now := stateOf(t, etcd).Phase; now != phase {
			return fmt.Errorf("the phase is %q", now)
		}
		return nil
	})
	writers.require(t, c)
	t.Logf("%s: clients could write after %s.", phase, time.Since(began).Round(time.Second))
	output, err := c.Kubectl(t.Context(), "get", "--ignore-not-found", "--output=name", "prioritylevelconfiguration,flowschema,validatingadmissionpolicy,validatingadmissionpolicybinding").CombinedOutput()
	require.NoError(t, err, "%s", output)
	for line := range strings.Lines(string(output)) {
		require.False(t, strings.Contains(line, "/migrate."+restaurant.GroupName) && !strings.Contains(line, ".bypass"), "%s is left.", line)
	}
}
