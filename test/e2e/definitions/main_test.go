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

// Package definitions serves the CustomResourceDefinitions of projects that many clusters have
// by the server of custom resources, and compares its answers with kube-apiserver's.
package definitions

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const (
	// user may do everything with the groups, and nothing else.
	user = "user"
	// stranger may do nothing.
	stranger = "stranger"
)

var (
	cp     *controlplane.ControlPlane
	server *controlplane.Component
)

func TestMain(m *testing.M) {
	framework.LongPackage("the definitions of other projects are served, and their objects compared")
	off := controlplane.ComponentConfig{Off: true}
	controlplane.Main(m, &cp, controlplane.Config{APIServer: controlplane.ServerConfig{ComponentConfig: off}},
		func(ctx context.Context, cp *controlplane.ControlPlane) (err error) {
			if err := framework.InstallCRDServer(ctx, cp); err != nil {
				return err
			}
			if server, err = framework.NewCRDServer(cp, "crd-apiserver", groups()); err != nil {
				return err
			}
			if err := server.Start(ctx); err != nil {
				return err
			}
			return allowUser(ctx, cp)
		})
}

func allowUser(ctx context.Context, cp *controlplane.ControlPlane) error {
	roles := framework.Kube(cp).RbacV1()
	if _, err := roles.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Rules:      []rbacv1.PolicyRule{{APIGroups: groups(), Resources: []string{"*"}, Verbs: []string{"*"}}},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := roles.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	return err
}

// clientOf is a user's client for any path of kube-apiserver.
func clientOf(t *testing.T, name string, groups ...string) rest.Interface {
	t.Helper()
	return client(t, "", name, groups...)
}

// client is a user's client of a server, or of kube-apiserver.
func client(t *testing.T, host, name string, groups ...string) rest.Interface {
	t.Helper()
	config, err := cp.RESTConfigFor(name, groups...)
	require.NoError(t, err)
	if host != "" {
		config.Host = host
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	kube, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return kube.Discovery().RESTClient()
}
