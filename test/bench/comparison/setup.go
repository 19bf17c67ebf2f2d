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
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	groupOfCRD   = "crd.bench.example.com"
	groupOfMoved = "moved.bench.example.com"

	// editor is the user that sends requests. Only the administrator may do anything outside the namespace.
	editor = "editor"

	withoutControllers = "--run-controllers=false"
	// movedPrefix is where crd-apiserver stores what it has: its copies of the definitions must
	// not be kube-apiserver's.
	movedPrefix = "/crd-apiserver"

	pizzaContent = `"spec":{"toppings":[{"name":"mozzarella","quantity":1}],"replicas":1}`
)

// bench is a control plane with all contenders.
type bench struct {
	cp         *controlplane.ControlPlane
	kube       kubernetes.Interface
	contenders []*contender
	// user is the configuration of the clients that are measured.
	user *rest.Config
}

// start starts a control plane without contenders. Controllers of the cluster would have work of
// their own with what is deleted.
func start(ctx context.Context, dir string, flags ...string) (*bench, error) {
	cp, err := controlplane.Start(ctx, controlplane.Config{
		Dir: dir, BinDir: filepath.Join("_output", "bin"), Progress: progress,
		ControllerManager: controlplane.ComponentConfig{Off: true},
		Etcd:              controlplane.ComponentConfig{Flags: []string{"--quota-backend-bytes=8000000000"}},
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

func setUp(ctx context.Context, dir string) (_ *bench, err error) {
	b, err := start(ctx, dir, withoutControllers)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.cp.Stop())
		}
	}()
	for _, each := range []struct {
		name string
		make func(context.Context) (*contender, error)
	}{{reference, b.crd}, {"pizzas", b.pizzas}, {"crd-apiserver", b.movedCRD}} {
		progress("Setting up " + each.name)
		c, err := each.make(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", each.name, err)
		}
		c.name, c.revision = each.name, map[string]string{}
		b.contenders = append(b.contenders, c)
	}
	if err := b.bind(ctx); err != nil {
		return nil, err
	}
	b.user, err = b.cp.RESTConfigFor(editor)
	return b, err
}

// bind lets the editor do anything with the contenders' objects.
func (b *bench) bind(ctx context.Context) error {
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
	_, err := b.kube.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: editor}},
	}, metav1.CreateOptions{})
	return err
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
		b.definePizzas(ctx, groupOfCRD)
}

// definePizzas creates the repository's CustomResourceDefinition of pizzas in another group, with
// the stored version only.
func (b *bench) definePizzas(ctx context.Context, group string) error {
	content, err := os.ReadFile(filepath.Join("artifacts", "crd", "pizzas.yaml"))
	if err != nil {
		return err
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(content, &definition); err != nil {
		return err
	}
	definition.Spec.Conversion = nil
	definition.Spec.Names.ShortNames, definition.Spec.Names.Categories = nil, nil
	definition.Spec.Versions = slices.DeleteFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return !v.Storage })
	return b.define(ctx, group, definition.Spec)
}

// define creates a CustomResourceDefinition in a group.
func (b *bench) define(ctx context.Context, group string, spec apiextensionsv1.CustomResourceDefinitionSpec) error {
	spec.Group = group
	encoded, err := yaml.Marshal(apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: spec.Names.Plural + "." + group},
		Spec:       spec,
	})
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
	return b.await(ctx, "/apis/"+group+"/v1/"+spec.Names.Plural)
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
	if err := b.definePizzas(ctx, groupOfMoved); err != nil {
		return nil, err
	}
	server, err := b.startMoved(ctx, "crd-apiserver", movedPrefix, groupOfMoved, "")
	if err != nil {
		return nil, err
	}
	return &contender{group: groupOfMoved, version: "v1", resource: "pizzas", kind: "Pizza", content: pizzaContent, server: server},
		b.await(ctx, "/apis/"+groupOfMoved+"/v1/pizzas")
}

// startMoved starts crd-apiserver, and moves a group to it. The binary is another build of it, if it is not empty.
func (b *bench) startMoved(ctx context.Context, named, prefix, group, binary string, flags ...string) (*controlplane.Component, error) {
	name := types.NamespacedName{Namespace: "crd-apiserver", Name: "crd-apiserver"}
	if err := b.cp.Apply(ctx, filepath.Join("artifacts", "crd-apiserver", "base")); err != nil {
		return nil, err
	}
	if err := b.reachable(ctx, name); err != nil {
		return nil, err
	}
	server, err := b.cp.NewCRDServer(named, controlplane.CRDServerConfig{Groups: []string{group}, Service: name, Account: name, Etcd: "etcd",
		ComponentConfig: controlplane.ComponentConfig{Binary: binary, Flags: append(flags, "--etcd-prefix="+prefix)}})
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
	return server, crdserver.Register(ctx, b.cp.RESTConfig(), target, func(string) {}, group)
}

// reachable makes a Service lead to this machine.
func (b *bench) reachable(ctx context.Context, name types.NamespacedName) error {
	_, err := b.kube.CoreV1().Services(name.Namespace).Patch(ctx, name.Name, types.MergePatchType,
		[]byte(`{"spec":{"type":"ExternalName","externalName":"localhost","ports":null,"selector":null,"clusterIP":null,"clusterIPs":null}}`), metav1.PatchOptions{})
	return err
}
