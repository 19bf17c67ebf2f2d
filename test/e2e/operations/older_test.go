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

package operations

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// With a kube-apiserver that does not know all configurations of admission, the
// server enforces the others. It enforces all as soon as they are known, and none
// that is no longer known.
func TestOlderKubeAPIServer(t *testing.T) {
	framework.Long(t, "it has a control plane of its own")
	t.Parallel()
	flags := []string{
		"--runtime-config=admissionregistration.k8s.io/v1=false",
		// These would keep kube-apiserver itself from all writes.
		"--disable-admission-plugins=MutatingAdmissionPolicy,MutatingAdmissionWebhook,ValidatingAdmissionPolicy,ValidatingAdmissionWebhook",
	}
	absent := []string{
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations",
		"validatingadmissionpolicies", "validatingadmissionpolicybindings", "validatingwebhookconfigurations",
	}
	cp := controlplane.ForTest(t, controlplane.Config{
		KubeAPIServer:     controlplane.ComponentConfig{Off: true},
		ControllerManager: controlplane.ComponentConfig{Off: true},
		APIServer:         controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Off: true}},
	})
	// It is not waited for: without its own configurations it is never ready.
	start := func(flags ...string) {
		t.Helper()
		require.NoError(t, cp.KubeAPIServer.Stop())
		cp.KubeAPIServer.SetFlags(flags...)
		require.NoError(t, cp.KubeAPIServer.Launch())
		controlplane.Eventually(t, func() error { return cp.Install(t.Context()) })
	}
	client := versioned.NewForConfigOrDie(cp.RESTConfig())
	awaitEnforced := func(want bool) {
		t.Helper()
		controlplane.Eventually(t, func() error {
			_, err := client.RestaurantV1().Pizzas("default").Create(t.Context(), framework.Pizza("a"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if !apierrors.IsInvalid(err) && err != nil || apierrors.IsInvalid(err) != want {
				return fmt.Errorf("a pizza gets the error %w, while enforcement is to be %v", err, want)
			}
			return nil
		})
	}
	logged := func() []string {
		t.Helper()
		log, err := os.ReadFile(cp.APIServer.LogFile())
		require.NoError(t, err)
		var resources []string
		for _, match := range notServed.FindAllStringSubmatch(string(log), -1) {
			resources = append(resources, match[1])
		}
		slices.Sort(resources)
		return resources
	}

	start(flags...)
	require.NoError(t, cp.APIServer.Start(t.Context()))
	pid := cp.APIServer.PID()
	require.NoError(t, cp.Register(t.Context(), cp.APIServer))
	require.NoError(t, fixture.CreateToppings(t.Context(), client, "tomato"))
	awaitEnforced(false)
	controlplane.Eventually(t, func() error {
		if !slices.Equal(absent, logged()) {
			return fmt.Errorf("logged are %q", logged())
		}
		return nil
	})

	start()
	createValidatingPolicy(t, kubernetes.NewForConfigOrDie(cp.RESTConfig()))
	awaitEnforced(true)
	start(flags...)
	awaitEnforced(false)
	require.Equal(t, absent, logged())
	require.Equal(t, pid, cp.APIServer.PID(), "The server has been restarted.")
}

var notServed = regexp.MustCompile(`"kube-apiserver does not serve a resource of admissionregistration\.k8s\.io/v1: no webhook or policy of this kind is enforced until it does" resource="(.*)" retry="30s"`)

// onPizzas are requests to create a pizza.
func onPizzas() *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"restaurant.programming-kubernetes.info"}, APIVersions: []string{"*"}, Resources: []string{"pizzas"}},
	}}}}
}

// createValidatingPolicy refuses pizzas that do not have seven replicas.
func createValidatingPolicy(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	_, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "seven"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: onPizzas(),
			Validations:      []admissionregistrationv1.Validation{{Expression: "object.spec.replicas == 7"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "seven"},
		Spec:       admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "seven", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}
