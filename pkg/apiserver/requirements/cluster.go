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

// Package requirements waits for everything that a cluster has to grant a server before it starts.
// These are permissions, the client CAs, and a serving certificate. It also makes the configurations
// of the clients of kube-apiserver.
package requirements

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	certutil "k8s.io/client-go/util/cert"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/authentication"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

// extendedCluster is the Kubernetes cluster that this server extends. The server needs its
// authentication and its authorization before it can start.
type extendedCluster struct {
	*Server
	clients

	// Known once the cluster is ready:

	// unprioritized is why requests can't be limited by priority and fairness.
	unprioritized error
	// clientCAs are the certificate authorities of users and of front proxies.
	clientCAs []*x509.Certificate
}

// CheckAuthentication returns an error if this server could not tell a front proxy from an
// ordinary client.
func (s *Server) CheckAuthentication(ctx context.Context) error {
	cluster, err := s.newCluster()
	if err != nil {
		return err
	}
	return cluster.checkAuthentication(ctx)
}

func (s *Server) newCluster() (*extendedCluster, error) {
	clients, err := s.newClients()
	return &extendedCluster{Server: s, clients: clients}, err
}

func (c *extendedCluster) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := c.checkAuthentication(ctx); err != nil {
		return err
	}
	if err := c.authentication.checkMay(ctx, tokenReviewPermission()); err != nil {
		return err
	}
	if err := c.authorization.checkMay(ctx, accessReviewPermission()); err != nil {
		return err
	}
	reads := append(readPermissions(admission.Reads(c.Plugins, c.Admission), admissionFix, "list"), readPermissions(c.Reads, c.ReadsFix, "list")...)
	if err := c.core.checkMay(ctx, reads...); err != nil {
		return err
	}
	// This comes last: a role that also grants the permissions above exists by now.
	if c.Prioritizes {
		c.unprioritized = c.core.checkMay(ctx, priorityPermissions()...)
	}
	if errors.Is(c.unprioritized, errNotAllowed) {
		return nil
	}
	return c.unprioritized
}

// errNotAllowed means that kube-apiserver has answered, and denies it.
var errNotAllowed = errors.New("this server may not")

func (c *client) checkMay(ctx context.Context, permissions ...cluster.Permission) error {
	for _, permission := range permissions {
		answer, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: permission.Attributes()},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("kube-apiserver at %s does not say whether this server may %s: %w", c.config.Host, permission, err)
		}
		if !answer.Status.Allowed {
			return fmt.Errorf("%w %s: %s", errNotAllowed, permission, permission.Fix)
		}
	}
	return nil
}

// checkAuthentication finds out whether a front proxy can be told from an ordinary client.
// It looks where the generic options will look, since they accept any answer and never
// fail.
// Upstream fault 30.
func (c *extendedCluster) checkAuthentication(ctx context.Context) error {
	options, client := c.Authentication, c.authentication
	published := &corev1.ConfigMap{}
	if !options.SkipInClusterLookup && (options.ClientCert.ClientCA == "" || options.RequestHeader.ClientCAFile == "") {
		var err error
		published, err = client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, authentication.ConfigMap, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("kube-apiserver at %s has not published the ConfigMap %s in kube-system yet", client.config.Host, authentication.ConfigMap)
		case apierrors.IsForbidden(err):
			return fmt.Errorf("this server may not read the ConfigMap %s: bind the Role extension-apiserver-authentication-reader in kube-system to its user with a RoleBinding (%w)", authentication.ConfigMap, err)
		case apierrors.IsUnauthorized(err):
			return fmt.Errorf("kube-apiserver at %s does not accept the credentials of this server: check the file of --kubeconfig, or the token of the service account (%w)", client.config.Host, err)
		case err != nil:
			return fmt.Errorf("kube-apiserver at %s can't be reached: check that it runs, and the address in the file of --kubeconfig (%w)", client.config.Host, err)
		}
	}

	requestHeader, err := trustedCAs("requestheader-client-ca-file", options.RequestHeader.ClientCAFile, published)
	if err != nil {
		return err
	}
	if len(requestHeader) == 0 {
		return fmt.Errorf("there is no request-header CA, so no front proxy can assert an identity: start kube-apiserver with --requestheader-client-ca-file, which it publishes in the ConfigMap %s, or this server with a flag of the same name", authentication.ConfigMap)
	}
	users, err := trustedCAs("client-ca-file", options.ClientCert.ClientCA, published)
	if err != nil {
		return err
	}
	names := options.RequestHeader.AllowedNames
	if options.RequestHeader.ClientCAFile == "" {
		if err := json.Unmarshal([]byte(cmp.Or(published.Data["requestheader-allowed-names"], "[]")), &names); err != nil {
			return fmt.Errorf("requestheader-allowed-names in the ConfigMap %s is not a JSON list: %w", authentication.ConfigMap, err)
		}
	}
	if subject, ok := authentication.Overlap(requestHeader, users); ok && len(names) == 0 {
		return fmt.Errorf("%w: %w", cluster.ErrRefused, authentication.OverlapError(subject))
	}
	c.clientCAs = slices.Concat(requestHeader, users)
	return nil
}

// trustedCAs reads a bundle from the file of a flag, or without one from the published key
// of that flag's name.
func trustedCAs(flag, file string, published *corev1.ConfigMap) ([]*x509.Certificate, error) {
	if file != "" {
		certificates, err := certutil.CertsFromFile(file)
		if err != nil {
			return nil, fmt.Errorf("%w: --%s can't be used: %w", cluster.ErrRefused, flag, err)
		}
		return certificates, nil
	}
	bundle := []byte(published.Data[flag])
	if len(bundle) == 0 {
		return nil, nil
	}
	certificates, err := certutil.ParseCertsPEM(bundle)
	if err != nil {
		return nil, fmt.Errorf("%s in the ConfigMap %s holds no certificates; see the file of this flag of kube-apiserver: %w", flag, authentication.ConfigMap, err)
	}
	return certificates, nil
}

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
