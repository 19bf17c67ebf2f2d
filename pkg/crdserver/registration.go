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

package crdserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	apiservices "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

const registerPollInterval = 100 * time.Millisecond

// Target is the server that kube-apiserver sends the requests for a group to.
type Target struct {
	Service apiregistrationv1.ServiceReference
	// CABundle is the certificate authority of the Service, as PEM.
	CABundle []byte
}

func (t Target) is(spec apiregistrationv1.APIServiceSpec) bool {
	return apiequality.Semantic.DeepEqual(spec.Service, &t.Service) && slices.Equal(spec.CABundle, t.CABundle)
}

// Register makes kube-apiserver send the requests for all served versions of the groups to a
// running server. CustomResourceDefinitions must define the groups. It returns when
// kube-apiserver does so, or with the context's error. Objects in the cluster's etcd stay there,
// invisible until Unregister.
//
// Only one of the servers answers a request. For a moment, until kube-apiserver has reached the
// server for the first time, it answers 503. Then it stops serving the definitions, see
// cluster.ServedAnnotation. Watches end, and continue at the server. warn gets what the operator
// should know although the groups are registered.
func Register(ctx context.Context, config *rest.Config, target Target, warn func(string), groups ...string) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	r, err := newRegistrar(config, nil)
	if err != nil {
		return err
	}
	err = cluster.ReplaceAPIServices(ctx, client, r.apiServices, func(ctx context.Context) error { return leadAll(ctx, config, target, groups) }, groups...)
	if err != nil {
		return err
	}
	for _, group := range groups {
		err := cluster.RefuseCopies(ctx, client, group)
		if errors.Is(err, cluster.ErrNotKept) {
			warn(fmt.Sprintf("%s: %v", group, err))
		} else if err != nil {
			return fmt.Errorf("%s is registered, but a kube-apiserver that starts may answer for its objects: register it again: %w", group, err)
		}
	}
	if err := cluster.HideDefinitions(ctx, client, warn, groups...); err != nil {
		return fmt.Errorf("the groups are registered, but a kube-apiserver that starts may answer for their objects, and watches go on there: register them again: %w", err)
	}
	return nil
}

// leadAll returns when kube-apiserver sends the requests for groups to a server.
func leadAll(ctx context.Context, config *rest.Config, target Target, groups []string) error {
	return switchAll(ctx, config, groups, func(ctx context.Context, r *registrar, group, version string) error {
		return cluster.Lead(ctx, r.apiServices, version+"."+group, target.Service, target.CABundle)
	}, func(apiService *apiregistrationv1.APIService, answering string) error {
		available := cluster.Availability(apiService)
		switch {
		case !target.is(apiService.Spec):
			return errors.New("somebody has changed its service or caBundle")
		case available.Status != apiregistrationv1.ConditionTrue || available.Reason == cluster.LocalReason:
			return fmt.Errorf("it is not available: %s: %s", available.Reason, available.Message)
		case answering == "":
			return errors.New("kube-apiserver still answers itself")
		}
		return nil
	})
}

// Unregister makes kube-apiserver serve the groups itself again, from the cluster's etcd. It
// returns when kube-apiserver does so, or with the context's error.
func Unregister(ctx context.Context, config *rest.Config, groups ...string) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	allowed := errors.Join(cluster.AllowCopies(ctx, client, nil, groups...), cluster.ServeDefinitions(ctx, client, groups...))
	return errors.Join(allowed, switchAll(ctx, config, groups, func(ctx context.Context, r *registrar, group, version string) error {
		return r.giveBack(ctx, version+"."+group)
	}, func(apiService *apiregistrationv1.APIService, answering string) error {
		available := cluster.Availability(apiService)
		switch {
		case apiService.Spec.Service != nil || available.Status != apiregistrationv1.ConditionTrue || available.Reason != cluster.LocalReason:
			return errors.New("kube-apiserver does not serve it by itself yet")
		case answering != "":
			return fmt.Errorf("kube-apiserver still sends requests to %s", answering)
		}
		return nil
	}))
}

// switchAll changes all versions, and then waits for each. A server that follows new versions
// may register a changed version again while others are unchanged. Therefore each is changed
// until it stays so.
func switchAll(ctx context.Context, config *rest.Config, groups []string, change func(ctx context.Context, r *registrar, group, version string) error,
	check func(apiService *apiregistrationv1.APIService, answering string) error) error {
	r, err := newRegistrar(config, nil)
	if err != nil {
		return err
	}
	definitions, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	list, err := definitions.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var served []schema.GroupVersion
	for _, group := range groups {
		versions := sets.New[string]()
		for i := range list.Items {
			versions = versions.Union(versionsOf(group, &list.Items[i]))
		}
		if len(versions) == 0 {
			return fmt.Errorf("no CustomResourceDefinition serves a version of %s: apply them first", group)
		}
		for _, version := range sets.List(versions) {
			served = append(served, schema.GroupVersion{Group: group, Version: version})
		}
	}
	for _, gv := range served {
		if err := change(ctx, r, gv.Group, gv.Version); err != nil {
			return fmt.Errorf("APIService %s.%s: %w", gv.Version, gv.Group, err)
		}
	}
	for _, gv := range served {
		err := cluster.Eventually(ctx, registerPollInterval, func(ctx context.Context) error {
			if err := change(ctx, r, gv.Group, gv.Version); err != nil {
				return err
			}
			apiService, err := r.apiServices.Get(ctx, gv.Version+"."+gv.Group, metav1.GetOptions{})
			if err != nil {
				return err
			}
			answering, err := cluster.AnsweringServer(ctx, config, gv.Group, gv.Version)
			if err != nil {
				return err
			}
			return check(apiService, answering)
		})
		if err != nil {
			return fmt.Errorf("APIService %s.%s: %w", gv.Version, gv.Group, err)
		}
	}
	return nil
}

// versionsOf returns the versions of a group that clients of a definition have.
func versionsOf(group string, definition *apiextensionsv1.CustomResourceDefinition) sets.Set[string] {
	versions := sets.New[string]()
	if definition.Spec.Group == group {
		versions.Insert(servedVersions(definition)...)
	}
	return versions
}

func servedVersions(definition *apiextensionsv1.CustomResourceDefinition) []string {
	var served []string
	for _, version := range definition.Spec.Versions {
		if version.Served && version.Name != cluster.BypassVersion {
			served = append(served, version.Name)
		}
	}
	return cluster.ServedVersions(definition, served...)
}

// registrar changes APIServices.
type registrar struct {
	apiServices apiservices.APIServiceInterface
	// leadsHere reports whether a Service leads to this server.
	leadsHere func(*apiregistrationv1.ServiceReference) bool
}

func newRegistrar(config *rest.Config, leadsHere func(*apiregistrationv1.ServiceReference) bool) (*registrar, error) {
	client, err := aggregator.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &registrar{client.ApiregistrationV1().APIServices(), leadsHere}, nil
}

// certified returns a function that reports whether a server has a certificate for a Service.
// Without one, kube-apiserver does not accept it as the Service's server.
func certified(serving *genericapiserver.SecureServingInfo) func(*apiregistrationv1.ServiceReference) bool {
	return func(service *apiregistrationv1.ServiceReference) bool {
		var certificates []dynamiccertificates.CertKeyContentProvider
		if serving.Cert != nil {
			certificates = append(certificates, serving.Cert)
		}
		for _, certificate := range serving.SNICerts {
			certificates = append(certificates, certificate)
		}
		return slices.ContainsFunc(certificates, func(provider dynamiccertificates.CertKeyContentProvider) bool {
			content, _ := provider.CurrentCertKeyContent()
			chain, err := certutil.ParseCertsPEM(content)
			return err == nil && chain[0].VerifyHostname(service.Name+"."+service.Namespace+".svc") == nil
		})
	}
}

// follow registers new versions of a group with the target of its registered ones, and
// unregisters versions that are no longer served. kube-apiserver would serve the former itself,
// from the cluster's etcd, and consider the server of the latter down. It leaves alone versions
// that lead to other servers, or that nobody has registered.
func (r *registrar) follow(ctx context.Context, group string, served sets.Set[string]) error {
	list, err := r.apiServices.List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		klog.ErrorS(err, "New versions of the group can't be registered; bind a ClusterRole to the user of this server that allows get, list, create, patch and delete on apiservices", "group", group)
		return nil
	}
	if err != nil {
		return err
	}
	own, others := map[string]apiregistrationv1.APIServiceSpec{}, sets.New[string]()
	for _, apiService := range list.Items {
		switch spec := apiService.Spec; {
		case spec.Group != group || spec.Service == nil:
		case apiService.Labels[cluster.RegisteredLabel] != "" && r.leadsHere(spec.Service):
			own[spec.Version] = spec
		default:
			others.Insert(spec.Version)
		}
	}
	if len(own) == 0 {
		return nil
	}
	known := sets.KeySet(own)
	sibling := own[sets.List(known)[0]]
	target := Target{Service: *sibling.Service, CABundle: sibling.CABundle}
	for _, version := range sets.List(served.Difference(known.Union(others))) {
		klog.InfoS("Registering a new version", "group", group, "version", version)
		if err := cluster.Lead(ctx, r.apiServices, version+"."+group, target.Service, target.CABundle); err != nil {
			return err
		}
	}
	for _, version := range sets.List(known.Difference(served)) {
		klog.InfoS("Deleting the registration of a version that no CustomResourceDefinition serves any more", "group", group, "version", version)
		if err := r.apiServices.Delete(ctx, version+"."+group, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// giveBack makes kube-apiserver serve an APIService itself.
func (r *registrar) giveBack(ctx context.Context, name string) error {
	apiService, err := r.apiServices.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err): // kube-apiserver makes it.
		return nil
	case err != nil || cluster.OwnedByKube(apiService):
		return err
	}
	return cluster.GiveBack(ctx, r.apiServices, name)
}
