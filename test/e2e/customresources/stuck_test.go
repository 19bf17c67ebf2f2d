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

package customresources

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// converted are widgets of a group of its own, with one that its webhook can't convert to v2.
type converted struct {
	*controlplane.ControlPlane
	group string
}

// once makes client-go send requests once that get 429 or 503.
type once struct{ http.RoundTripper }

func (o once) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := o.RoundTripper.RoundTrip(req)
	if err == nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

func (c converted) widgets(version, namespace string) dynamic.ResourceInterface {
	config := rest.CopyConfig(framework.Config(c.ControlPlane))
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return once{next} })
	return dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{Group: c.group, Version: version, Resource: "widgets"}).Namespace(namespace)
}

// namespace is one of the group's own.
func (c converted) namespace(name string) string {
	return name + "-" + strings.ReplaceAll(c.group, ".", "-")
}

// own creates a ConfigMap that a widget owns.
func (c converted) own(t *testing.T, kube kubernetes.Interface, namespace, widget, version string) {
	t.Helper()
	owner, err := c.widgets("v1", namespace).Get(t.Context(), widget, metav1.GetOptions{})
	require.NoError(t, err)
	_, err = kube.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:            "of-" + widget + "-" + version,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: c.group + "/" + version, Kind: "Widget", Name: widget, UID: owner.GetUID()}},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// outcome is what came of a request, without what differs between the groups.
func (c converted) outcome(err error) string {
	if err == nil {
		return "ok"
	}
	message := regexp.MustCompile(`revision=\d+`).ReplaceAllString(err.Error(), "revision")
	return strings.NewReplacer(c.group, "GROUP", c.namespace("used"), "used", c.namespace("deleted"), "deleted").Replace(fmt.Sprint(apierrors.ReasonForError(err), ": ", message))
}

// firstEvents are those of a watch that begins with the widgets that there are, up to an error or for five seconds.
func (c converted) firstEvents(t *testing.T, version string, count int) (events []string) {
	t.Helper()
	seconds := int64(5)
	watcher, err := c.widgets(version, c.namespace("used")).Watch(t.Context(), metav1.ListOptions{TimeoutSeconds: &seconds})
	if err != nil {
		return []string{c.outcome(err)}
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if event.Type == watch.Error {
			return append(events, c.outcome(apierrors.FromObject(event.Object)))
		}
		events = append(events, string(event.Type)+" "+event.Object.(*unstructured.Unstructured).GetName())
		if len(events) == count {
			break
		}
	}
	return events
}

// An object that its webhook can't convert is in the way of the same as in kube-apiserver, before and after
// a restart. It is in the way of nothing once it has been deleted in the version that it is stored in.
func TestStuckObject(t *testing.T) {
	framework.Long(t, "a control plane of its own, whose namespaces do not go")
	t.Parallel()
	cp := controlplane.ForTest(t, controlplane.Config{APIServer: controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Off: true}}})
	moved, kept := converted{cp, "moved.example.com"}, converted{cp, "kept.example.com"}
	groups := []converted{moved, kept}
	server, err := framework.StartCRDServer(t.Context(), cp, controlplane.ComponentConfig{}, moved.group)
	require.NoError(t, err)
	kube := framework.Kube(cp)
	var broken atomic.Bool
	for _, c := range groups {
		definition := widgets(c.group, true)
		definition.Spec.Conversion = convertingWebhook(t, &broken)
		content, err := json.Marshal(definition)
		require.NoError(t, err)
		command := cp.Kubectl(t.Context(), "create", "--filename=-")
		command.Stdin = bytes.NewReader(content)
		output, err := command.CombinedOutput()
		require.NoError(t, err, "%s", output)
		if c == moved {
			require.NoError(t, framework.RegisterCRDServer(t.Context(), cp, server, c.group))
		}
		for _, name := range []string{"used", "deleted"} {
			namespace := c.namespace(name)
			_, err := kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
			require.NoError(t, err)
			for _, name := range []string{"fine", "probe", "stuck"} {
				controlplane.Eventually(t, func() error {
					_, err := c.widgets("v1", namespace).Create(t.Context(), widget(c.group, "v1", name, 1), metav1.CreateOptions{})
					return err
				})
				c.own(t, kube, namespace, name, "v1")
				c.own(t, kube, namespace, name, "v2")
			}
		}
	}
	collected := func(c converted, widget string) {
		t.Helper()
		for _, version := range []string{"v1", "v2"} {
			controlplane.Eventually(t, func() error {
				_, err := kube.CoreV1().ConfigMaps(c.namespace("used")).Get(t.Context(), "of-"+widget+"-"+version, metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return fmt.Errorf("the ConfigMap that %s owned in %s is still there: %w", widget, version, err)
			})
		}
	}
	for _, c := range groups {
		require.NoError(t, c.widgets("v2", c.namespace("used")).Delete(t.Context(), "probe", metav1.DeleteOptions{}))
		collected(c, "probe")
	}
	broken.Store(true)
	for _, c := range groups {
		require.NoError(t, c.widgets("v1", c.namespace("used")).Delete(t.Context(), "fine", metav1.DeleteOptions{}))
		collected(c, "fine")
		require.NoError(t, kube.CoreV1().Namespaces().Delete(t.Context(), c.namespace("deleted"), metav1.DeleteOptions{}))
	}
	dryRun := []string{metav1.DryRunAll}
	requests := map[string]func(converted, dynamic.ResourceInterface) error{
		"get": func(_ converted, widgets dynamic.ResourceInterface) error {
			_, err := widgets.Get(t.Context(), "stuck", metav1.GetOptions{})
			return err
		},
		"list": func(_ converted, widgets dynamic.ResourceInterface) error {
			_, err := widgets.List(t.Context(), metav1.ListOptions{})
			return err
		},
		"delete": func(_ converted, widgets dynamic.ResourceInterface) error {
			return widgets.Delete(t.Context(), "stuck", metav1.DeleteOptions{DryRun: dryRun})
		},
		"delete collection": func(_ converted, widgets dynamic.ResourceInterface) error {
			return widgets.DeleteCollection(t.Context(), metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{})
		},
	}
	outcomes := func(c converted) map[string]string {
		found := map[string]string{}
		for name, request := range requests {
			for _, version := range []string{"v1", "v2"} {
				found[name+" "+version] = c.outcome(request(c, c.widgets(version, c.namespace("used"))))
			}
		}
		for _, version := range []string{"v1", "v2"} {
			found["watch "+version] = fmt.Sprint(c.firstEvents(t, version, 1))
		}
		return found
	}
	for _, when := range []string{"before", "after"} {
		for _, c := range groups {
			controlplane.Eventually(t, func() error {
				namespace, err := kube.CoreV1().Namespaces().Get(t.Context(), c.namespace("deleted"), metav1.GetOptions{})
				require.NoError(t, err)
				for _, condition := range namespace.Status.Conditions {
					if condition.Type == corev1.NamespaceDeletionContentFailure && strings.Contains(condition.Message, "the object stuck has no colour") {
						return nil
					}
				}
				return errors.New("the namespace does not say why it is still there")
			})
		}
		want := outcomes(kept)
		require.Equal(t, want, outcomes(moved), when)
		for _, request := range []string{"get v1", "list v1", "delete v1", "delete collection v1"} {
			require.Equal(t, "ok", want[request], request)
		}
		require.Equal(t, "[ADDED stuck]", want["watch v1"])
		for _, request := range []string{"get v2", "delete v2", "delete collection v2"} {
			require.Contains(t, want[request], "the object stuck has no colour", request)
		}
		if when == "before" {
			require.NoError(t, server.Restart(t.Context()))
			require.NoError(t, cp.KubeAPIServer.Restart(t.Context()))
			for _, c := range groups {
				controlplane.Eventually(t, func() error {
					_, err := c.widgets("v1", c.namespace("used")).List(t.Context(), metav1.ListOptions{})
					return err
				})
			}
		}
	}
	for _, c := range groups {
		for _, name := range []string{"used", "deleted"} {
			require.NoError(t, c.widgets("v1", c.namespace(name)).Delete(t.Context(), "stuck", metav1.DeleteOptions{}))
		}
	}
	// It would try again later and later.
	require.NoError(t, cp.ControllerManager.Restart(t.Context()))
	for _, c := range groups {
		collected(c, "stuck")
		controlplane.Eventually(t, func() error {
			_, err := kube.CoreV1().Namespaces().Get(t.Context(), c.namespace("deleted"), metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("the namespace is still there: %w", err)
		})
	}
}
