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
	"context"
	"encoding/base64"
	"fmt"
	"strings"
)

// manifests are what an installation of a server has, with a pod instead of controllers.
func (s *server) manifests(ca []byte) string {
	replacements := []string{
		"NAMESPACE", s.namespace, "NAME", s.name, "ACCOUNT", s.account, "CLUSTERIP", s.clusterIP(), "PORT", fmt.Sprint(port), "CABUNDLE", base64.StdEncoding.EncodeToString(ca),
	}
	text := strings.NewReplacer(replacements...).Replace(`
apiVersion: v1
kind: Namespace
metadata: {name: NAMESPACE}
---
apiVersion: v1
kind: Node
metadata: {name: node}
spec: {podCIDR: 192.0.2.0/24}
---
apiVersion: v1
kind: ServiceAccount
metadata: {namespace: NAMESPACE, name: ACCOUNT}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-NAME-delegator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:auth-delegator}
subjects: [{kind: ServiceAccount, namespace: NAMESPACE, name: ACCOUNT}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: kube-system, name: test-NAME-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}
subjects: [{kind: ServiceAccount, namespace: NAMESPACE, name: ACCOUNT}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: test-NAME}
rules:
  - {apiGroups: [""], resources: [namespaces, nodes, nodes/metrics, pods], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-NAME}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-NAME}
subjects: [{kind: ServiceAccount, namespace: NAMESPACE, name: ACCOUNT}]
---
apiVersion: v1
kind: Secret
metadata: {namespace: NAMESPACE, name: NAME-serving}
data: {ca.crt: CABUNDLE}
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: NAMESPACE, name: NAME}
spec:
  selector: {matchLabels: {test: NAME}}
  template:
    metadata: {labels: {test: NAME}}
    spec:
      serviceAccountName: ACCOUNT
      containers: [{name: server, image: server, ports: [{name: https, containerPort: 6443}]}]
      volumes: [{name: serving, secret: {secretName: NAME-serving}}]
---
apiVersion: v1
kind: Pod
metadata: {namespace: NAMESPACE, name: NAME-0, labels: {test: NAME}}
spec:
  nodeName: node
  serviceAccountName: ACCOUNT
  automountServiceAccountToken: false
  containers: [{name: server, image: server, ports: [{name: https, containerPort: 6443}]}]
  volumes: [{name: serving, secret: {secretName: NAME-serving}}]
---
apiVersion: v1
kind: Service
metadata: {namespace: NAMESPACE, name: NAME}
spec: {clusterIP: CLUSTERIP, selector: {test: NAME}, ports: [{name: https, port: PORT, targetPort: https}]}
`)
	for i, version := range s.versions {
		text += fmt.Sprintf(`
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: %[1]s.%[2]s}
spec: {group: %[2]s, version: %[1]s, groupPriorityMinimum: 1000, versionPriority: %[3]d, caBundle: %[4]s, service: {namespace: %[5]s, name: %[6]s, port: %[7]d}}
`, version, s.group, 100-i, base64.StdEncoding.EncodeToString(ca), s.namespace, s.name, port)
	}
	return text
}

// report has the pod be ready, as a kubelet would report it.
func (s *server) report(ctx context.Context) error {
	output, err := cp.Kubectl(ctx, "patch", "pod", s.name+"-0", "--namespace="+s.namespace, "--subresource=status", "--type=merge", fmt.Sprintf(
		`--patch={"status":{"phase":"Running","podIP":"%[1]s","podIPs":[{"ip":"%[1]s"}],"conditions":[{"type":"Ready","status":"True"}]}}`, s.podIP())).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}
