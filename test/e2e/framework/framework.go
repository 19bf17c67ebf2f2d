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

// Package framework helps the end-to-end tests. It has clients, servers beside the one of the
// control plane, and the objects of a test.
package framework

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// Config returns the administrator's client configuration. It hides warnings of deprecated
// versions, which would fill the tests' output.
func Config(cp *controlplane.ControlPlane) *rest.Config {
	config := cp.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	return config
}

// Kube returns the administrator's client of the cluster's own kinds.
func Kube(cp *controlplane.ControlPlane) kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(Config(cp))
}

// Restaurant returns the administrator's client of pizzas and toppings.
func Restaurant(cp *controlplane.ControlPlane) versioned.Interface {
	return versioned.NewForConfigOrDie(Config(cp))
}

// Dynamic returns the administrator's client of any kind.
func Dynamic(cp *controlplane.ControlPlane) dynamic.Interface {
	return dynamic.NewForConfigOrDie(Config(cp))
}

// Namespace makes a namespace that is deleted when the test ends.
func Namespace(t testing.TB, cp *controlplane.ControlPlane) string {
	t.Helper()
	return namespace(t, cp, metav1.ObjectMeta{GenerateName: "e2e-"})
}

func namespace(t testing.TB, cp *controlplane.ControlPlane, meta metav1.ObjectMeta) string {
	t.Helper()
	namespaces := Kube(cp).CoreV1().Namespaces()
	created, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: meta}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := namespaces.Delete(context.WithoutCancel(t.Context()), created.Name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			require.NoError(t, err)
		}
	})
	return created.Name
}

// RequireStatus requires an error to be an answer of the server with this code and reason. It
// returns the answer.
func RequireStatus(t *testing.T, err error, code int32, reason metav1.StatusReason) metav1.Status {
	t.Helper()
	var answer apierrors.APIStatus
	require.ErrorAs(t, err, &answer)
	status := answer.Status()
	require.Equal(t, code, status.Code, status.Message)
	require.Equal(t, reason, status.Reason, status.Message)
	return status
}

// Pause waits for a time, or until the context ends.
func Pause(ctx context.Context, duration time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(duration):
	}
}
