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

package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cmd/server"
	"restaurant.programming-kubernetes.info/apiserver/pkg/groups/restaurant"
)

// workload is a pod template of an overlay.
type workload struct {
	name string
	spec corev1.PodSpec
	pod  labels.Set
}

// workloads returns the pod templates among objects.
func workloads(t *testing.T, objects []*unstructured.Unstructured) []workload {
	t.Helper()
	var found []workload
	for _, object := range objects {
		var template corev1.PodTemplateSpec
		switch object.GetKind() {
		case "Deployment":
			var deployment appsv1.Deployment
			convert(t, object, &deployment)
			template = deployment.Spec.Template
		case "StatefulSet":
			var set appsv1.StatefulSet
			convert(t, object, &set)
			template = set.Spec.Template
		default:
			continue
		}
		found = append(found, workload{object.GetName(), template.Spec, template.Labels})
	}
	require.NotEmpty(t, found)
	return found
}

func convert(t *testing.T, object *unstructured.Unstructured, into any) {
	t.Helper()
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, true))
}

// TestVersionsOfImages compares the images of others with what the tests run.
func TestVersionsOfImages(t *testing.T) {
	want := map[string]string{
		"quay.io/coreos/etcd":            required(t, "go.mod", "go.etcd.io/etcd/server/v3"),
		"registry.k8s.io/kube-scheduler": required(t, "hack/kubernetes/go.mod", "k8s.io/kubernetes"),
	}
	for _, workload := range workloads(t, render(t, kustomization(t, "overlays/ha", []string{"../examples/second-scheduler"}, ""))) {
		for _, container := range workload.spec.Containers {
			if name, tag, tagged := strings.Cut(container.Image, ":"); tagged {
				require.Equal(t, want[name], tag, name)
				delete(want, name)
			} else {
				require.Equal(t, "apiserver", name)
			}
		}
	}
	require.Empty(t, want, "They are not used any more.")
}

// required returns the version of a module that a go.mod asks for.
func required(t *testing.T, file, module string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, file))
	require.NoError(t, err)
	match := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(content)
	require.NotNil(t, match, module)
	return string(match[1])
}

// TestTimeToStop leaves a replica the time to stop in order.
func TestTimeToStop(t *testing.T) {
	const (
		requestTimeout   = 60 * time.Second // the default of --request-timeout
		watchGracePeriod = 10 * time.Second // the default of --shutdown-watch-termination-grace-period
	)
	for overlay := range overlays() {
		for _, workload := range workloads(t, render(t, overlayDirectory(overlay))) {
			if workload.name != "apiserver" {
				continue
			}
			delay, err := time.ParseDuration(variable(t, workload, "APISERVER_SHUTDOWN_DELAY_DURATION"))
			require.NoError(t, err)
			// Nobody else could serve what comes to the only replica meanwhile.
			require.Equal(t, overlay != "standalone", delay > 0)
			require.GreaterOrEqual(t, time.Duration(*workload.spec.TerminationGracePeriodSeconds)*time.Second, delay+requestTimeout+watchGracePeriod)
		}
	}
}

// variable returns the value of an environment variable of the first container.
func variable(t *testing.T, workload workload, name string) string {
	t.Helper()
	for _, variable := range workload.spec.Containers[0].Env {
		if variable.Name == name {
			return variable.Value
		}
	}
	require.Fail(t, "no environment variable", "%s of %s", name, workload.name)
	return ""
}

// TestFlagsInTheEnvironment looks for a flag of the server behind every variable that is
// named like one.
func TestFlagsInTheEnvironment(t *testing.T) {
	flags := server.NewCommand(t.Context(), "apiserver", restaurant.Group()).Flags()
	for overlay := range overlays() {
		for _, workload := range workloads(t, render(t, overlayDirectory(overlay))) {
			for _, variable := range workload.spec.Containers[0].Env {
				name, isFlag := strings.CutPrefix(variable.Name, "APISERVER_")
				if name = strings.ToLower(strings.ReplaceAll(name, "_", "-")); isFlag {
					require.NotNil(t, flags.Lookup(name), "%s: %s", overlay, variable.Name)
				}
			}
		}
	}
}

// TestSelectors looks for the pods that Services, budgets and spread constraints select.
func TestSelectors(t *testing.T) {
	for overlay := range overlays() {
		t.Run(overlay, func(t *testing.T) {
			objects := render(t, overlayDirectory(overlay))
			all := workloads(t, objects)
			selects := func(name string, selector labels.Selector) workload {
				for _, workload := range all {
					if selector.Matches(workload.pod) {
						return workload
					}
				}
				require.Fail(t, "no pod is selected", name)
				return workload{}
			}
			for _, object := range objects {
				name := object.GetKind() + " " + object.GetName()
				switch object.GetKind() {
				case "Service":
					var service corev1.Service
					convert(t, object, &service)
					workload := selects(name, labels.SelectorFromSet(service.Spec.Selector))
					for _, port := range service.Spec.Ports {
						ports := fmt.Sprint(workload.spec.Containers[0].Ports)
						require.True(t, strings.Contains(ports, "{"+port.TargetPort.String()+" ") || strings.Contains(ports, fmt.Sprintf(" %d ", port.Port)), "%s: %s", name, port.Name)
					}
				case "PodDisruptionBudget":
					var budget policyv1.PodDisruptionBudget
					convert(t, object, &budget)
					selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
					require.NoError(t, err)
					selects(name, selector)
				}
			}
			for _, workload := range all {
				for _, constraint := range workload.spec.TopologySpreadConstraints {
					selector, err := metav1.LabelSelectorAsSelector(constraint.LabelSelector)
					require.NoError(t, err)
					require.True(t, selector.Matches(workload.pod), workload.name)
				}
			}
		})
	}
}
