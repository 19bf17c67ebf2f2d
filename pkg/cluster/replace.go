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
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
)

const (
	// replaceTimeout bounds the wait for kube-apiserver to apply a policy.
	replaceTimeout = 20 * time.Second
	// These are the priorities of kube-apiserver's APIServices for CustomResourceDefinitions.
	groupPriority, versionPriority = 1000, 100
)

// OwnPolicyName returns the name of the objects of OwnPolicy.
func OwnPolicyName(group string) string { return CopiesPolicyName(group) + ".own" }

// OwnPolicy returns a policy, and its binding, with which kube-apiserver does not register the versions of a group as
// its own.
func OwnPolicy(group string) []runtime.Object {
	policy, binding := WritePolicy(OwnPolicyName(group), apiregistrationv1.GroupName, []string{"*"},
		fmt.Sprintf("request.operation != 'CREATE' || has(object.spec.service) || !has(object.spec.group) || object.spec.group != %q", group),
		fmt.Sprintf("the versions of %s are being registered for another server", group))
	return []runtime.Object{policy, binding}
}

// ReplaceAPIServices deletes the APIServices of groups that are kube-apiserver's own, and calls a function once all
// kube-apiservers should have forgotten them. Until the function creates others, kube-apiserver answers as before, from
// the definitions. It asks a server for OpenAPI only if the APIService is new to it, not if its own comes to lead there
// (AddAPIService in k8s.io/kube-aggregator/pkg/apiserver).
func ReplaceAPIServices(ctx context.Context, client dynamic.Interface, apiServices aggregator.APIServiceInterface, create func(context.Context) error, groups ...string) (err error) {
	list, err := apiServices.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	own := slices.DeleteFunc(list.Items, func(apiService apiregistrationv1.APIService) bool {
		return !slices.Contains(groups, apiService.Spec.Group) || !OwnedByKube(&apiService)
	})
	if len(own) == 0 {
		return create(ctx)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replaceTimeout)
		defer cancel()
		for _, group := range groups {
			_, deleteErr := DeletePolicies(ctx, client, nil, OwnPolicyName(group))
			err = errors.Join(err, deleteErr)
		}
	}()
	for _, group := range groups {
		if err := Apply(ctx, client, nil, OwnPolicy(group)...); err != nil {
			return err
		}
	}
	for i := range own {
		if err := awaitRefusal(ctx, apiServices, &own[i]); err != nil {
			return err
		}
	}
	if err := Settle(ctx); err != nil {
		return err
	}
	for _, apiService := range own {
		if err := GiveBack(ctx, apiServices, apiService.Name); err != nil {
			return fmt.Errorf("deleting the APIService %s: %w", apiService.Name, err)
		}
	}
	if err := Settle(ctx); err != nil {
		return err
	}
	return create(ctx)
}

// awaitRefusal returns once kube-apiserver refuses to create an APIService that is its own.
func awaitRefusal(ctx context.Context, apiServices aggregator.APIServiceInterface, own *apiregistrationv1.APIService) error {
	ctx, cancel := context.WithTimeout(ctx, replaceTimeout)
	defer cancel()
	again := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: own.Name}, Spec: own.Spec}
	return Eventually(ctx, unregisterPollInterval, func(ctx context.Context) error {
		_, err := apiServices.Create(ctx, again, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), OwnPolicyName(own.Spec.Group)) {
			return nil
		}
		return fmt.Errorf("kube-apiserver does not apply the policy %s to the APIService %s: %w", OwnPolicyName(own.Spec.Group), own.Name, err)
	})
}

// Lead makes an APIService lead to a Service, and creates it if it does not exist.
func Lead(ctx context.Context, apiServices aggregator.APIServiceInterface, name string, service apiregistrationv1.ServiceReference, caBundle []byte) error {
	version, group, _ := strings.Cut(name, ".")
	_, err := apiServices.Create(ctx, &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{RegisteredLabel: "true"}},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: group, Version: version, GroupPriorityMinimum: groupPriority, VersionPriority: versionPriority,
			Service: &service, CABundle: caBundle,
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = apiServices.Patch(ctx, name, types.MergePatchType, LedTo(service, caBundle), metav1.PatchOptions{})
	}
	return err
}
