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
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	library "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

func definitionResource() schema.GroupResource {
	return apiextensions.Resource("customresourcedefinitions")
}

// Options are the options of an operator. The zero value serves nothing.
type Options struct {
	// Groups are the names of the API groups to serve. All CustomResourceDefinitions of a
	// group are served, or none.
	Groups []string
	// PurgeDeleted makes the deletion of a CustomResourceDefinition delete its objects, as
	// it does in kube-apiserver. Otherwise they stay, and are served by the last definition.
	PurgeDeleted bool
}

// Base returns the API server that serves the groups, with the flags of the options.
func (o *Options) Base() *apiserver.Base {
	return &apiserver.Base{
		Scheme:      library.Scheme,
		OpenAPI:     openapi.GetOpenAPIDefinitions,
		AddFlags:    o.AddFlags,
		Validate:    o.Validate,
		Groups:      func() []string { return o.Groups },
		Reads:       []schema.GroupResource{definitionResource()},
		ReadsFix:    "bind a ClusterRole to its user that allows get, list and watch, since they define what it serves",
		Permissions: registerPermissions(),
		New:         o.newServer,
		Stores:      o.stores,
	}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(sections *cliflag.NamedFlagSets) {
	flags := sections.FlagSet("custom resources")
	flags.StringSliceVar(&o.Groups, "groups", o.Groups, ""+
		"API groups to serve, such as argoproj.io. The cluster's CustomResourceDefinitions define their kinds.")
	flags.BoolVar(&o.PurgeDeleted, "purge-deleted", o.PurgeDeleted, ""+
		"Delete the objects of a CustomResourceDefinition that is deleted, as kube-apiserver does. Otherwise they stay, and are served by the last definition until all of them have been deleted.")
}

// Validate returns all errors of the options, each with its flag.
func (o *Options) Validate() []error {
	if len(o.Groups) == 0 {
		return []error{errors.New("--groups is not set: name the API groups to serve, such as argoproj.io")}
	}
	var errs []error
	for _, group := range o.Groups {
		for _, problem := range utilvalidation.IsDNS1123Subdomain(group) {
			errs = append(errs, fmt.Errorf("--groups: %q can't be an API group: %s", group, problem))
		}
		if !strings.Contains(group, ".") || slices.Contains([]string{apiextensions.GroupName, apiregistrationv1.GroupName}, group) {
			errs = append(errs, fmt.Errorf("--groups: %q is a group of Kubernetes itself, not of CustomResourceDefinitions", group))
		}
	}
	return errs
}

// registerPermissions returns the permissions to register new versions of a definition, and to
// announce their kinds.
func registerPermissions() (permissions []cluster.Permission) {
	for _, verb := range []string{"get", "list", "create", "patch", "delete"} {
		permissions = append(permissions, cluster.Permission{
			Verb: verb, Resource: schema.GroupResource{Group: apiregistrationv1.GroupName, Resource: "apiservices"}, Optional: true,
			Fix: "bind a ClusterRole to its user that allows that, or register new versions of the groups with the command \"register\"",
		})
	}
	return permissions
}
