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

// Package fuzz sends mutated requests to a server, as a user who may do everything in one
// namespace. It expects that the server is never to blame.
//
// REQUESTS is how many, SEED makes them the same again, and ONLY repeats a single one of them.
// CORPUS=write adds those that were answered like none before to testdata/corpus.jsonl. Later
// ones are made from these. "make fuzz-requests" sends a million.
package fuzz

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// cp is the control plane that all tests share.
var cp *controlplane.ControlPlane

const (
	// fuzzer is the user, and namespace the one in which that user may write.
	fuzzer, namespace = "fuzzer", "fuzz"
)

func TestMain(m *testing.M) {
	server := controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Env: []string{"GOMEMLIMIT=512MiB"}}}
	controlplane.Main(m, &cp, controlplane.Config{APIServer: server}, fixture.Toppings("tomato"), permit)
}

// permit lets the user do everything in the namespace, and with toppings, which are in none.
func permit(ctx context.Context, cp *controlplane.ControlPlane) error {
	client := framework.Kube(cp)
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	all := func(resources ...string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: resources, Verbs: []string{"*"}}}
	}
	meta, subjects := metav1.ObjectMeta{Name: fuzzer}, []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: fuzzer}}
	if _, err := client.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: all("*")}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: all("toppings", "pricereviews")}, metav1.CreateOptions{}); err != nil {
		return err
	}
	role := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: fuzzer}
	}
	if _, err := client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: role("Role"), Subjects: subjects}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: role("ClusterRole"), Subjects: subjects}, metav1.CreateOptions{})
	return err
}
