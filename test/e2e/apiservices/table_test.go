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
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// faults are what is found, by what it is.
func faults(t *testing.T) map[string]*fault {
	t.Helper()
	stranger, err := controlplane.NewCA("stranger")
	require.NoError(t, err)
	now := time.Now()
	old, err := stranger.Issue(controlplane.Certificate{User: "old authority", NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(-time.Hour)})
	require.NoError(t, err)
	secret := func(s *server, issuer *controlplane.CA, until time.Time) string {
		issued, err := issuer.Issue(controlplane.Certificate{Hosts: []string{s.host()}, NotBefore: now.Add(-48 * time.Hour), NotAfter: until})
		require.NoError(t, err)
		return fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {namespace: %s, name: %s-serving}, data: {tls.crt: %s, ca.crt: %s}}", s.namespace, s.name,
			base64.StdEncoding.EncodeToString(issued.Cert), base64.StdEncoding.EncodeToString(issuer.CertPEM()))
	}
	patch := func(s *server, kind, name, patch string) string {
		return fmt.Sprintf("patch %s %s --namespace=%s --type=merge --patch='%s'", kind, name, s.namespace, patch)
	}
	spec := func(s *server, content string) (lines []string) {
		for _, version := range s.versions {
			lines = append(lines, patch(s, "apiservice", version+"."+s.group, content))
		}
		return lines
	}
	state := func(ready bool, containers string) func(*testing.T, *server) {
		return func(t *testing.T, s *server) { report(t, s, ready, containers) }
	}
	waiting := func(reason string, restarts int) func(*testing.T, *server) {
		return state(false, fmt.Sprintf(`,"containerStatuses":[{"name":"server","image":"server","imageID":"","ready":false,"restartCount":%d,"state":{"waiting":{"reason":%q}}}]`, restarts, reason))
	}
	webhook := func(name, service, rule, more string) string {
		return fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: %s}, webhooks: [{name: %[1]s.example.com, admissionReviewVersions: [v1], sideEffects: None,
			clientConfig: {service: %s}, rules: [{operations: [CREATE], apiVersions: ["*"], %s}]%s}]}`, name, service, rule, more)
	}
	policy := func(name, parameters, rule string) string {
		return fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: %[1]s}, spec: {paramKind: %[2]s, matchConstraints: {resourceRules: [{operations: [CREATE], apiVersions: ["*"], %[3]s}]}, validations: [{expression: "true"}]}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: %[1]s}, spec: {policyName: %[1]s, validationActions: [Deny], paramRef: {name: nothing, namespace: default, parameterNotFoundAction: Allow}}}`, name, parameters, rule)
	}
	network := func(s *server, content string) string {
		return fmt.Sprintf("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: %s, name: closed}, spec: {podSelector: {}, %s}}", s.namespace, content)
	}
	const (
		trustsServing = `kubectl patch apiservice .* --type=merge --patch='\{"spec":\{"insecureSkipTLSVerify":false,"caBundle":"'\$\(kubectl get secret \S+-serving --namespace=\S+ --output='jsonpath=\{\.data\.ca\\\.crt\}'\)'"\}\}'`
		looksAround   = `kubectl get service,endpointslices,pods --namespace=\S+ --output=wide`
		logs          = `kubectl logs --namespace=\S+ deployment/\S+ --all-containers --tail=100`
		restarts      = `kubectl rollout restart --namespace=\S+ deployment/\S+`
	)
	return map[string]*fault{
		// The Service, and what is behind it.
		"no Service": {server: sample, commands: []string{"delete service api --namespace=wardle"}, repaired: true, since: true,
			want: []wanted{{"failure", "service", `^the Service wardle/api does not exist$`, `kubectl delete apiservice v1alpha1\.wardle\.example\.com v1beta1\.wardle\.example\.com`, nil}}},
		"no namespace": {server: ours, short: true, repaired: true, since: true,
			objects: `{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.orphan.example.com}, spec: {group: orphan.example.com, version: v1, groupPriorityMinimum: 1, versionPriority: 1, service: {namespace: gone, name: gone}}}`,
			want:    []wanted{{"failure", "service", `^the Service gone/gone does not exist$`, `kubectl delete apiservice v1\.orphan\.example\.com`, &server{namespace: "gone", name: "gone"}}}},
		"another port": {server: metrics, commands: []string{`patch service metrics-server --namespace=kube-system --type=json --patch='[{"op":"replace","path":"/spec/ports/0/port","value":443}]'`}, repaired: true, since: true,
			want: []wanted{{"failure", "service", `has no port 8443$`, `kubectl patch service metrics-server --namespace=kube-system --type=json --patch=.*"/spec/ports/0/port","value":8443.*`, nil}}},
		"another target port": {server: ours, commands: []string{`patch service apiserver --namespace=restaurant-system --type=json --patch='[{"op":"replace","path":"/spec/ports/0/targetPort","value":"http"}]'`}, short: true, repaired: true, since: true,
			want: []wanted{{"failure", "service", `^the target port "http" of the Service \S+ is not a port of its pod apiserver-0$`, `kubectl patch service apiserver --namespace=restaurant-system --type=json --patch=.*targetPort","value":6443.*`, nil}}},
		"another selector": {server: sample, commands: []string{patch(sample, "service", "api", `{"spec":{"selector":{"test":"other"}}}`)}, repaired: true, since: true,
			want: []wanted{{"failure", "service", `^no pod matches the selector test=other of the Service wardle/api$`, `kubectl set selector service api --namespace=wardle test=api`, nil}}},
		"no replicas": {server: sample, commands: []string{"scale deployment api --replicas=0 --namespace=wardle", "delete pod api-0 --namespace=wardle --grace-period=0 --force"}, since: true,
			want: []wanted{{"failure", "service", `since the Deployment api is to have none$`, `kubectl scale --namespace=wardle deployment/api --replicas=1`, nil}}},
		"pods that can't be created": {server: ours, since: true,
			commands: []string{
				"delete pod apiserver-0 --namespace=restaurant-system --grace-period=0 --force",
				patch(ours, "deployment", "apiserver", `{"status":{"conditions":[{"type":"ReplicaFailure","status":"True","message":"exceeded quota"}]}}`) + " --subresource=status",
			},
			want: []wanted{{"failure", "service", `since none of the Deployment apiserver can be created \(exceeded quota\)$`, `kubectl describe --namespace=restaurant-system deployment,replicasets --selector=test=apiserver`, nil}}},
		"a pod that crashes": {server: sample, outside: waiting("CrashLoopBackOff", 5), since: true,
			want: []wanted{{"failure", "service", `is ready: CrashLoopBackOff$`, `kubectl logs api-0 --namespace=wardle --container=server --previous`, nil}}},
		"an image that is not there": {server: metrics, outside: waiting("ImagePullBackOff", 0), since: true,
			want: []wanted{{"failure", "service", `is ready: ImagePullBackOff$`, `kubectl describe pod metrics-server-0 --namespace=kube-system`, nil}}},
		"a pod that no node takes": {server: ours, since: true,
			outside: func(t *testing.T, s *server) {
				t.Helper()
				kubectl(t, "patch", "pod", "apiserver-0", "--namespace="+s.namespace, "--subresource=status", "--type=merge",
					`--patch={"status":{"phase":"Pending","conditions":[{"type":"Ready","status":"False"},{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"no nodes"}]}}`)
			},
			want: []wanted{{"failure", "service", `is ready: Unschedulable, no nodes$`, `kubectl describe pod apiserver-0 --namespace=restaurant-system`, nil}}},
		"pods of another server": {server: sample,
			objects: `{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: wardle, name: other}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: wardle, name: other, labels: {test: api}}, spec: {nodeName: node, serviceAccountName: other, containers: [{name: server, image: server, ports: [{name: https, containerPort: 6443}]}]}}`,
			commands: []string{patch(sample, "pod", "other", `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`) + " --subresource=status"},
			want:     []wanted{{"warning", "service", `^the Service wardle/api selects pods of several servers, such as api-0 and other, `, `kubectl get pods --namespace=wardle --selector=test=api --show-labels`, nil}}},
		"no cluster IP": {server: ours, since: true,
			commands: []string{"delete service apiserver --namespace=restaurant-system", "create service clusterip apiserver --clusterip=None --tcp=8443:https --namespace=restaurant-system", "set selector service apiserver test=apiserver --namespace=restaurant-system"},
			want:     []wanted{{"failure", "availability", `cannot route to service with ClusterIP "None"`, `kubectl patch service apiserver --namespace=restaurant-system .* \| kubectl replace --force --filename=-`, nil}}},

		// The network.
		"a policy against everything": {server: ours, outside: silent, objects: network(ours, "policyTypes: [Ingress]"), repaired: true, since: true,
			want: []wanted{{"failure", "network", `^kube-apiserver can't connect to the pod apiserver-0 at port 6443, because of the NetworkPolicy closed$`, `kubectl patch networkpolicy closed --namespace=restaurant-system --type=json --patch='\[\{"op":"add","path":"/spec/ingress","value":\[\{"ports":\[\{"port":6443\}\]\}\]\}\]'`, nil}}},
		"a policy for pods": {server: sample, outside: nowhere, objects: network(sample, "ingress: [{from: [{namespaceSelector: {}}]}]"), repaired: true, since: true,
			want: []wanted{{"failure", "network", `^kube-apiserver can't connect to the pod api-0 at port 6443, because of the NetworkPolicy closed$`, `kubectl patch networkpolicy closed .*"/spec/ingress/-".*`, nil}}},
		"a policy for another port": {server: metrics, outside: nowhere, objects: network(metrics, "ingress: [{ports: [{port: 443}]}]"), repaired: true, since: true,
			want: []wanted{{"failure", "network", `^kube-apiserver can't connect to the pod metrics-server-0 at port 6443, because of the NetworkPolicy closed$`, `kubectl patch networkpolicy closed .*"/spec/ingress/-".*`, nil}}},
		"a policy against kube-apiserver": {server: metrics, outside: waiting("", 0), objects: network(metrics, "policyTypes: [Egress], egress: [{ports: [{port: 53}]}]"), since: true,
			want: []wanted{{"failure", "network", `^the pod metrics-server-0 can't connect to port 443 of kube-apiserver, and is not ready, because of the NetworkPolicy closed$`, `kubectl patch networkpolicy closed .*"/spec/egress/-".*`, nil}}},
		"nobody listens": {server: ours, outside: nowhere, short: true, since: true,
			want: []wanted{{"failure", "availability", `connection refused\)$`, looksAround, nil}}},
		"a firewall": {server: sample, outside: silent, since: true,
			want: []wanted{{"failure", "availability", `(deadline exceeded|timed out|Client\.Timeout)`, looksAround, nil}}},

		// Certificates.
		"another certificate authority": {server: ours, short: true, repaired: true, since: true, commands: spec(ours, fmt.Sprintf(`{"spec":{"caBundle":%q}}`, base64.StdEncoding.EncodeToString(stranger.CertPEM()))),
			want: []wanted{{"failure", "certificate", `^the certificate that the server serves is of another certificate authority than those of caBundle \(`, trustsServing, nil}}},
		"a caBundle that is none": {server: metrics, repaired: true, commands: spec(metrics, `{"spec":{"caBundle":"bm90aGluZw=="}}`),
			want: []wanted{{"failure", "certificate", `^there is no certificate in caBundle of v1beta1\.metrics\.k8s\.io$`, trustsServing, nil}}},
		"a caBundle that has expired": {server: sample, repaired: true, since: true, commands: spec(sample, fmt.Sprintf(`{"spec":{"caBundle":%q}}`, base64.StdEncoding.EncodeToString(old.Cert))),
			want: []wanted{{"failure", "certificate", `^the caBundle of \S+, \S+ has expired on \S+$`, trustsServing, nil}}},
		"a server that nobody checks": {server: metrics, repaired: true, commands: spec(metrics, `{"spec":{"caBundle":null,"insecureSkipTLSVerify":true}}`),
			want: []wanted{{"warning", "certificate", `trusts any server, since insecureSkipTLSVerify is set$`, trustsServing, nil}}},
		"a certificate that has expired": {server: sample, outside: shows(cp.PKI.ServingCA, controlplane.Certificate{Hosts: []string{sample.host()}, NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(-time.Hour)}), repaired: true, since: true,
			want: []wanted{{"failure", "certificate", `^the certificate that the server serves has expired`, restarts, nil}}},
		"a certificate for another name": {server: metrics, outside: shows(cp.PKI.ServingCA, controlplane.Certificate{Hosts: []string{"metrics-server"}}), repaired: true, since: true,
			want: []wanted{{"failure", "certificate", `^the certificate that the server serves is for another name`, restarts, nil}}},
		"a Secret that expires": {server: ours, objects: secret(ours, cp.PKI.ServingCA, now.Add(time.Hour)),
			want: []wanted{{"warning", "certificate", `^the certificate in the Secret restaurant-system/apiserver-serving expires on `, restarts, nil}}},
		"a Secret that is not trusted": {server: sample, objects: secret(sample, stranger, now.Add(480*time.Hour)),
			want: []wanted{{"warning", "certificate", `^the certificate in the Secret wardle/api-serving is not of caBundle`, trustsServing, nil}}},

		// The server's answers.
		"a version that is gone": {server: sample, repaired: true, since: true,
			objects: fmt.Sprintf(`{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v2.wardle.example.com}, spec: {group: wardle.example.com, version: v2, groupPriorityMinimum: 1000, versionPriority: 1, caBundle: %s, service: {namespace: wardle, name: api, port: 8443}}}`,
				base64.StdEncoding.EncodeToString(cp.PKI.ServingCA.CertPEM())),
			want: []wanted{{"failure", "availability", `^kube-apiserver gets no answer from the server of v2\.wardle\.example\.com .*: 404\)$`, `kubectl delete apiservice v2\.wardle\.example\.com`, nil}}},
		"a front proxy that is not known": {server: metrics, outside: answers(status(401)), repaired: true, since: true,
			want: []wanted{{"failure", "availability", `: 401\)$`, restarts, nil}}},
		"a server that refuses": {server: sample, outside: answers(status(403)), since: true,
			want: []wanted{{"failure", "availability", `: 403\)$`, logs, nil}}},
		"a server that fails": {server: metrics, outside: answers(status(500)), since: true,
			want: []wanted{{"failure", "availability", `: 500\)$`, logs, nil}}},
		"a server without TLS": {server: ours, outside: plain, since: true,
			want: []wanted{{"failure", "availability", `server gave HTTP response to HTTPS client`, looksAround, nil}}},

		// Discovery and OpenAPI, of a server that does not use Kubernetes' library.
		"nothing": {server: stub, objects: stub.registration(), outside: stubbed(behaviour{})},
		"discovery that is stale": {server: stub, objects: stub.registration(), outside: stubbed(behaviour{noAggregated: true}), short: true,
			want: []wanted{{"failure", "discovery", `^what kube-apiserver tells clients of v1\.stub\.example\.com is stale`, `kubectl get service,endpointslices --namespace=default --output=wide`, nil}}},
		"discovery that is slow": {server: stub, objects: stub.registration(), outside: stubbed(behaviour{delay: 2500 * time.Millisecond}),
			want: []wanted{{"warning", "discovery", `takes 2\.\d+s for its discovery`, `kubectl get service,endpointslices --namespace=default --output=wide`, nil}}},
		"discovery that differs": {server: stub, objects: stub.registration(), outside: stubbed(behaviour{aggregated: "others"}),
			want: []wanted{{"warning", "discovery", `tells of things at /apis/stub\.example\.com/v1, and of others at /apis$`, `kubectl get --raw=/apis/stub\.example\.com/v1`, nil}}},
		"no resource": {server: stub, objects: stub.registration(), outside: stubbed(behaviour{resource: "-"}),
			want: []wanted{{"warning", "discovery", `has no resource in it$`, `kubectl get --raw=/apis/stub\.example\.com/v1`, nil}}},
		"no OpenAPI": {server: stub, objects: stub.registration(), outside: stubbed(behaviour{noOpenAPI: true}),
			want: []wanted{{"warning", "discovery", `^OpenAPI version 3 has nothing of v1\.stub\.example\.com`, `kubectl get --raw=/openapi/v3/apis/stub\.example\.com/v1`, nil}}},
		"OpenAPI of something else": {server: stub, objects: stub.registration(), outside: stubbed(behaviour{described: "others"}),
			want: []wanted{{"warning", "discovery", `^OpenAPI of v1\.stub\.example\.com does not describe things, which discovery has$`, `kubectl get --raw=/openapi/v3/apis/stub\.example\.com/v1`, nil}}},
		"a list that fails": {server: stub, objects: stub.registration(), outside: stubbed(behaviour{noList: true}), short: true,
			want: []wanted{{"failure", "lists", `^things of v1\.stub\.example\.com can't be listed .*, so that no namespace can be deleted, and the garbage collector and quotas wait for it$`, `kubectl get --raw='/apis/stub\.example\.com/v1/things\?limit=1'`, nil}}},

		// Priorities.
		"a name of Kubernetes'": {server: stub, objects: stub.registration(), commands: spec(stub, `{"spec":{"groupPriorityMinimum":19000}}`), outside: stubbed(behaviour{resource: "deployments"}), repaired: false,
			want: []wanted{{"warning", "precedence", `^by its groupPriorityMinimum, v1\.stub\.example\.com comes before apps, so that kubectl takes deployments for its resources$`, `kubectl patch apiservice v1\.stub\.example\.com --type=merge --patch='\{"spec":\{"groupPriorityMinimum":1000\}\}'`, nil}}},
		"an old version first": {server: ours, commands: []string{patch(ours, "apiservice", "v1alpha1."+ours.group, `{"spec":{"versionPriority":200}}`)}, short: true, repaired: true,
			want: []wanted{{"warning", "precedence", `^by its versionPriority, clients prefer v1alpha1\.\S+ to v1\.\S+, which is stable$`, `kubectl patch apiservice v1\.\S+ --type=merge --patch='\{"spec":\{"versionPriority":201\}\}'`, nil}}},

		// Permissions.
		"no delegation": {server: sample, commands: []string{"delete clusterrolebinding test-api-delegator"}, repaired: true,
			want: []wanted{{"failure", "permissions", `^system:serviceaccount:wardle:apiserver may not create tokenreviews\S+, create subjectaccessreviews\S+$`, `kubectl create clusterrolebinding \S+ --clusterrole=system:auth-delegator --serviceaccount=wardle:apiserver`, nil}}},
		"no certificate authorities": {server: metrics, commands: []string{"delete rolebinding test-metrics-server-reader --namespace=kube-system"}, repaired: true,
			want: []wanted{{"failure", "permissions", `may not get configmaps "extension-apiserver-authentication" in kube-system, list .*, watch .*$`, `kubectl create rolebinding \S+ --namespace=kube-system --role=extension-apiserver-authentication-reader --serviceaccount=kube-system:metrics-server`, nil}}},
		"all permissions": {server: ours, commands: []string{"create clusterrolebinding too-much --clusterrole=cluster-admin --serviceaccount=restaurant-system:apiserver"},
			want: []wanted{{"warning", "permissions", `may do everything in the cluster`, `kubectl get clusterrolebindings --output=wide`, nil}}},
		"no service account": {server: sample, commands: []string{"delete serviceaccount apiserver --namespace=wardle"}, repaired: true,
			want: []wanted{{"failure", "permissions", `^there is no service account apiserver in the namespace wardle$`, `kubectl create serviceaccount apiserver --namespace=wardle`, nil}}},
		"reviews that wait": {server: metrics, commands: []string{"delete flowschema test-metrics-server"}, repaired: true,
			want: []wanted{{"warning", "priority", `^subjectaccessreviews\S+ that \S+ creates wait in kube-apiserver`, `echo .* \| kubectl apply --filename=-`, nil}}},

		// Admission.
		"a webhook about its objects that is gone": {server: sample, objects: webhook("gone", "{namespace: default, name: gone}", "apiGroups: [wardle.example.com], resources: [flunders]", ""), repaired: true,
			want: []wanted{{"failure", "webhooks", `^the webhook gone\.example\.com of the ValidatingWebhookConfiguration gone does not answer, and what it is asked about is refused: the Service default/gone does not exist$`, `kubectl delete validatingwebhookconfiguration gone`, nil}}},
		"a webhook about its pods that is gone": {server: ours, short: true, repaired: true,
			objects: webhook("gone", "{namespace: default, name: gone}", `apiGroups: [""], resources: [pods]`, ", namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: restaurant-system}}"),
			want:    []wanted{{"failure", "webhooks", `does not answer, and what the server needs itself is refused, such as its pods or its reviews: the Service default/gone does not exist$`, `kubectl delete validatingwebhookconfiguration gone`, nil}}},
		"a webhook about its pods that it is itself": {server: metrics,
			objects: webhook("itself", "{namespace: kube-system, name: metrics-server, port: 8443}", `apiGroups: [""], resources: [pods]`, ", namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}"),
			want:    []wanted{{"warning", "webhooks", `is this server itself, and asked about what the server needs`, `kubectl edit validatingwebhookconfiguration itself`, nil}}},
		"a webhook that it may not find": {server: metrics, repaired: true,
			objects: webhook("unasked", "{namespace: restaurant-system, name: apiserver, port: 8443}", "apiGroups: [metrics.k8s.io], resources: [nodes]", ""),
			want:    []wanted{{"warning", "webhooks", `does not ask it, since system:serviceaccount:kube-system:metrics-server may not list validatingwebhookconfigurations$`, `kubectl create clusterrole .* && kubectl create clusterrolebinding .*`, nil}}},
		"a policy whose parameters it may not read": {server: sample, repaired: true, objects: policy("unread", "{apiVersion: v1, kind: ConfigMap}", "apiGroups: [wardle.example.com], resources: [flunders]"),
			want: []wanted{{"failure", "policies", `can't be evaluated, and what it is for is refused: system:serviceaccount:wardle:apiserver may not list configmaps, which are its parameters$`, `kubectl create clusterrole .* && kubectl create clusterrolebinding .*`, nil}}},
		"a policy for others whose parameters it has": {server: ours, repaired: true, objects: policy("upside-down", "{apiVersion: restaurant.programming-kubernetes.info/v1, kind: Topping}", "apiGroups: [batch], resources: [jobs]"),
			want: []wanted{{"warning", "policies", `^the parameters of the ValidatingAdmissionPolicy upside-down are of `, `kubectl patch validatingadmissionpolicy upside-down .*Ignore.*`, nil}}},

		// Others of its group, and proxies.
		"a CustomResourceDefinition of its version": {server: sample, since: true,
			objects: `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: minnows.wardle.example.com}, spec: {group: wardle.example.com, scope: Namespaced, names: {plural: minnows, singular: minnow, kind: Minnow, listKind: MinnowList},
				versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`,
			want: []wanted{{"failure", "definitions", `^the CustomResourceDefinition minnows\.wardle\.example\.com defines a version that v1alpha1\.wardle\.example\.com has a server for, which has no such resource`, `kubectl get customresourcedefinition minnows\.wardle\.example\.com --output=yaml`, nil}}},
		"a proxy for everything": {
			server: sample,
			objects: `{apiVersion: v1, kind: Pod, metadata: {namespace: wardle, name: api-1, labels: {test: api}}, spec: {nodeName: node, serviceAccountName: apiserver, containers: [{name: server, image: server, ports: [{name: https, containerPort: 6443}], env: [{name: HTTPS_PROXY, value: "http://proxy:3128"}, {name: NO_PROXY, value: 10.0.0.0/8}]}]}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: default, name: outside}, spec: {type: ExternalName, externalName: hooks.example.com}}
---
` + webhook("outside", "{namespace: default, name: outside}", "apiGroups: [wardle.example.com], resources: [flunders]", ""),
			want: []wanted{{"warning", "proxy", `^by the environment of the pod api-1, requests to the webhooks of the Service default/outside \(hooks\.example\.com:443\) go through the proxy`, `kubectl set env deployment/api --namespace=wardle NO_PROXY=10\.0\.0\.0/8,hooks\.example\.com`, nil}},
		},

		// The consequences.
		"a namespace that waits": {server: sample, outside: nowhere, since: true,
			objects:  "{apiVersion: v1, kind: Namespace, metadata: {name: doomed}}",
			commands: []string{"delete namespace doomed --wait=false"},
			want: []wanted{
				{"failure", "availability", `connection refused`, looksAround, nil},
				{"failure", "consequences", `^the namespace doomed can't be deleted \(Discovery failed`, `kubectl wait namespace doomed --for=delete --timeout=10m`, nil},
			}},
		"an autoscaler without metrics": {server: metrics, outside: nowhere, since: true,
			objects: `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {namespace: kube-system, name: scaled}, spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: metrics-server}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]}}`,
			want: []wanted{
				{"failure", "availability", `connection refused`, looksAround, nil},
				{"failure", "consequences", `^the HorizontalPodAutoscaler kube-system/scaled gets no metrics \(`, `kubectl describe hpa scaled --namespace=kube-system`, nil},
			}},
		"a quota that nobody counts": {server: ours, outside: nowhere, since: true,
			objects: "{apiVersion: v1, kind: ResourceQuota, metadata: {namespace: default, name: uncounted}, spec: {hard: {pods: 10}}}",
			want: []wanted{
				{"failure", "availability", `connection refused`, looksAround, nil},
				{"failure", "consequences", `^the ResourceQuota default/uncounted is not counted`, `kubectl describe resourcequota uncounted --namespace=default`, nil},
			}},
		"an object that is not collected": {server: sample, outside: nowhere, since: true,
			commands: []string{"create deployment uncollected --image=none --namespace=default", "delete deployment uncollected --cascade=foreground --wait=false --namespace=default"},
			want: []wanted{
				{"failure", "availability", `connection refused`, looksAround, nil},
				{"failure", "consequences", `^deployments default/uncollected waits for the garbage collector`, `kubectl get deployments uncollected --namespace=default --output=yaml`, nil},
			}},
	}
}
