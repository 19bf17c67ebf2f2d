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

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/crdserver"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

const (
	groupOfCRD       = "crd.bench.example.com"
	groupOfConverted = "converted.bench.example.com"
	groupOfMoved     = "moved.bench.example.com"
	groupOfNothing   = "nothing.bench.example.com"
	groupOfSample    = "wardle.example.com"

	// nothing is the contender that has no objects.
	nothing = "nothing"

	withoutControllers = "--run-controllers=false"
	// movedPrefix is where crd-apiserver stores what it has: its copies of the definitions must
	// not be those of kube-apiserver.
	movedPrefix = "/crd-apiserver"

	pizzaContent = `"spec":{"toppings":[{"name":"mozzarella","quantity":1}],"replicas":1}`
)

// bench is a control plane with all contenders.
type bench struct {
	cp         *controlplane.ControlPlane
	kube       kubernetes.Interface
	contenders []*contender
	identities []identity
}

// identity is a user that sends requests.
type identity struct {
	name   string
	config *rest.Config
}

// options are the flags that choose what is set up.
type options struct {
	contenders  []string
	identities  []string
	controllers bool
}

// start starts a control plane without contenders. Controllers of the cluster would have work of
// their own with what is deleted.
func start(ctx context.Context, dir string, flags ...string) (*bench, error) {
	cp, err := controlplane.Start(ctx, controlplane.Config{
		Dir: dir, BinDir: filepath.Join("_output", "bin"), Progress: progress,
		ControllerManager: controlplane.ComponentConfig{Off: true},
		APIServer:         controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Flags: flags}, Etcd: "etcd"},
	})
	if err != nil {
		return nil, err
	}
	b := &bench{cp: cp}
	if b.kube, err = kubernetes.NewForConfig(cp.RESTConfig()); err == nil {
		_, err = b.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	}
	if err != nil {
		return nil, errors.Join(err, cp.Stop())
	}
	return b, nil
}

func setUp(ctx context.Context, dir string, o options) (_ *bench, err error) {
	var flags []string
	if !o.controllers {
		flags = append(flags, withoutControllers)
	}
	b, err := start(ctx, dir, flags...)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.cp.Stop())
		}
	}()
	all := []struct {
		name string
		make func(context.Context) (*contender, error)
	}{
		{"crd", b.crd}, {"pizzas", b.pizzas}, {"configmap", b.configMaps}, {"crd-webhook", b.convertedCRD},
		{"crd-apiserver", b.movedCRD}, {"sample-apiserver", b.sampleAPIServer}, {nothing, b.nothing},
	}
	for _, each := range all {
		if !slices.Contains(o.contenders, each.name) {
			continue
		}
		progress("Setting up " + each.name)
		c, err := each.make(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", each.name, err)
		}
		c.name, c.revision = each.name, map[string]string{}
		b.contenders = append(b.contenders, c)
	}
	if len(b.contenders) != len(o.contenders) {
		return nil, fmt.Errorf("--contenders=%v names some that do not exist", o.contenders)
	}
	if err := b.identify(ctx, o.identities); err != nil {
		return nil, err
	}
	return b, nil
}

// identify makes the identities. Only the administrator may do anything outside the namespace.
func (b *bench) identify(ctx context.Context, names []string) error {
	const user, account = "editor", "controller"
	var groups []string
	for _, c := range b.contenders {
		groups = append(groups, c.group)
	}
	meta := metav1.ObjectMeta{Name: "bench", Namespace: namespace}
	if _, err := b.kube.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: groups, Resources: []string{rbacv1.ResourceAll}, Verbs: []string{rbacv1.VerbAll}},
	}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := b.kube.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user},
			{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account},
		},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, name := range names {
		var config *rest.Config
		var err error
		switch name {
		case "admin":
			config = b.cp.RESTConfig()
		case "user":
			config, err = b.cp.RESTConfigFor(user)
		case "serviceaccount":
			config, err = b.serviceAccount(ctx, account)
		default:
			err = fmt.Errorf("--identities: there is no %q", name)
		}
		if err != nil {
			return err
		}
		b.identities = append(b.identities, identity{name, config})
	}
	return nil
}

// serviceAccount is the configuration of a client with a token, as controllers have it.
func (b *bench) serviceAccount(ctx context.Context, name string) (*rest.Config, error) {
	accounts := b.kube.CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	token, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](24 * 3600)}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(b.cp.RESTConfig())
	config.BearerToken, config.QPS = token.Status.Token, -1
	return config, nil
}

func (b *bench) configMaps(context.Context) (*contender, error) {
	return &contender{version: "v1", resource: "configmaps", kind: "ConfigMap", content: `"data":{"toppings":"mozzarella","replicas":"1"}`, protobuf: true}, nil
}

func (b *bench) pizzas(ctx context.Context) (*contender, error) {
	client, err := versioned.NewForConfig(b.cp.RESTConfig())
	if err != nil {
		return nil, err
	}
	return &contender{
		group: restaurant.GroupName, version: "v1", otherVersion: "v1alpha1", resource: "pizzas", kind: "Pizza",
		content: pizzaContent, protobuf: true, server: b.cp.APIServer,
	}, fixture.CreateToppings(ctx, client, "mozzarella")
}

func (b *bench) crd(ctx context.Context) (*contender, error) {
	return &contender{group: groupOfCRD, version: "v1", resource: "pizzas", kind: "Pizza", content: pizzaContent},
		b.define(ctx, groupOfCRD, nil)
}

// convertedCRD is served in a version that a webhook has to convert to. The webhook, in this
// process, does the least that one can.
func (b *bench) convertedCRD(ctx context.Context) (*contender, error) {
	url, err := b.cp.ServeHTTPS(http.HandlerFunc(convert))
	if err != nil {
		return nil, err
	}
	return &contender{group: groupOfConverted, version: "v1", otherVersion: "v1alpha1", resource: "pizzas", kind: "Pizza", content: pizzaContent},
		b.define(ctx, groupOfConverted, &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{
				ConversionReviewVersions: []string{"v1"},
				ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: b.cp.PKI.ServingCA.CertPEM()},
			},
		})
}

// convert answers a conversion webhook's request from v1 to v1alpha1, which spells toppings in
// another way, and back.
func convert(out http.ResponseWriter, in *http.Request) {
	var review apiextensionsv1.ConversionReview
	if err := json.NewDecoder(in.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(out, "this is not a ConversionReview", http.StatusBadRequest)
		return
	}
	response := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, raw := range review.Request.Objects {
		var object map[string]any
		if err := json.Unmarshal(raw.Raw, &object); err != nil {
			http.Error(out, err.Error(), http.StatusBadRequest)
			return
		}
		object["apiVersion"] = review.Request.DesiredAPIVersion
		if spec, ok := object["spec"].(map[string]any); ok {
			toppings, _ := spec["toppings"].([]any)
			for i, topping := range toppings {
				if described, ok := topping.(map[string]any); ok {
					toppings[i] = described["name"]
				} else {
					toppings[i] = map[string]any{"name": topping, "quantity": 1}
				}
			}
		}
		converted, err := json.Marshal(object)
		if err != nil {
			http.Error(out, err.Error(), http.StatusInternalServerError)
			return
		}
		response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Raw: converted})
	}
	review.Request, review.Response = nil, response
	out.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(out).Encode(review)
}

// define creates the repository's CustomResourceDefinition of pizzas in another group, with
// v1 only if there is no conversion.
func (b *bench) define(ctx context.Context, group string, conversion *apiextensionsv1.CustomResourceConversion) error {
	content, err := os.ReadFile(filepath.Join("artifacts", "crd", "pizzas.yaml"))
	if err != nil {
		return err
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(content, &definition); err != nil {
		return err
	}
	definition.Name, definition.Spec.Group, definition.Spec.Conversion = definition.Spec.Names.Plural+"."+group, group, conversion
	definition.Spec.Names.ShortNames, definition.Spec.Names.Categories = nil, nil
	if conversion == nil {
		definition.Spec.Versions = slices.DeleteFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return !v.Storage })
	}
	encoded, err := yaml.Marshal(definition)
	if err != nil {
		return err
	}
	file := filepath.Join(b.cp.KubeAPIServer.Dir(), group+".yaml")
	if err := os.WriteFile(file, encoded, 0o600); err != nil {
		return err
	}
	if err := b.cp.Apply(ctx, file); err != nil {
		return err
	}
	return b.await(ctx, "/apis/"+group+"/"+"v1"+"/pizzas")
}

// await waits until kube-apiserver answers a path.
func (b *bench) await(ctx context.Context, path string) error {
	clients, err := newClients(b.cp.RESTConfig(), 1)
	if err != nil {
		return err
	}
	return retry(ctx, time.Minute, func() error {
		_, err := clients[0].do(ctx, http.MethodGet, path, "", nil)
		return err
	})
}

func (b *bench) movedCRD(ctx context.Context) (*contender, error) {
	name := types.NamespacedName{Namespace: "crd-apiserver", Name: "crd-apiserver"}
	if err := b.define(ctx, groupOfMoved, nil); err != nil {
		return nil, err
	}
	if err := b.cp.Apply(ctx, filepath.Join("artifacts", "crd-apiserver", "base")); err != nil {
		return nil, err
	}
	if err := b.reachable(ctx, name); err != nil {
		return nil, err
	}
	server, err := b.cp.NewCRDServer("crd-apiserver", controlplane.CRDServerConfig{Groups: []string{groupOfMoved}, Service: name, Account: name, Etcd: "etcd",
		ComponentConfig: controlplane.ComponentConfig{Flags: []string{"--etcd-prefix=" + movedPrefix}}})
	if err != nil {
		return nil, err
	}
	if err := server.Start(ctx); err != nil {
		return nil, err
	}
	target := crdserver.Target{
		Service:  apiregistrationv1.ServiceReference{Namespace: name.Namespace, Name: name.Name, Port: ptr.To(int32(server.Port()))},
		CABundle: b.cp.PKI.ServingCA.CertPEM(),
	}
	if err := crdserver.Register(ctx, b.cp.RESTConfig(), target, func(string) {}, groupOfMoved); err != nil {
		return nil, err
	}
	return &contender{group: groupOfMoved, version: "v1", resource: "pizzas", kind: "Pizza", content: pizzaContent, server: server},
		b.await(ctx, "/apis/"+groupOfMoved+"/v1/pizzas")
}

// reachable makes a Service lead to this machine.
func (b *bench) reachable(ctx context.Context, name types.NamespacedName) error {
	_, err := b.kube.CoreV1().Services(name.Namespace).Patch(ctx, name.Name, types.MergePatchType,
		[]byte(`{"spec":{"type":"ExternalName","externalName":"localhost","ports":null,"selector":null,"clusterIP":null,"clusterIPs":null}}`), metav1.PatchOptions{})
	return err
}

// sampleAPIServer is upstream's example of an extension API server.
func (b *bench) sampleAPIServer(ctx context.Context) (*contender, error) {
	const name = "sample-apiserver"
	dir := filepath.Join(b.cp.KubeAPIServer.Dir(), name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	serving, err := b.cp.PKI.ServingCA.Issue(controlplane.Certificate{Hosts: []string{name + "." + namespace + ".svc", "127.0.0.1"}})
	if err != nil {
		return nil, err
	}
	etcd, err := b.cp.PKI.EtcdCA.Issue(controlplane.Certificate{User: name})
	if err != nil {
		return nil, err
	}
	for file, content := range map[string][]byte{
		"tls.crt": serving.Cert, "tls.key": serving.Key, "etcd.crt": etcd.Cert, "etcd.key": etcd.Key, "ca.crt": b.cp.PKI.ServingCA.CertPEM(),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			return nil, err
		}
	}
	port, err := b.cp.FreePort(name)
	if err != nil {
		return nil, err
	}
	binary, err := filepath.Abs(filepath.Join("_output", "bin", name))
	if err != nil {
		return nil, err
	}
	clients, err := newClients(b.cp.RESTConfig(), 1)
	if err != nil {
		return nil, err
	}
	clients[0].host = fmt.Sprintf("https://127.0.0.1:%d", port)
	server, err := b.cp.NewProgram(name, controlplane.Program{
		Binary: binary, Port: port,
		Args: []string{
			fmt.Sprintf("--secure-port=%d", port), "--bind-address=127.0.0.1",
			"--tls-cert-file=" + filepath.Join(dir, "tls.crt"), "--tls-private-key-file=" + filepath.Join(dir, "tls.key"),
			"--etcd-servers=" + b.cp.Etcd.URL(), "--etcd-cafile=" + filepath.Join(dir, "ca.crt"),
			"--etcd-certfile=" + filepath.Join(dir, "etcd.crt"), "--etcd-keyfile=" + filepath.Join(dir, "etcd.key"),
			"--kubeconfig=" + b.cp.Kubeconfig(), "--authentication-kubeconfig=" + b.cp.Kubeconfig(), "--authorization-kubeconfig=" + b.cp.Kubeconfig(),
		},
		Check: func(ctx context.Context) error {
			_, err := clients[0].do(ctx, http.MethodGet, "/readyz", "", nil)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	if err := server.Start(ctx); err != nil {
		return nil, err
	}
	if err := b.register(ctx, name, groupOfSample, "v1alpha1", port); err != nil {
		return nil, err
	}
	return &contender{
		group: groupOfSample, version: "v1alpha1", resource: "flunders", kind: "Flunder",
		content: `"spec":{"reference":"mozzarella","referenceType":"Flunder"}`, server: server,
	}, b.await(ctx, "/apis/"+groupOfSample+"/v1alpha1/flunders")
}

// nothing is the floor: a server, in this process, that does nothing but answer.
func (b *bench) nothing(ctx context.Context) (*contender, error) {
	pair, err := b.cp.PKI.ServingCA.Issue(controlplane.Certificate{Hosts: []string{nothing + "." + namespace + ".svc"}})
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &contender{group: groupOfNothing, version: "v1", resource: "pizzas", kind: "Pizza", content: pizzaContent, revision: map[string]string{nothing: "1"}}
	answer := c.object(nothing, 1)
	server := &http.Server{
		Handler: http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
			_, _ = io.Copy(io.Discard, in.Body)
			out.Header().Set("Content-Type", "application/json")
			_, _ = out.Write(answer)
		}),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	// It serves as long as this process runs.
	go func() { _ = server.ServeTLS(listener, "", "") }()
	if err := b.register(ctx, nothing, groupOfNothing, "v1", listener.Addr().(*net.TCPAddr).Port); err != nil {
		return nil, err
	}
	return c, b.await(ctx, "/apis/"+groupOfNothing+"/v1/pizzas")
}

// register makes kube-apiserver send the requests for a group to a port of this machine.
func (b *bench) register(ctx context.Context, service, group, version string, port int) error {
	if _, err := b.kube.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: service}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	encoded, err := json.Marshal(apiregistrationv1.APIService{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiregistrationv1.SchemeGroupVersion.String(), Kind: "APIService"},
		ObjectMeta: metav1.ObjectMeta{Name: version + "." + group},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: group, Version: version, GroupPriorityMinimum: 1000, VersionPriority: 10, CABundle: b.cp.PKI.ServingCA.CertPEM(),
			Service: &apiregistrationv1.ServiceReference{Namespace: namespace, Name: service, Port: ptr.To(int32(port))},
		},
	})
	if err != nil {
		return err
	}
	clients, err := newClients(b.cp.RESTConfig(), 1)
	if err != nil {
		return err
	}
	_, err = clients[0].do(ctx, http.MethodPost, "/apis/apiregistration.k8s.io/v1/apiservices", "", encoded)
	return err
}
