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

package controlplane

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
)

const (
	// fieldManager owns the fields that this package applies.
	fieldManager = "controlplane"

	// registeredAt makes every registration a change. Then kube-apiserver checks at once
	// whether the server answers, without its pause after an earlier failure.
	registeredAt = "controlplane/registered-at"

	// managedLabel is on APIServices that kube-apiserver manages because of a
	// CustomResourceDefinition. kube-apiserver undoes any change of their spec.
	managedLabel = "kube-aggregator.kubernetes.io/automanaged"
)

// Install applies the manifests that the server needs before it can start: its namespace,
// identity and permissions. Start calls it, unless the server is off.
func (cp *ControlPlane) Install(ctx context.Context) error {
	return cp.apply(ctx, cp.manifests.objects)
}

// Apply applies manifests server-side as the administrator, in the given order. They may
// contain any objects, such as CustomResourceDefinitions, objects of their kinds, and
// webhook configurations. A path is a file, a directory with a kustomization that lists
// resources, or a directory whose YAML and JSON files are all applied. Namespaced objects
// without a namespace are in the namespace "default".
//
// An object that can't be applied, for instance since its kind is not served yet, is tried
// again until Timeouts.Ready is over. Invalid objects are not.
func (cp *ControlPlane) Apply(ctx context.Context, paths ...string) error {
	var all []*unstructured.Unstructured
	for _, path := range paths {
		objects, err := readPath(path)
		if err != nil {
			return err
		}
		all = append(all, objects...)
	}
	return cp.apply(ctx, all)
}

// Register points the APIServices at running servers and waits until kube-apiserver serves
// their versions from there. Start calls it, unless the server is off. Later calls switch
// to other servers.
//
// It refuses versions that CustomResourceDefinitions serve. No client would find their
// objects, and kube-apiserver would undo the change. If the APIService already leads to a
// server, the version is registered again, with or without a definition.
//
// Several servers have to listen at the same port of different addresses, none of them this
// machine's own, and kube-apiserver needs --enable-aggregator-routing.
func (cp *ControlPlane) Register(ctx context.Context, servers ...*Component) error {
	if len(servers) == 0 {
		return errors.New("name a server to register")
	}
	if err := cp.manifests.complete(); err != nil {
		return err
	}
	server := servers[0]
	began := time.Now()
	ctx, cancel := server.whileRunning(ctx)
	defer cancel()
	objects := cp.service(servers)
	for _, manifest := range cp.manifests.apiServices {
		apiService := manifest.DeepCopy()
		annotations := apiService.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[registeredAt] = began.Format(time.RFC3339Nano)
		apiService.SetAnnotations(annotations)
		fields := map[string]any{
			"service": map[string]any{
				"namespace": cp.manifests.service.GetNamespace(), "name": cp.manifests.service.GetName(), "port": int64(server.port),
			},
		}
		if !server.ownCertificate {
			fields["caBundle"] = base64.StdEncoding.EncodeToString(cp.PKI.ServingCA.CertPEM())
		}
		for field, value := range fields {
			if err := unstructured.SetNestedField(apiService.Object, value, "spec", field); err != nil {
				return err
			}
		}
		objects = append(objects, apiService)
	}
	if err := cp.checkUnclaimed(ctx); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	if err := cp.apply(ctx, objects); err != nil {
		return err
	}
	if err := cp.WaitAvailable(ctx); err != nil {
		return fmt.Errorf("%w; %s", err, server.logTail())
	}
	cp.progress("%d API versions are available (%.1f s)", len(cp.manifests.apiServices), time.Since(began).Seconds())
	return nil
}

// checkUnclaimed returns an error if kube-apiserver serves any of the versions itself.
func (cp *ControlPlane) checkUnclaimed(ctx context.Context) error {
	services, err := aggregator.NewForConfig(cp.admin)
	if err != nil {
		return err
	}
	for _, manifest := range cp.manifests.apiServices {
		current, err := services.ApiregistrationV1().APIServices().Get(ctx, manifest.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err == nil {
			err = leadsToServer(current)
		}
		if err != nil {
			return fmt.Errorf("the APIService %s cannot be registered: %w; move its objects to the server by \"migrate\", "+
				"see docs/migration.md; deleting a definition deletes its objects and whatever those own", manifest.GetName(), err)
		}
	}
	return nil
}

// service returns the Service that leads kube-apiserver to the servers, with the port in
// the APIServices.
func (cp *ControlPlane) service(servers []*Component) []*unstructured.Unstructured {
	port := int64(servers[0].port)
	object := func(apiVersion, kind string, content map[string]any) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: content}
		object.SetAPIVersion(apiVersion)
		object.SetKind(kind)
		object.SetNamespace(cp.manifests.service.GetNamespace())
		object.SetName(cp.manifests.service.GetName())
		return object
	}
	if len(servers) == 1 {
		// Only this type of Service may lead to this machine.
		return []*unstructured.Unstructured{object("v1", "Service", map[string]any{
			"spec": map[string]any{"type": "ExternalName", "externalName": servers[0].host.Address()},
		})}
	}
	const portName = "https"
	var endpoints []any
	for _, server := range servers {
		endpoints = append(endpoints, map[string]any{"addresses": []any{server.host.Address()}, "conditions": map[string]any{"ready": true}})
	}
	slice := object("discovery.k8s.io/v1", "EndpointSlice", map[string]any{
		"addressType": "IPv4",
		"endpoints":   endpoints,
		"ports":       []any{map[string]any{"name": portName, "port": port}},
	})
	slice.SetLabels(map[string]string{discoveryv1.LabelServiceName: slice.GetName()})
	return []*unstructured.Unstructured{slice, object("v1", "Service", map[string]any{
		"spec": map[string]any{"ports": []any{map[string]any{"name": portName, "port": port}}},
	})}
}

// apply applies objects server-side, in order. It tries for a while: just after
// kube-apiserver's start some of its own objects may be missing, for instance the namespace
// kube-system.
func (cp *ControlPlane) apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	client, err := dynamic.NewForConfig(cp.admin)
	if err != nil {
		return err
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(cp.admin)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discoveryClient))
	for _, object := range objects {
		kind := object.GroupVersionKind()
		var refused error
		err := eventually(ctx, cp.config.Timeouts.Ready, func(ctx context.Context) error {
			mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
			if err != nil {
				mapper.Reset() // It may be the kind of a definition that was applied just now.
				return err
			}
			resource := client.Resource(mapping.Resource)
			namespaced := dynamic.ResourceInterface(resource)
			if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
				namespaced = resource.Namespace(cmp.Or(object.GetNamespace(), metav1.NamespaceDefault))
			}
			_, err = namespaced.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
			if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
				refused = err // It will not get better.
				return nil
			}
			return err
		})
		if err = cmp.Or(refused, err); err != nil {
			return fmt.Errorf("cannot apply %s %s: %w", kind.Kind, object.GetName(), err)
		}
	}
	return nil
}

// WaitAvailable waits until the registered versions are served through kube-apiserver. It
// checks what a client may read first: the APIServices' conditions, discovery and OpenAPI.
func (cp *ControlPlane) WaitAvailable(ctx context.Context) error {
	services, err := aggregator.NewForConfig(cp.admin)
	if err != nil {
		return err
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(cp.admin)
	if err != nil {
		return err
	}
	var versions []schema.GroupVersion
	for _, apiService := range cp.manifests.apiServices {
		version, group, _ := strings.Cut(apiService.GetName(), ".")
		versions = append(versions, schema.GroupVersion{Group: group, Version: version})
	}
	return eventually(ctx, cp.config.Timeouts.Ready, func(ctx context.Context) error {
		for _, apiService := range cp.manifests.apiServices {
			current, err := services.ApiregistrationV1().APIServices().Get(ctx, apiService.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			if err := leadsToServer(current); err != nil {
				return fmt.Errorf("the APIService %s does not register a server: %w", current.Name, err)
			}
			if err := available(current); err != nil {
				return err
			}
		}
		_, served, failed, err := discoveryClient.GroupsAndMaybeResources()
		if err != nil {
			return err
		}
		schemas, err := discoveryClient.OpenAPIV3().Paths()
		if err != nil {
			return err
		}
		for _, version := range versions {
			if err := failed[version]; err != nil {
				return fmt.Errorf("discovery of %s fails: %w", version, err)
			}
			if served[version] == nil {
				return fmt.Errorf("discovery lacks %s", version)
			}
			if path := "apis/" + version.String(); schemas[path] == nil {
				return fmt.Errorf("the OpenAPI description lacks %s, it holds %s only", path,
					strings.Join(slices.Sorted(maps.Keys(schemas)), ", "))
			}
		}
		return nil
	})
}

// leadsToServer returns an error if kube-apiserver serves the version itself, or is going
// to. Such a version is available, but not from a server.
func leadsToServer(apiService *apiregistrationv1.APIService) error {
	switch {
	case apiService.Spec.Service == nil:
		return errors.New("kube-apiserver serves it itself, from CustomResourceDefinitions")
	case apiService.Labels[managedLabel] != "":
		return fmt.Errorf("kube-apiserver manages it, since it has the label %s, and is going to reset it", managedLabel)
	}
	return nil
}

func available(apiService *apiregistrationv1.APIService) error {
	for _, condition := range apiService.Status.Conditions {
		if condition.Type != apiregistrationv1.Available {
			continue
		}
		if condition.Status == apiregistrationv1.ConditionTrue {
			return nil
		}
		return fmt.Errorf("the APIService %s is not available: %s: %s", apiService.Name, condition.Reason, condition.Message)
	}
	return fmt.Errorf("the APIService %s is not available: kube-apiserver has not looked at it yet", apiService.Name)
}
