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

package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
)

const unregisterPollInterval = 100 * time.Millisecond

// GiveBack deletes an APIService that leads to a server. kube-apiserver creates it again, as its own, if a
// CustomResourceDefinition has the version, and answers requests for such a version meanwhile.
//
// Upstream fault 88: if the APIService is changed instead, kube-apiserver goes on asking the server for the
// discovery of the version. Once that server is gone, no namespace can be deleted.
func GiveBack(ctx context.Context, client aggregator.APIServiceInterface, name string, dryRun ...string) error {
	if err := client.Delete(ctx, name, metav1.DeleteOptions{DryRun: dryRun}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// Unregister gives the APIServices that lead to a Service back to kube-apiserver. It returns their names
// once none leads to the Service, or the context's error and the name of one that does.
// The user of config has to be allowed get, list and delete on apiservices, get, list and update on customresourcedefinitions,
// and delete on mutatingadmissionpolicies, validatingadmissionpolicies and the bindings of both.
func Unregister(ctx context.Context, config *rest.Config, service types.NamespacedName) (names []string, err error) {
	client, err := aggregator.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	kube, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	list, err := client.APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	names, groups := registeredAt(list.Items, service)
	if err := errors.Join(AllowCopies(ctx, kube, nil, groups...), ServeDefinitions(ctx, kube, groups...)); err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := GiveBack(ctx, client.APIServices(), name); err != nil {
			return nil, fmt.Errorf("APIService %s: %w", name, err)
		}
	}
	for _, name := range names {
		err := Eventually(ctx, unregisterPollInterval, func(ctx context.Context) error {
			apiService, err := client.APIServices().Get(ctx, name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				return nil
			case err == nil && leadsTo(apiService, service):
				return errors.New("it leads to the Service again")
			default:
				return err
			}
		})
		if err != nil {
			return nil, fmt.Errorf("APIService %s: %w", name, err)
		}
	}
	return names, nil
}

// registeredAt returns the APIServices that lead to a Service, and the groups that no other server has any version of.
func registeredAt(apiServices []apiregistrationv1.APIService, service types.NamespacedName) (names, groups []string) {
	here, elsewhere := sets.New[string](), sets.New[string]()
	for i := range apiServices {
		switch apiService := &apiServices[i]; {
		case leadsTo(apiService, service):
			names = append(names, apiService.Name)
			here.Insert(apiService.Spec.Group)
		case apiService.Spec.Service != nil:
			elsewhere.Insert(apiService.Spec.Group)
		}
	}
	return names, sets.List(here.Difference(elsewhere))
}

func leadsTo(apiService *apiregistrationv1.APIService, service types.NamespacedName) bool {
	reference := apiService.Spec.Service
	return reference != nil && reference.Namespace == service.Namespace && reference.Name == service.Name
}
