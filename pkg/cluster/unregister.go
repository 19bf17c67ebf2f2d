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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
)

const unregisterPollInterval = 100 * time.Millisecond

// Unregister hands the APIServices that lead to a Service over to kube-apiserver. It puts back
// those of versions that a CustomResourceDefinition defines, and deletes the others. Unregister returns
// their names once none leads to the Service, or the context's error and the name of one that does.
// The user of config has to be allowed get, list and patch on apiservices.
func Unregister(ctx context.Context, config *rest.Config, service types.NamespacedName) (names []string, err error) {
	client, err := aggregator.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	list, err := client.APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, ManagedLabel)
	for i := range list.Items {
		if !leadsTo(&list.Items[i], service) {
			continue
		}
		name := list.Items[i].Name
		names = append(names, name)
		if _, err := client.APIServices().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("APIService %s: %w", name, err)
		}
	}
	for _, name := range names {
		var last error
		err := wait.PollUntilContextCancel(ctx, unregisterPollInterval, true, func(ctx context.Context) (bool, error) {
			apiService, err := client.APIServices().Get(ctx, name, metav1.GetOptions{})
			last = err
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			if err == nil && leadsTo(apiService, service) {
				last = errors.New("kube-apiserver has not taken it over yet")
			}
			return last == nil, nil
		})
		if err != nil {
			return nil, fmt.Errorf("APIService %s: %w", name, errors.Join(err, last))
		}
	}
	return names, nil
}

func leadsTo(apiService *apiregistrationv1.APIService, service types.NamespacedName) bool {
	reference := apiService.Spec.Service
	return reference != nil && reference.Namespace == service.Namespace && reference.Name == service.Name
}
