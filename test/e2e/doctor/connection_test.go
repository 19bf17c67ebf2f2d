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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

func testDoctorOnPermissions(t *testing.T) {
	framework.Long(t, "permissions are taken and given back")
	const name = "restaurant-apiserver:system:auth-delegator"
	backup, err := cp.Kubectl(t.Context(), "get", "clusterrolebinding", name, "--output=yaml").Output()
	require.NoError(t, err)
	t.Cleanup(func() {
		cmd := cp.Kubectl(context.Background(), "create", "--filename=-")
		cmd.Stdin = strings.NewReader(regexp.MustCompile(`(?m)^ {2}(resourceVersion|uid):.*\n`).ReplaceAllString(string(backup), ""))
		output, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", output)
	})
	framework.Kubectl(t, cp, "delete", "clusterrolebinding", name)
	// kube-apiserver learns of it a moment later.
	controlplane.Eventually(t, func() error {
		_, findings := doctor(t, cp)
		if len(symptoms(findings)) == 0 {
			return errors.New("nothing is found")
		}
		return nil
	})
	requireSymptom(t, `failure permissions: system:serviceaccount:restaurant-system:apiserver may not create tokenreviews\.authentication\.k8s\.io, create subjectaccessreviews\.authorization\.k8s\.io: `+
		`bind the ClusterRole system:auth-delegator to its user with a ClusterRoleBinding`)
}

func testDoctorOnWebhooks(t *testing.T) {
	framework.Long(t, "webhooks are broken and repaired")
	good := listen(t, cp.PKI.ServingCA, controlplane.Certificate{User: "webhook", Hosts: []string{"hook.default.svc"}})
	for name, test := range map[string]struct{ port, policy, want string }{
		"that nobody serves": {"1", "Ignore", `warning webhooks: the webhook hook\.example\.com of the ValidatingWebhookConfiguration doctor does not answer, and what it is asked about passes without it: ` +
			`nobody listens at localhost:1: see whether the server runs, and the log of one that does not`},
		"that answers": {good, "Fail", ""},
	} {
		t.Run(name, func(t *testing.T) {
			bundle, err := json.Marshal(cp.PKI.ServingCA.CertPEM())
			require.NoError(t, err)
			apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {namespace: default, name: hook}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: doctor}
webhooks:
  - name: hook.example.com
    clientConfig: {service: {namespace: default, name: hook, port: %s}, caBundle: %s}
    rules: [{apiGroups: [%q], apiVersions: ["*"], operations: [CREATE], resources: [pizzas/status]}]
    failurePolicy: %s
    sideEffects: None
    admissionReviewVersions: [v1]
`, test.port, bundle, groupName, test.policy))
			if test.want != "" {
				requireSymptom(t, test.want)
				return
			}
			_, findings := doctor(t, cp)
			require.Contains(t, findings, finding{Check: "webhooks", Status: "ok", Cause: "all webhooks that are asked about the groups answer (1)"})
		})
	}
}

func testDoctorOnEtcd(t *testing.T) {
	framework.Long(t, "etcd is broken and repaired")
	t.Run("that nobody vouches for", func(t *testing.T) {
		requireSymptom(t, `failure etcd: etcd at \S+ does not answer \(.*certificate signed by unknown authority.*\): check that it runs, .*`,
			append(framework.EtcdFlags(t, cp, "storage", ""), "--etcd-cafile="+cp.PKI.ClientCA.File)...)
	})
	t.Run("that is nearly full, and full", func(t *testing.T) {
		// A server that is not started, for its etcd.
		framework.NewServer(t, cp, controlplane.ServerConfig{Etcd: "small"})
		small := cp.Component("small")
		small.SetFlags("--quota-backend-bytes=1")
		require.NoError(t, small.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, small.Stop()) })
		flags := framework.EtcdFlags(t, cp, "small", "")
		requireSymptom(t, `warning etcd: etcd at \S+ has used \d+ % of its quota of 0\.0 MiB: delete objects, defragment it, or raise its quota: above it, nothing can be written`, flags...)

		_, err := framework.EtcdClient(t, cp, small).Put(t.Context(), "key", "value")
		require.ErrorContains(t, err, "database space exceeded")
		require.NoError(t, small.Stop())
		small.SetFlags()
		require.NoError(t, small.Start(t.Context()))
		requireSymptom(t, `failure etcd: the member [0-9a-f]+ of etcd has reached its quota, and takes no writes: delete objects, compact and defragment it or raise its quota, and disarm the alarm`, flags...)
	})
	t.Run("that is embedded", func(t *testing.T) {
		server := framework.NewServer(t, cp, framework.Flags())
		require.NoError(t, server.Start(t.Context()))
		dir := "--data-dir=" + framework.DataDir(server)
		_, findings := doctor(t, cp, dir)
		require.Empty(t, symptoms(findings))
		require.Equal(t, "ok", statuses(findings)["etcd"], "%v", findings)
		server.Kill()
		requireSymptom(t, `failure etcd: etcd at unix://\S+/etcd\.sock does not answer \(.*\): check that it runs, .*`, dir)
	})
}
