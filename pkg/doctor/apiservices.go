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

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

// checkRegistered looks for the APIServices of all versions, and whether they lead to a
// server and will keep doing so.
func (e *examination) checkRegistered(ctx context.Context) []Result {
	var missing, local, managed []string
	for _, group := range e.Groups {
		names, err := group.APIServices()
		if err != nil {
			return []Result{unreadable("the declaration of "+group.Name, err)}
		}
		for _, name := range names {
			apiService, err := e.aggregator.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				missing = append(missing, name)
			case err != nil:
				return []Result{unreadable("the APIService "+name, err)}
			case apiService.Spec.Service == nil:
				local = append(local, name)
			default:
				e.apiServices = append(e.apiServices, apiService)
				if apiService.Labels[cluster.ManagedLabel] != "" {
					managed = append(managed, name)
				}
			}
		}
	}
	if len(local)+len(e.apiServices) == 0 {
		return []Result{warning("no version is registered, so that kube-apiserver knows nothing of this server", "install it by its manifests, which have the APIServices")}
	}
	var results []Result
	if len(local) > 0 {
		results = append(results, failure("kube-apiserver serves "+strings.Join(local, ", ")+" itself, from CustomResourceDefinitions",
			"move the objects by \"migrate plan\" and \"migrate run\"; until then, keep the CustomResourceDefinitions, since deleting them deletes their objects and whatever those own, "+
				"and do not apply the APIServices, since kube-apiserver resets them"))
	}
	if len(managed) > 0 {
		results = append(results, failure("kube-apiserver is about to reset "+strings.Join(managed, ", ")+", or delete it, because of the label "+cluster.ManagedLabel+" of a CustomResourceDefinition",
			"move the objects by \"migrate plan\" and \"migrate run\", which remove the label with the same patch that sets spec.service"))
	}
	if len(missing) > 0 {
		results = append(results, warning(strings.Join(missing, ", ")+" is not registered, so that its clients find nothing", "apply the APIServices of this release, unless it is left out on purpose"))
	}
	if len(results) == 0 {
		results = append(results, ok("%s are registered", plural(len(e.apiServices), "version")))
	}
	return results
}

// checkAvailability looks at what kube-apiserver itself says of the server. What has
// a cause that another check finds is not repeated here.
func (e *examination) checkAvailability(context.Context) []Result {
	if len(e.apiServices) == 0 {
		return []Result{skipped("no version is registered")}
	}
	var conditions []apiregistrationv1.APIServiceCondition
	names := map[string][]string{}
	for _, apiService := range e.apiServices {
		condition := availability(apiService)
		if condition.Status == apiregistrationv1.ConditionTrue {
			continue
		}
		if names[condition.Reason] == nil {
			conditions = append(conditions, condition)
		}
		names[condition.Reason] = append(names[condition.Reason], apiService.Name)
	}
	var results []Result
	for _, condition := range conditions {
		results = append(results, failure(fmt.Sprintf("kube-apiserver gets no answer from the server of %s (%s: %s)", strings.Join(names[condition.Reason], ", "), condition.Reason, condition.Message),
			"see the log of the server, and what is between the two: network policies, firewalls, an egress proxy"))
	}
	if len(results) == 0 {
		results = append(results, ok("kube-apiserver gets answers from the server"))
	}
	return results
}

func availability(apiService *apiregistrationv1.APIService) apiregistrationv1.APIServiceCondition {
	i := slices.IndexFunc(apiService.Status.Conditions, func(condition apiregistrationv1.APIServiceCondition) bool {
		return condition.Type == apiregistrationv1.Available
	})
	if i < 0 {
		return apiregistrationv1.APIServiceCondition{Reason: "Unknown", Message: "kube-apiserver has not looked at it yet"}
	}
	return apiService.Status.Conditions[i]
}

// checkLeftovers looks for APIServices that no server answers, of any group. While
// there is one, no namespace can be deleted, since nobody knows what is in it.
func (e *examination) checkLeftovers(ctx context.Context) []Result {
	list, err := e.aggregator.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return []Result{unreadable("the APIServices", err)}
	}
	var results []Result
	for _, apiService := range list.Items {
		condition := availability(&apiService)
		known := slices.ContainsFunc(e.apiServices, func(known *apiregistrationv1.APIService) bool { return known.Name == apiService.Name })
		if known || apiService.Spec.Service == nil || condition.Status == apiregistrationv1.ConditionTrue {
			continue
		}
		status, of := Warning, "another server"
		if e.owns(apiService.Spec.Group) {
			status, of = Failure, "a release that is not this one"
		}
		results = append(results, result(status, fmt.Sprintf("no server answers for %s, a version of %s, so that no namespace can be deleted (%s: %s)", apiService.Name, of, condition.Reason, cmp.Or(condition.Message, "no message")),
			"if it is not coming back: kubectl delete apiservice "+apiService.Name))
	}
	if len(results) == 0 {
		results = append(results, ok("all APIServices of others have a server"))
	}
	return results
}

func (e *examination) owns(group string) bool {
	for _, own := range e.Groups {
		if own.Name == group {
			return true
		}
	}
	return false
}
