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

package requirements

import (
	"fmt"
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/authentication"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

const (
	delegatorFix = "bind the ClusterRole system:auth-delegator to its user with a ClusterRoleBinding"
	readerFix    = "bind the Role extension-apiserver-authentication-reader in kube-system to its user with a RoleBinding"
	priorityFix  = "bind a ClusterRole to its user that allows that, or use --enable-priority-and-fairness=false"
	admissionFix = "bind a ClusterRole to its user that allows get, list and watch, or disable the admission plugins that read it with --disable-admission-plugins"
)

// Permissions returns all permissions that the server needs in a cluster, if it runs in this
// namespace.
func (s *Server) Permissions(namespace string) []cluster.Permission {
	reads := admission.Reads(s.Plugins, s.Admission)
	permissions := slices.Concat(
		[]cluster.Permission{tokenReviewPermission(), accessReviewPermission()},
		permissionsFor(readerFix, cluster.Permission{Resource: schema.GroupResource{Resource: "configmaps"}, Namespace: metav1.NamespaceSystem, Name: authentication.ConfigMap}, "get", "list", "watch"),
		readPermissions(reads, admissionFix, "list", "watch"),
	)
	if namespaces := (schema.GroupResource{Resource: "namespaces"}); slices.Contains(reads, namespaces) {
		permissions = append(permissions, permissionsFor(admissionFix, cluster.Permission{Resource: namespaces}, "get")...)
	}
	if quotas := (schema.GroupResource{Resource: "resourcequotas"}); slices.Contains(reads, quotas) {
		permissions = append(permissions, permissionsFor("bind a ClusterRole to its user that allows that, or disable the admission plugin ResourceQuota with --disable-admission-plugins",
			cluster.Permission{Resource: quotas, Subresource: "status"}, "update")...)
	}
	permissions = slices.Concat(permissions, readPermissions(s.Reads, s.ReadsFix, "list", "watch"), s.Others)
	if s.Prioritizes {
		permissions = append(permissions, priorityPermissions()...)
		permissions = append(permissions, permissionsFor(priorityFix, priorityPermission("flowschemas", "status"), "patch")...)
	}
	if s.RunsControllers {
		permissions = append(permissions, permissionsFor("bind a ClusterRole to its user that allows that, since its controllers tell users what they do by events",
			cluster.Permission{Resource: schema.GroupResource{Group: "events.k8s.io", Resource: "events"}}, "create")...)
	}
	if s.RunsControllers && s.LeaderElection.LeaderElect {
		permissions = append(permissions, ownedObjectPermissions(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, namespace, s.LeaderElection.ResourceName,
			"since its controllers run where they are elected")...)
	}
	if s.ServingCert.Secret != "" {
		// An operator may create both empty, so that the server need not create them.
		for _, resource := range []string{"configmaps", "secrets"} {
			permissions = append(permissions, permissionsFor(fmt.Sprintf("bind a Role in %s to its user that allows that, since it keeps its certificate authority there, by --serving-ca-secret", namespace),
				cluster.Permission{Resource: schema.GroupResource{Resource: resource}, Namespace: namespace, Name: s.ServingCert.Secret}, "get", "update")...)
		}
		for _, name := range s.ServingCert.APIServices {
			permissions = append(permissions, permissionsFor("bind a ClusterRole to its user that allows that, since they must trust the certificate authority of --serving-ca-secret",
				cluster.Permission{Resource: schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}, Name: name}, "get", "update")...)
		}
	}
	return permissions
}

func tokenReviewPermission() cluster.Permission {
	return cluster.Permission{Verb: "create", Resource: schema.GroupResource{Group: "authentication.k8s.io", Resource: "tokenreviews"}, Fix: delegatorFix}
}

func accessReviewPermission() cluster.Permission {
	return cluster.Permission{Verb: "create", Resource: schema.GroupResource{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}, Fix: delegatorFix}
}

// priorityPermissions returns the permissions to read the cluster's priorities.
func priorityPermissions() []cluster.Permission {
	var permissions []cluster.Permission
	for _, resource := range []string{"flowschemas", "prioritylevelconfigurations"} {
		permissions = append(permissions, permissionsFor(priorityFix, priorityPermission(resource, ""), "list", "watch")...)
	}
	return permissions
}

func priorityPermission(resource, subresource string) cluster.Permission {
	return cluster.Permission{Resource: schema.GroupResource{Group: flowcontrolv1.GroupName, Resource: resource}, Subresource: subresource, Optional: true}
}

// readPermissions returns a permission for each resource and verb.
func readPermissions(resources []schema.GroupResource, fix string, verbs ...string) []cluster.Permission {
	var permissions []cluster.Permission
	for _, resource := range resources {
		permissions = append(permissions, permissionsFor(fix, cluster.Permission{Resource: resource}, verbs...)...)
	}
	return permissions
}

// ownedObjectPermissions returns permissions to create an object and to read and write it.
func ownedObjectPermissions(resource schema.GroupResource, namespace, name, reason string) []cluster.Permission {
	fix := fmt.Sprintf("bind a Role in %s to its user that allows that, %s", namespace, reason)
	return append(
		permissionsFor(fix, cluster.Permission{Resource: resource, Namespace: namespace}, "create"),
		permissionsFor(fix, cluster.Permission{Resource: resource, Namespace: namespace, Name: name}, "get", "update")...)
}

// permissionsFor returns one permission for each verb.
func permissionsFor(fix string, on cluster.Permission, verbs ...string) []cluster.Permission {
	on.Fix = fix
	var permissions []cluster.Permission
	for _, verb := range verbs {
		on.Verb = verb
		permissions = append(permissions, on)
	}
	return permissions
}
