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
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/crdserver"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// groups are those that the server serves: one for each test, so that none disturbs another.
func groups() []string {
	return []string{
		"objects.example.com", "changed.example.com", "deleted.example.com", "restarted.example.com",
		"denied.example.com", "admitted.example.com", "unregistered.example.com", "past.example.com", "etcd.example.com", "moved.example.com",
		"counted.example.com", "replicated.example.com", "aliased.example.com", "examined.example.com", "prompt.example.com", "orphaned.example.com", "protobuf.example.com", "paths.example.com", "informed.example.com", "hidden.example.com",
	}
}

// widgets defines a resource in versions v1, and v2 if that is served.
func widgets(group string, v2 bool) *apiextensionsv1.CustomResourceDefinition {
	preserved, least := true, float64(0)
	schema := &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
		Type: "object",
		Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"spec": {
				Type:     "object",
				Required: []string{"size"},
				Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"size":     {Type: "integer", Minimum: &least},
					"colour":   {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"red"`)}},
					"replicas": {Type: "integer"},
					"free":     {Type: "object", XPreserveUnknownFields: &preserved},
				},
				XValidations: apiextensionsv1.ValidationRules{{Rule: "self.size <= 10 || self.colour != 'red'", Message: "nothing large is red"}},
			},
			"status": {
				Type:       "object",
				Properties: map[string]apiextensionsv1.JSONSchemaProps{"replicas": {Type: "integer"}},
			},
		},
	}}
	version := func(name string, storage, served bool) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: served, Storage: storage, Schema: schema,
			Subresources: &apiextensionsv1.CustomResourceSubresources{
				Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
				Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"},
			},
			SelectableFields:         []apiextensionsv1.SelectableField{{JSONPath: ".spec.colour"}},
			AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Size", Type: "integer", JSONPath: ".spec.size"}},
		}
	}
	versions := []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", true, true)}
	if v2 {
		versions = append(versions, version("v2", false, true))
	}
	return &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group:    group,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList", ShortNames: []string{"wd"}},
			Scope:    apiextensionsv1.NamespaceScoped,
			Versions: versions,
		},
	}
}

func definitions() *clientset.Clientset { return clientset.NewForConfigOrDie(framework.Config(cp)) }

// define applies a definition, registers its group, and returns when its first version is
// served by the server.
func define(t *testing.T, definition *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	defineAt(t, server, definition)
}

// defineAt does so with another server.
func defineAt(t *testing.T, server *controlplane.Component, definition *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	content, err := json.Marshal(definition)
	require.NoError(t, err)
	apply(t, content)
	require.NoError(t, framework.RegisterCRDServer(t.Context(), cp, server, definition.Spec.Group))
	awaitServed(t, definition.Spec.Group, definition.Spec.Versions[0].Name)
}

// awaitServed waits until the widgets of a version are served.
func awaitServed(t *testing.T, group, version string) {
	t.Helper()
	controlplane.Eventually(t, func() error {
		_, err := widgetsIn(group, version, "default").List(t.Context(), metav1.ListOptions{})
		return err
	})
}

func widgetsIn(group, version, namespace string) dynamic.ResourceInterface {
	return framework.Dynamic(cp).Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: "widgets"}).Namespace(namespace)
}

func widget(group, version, name string, size int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/" + version, "kind": "Widget",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"size": size},
	}}
}

func create(t *testing.T, group, version, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	created, err := widgetsIn(group, version, namespace).Create(t.Context(), widget(group, version, name, 1), metav1.CreateOptions{})
	require.NoError(t, err)
	return created
}

// etcdClient is one of an etcd of the control plane.
func etcdClient(t *testing.T, etcd *controlplane.Component) *clientv3.Client {
	t.Helper()
	issued, err := cp.PKI.EtcdCA.Issue(controlplane.Certificate{User: "test"})
	require.NoError(t, err)
	certificate, err := tls.X509KeyPair(issued.Cert, issued.Key)
	require.NoError(t, err)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{etcd.URL()},
		TLS:       &tls.Config{RootCAs: cp.PKI.ServingCA.Pool(), Certificates: []tls.Certificate{certificate}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func keyOf(group, namespace, name string) string {
	return path.Join("/registry", group, "widgets", namespace, name)
}

// stored returns what an etcd has of an object, or nil.
func stored(t *testing.T, etcd *controlplane.Component, group, namespace, name string) []byte {
	t.Helper()
	answer, err := etcdClient(t, etcd).Get(t.Context(), keyOf(group, namespace, name))
	require.NoError(t, err)
	if len(answer.Kvs) == 0 {
		return nil
	}
	return answer.Kvs[0].Value
}

// servedVersions returns the versions of a group that have the resource, by the cluster's discovery.
func servedVersions(t *testing.T, group string) []string {
	t.Helper()
	groups, err := framework.Kube(cp).Discovery().ServerGroups()
	require.NoError(t, err)
	var versions []string
	for _, found := range groups.Groups {
		if found.Name != group {
			continue
		}
		for _, version := range found.Versions {
			versions = append(versions, version.Version)
		}
	}
	slices.Sort(versions)
	return versions
}

// A new version is registered with the server as the others are, and a version that is
// no longer served is unregistered. A changed schema holds at once.
func TestDefinitionChanges(t *testing.T) {
	t.Parallel()
	const group = "changed.example.com"
	ns := framework.Namespace(t, cp)
	define(t, widgets(group, false))
	create(t, group, "v1", ns, "first")

	content, err := json.Marshal(widgets(group, true))
	require.NoError(t, err)
	apply(t, content)
	controlplane.Eventually(t, func() error {
		got, err := widgetsIn(group, "v2", ns).Get(t.Context(), "first", metav1.GetOptions{})
		if err != nil {
			return err
		}
		require.Equal(t, group+"/v2", got.GetAPIVersion())
		return nil
	})
	create(t, group, "v2", ns, "second")
	require.NotNil(t, stored(t, cp.Component(framework.CRDServerEtcd), group, ns, "second"))
	require.Nil(t, stored(t, cp.Etcd, group, ns, "second"))
	controlplane.Eventually(t, func() error {
		if versions := servedVersions(t, group); !slices.Equal(versions, []string{"v1", "v2"}) {
			return fmt.Errorf("discovery has %v", versions)
		}
		return nil
	})

	changed := widgets(group, false)
	least := float64(5)
	spec := changed.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	size := spec.Properties["size"]
	size.Minimum = &least
	spec.Properties["size"] = size
	content, err = json.Marshal(changed)
	require.NoError(t, err)
	apply(t, content)
	controlplane.Eventually(t, func() error {
		_, err := widgetsIn(group, "v1", ns).Create(t.Context(), widget(group, "v1", "small", 1), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return fmt.Errorf("the old schema still holds")
		}
		framework.RequireStatus(t, err, 422, metav1.StatusReasonInvalid)
		return nil
	})
	controlplane.Eventually(t, func() error {
		if versions := servedVersions(t, group); !slices.Equal(versions, []string{"v1"}) {
			return fmt.Errorf("discovery has %v", versions)
		}
		return nil
	})
	got, err := widgetsIn(group, "v1", ns).Get(t.Context(), "second", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "second", got.GetName())
}

// A further kind of a group is known to clients when its definition is Established. They learned of
// it when kube-apiserver next read the discovery of the server, within a minute.
func TestFurtherKindIsKnown(t *testing.T) {
	t.Parallel()
	const group = "prompt.example.com"
	ns := framework.Namespace(t, cp)
	define(t, widgets(group, false))
	soon, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	gadgets := widgets(group, false)
	gadgets.Name, gadgets.Spec.Names = "gadgets."+group, apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Singular: "gadget", Kind: "Gadget", ListKind: "GadgetList"}
	content, err := json.Marshal(gadgets)
	require.NoError(t, err)
	apply(t, content)
	output, err := cp.Kubectl(soon, "wait", "--for=condition=Established", "customresourcedefinition/"+gadgets.Name).CombinedOutput()
	require.NoError(t, err, "%s", output)
	gadget := widget(group, "v1", "one", 1)
	gadget.SetKind("Gadget")
	content, err = gadget.MarshalJSON()
	require.NoError(t, err)
	for err = context.DeadlineExceeded; err != nil; {
		create := cp.Kubectl(soon, "create", "--namespace="+ns, "--filename=-")
		create.Stdin = bytes.NewReader(content)
		output, err = create.CombinedOutput()
		require.NoError(t, soon.Err(), "%s", output)
	}
	require.Equal(t, "gadget.prompt.example.com/one created\n", string(output))
}

// Objects outlive their definition: they are served by the last definition, and by the
// next one.
func TestDefinitionIsDeleted(t *testing.T) {
	t.Parallel()
	const group = "deleted.example.com"
	ns := framework.Namespace(t, cp)
	define(t, widgets(group, false))
	before := create(t, group, "v1", ns, "survivor")

	framework.DeleteDefinition(t, cp, "widgets."+group)
	metric := fmt.Sprintf("customresources_deleted_definition_objects{definition=%q} 1", "widgets."+group)
	controlplane.Eventually(t, func() error { return hasMetric(t, metric) })
	after, err := widgetsIn(group, "v1", ns).Get(t.Context(), "survivor", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, before, after)
	create(t, group, "v1", ns, "another")

	define(t, widgets(group, false))
	again, err := widgetsIn(group, "v1", ns).Get(t.Context(), "survivor", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, before, again)
	controlplane.Eventually(t, func() error {
		if hasMetric(t, metric) == nil {
			return fmt.Errorf("the metric is still there")
		}
		return nil
	})

	require.NoError(t, widgetsIn(group, "v1", ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	framework.DeleteDefinition(t, cp, "widgets."+group)
	controlplane.Eventually(t, func() error {
		if versions := servedVersions(t, group); len(versions) > 0 {
			return fmt.Errorf("discovery has %v", versions)
		}
		return nil
	})
}

// hasMetric returns nil if the server's metrics have a line.
func hasMetric(t *testing.T, line string) error {
	t.Helper()
	config, err := cp.RESTConfigFor("admin", "system:masters")
	require.NoError(t, err)
	config.Host = server.URL()
	client, err := dynamicREST(config)
	require.NoError(t, err)
	content, err := client.Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		return err
	}
	if !slices.Contains(lines(content), line) {
		return fmt.Errorf("the metrics lack %s", line)
	}
	return nil
}

// A server that is told to purges the objects of a deleted definition: their finalizers are
// waited for, and watches see them go.
func TestPurge(t *testing.T) {
	framework.Long(t, "finalizers are waited for")
	t.Parallel()
	const group = "purged.example.com"
	purging, err := framework.NewCRDServer(cp, "crd-apiserver-purging", []string{group}, "--purge-deleted")
	require.NoError(t, err)
	require.NoError(t, purging.Start(t.Context()))
	ns := framework.Namespace(t, cp)
	defineAt(t, purging, widgets(group, false))
	create(t, group, "v1", ns, "one")
	held := widget(group, "v1", "held", 1)
	held.SetFinalizers([]string{"example.com/held"})
	_, err = widgetsIn(group, "v1", ns).Create(t.Context(), held, metav1.CreateOptions{})
	require.NoError(t, err)

	framework.DeleteDefinition(t, cp, "widgets."+group)
	controlplane.Eventually(t, func() error {
		list, err := widgetsIn(group, "v1", ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].GetDeletionTimestamp() == nil {
			return fmt.Errorf("there are %d objects, not the one with a finalizer", len(list.Items))
		}
		return nil
	})
	_, err = widgetsIn(group, "v1", ns).Create(t.Context(), widget(group, "v1", "late", 1), metav1.CreateOptions{})
	framework.RequireStatus(t, err, 403, metav1.StatusReasonForbidden)
	_, err = widgetsIn(group, "v1", ns).Patch(t.Context(), "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	controlplane.Eventually(t, func() error {
		if versions := servedVersions(t, group); len(versions) > 0 {
			return fmt.Errorf("discovery has %v", versions)
		}
		return nil
	})
}

// kube-apiserver serves a group again that is unregistered.
func TestUnregister(t *testing.T) {
	t.Parallel()
	const group = "unregistered.example.com"
	ns := framework.Namespace(t, cp)
	define(t, widgets(group, true))
	create(t, group, "v1", ns, "there")
	framework.MarkServed(t, cp, group)
	ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
	defer cancel()
	require.NoError(t, crdserver.Unregister(ctx, framework.Config(cp), group))
	framework.RequireForgotten(t, cp, group)
	controlplane.Eventually(t, func() error {
		_, err := widgetsIn(group, "v1", ns).Create(t.Context(), widget(group, "v1", "here", 1), metav1.CreateOptions{})
		return err
	})
	require.NotNil(t, stored(t, cp.Etcd, group, ns, "here"))
	list, err := widgetsIn(group, "v2", ns).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	require.Equal(t, "here", list.Items[0].GetName())

	require.NoError(t, framework.RegisterCRDServer(t.Context(), cp, server, group))
	list, err = widgetsIn(group, "v2", ns).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	require.Equal(t, "there", list.Items[0].GetName())
}

// kube-apiserver stores no objects of a group that the server has, even if it serves the definition itself, as before
// Kubernetes 1.36 after that is applied again, and an APIService is gone.
func TestWritesPastTheServer(t *testing.T) {
	t.Parallel()
	const group = "past.example.com"
	ns := framework.Namespace(t, cp)
	define(t, widgets(group, true))
	create(t, group, "v1", ns, "there")
	unhide(t, group)
	// The server then registers no version again.
	_, err := definitions().ApiextensionsV1().CustomResourceDefinitions().Patch(t.Context(), "widgets."+group, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+keys.CopyAnnotation+`":"`+keys.CopyKept+`"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	apiServices := aggregator.NewForConfigOrDie(framework.Config(cp)).ApiregistrationV1().APIServices()
	for _, version := range []string{"v1", "v2"} {
		require.NoError(t, apiServices.Delete(t.Context(), version+"."+group, metav1.DeleteOptions{}))
	}
	controlplane.Eventually(t, func() error {
		server, err := cluster.AnsweringServer(t.Context(), framework.Config(cp), group, "v1")
		if err == nil && server != "" {
			err = fmt.Errorf("%s answers", server)
		}
		return err
	})
	_, err = widgetsIn(group, "v1", ns).Create(t.Context(), widget(group, "v1", "here", 1), metav1.CreateOptions{})
	require.ErrorContains(t, err, `another server has the objects of past.example.com, and kube-apiserver does not lead there yet: try again; `+
		`if that goes on, run "crd-apiserver register" for the group, or "crd-apiserver unregister --groups=past.example.com" if no server has its objects any more`)
	require.True(t, apierrors.IsForbidden(err), err)
}

// "migrate back" gives a version back to kube-apiserver while another one still leads to the
// server. The server once took it for a new one, and registered it again.
func TestVersionThatIsGivenBack(t *testing.T) {
	t.Parallel()
	const group = "moved.example.com"
	define(t, widgets(group, true))
	annotate := func(annotations string) {
		_, err := definitions().ApiextensionsV1().CustomResourceDefinitions().Patch(t.Context(), "widgets."+group, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":`+annotations+`}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	isLocal := func() bool {
		server, err := cluster.AnsweringServer(t.Context(), framework.Config(cp), group, "v1")
		return err == nil && server == ""
	}
	require.False(t, isLocal())
	unhide(t, group)
	annotate(`{"` + keys.CopyAnnotation + `":"` + keys.CopyKept + `"}`)
	_, err := aggregator.NewForConfigOrDie(framework.Config(cp)).ApiregistrationV1().APIServices().Patch(t.Context(), "v1."+group, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+cluster.ManagedLabel+`":"true"}},"spec":{"service":null,"caBundle":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Eventually(t, isLocal, controlplane.Patience, time.Second/10)

	annotate(`{"changed":"now"}`)
	require.Never(t, func() bool { return !isLocal() }, 2*time.Second, time.Second/10)
	annotate(`{"` + keys.CopyAnnotation + `":null}`)
	require.Eventually(t, func() bool { return !isLocal() }, controlplane.Patience, time.Second/10, "The server does not look at the versions.")
}

// kube-apiserver serves no version of a definition whose group is registered, whoever applies it and how, and clients
// have the versions of what was applied.
func TestDefinitionStaysHidden(t *testing.T) {
	t.Parallel()
	const group = "hidden.example.com"
	definition := widgets(group, true)
	define(t, definition)
	require.True(t, isHidden(t, group))
	require.NoError(t, framework.AwaitOpenAPI(t.Context(), cp, group+"/v1"))
	manifest := func(change func(*apiextensionsv1.CustomResourceDefinition)) []byte {
		changed := definition.DeepCopy()
		change(changed)
		content, err := json.Marshal(changed)
		require.NoError(t, err)
		return content
	}
	kubectl := func(stdin []byte, args ...string) {
		t.Helper()
		cmd := cp.Kubectl(t.Context(), append(args, "--filename=-")...)
		cmd.Stdin = bytes.NewReader(stdin)
		output, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", output)
	}
	has := func(versions ...string) {
		t.Helper()
		require.True(t, isHidden(t, group))
		controlplane.Eventually(t, func() error {
			if served := servedVersions(t, group); !slices.Equal(served, versions) {
				return fmt.Errorf("discovery has %v", served)
			}
			return nil
		})
	}
	asIs := func(*apiextensionsv1.CustomResourceDefinition) {}
	has("v1", "v2")
	// Without --force-conflicts, and with no difference to what is applied.
	kubectl(manifest(asIs), "apply", "--server-side")
	kubectl(manifest(asIs), "diff", "--server-side")
	kubectl(manifest(asIs), "apply", "--server-side")
	kubectl(manifest(asIs), "apply")
	kubectl(manifest(asIs), "diff")
	has("v1", "v2")
	kubectl(manifest(func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions[1].Served = false }), "apply")
	has("v1")
	kubectl(manifest(asIs), "replace")
	has("v1", "v2")
	// A client that reads, adds a version, and updates.
	live, err := definitions().ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), "widgets."+group, metav1.GetOptions{})
	require.NoError(t, err)
	third := definition.Spec.Versions[1].DeepCopy()
	third.Name = "v3"
	live.Spec.Versions = append(live.Spec.Versions, *third)
	live.Annotations = nil
	_, err = definitions().ApiextensionsV1().CustomResourceDefinitions().Update(t.Context(), live, metav1.UpdateOptions{})
	require.NoError(t, err)
	has("v1", "v2", "v3")

	ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
	defer cancel()
	require.NoError(t, crdserver.Unregister(ctx, framework.Config(cp), group))
	require.False(t, isHidden(t, group))
	// It is as if nothing had been.
	kubectl(manifest(func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions = append(d.Spec.Versions, *third) }), "diff")
	kubectl(manifest(asIs), "apply", "--server-side")
}

// unhide makes kube-apiserver serve the definition of a registered group.
func unhide(t *testing.T, group string) {
	t.Helper()
	policies := framework.Dynamic(cp).Resource(admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingadmissionpolicybindings"))
	require.NoError(t, policies.Delete(t.Context(), cluster.CopiesPolicyName(group), metav1.DeleteOptions{}))
	controlplane.Eventually(t, func() error {
		require.NoError(t, cluster.ServeDefinitions(t.Context(), framework.Dynamic(cp), group))
		if isHidden(t, group) {
			return errors.New("a policy still keeps it hidden")
		}
		return nil
	})
}

// isHidden reports whether the definition of the widgets of a group serves no version.
func isHidden(t *testing.T, group string) bool {
	t.Helper()
	definition, err := definitions().ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), "widgets."+group, metav1.GetOptions{})
	require.NoError(t, err)
	return !slices.ContainsFunc(definition.Spec.Versions, func(version apiextensionsv1.CustomResourceDefinitionVersion) bool { return version.Served })
}
