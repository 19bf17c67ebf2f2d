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
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

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
	const (
		trustsServing = `kubectl patch apiservice \S+ --type=merge --patch='\{"spec":\{"caBundle":"'\$\(kubectl get secret serving --namespace=\S+ '?--output='?jsonpath=\{\.data\.ca\\\.crt\}'?\)'"\}\}'`
		looksAround   = `kubectl get service,endpointslices,pods --namespace=\S+ --output=wide`
		shows         = `kubectl get service server --namespace=\S+ --output=yaml`
		logs          = `kubectl logs --namespace=\S+ deployments\.apps/server --all-containers --tail=100`
		restarts      = `kubectl rollout restart --namespace=\S+ deployments\.apps/server`
		// net/http has several messages for the same.
		timeout   = `(deadline exceeded|timed out|Client\.Timeout exceeded while awaiting headers\))\)$`
		discovers = `kubectl get --raw=/apis/f\d+\.example\.com/v1`
	)
	one := func(status, check, cause, command string) []wanted { return []wanted{{status, check, cause, command}} }
	change := func(change func(*scene)) func(*testing.T, *scene) { return func(_ *testing.T, s *scene) { change(s) } }
	behaves := func(b behaviour) func(*testing.T, *scene) {
		return change(func(s *scene) {
			b.versions = s.behaviour.versions
			s.behaviour = b
		})
	}
	registered := func(change func(*apiregistrationv1.APIServiceSpec)) func(*testing.T, *scene) {
		return func(_ *testing.T, s *scene) { change(&s.apiServices[0].Spec) }
	}
	listens := func(listen func(*testing.T, string) error) func(*testing.T, *scene) {
		return change(func(s *scene) { s.listen = listen })
	}
	webhook := func(service, rule string) string {
		return `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: NAMESPACE}, webhooks: [{name: hook.GROUP, admissionReviewVersions: [v1], sideEffects: None,
			clientConfig: {service: ` + service + `}, rules: [{operations: [CREATE], apiVersions: ["*"], ` + rule + `}], namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}}]}`
	}
	admission := func(parameters, rule string) string {
		return `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: NAMESPACE}, spec: {paramKind: ` + parameters + `, matchConstraints: {resourceRules: [{operations: [CREATE], apiVersions: ["*"], ` + rule + `}]}, validations: [{expression: "true"}]}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: NAMESPACE}, spec: {policyName: NAMESPACE, validationActions: [Deny], paramRef: {name: nothing, namespace: default, parameterNotFoundAction: Allow}}}`
	}
	mayList := func(resource string) string {
		return `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NAMESPACE-lists}, rules: [{apiGroups: [admissionregistration.k8s.io], resources: [` + resource + `], verbs: [list]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: NAMESPACE-lists}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAMESPACE-lists}, subjects: [{kind: ServiceAccount, namespace: NAMESPACE, name: server}]}`
	}
	environment := func(proxy, no string) func(*testing.T, *scene) {
		return change(func(s *scene) {
			// Addresses of this machine are never asked of a proxy.
			s.more = "{apiVersion: v1, kind: Service, metadata: {namespace: NAMESPACE, name: outside}, spec: {type: ExternalName, externalName: hooks.example.com}}\n---\n" + webhook("{namespace: NAMESPACE, name: outside}", "apiGroups: [GROUP], resources: [things]")
			s.pods[0].Spec.Containers[0].Env = []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: proxy}, {Name: "NO_PROXY", Value: no}}
		})
	}
	return map[string]*fault{
		// Healthy servers, as they are elsewhere.
		"healthy":                              {seed: change(func(*scene) {})},
		"healthy without delegation":           {seed: change(func(s *scene) { s.bindings = nil })},
		"healthy without visible pods":         {seed: change(func(s *scene) { s.unseen(1) })},
		"healthy with two endpoints":           {seed: change(func(s *scene) { s.unseen(2) })},
		"healthy with metrics as subresources": {seed: behaves(behaviour{resource: "pods/http_requests:rate5m"})},
		"healthy, and a webhook for reviews": {seed: change(func(s *scene) {
			s.more = webhook("{namespace: NAMESPACE, name: server, port: 8443}", "apiGroups: [authentication.k8s.io, authorization.k8s.io], resources: [tokenreviews, subjectaccessreviews]")
		})},
		"healthy, and a policy that it does not evaluate": {seed: change(func(s *scene) {
			s.more = admission("{apiVersion: v1, kind: ConfigMap}", "apiGroups: [GROUP], resources: [things]")
		})},

		// The Service, and what is behind it.
		"no Service": {seed: change(func(s *scene) { s.service = nil }),
			want: one("failure", "service", `^the Service \S+/server does not exist$`, `kubectl get services,endpointslices,deployments\.apps,pods --namespace=\S+`)},
		"no namespace": {cured: true, seed: registered(func(spec *apiregistrationv1.APIServiceSpec) { spec.Service.Namespace += "-gone" }), // Its findings are of no scene: see examineScenes.
			want: one("failure", "service", `^the Service f\d+-gone/server does not exist$`, `kubectl delete apiservice v1\.f\d+\.example\.com`)},
		"another port": {cured: true, seed: change(func(s *scene) {
			s.service.Spec.Ports[0].Port = 9443
			s.listen = func(t *testing.T, _ string) error { return s.serve(t, s.address()+":9443") }
		}), want: one("failure", "service", `has no port 8443$`, `kubectl patch apiservice v1\.f\d+\.example\.com --type=merge --patch='\{"spec":\{"service":\{"port":9443\}\}\}'`)},
		"another port of one of two versions": {cured: true, seed: change(func(s *scene) {
			s.serves("v1", "v1beta1")
			*s.apiServices[1].Spec.Service.Port = 9443
		}), want: one("failure", "service", `has no port 9443$`, `kubectl patch apiservice v1beta1\.f\d+\.example\.com --type=merge --patch='\{"spec":\{"service":\{"port":8443\}\}\}'`)},
		"another target port": {cured: true, seed: change(func(s *scene) { s.service.Spec.Ports[0].TargetPort = intstr.FromString("http") }),
			want: one("failure", "service", `^the target port "http" of the Service \S+ is not a port of its pod server-0$`, `kubectl patch service server --namespace=\S+ --type=json --patch='.*"op":"test".*targetPort","value":6443.*'`)},
		"another selector": {seed: change(func(s *scene) { s.service.Spec.Selector = map[string]string{"app": "other"} }),
			want: one("failure", "service", `^no pod matches the selector app=other of the Service \S+/server$`, `kubectl get pods,deployments\.apps --namespace=\S+ --show-labels`)},
		"no selector": {seed: change(func(s *scene) { s.service.Spec.Selector = nil }),
			want: one("failure", "service", `has no selector, and no endpoint that is ready$`, `kubectl get endpointslices --namespace=\S+ --selector=kubernetes.io/service-name=server --output=yaml`)},
		"no replicas": {seed: change(func(s *scene) { s.deployment.Spec.Replicas, s.pods = new(int32), nil }),
			want: one("failure", "service", `since the Deployment server is to have none$`, `kubectl scale --namespace=\S+ deployments\.apps/server --replicas=1`)},
		"pods that can't be created": {seed: change(func(s *scene) {
			s.pods = nil
			s.commands = []string{`kubectl patch deployment server --namespace=NAMESPACE --subresource=status --type=merge --patch='{"status":{"conditions":[{"type":"ReplicaFailure","status":"True","message":"exceeded quota"}]}}'`}
		}), want: one("failure", "service", `since none of the Deployment server can be created \(exceeded quota\)$`, `kubectl describe --namespace=\S+ deployments\.apps,replicasets\.apps --selector=app=server`)},
		"a pod that crashes": {seed: change(func(s *scene) { s.waits("CrashLoopBackOff", 5) }),
			want: one("failure", "service", `is ready: CrashLoopBackOff$`, `kubectl logs server-0 --namespace=\S+ --container=server --previous`)},
		"an image that is not there": {seed: change(func(s *scene) { s.waits("ImagePullBackOff", 0) }),
			want: one("failure", "service", `is ready: ImagePullBackOff$`, `kubectl describe pod server-0 --namespace=\S+`)},
		"a pod that no node takes": {seed: change(func(s *scene) {
			s.state(corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no nodes"}}})
		}), want: one("failure", "service", `is ready: Unschedulable, no nodes$`, `kubectl describe pod server-0 --namespace=\S+`)},
		"pods of another server": {seed: change(func(s *scene) {
			other := s.pods[0].DeepCopy()
			other.Name, other.Spec.ServiceAccountName = "zother", "default"
			s.pods = append(s.pods, other)
			s.bindings = append(s.bindings, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "default"}})
		}), want: one("warning", "service", `selects pods of several servers, such as server-0 and zother, `, `kubectl get pods --namespace=\S+ --selector=app=server --show-labels`)},
		"no cluster IP": {seed: change(func(s *scene) { s.service.Spec.ClusterIP = "None" }),
			want: one("failure", "availability", `cannot route to service with ClusterIP "None"`, looksAround)},

		"nobody listens": {seed: listens(nobody), want: one("failure", "availability", `connection refused\)$`, looksAround)},

		// Certificates.
		"another certificate authority": {cured: true, seed: registered(func(spec *apiregistrationv1.APIServiceSpec) { spec.CABundle = stranger.CertPEM() }),
			want: one("failure", "availability", `certificate signed by unknown authority`, trustsServing)},
		"no certificate authority": {cured: true, seed: registered(func(spec *apiregistrationv1.APIServiceSpec) { spec.CABundle = nil }),
			want: one("failure", "availability", `certificate signed by unknown authority`, trustsServing)},
		"a caBundle that is none": {cured: true, seed: registered(func(spec *apiregistrationv1.APIServiceSpec) { spec.CABundle = []byte("nothing") }),
			want: one("failure", "certificate", `^there is no certificate in caBundle of \S+$`, trustsServing)},
		"a caBundle that has expired": {cured: true, seed: registered(func(spec *apiregistrationv1.APIServiceSpec) { spec.CABundle = old.Cert }),
			want: one("failure", "certificate", `^the caBundle of \S+ has expired on \S+$`, trustsServing)},
		"a server that nobody checks": {seed: registered(func(spec *apiregistrationv1.APIServiceSpec) { spec.CABundle, spec.InsecureSkipTLSVerify = nil, true }),
			want: one("warning", "certificate", `trusts any server, since insecureSkipTLSVerify is set$`, `kubectl get apiservice \S+ --output=yaml`)},
		"a certificate that has expired": {cured: true, seed: change(func(s *scene) {
			s.certificate.NotBefore, s.certificate.NotAfter = now.Add(-48*time.Hour), now.Add(-time.Hour)
		}), want: one("failure", "availability", `certificate has expired or is not yet valid`, restarts)},
		"a certificate for another name": {cured: true, seed: change(func(s *scene) { s.certificate.Hosts = []string{"other"} }),
			want: one("failure", "availability", `certificate is valid for other, not server\.f\d+\.svc`, restarts)},
		"a Secret that expires": {seed: func(t *testing.T, s *scene) { s.serving(t, cp.PKI.ServingCA, now.Add(time.Hour)) },
			want: one("warning", "certificate", `^the certificate in the Secret \S+/serving expires on `, restarts)},
		"a Secret of cert-manager that expires": {seed: func(t *testing.T, s *scene) {
			s.serving(t, cp.PKI.ServingCA, now.Add(time.Hour))
			s.secret.Annotations = map[string]string{"cert-manager.io/certificate-name": "server"}
		}, want: one("warning", "certificate", `^the certificate in the Secret \S+/serving expires on `, `kubectl describe certificates\.cert-manager\.io server --namespace=\S+`)},
		"a Secret that is not trusted": {seed: func(t *testing.T, s *scene) { s.serving(t, stranger, now.Add(480*time.Hour)) },
			want: one("warning", "certificate", `^the certificate in the Secret \S+/serving is not of caBundle`, `kubectl get secret serving --namespace=\S+ --output='jsonpath=.*'`)},

		// The server's answers.
		"a version that is gone": {seed: change(func(s *scene) {
			s.serves("v1", "v1beta1")
			s.behaviour.versions = []string{"v1"}
		}), want: one("failure", "availability", `^kube-apiserver gets no answer from the server of v1beta1\.f\d+\.example\.com .*: 404\)$`, looksAround)},
		"a front proxy that is not known": {cured: true, seed: behaves(behaviour{all: status(401)}), want: one("failure", "availability", `: 401\)$`, restarts)},
		"a server that is slow":           {seed: behaves(behaviour{delay: 6 * time.Second}), want: one("failure", "availability", timeout, logs)},
		"mutual TLS of others": {seed: behaves(behaviour{tls: func(config *tls.Config) {
			config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		}}),
			want: one("failure", "availability", `remote error: tls: `, logs)},

		// Discovery and OpenAPI.
		"discovery that is stale": {seed: behaves(behaviour{noAggregated: true}), want: one("failure", "discovery", `^what kube-apiserver tells clients of \S+ is stale`, logs)},
		"discovery that is slow":  {seed: behaves(behaviour{delay: 2500 * time.Millisecond}), want: one("warning", "discovery", `takes \d\.\d+s for its discovery`, logs)},
		"no resource":             {seed: behaves(behaviour{resource: "-"}), want: one("warning", "discovery", `has no resource in it$`, discovers)},
		"a web server": {seed: behaves(behaviour{all: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>Welcome</html>") }}),
			want: one("failure", "discovery", `answers requests for its discovery with something else: "<html>Welcome</html>"$`, looksAround)},
		"one of two endpoints is dead": {seed: change(func(s *scene) {
			var count atomic.Int32
			s.unseen(2)
			s.behaviour.accept = func() bool { return count.Add(1)%2 == 0 }
			s.behaviour.tls = func(config *tls.Config) { config.NextProtos = []string{"http/1.1"} }
		}), want: one("failure", "discovery", `^\d of 8 requests for the discovery of \S+ fail \(.*\), so that one of the 2 endpoints of the Service \S+ does not answer$`, looksAround)},
		"a name that is a command": {seed: behaves(behaviour{resource: "x'; touch injected; echo '"}),
			want: one("failure", "discovery", `^the server of \S+ has the resource "x'; touch injected; echo '" in its discovery, which is no name of a resource$`, discovers)},

		// Lists.
		"a list that fails": {seed: behaves(behaviour{list: status(500)}),
			want: one("failure", "lists", `^things of \S+ can't be listed .*, so that no namespace can be deleted, and the garbage collector and quotas wait for it$`, `kubectl get --raw='/apis/\S+/v1/things\?limit=1'`)},
		"a list that is slow": {seed: behaves(behaviour{listDelay: 6 * time.Second}), want: one("warning", "lists", `^a list of one object takes \d+(\.\d)?s for things of \S+$`, logs)},
		"a server that refuses an administrator": {seed: behaves(behaviour{list: forbidden}),
			want: one("failure", "lists", `^the server refuses to list things of \S+, although kube-apiserver lets this user do that \(`, logs)},
		"no delegation": {cured: true, seed: change(func(s *scene) {
			s.bindings = s.bindings[1:]
			s.behaviour.list = func(w http.ResponseWriter, r *http.Request) {
				review, err := kubernetes.NewForConfigOrDie(cp.RESTConfig()).AuthorizationV1().SubjectAccessReviews().Create(r.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
					User: "system:serviceaccount:" + s.name + ":server", ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
				}}, metav1.CreateOptions{})
				if err == nil && review.Status.Allowed {
					fmt.Fprint(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[]}`)
					return
				}
				forbidden(w, r)
			}
		}), want: one("failure", "permissions", `^system:serviceaccount:f\d+:server may not create tokenreviews\S+, create subjectaccessreviews\S+$`, `kubectl create clusterrolebinding \S+ --clusterrole=system:auth-delegator --serviceaccount=f\d+:server`)},
		"no certificate authorities": {seed: change(func(s *scene) { s.bindings, s.listen = s.bindings[:1], nobody }), want: []wanted{
			{"failure", "permissions", `may not get configmaps "extension-apiserver-authentication" in kube-system, list .*, watch .*$`, `kubectl create rolebinding \S+ --namespace=kube-system --role=extension-apiserver-authentication-reader --serviceaccount=f\d+:server`},
			{"failure", "availability", `connection refused\)$`, looksAround},
		}},
		"no service account": {cured: true, seed: change(func(s *scene) {
			s.commands = []string{"kubectl delete serviceaccount server --namespace=NAMESPACE"}
		}), want: one("failure", "permissions", `^there is no service account server in the namespace f\d+$`, `kubectl create serviceaccount server --namespace=f\d+`)},

		// Priorities.
		"a name of Kubernetes'": {cured: true, seed: change(func(s *scene) {
			s.behaviour.resource, s.apiServices[0].Spec.GroupPriorityMinimum = "deployments", 19000
		}),
			want: one("warning", "precedence", `^by its groupPriorityMinimum, \S+ comes before apps, so that kubectl takes deployments for its resources$`, `kubectl patch apiservice \S+ --type=merge --patch='\{"spec":\{"groupPriorityMinimum":\d+\}\}'`)},
		"an old version first": {cured: true, seed: change(func(s *scene) {
			s.serves("v1alpha1", "v1beta1", "v1")
		}), want: []wanted{
			{"warning", "precedence", `^by its versionPriority, clients prefer v1alpha1\.\S+ to v1\.\S+, which is stable$`, `kubectl patch apiservice v1alpha1\.\S+ --type=merge --patch='\{"spec":\{"versionPriority":98\}\}'`},
			{"warning", "precedence", `^by its versionPriority, clients prefer v1beta1\.\S+ to v1\.\S+, which is stable$`, `kubectl patch apiservice v1beta1\.\S+ --type=merge --patch='\{"spec":\{"versionPriority":98\}\}'`},
		}},

		// Admission, definitions and proxies.
		"a webhook about its objects that is gone": {seed: change(func(s *scene) {
			s.more = webhook("{namespace: NAMESPACE, name: gone}", "apiGroups: [GROUP], resources: [things]")
		}),
			want: one("failure", "webhooks", `^the webhook \S+ of the ValidatingWebhookConfiguration \S+ does not answer, and what it is asked about is refused: the Service \S+/gone does not exist$`, `kubectl get services,endpointslices,deployments\.apps,pods --namespace=\S+`)},
		"a webhook about its pods that is gone": {seed: change(func(s *scene) {
			s.more = webhook("{namespace: NAMESPACE, name: gone}", `apiGroups: [""], resources: [pods]`)
		}),
			want: one("failure", "webhooks", `does not answer, and what the server needs itself, such as its pods, is refused: the Service \S+/gone does not exist$`, `kubectl get services,endpointslices,deployments\.apps,pods --namespace=\S+`)},
		"a webhook about its pods that it is itself": {seed: change(func(s *scene) {
			s.more = webhook("{namespace: NAMESPACE, name: server, port: 8443}", `apiGroups: [""], resources: [pods]`)
		}),
			want: one("warning", "webhooks", `is this server itself, and asked about what the server needs`, `kubectl get validatingwebhookconfiguration f\d+ --output=yaml`)},
		"a policy whose parameters it may not read": {cured: true, seed: change(func(s *scene) {
			s.more = admission("{apiVersion: v1, kind: ConfigMap}", "apiGroups: [GROUP], resources: [things]") + "\n---\n" + mayList("validatingadmissionpolicies")
		}), want: one("failure", "policies", `can't be evaluated, and what it is for is refused: system:serviceaccount:\S+:server may not list configmaps, which are its parameters$`, `kubectl create clusterrole .* && kubectl create clusterrolebinding .*`)},
		"a policy for others whose parameters it has": {seed: change(func(s *scene) {
			s.more = admission("{apiVersion: GROUP/v1, kind: Thing}", "apiGroups: [nothing.example.com], resources: [jobs]")
		}),
			want: one("warning", "policies", `^the parameters of the ValidatingAdmissionPolicy \S+ are of `, `kubectl get validatingadmissionpolicy \S+ --output=yaml`)},
		"a CustomResourceDefinition of its version": {seed: change(func(s *scene) {
			s.more = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: minnows.GROUP}, spec: {group: GROUP, scope: Namespaced, names: {plural: minnows, singular: minnow, kind: Minnow, listKind: MinnowList},
				versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`
		}), want: one("failure", "definitions", `^the CustomResourceDefinition minnows\.\S+ defines a version that v1\.\S+ has a server for, which has no such resource`, `kubectl get customresourcedefinition minnows\.\S+ --output=yaml`)},
		// kube-apiserver's discovery knows nothing of a server that is down since its start.
		"a CustomResourceDefinition of a version without a server": {seed: change(func(s *scene) {
			s.listen = nobody
			s.more = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.GROUP}, spec: {group: GROUP, scope: Namespaced, names: {plural: things, singular: thing, kind: Thing, listKind: ThingList},
				versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`
		}), want: one("failure", "availability", `connection refused\)$`, looksAround)},
		"a proxy for everything": {seed: environment("http://proxy:3128", "192.168.0.0/16"),
			want: one("warning", "proxy", `^by the environment of the pod server-0, requests to the webhooks of the Service f\d+/outside \(hooks\.example\.com:443\) go through the proxy`, `kubectl set env deployments\.apps/server --namespace=\S+ NO_PROXY=192\.168\.0\.0/16,hooks\.example\.com`)},
		"a proxy with a command": {seed: environment("http://proxy:3128", "localhost;touch injected;echo "),
			want: one("warning", "proxy", `go through the proxy`, `kubectl set env deployments\.apps/server --namespace=\S+ 'NO_PROXY=localhost;touch injected;echo ,\S+'`)},
	}
}

// forbidden answers as a server that refuses somebody.
func forbidden(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`)
}
