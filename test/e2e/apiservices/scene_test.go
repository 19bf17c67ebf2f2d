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
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// scene is a server of a few lines, in a namespace and with a group of its own, and all that belongs
// to an installation. It is healthy until a fault changes it.
type scene struct {
	number      int
	name, group string
	service     *corev1.Service
	// endpoints stand for pods that nobody can see. The Service has no selector then.
	endpoints   *discoveryv1.EndpointSlice
	deployment  *appsv1.Deployment
	pods        []*corev1.Pod
	account     *corev1.ServiceAccount
	secret      *corev1.Secret
	bindings    []runtime.Object
	apiServices []*apiregistrationv1.APIService
	// more is created after that, as YAML, and then changed by commands of kubectl.
	more     string
	commands []string

	behaviour   behaviour
	issuer      *controlplane.CA
	certificate controlplane.Certificate
	// listen, if set, stands for a server with TLS.
	listen func(t *testing.T, address string) error
	// restarted is set once a command has restarted the server.
	restarted atomic.Bool
}

func newScene(number int) *scene {
	name := fmt.Sprintf("f%d", number)
	s := &scene{number: number, name: name, group: name + ".example.com", issuer: cp.PKI.ServingCA, certificate: controlplane.Certificate{Hosts: []string{"server." + name + ".svc"}}}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: s.name, Name: name} }
	pods := map[string]string{"app": "server"}
	s.service = &corev1.Service{ObjectMeta: named("server"), Spec: corev1.ServiceSpec{
		ClusterIP: s.address(), Selector: pods, Ports: []corev1.ServicePort{{Name: "https", Port: port, TargetPort: intstr.FromString("https")}},
	}}
	spec := corev1.PodSpec{
		ServiceAccountName: "server", AutomountServiceAccountToken: new(bool),
		Containers: []corev1.Container{{Name: "server", Image: "server", Ports: []corev1.ContainerPort{{Name: "https", ContainerPort: 6443}}}},
		Volumes:    []corev1.Volume{{Name: "serving", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "serving"}}}},
	}
	s.deployment = &appsv1.Deployment{ObjectMeta: named("server"), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: pods}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pods}, Spec: *spec.DeepCopy()},
	}}
	spec.NodeName = "node"
	pod := &corev1.Pod{ObjectMeta: named("server-0"), Spec: spec}
	pod.Labels = pods
	s.pods = []*corev1.Pod{pod}
	s.state(corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}})
	s.account = &corev1.ServiceAccount{ObjectMeta: named("server")}
	s.secret = &corev1.Secret{ObjectMeta: named("serving"), Data: map[string][]byte{"ca.crt": cp.PKI.ServingCA.CertPEM()}}
	account := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: s.name, Name: "server"}}
	s.bindings = []runtime.Object{
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Subjects: account, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: s.name}, Subjects: account, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "extension-apiserver-authentication-reader"}},
	}
	s.serves("v1")
	return s
}

// address is the Service's.
func (s *scene) address() string { return fmt.Sprintf("%s.1.%d", network, s.number+1) }

// serves has the server have versions, the first with the highest priority.
func (s *scene) serves(versions ...string) {
	s.apiServices = nil
	for i, version := range versions {
		s.apiServices = append(s.apiServices, &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: version + "." + s.group}, Spec: apiregistrationv1.APIServiceSpec{
			Group: s.group, Version: version, GroupPriorityMinimum: 1000, VersionPriority: int32(100 - i), CABundle: cp.PKI.ServingCA.CertPEM(),
			Service: &apiregistrationv1.ServiceReference{Namespace: s.name, Name: "server", Port: new(int32(port))},
		}})
	}
	s.behaviour.versions = versions
}

// state has the pod be in a state, as a kubelet would report it.
func (s *scene) state(status corev1.PodStatus) {
	status.Phase, status.PodIP = corev1.PodRunning, fmt.Sprintf("192.0.2.%d", s.number+1)
	status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	s.pods[0].Status = status
}

// waits has the pod's container wait for a reason.
func (s *scene) waits(reason string, restarts int32) {
	s.state(corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "server", RestartCount: restarts, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}})
}

// unseen has endpoints in place of pods.
func (s *scene) unseen(count int) {
	s.service.Spec.Selector = nil
	s.pods, s.deployment = nil, nil
	s.endpoints = &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: s.name, Name: "server", Labels: map[string]string{discoveryv1.LabelServiceName: "server"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(6443))}},
	}
	for i := range count {
		s.endpoints.Endpoints = append(s.endpoints.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("192.0.2.%d", 200+i)}})
	}
}

// serving gives the pods' Secret a certificate.
func (s *scene) serving(t *testing.T, issuer *controlplane.CA, until time.Time) {
	t.Helper()
	issued, err := issuer.Issue(controlplane.Certificate{Hosts: s.certificate.Hosts, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: until})
	require.NoError(t, err)
	s.secret.Data = map[string][]byte{"tls.crt": issued.Cert, "ca.crt": issuer.CertPEM()}
}

// create creates all objects and starts the server.
func (s *scene) create(t *testing.T) error {
	t.Helper()
	if err := s.start(t); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	objects := []runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}}
	if s.account != nil {
		objects = append(objects, s.account)
	}
	objects = append(objects, s.bindings...)
	objects = append(objects, s.secret)
	if s.deployment != nil {
		objects = append(objects, s.deployment)
	}
	for _, pod := range s.pods {
		objects = append(objects, pod)
	}
	if s.service != nil {
		objects = append(objects, s.service)
	}
	if s.endpoints != nil {
		objects = append(objects, s.endpoints)
	}
	for _, apiService := range s.apiServices {
		objects = append(objects, apiService)
	}
	for text := range strings.SplitSeq(s.expand(s.more), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), object); err != nil {
			return err
		}
		if object.Object != nil {
			objects = append(objects, object)
		}
	}
	for _, object := range objects {
		if err := create(t.Context(), object); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	for _, line := range s.commands {
		if output, err := shell(t, s.expand(line)); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, output)
		}
	}
	return nil
}

// expand puts the names of the scene into a text.
func (s *scene) expand(text string) string {
	return strings.NewReplacer("NAMESPACE", s.name, "GROUP", s.group).Replace(text)
}

// create creates an object and its status.
func create(ctx context.Context, object runtime.Object) error {
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), apiregistrationv1.AddToScheme(known)); err != nil {
		return err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	wanted := &unstructured.Unstructured{Object: content}
	if wanted.GetKind() == "" {
		kinds, _, err := known.ObjectKinds(object)
		if err != nil {
			return err
		}
		wanted.SetGroupVersionKind(kinds[0])
	}
	resource, _ := meta.UnsafeGuessKindToResource(wanted.GroupVersionKind())
	config := cp.RESTConfig()
	config.QPS = -1
	client := dynamic.NewForConfigOrDie(config).Resource(resource).Namespace(wanted.GetNamespace())
	created, err := client.Create(ctx, wanted, metav1.CreateOptions{})
	if err == nil && resource.Resource == "pods" {
		wanted.SetResourceVersion(created.GetResourceVersion())
		_, err = client.UpdateStatus(ctx, wanted, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", resource.Resource, wanted.GetName(), err)
	}
	return nil
}

// pasted tells the scene of a command that has been run.
func (s *scene) pasted(command string) {
	if strings.Contains(command, "rollout restart") {
		s.restarted.Store(true)
	}
}

// start serves until the test ends.
func (s *scene) start(t *testing.T) error {
	t.Helper()
	address := fmt.Sprintf("%s:%d", s.address(), port)
	if s.listen != nil {
		return s.listen(t, address)
	}
	return s.serve(t, address)
}

// serve serves with TLS. A server that has been restarted has a certificate that is trusted.
func (s *scene) serve(t *testing.T, address string) error {
	t.Helper()
	pair := func(issuer *controlplane.CA, certificate controlplane.Certificate) (tls.Certificate, error) {
		issued, err := issuer.Issue(certificate)
		if err != nil {
			return tls.Certificate{}, err
		}
		return tls.X509KeyPair(issued.Cert, issued.Key)
	}
	before, err := pair(s.issuer, s.certificate)
	if err != nil {
		return err
	}
	after, err := pair(cp.PKI.ServingCA, controlplane.Certificate{Hosts: []string{"server." + s.name + ".svc"}})
	if err != nil {
		return err
	}
	config := &tls.Config{ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if s.restarted.Load() {
			return &after, nil
		}
		return &before, nil
	}}
	if s.behaviour.tls != nil {
		s.behaviour.tls(config)
	}
	s.behaviour.group, s.behaviour.restarted = s.group, s.restarted.Load
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	if s.behaviour.accept != nil {
		listener = &choosy{listener, s.behaviour.accept}
	}
	server := &http.Server{Handler: s.behaviour.handler(), ErrorLog: zap.NewStdLog(zap.NewNop()), TLSConfig: config, ReadHeaderTimeout: time.Minute}
	server.SetKeepAlivesEnabled(s.behaviour.accept == nil)
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close() })
	return nil
}

// choosy closes connections that it does not accept.
type choosy struct {
	net.Listener
	accept func() bool
}

func (l *choosy) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil || l.accept() {
			return connection, err
		}
		_ = connection.Close()
	}
}

// nobody has no server listen.
func nobody(*testing.T, string) error { return nil }

// behaviour is what a server does otherwise than it should.
type behaviour struct {
	group        string
	versions     []string
	resource     string
	noAggregated bool
	// delay delays discovery, and listDelay lists.
	delay, listDelay time.Duration
	// list answers lists, and all answers everything, in place of what is right.
	list, all http.HandlerFunc
	// restarted reports whether the server has been restarted, which cures all.
	restarted func() bool
	// tls changes how connections are made, and accept decides whether they are.
	tls    func(*tls.Config)
	accept func() bool
	// seen, if set, sees every request.
	seen func(*http.Request)
}

func (b behaviour) handler() http.Handler {
	resource := cmp.Or(b.resource, "things")
	legacy := fmt.Sprintf(`{"name":%q,"singularName":"","namespaced":true,"kind":"Thing","verbs":["delete","get","list","watch"]}`, resource)
	aggregated := fmt.Sprintf(`{"resource":%q,"responseKind":{"group":"","version":"","kind":"Thing"},"scope":"Namespaced","singularResource":"","verbs":["delete","get","list","watch"]}`, resource)
	if resource == "-" {
		legacy, aggregated = "", ""
	}
	answers := map[string]string{}
	var versions []string
	for _, version := range b.versions {
		path := "/apis/" + b.group + "/" + version
		answers[path] = fmt.Sprintf(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/%s","resources":[%s]}`, b.group, version, legacy)
		answers[path+"/"+resource] = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[]}`
		versions = append(versions, fmt.Sprintf(`{"version":%q,"resources":[%s],"freshness":"Current"}`, version, aggregated))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.seen != nil {
			b.seen(r)
		}
		if b.all != nil && !b.restarted() {
			b.all(w, r)
			return
		}
		discovery := strings.HasPrefix(r.URL.Path, "/apis/")
		list := discovery && strings.Count(r.URL.Path, "/") > 3
		switch {
		case list && b.list != nil:
			b.list(w, r)
			return
		case list:
			wait(r, b.listDelay)
		case discovery:
			wait(r, b.delay)
		}
		switch answer, found := answers[r.URL.Path]; {
		case r.URL.Path == "/apis" && b.noAggregated:
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/apis":
			w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
			fmt.Fprintf(w, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":%q},"versions":[%s]}]}`, b.group, strings.Join(versions, ","))
		case !found:
			w.WriteHeader(http.StatusNotFound)
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, answer)
		}
	})
}

// wait waits as long as the client does.
func wait(r *http.Request, delay time.Duration) {
	select {
	case <-r.Context().Done():
	case <-time.After(delay):
	}
}

// status answers with a code.
func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}
