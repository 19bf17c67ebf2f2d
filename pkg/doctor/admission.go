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
	"net"
	"net/url"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/server/egressselector"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

// checkAdmission warns of admission plugins that a server with these flags does not run.
func (e *examination) checkAdmission(context.Context) []Finding {
	if len(e.AdmissionOff) > 0 {
		return []Finding{warning(fmt.Sprintf("the admission plugins %s are off, so that this server admits what they would refuse or change", strings.Join(e.AdmissionOff, ", ")),
			"remove them from --disable-admission-plugins, unless that is meant, and give all replicas the same flags")}
	}
	return []Finding{ok("all admission plugins of this server are on; those of kube-apiserver, such as OwnerReferencesPermissionEnforcement, do not apply to its groups")}
}

// checkWebhooks connects to the webhooks for the groups' objects. If only the server itself may do
// that, it looks for pods behind their Services. It also looks for webhooks that the server itself
// depends on.
func (e *examination) checkWebhooks(ctx context.Context) []Finding {
	webhooks, err := admission.ListWebhooks(ctx, e.kube)
	if err != nil {
		return unread("the webhook configurations", err)
	}
	var results []Finding
	count := 0
	for _, webhook := range webhooks {
		concerns := e.concerns(webhook.Rules)
		needs := !concerns && !ignored(webhook.FailurePolicy) && e.needs(ctx, webhook)
		if !concerns && !needs {
			continue
		}
		count++
		kind, configuration, _ := strings.Cut(webhook.Configuration, " ")
		subject, name := "what it is asked about", "the webhook "+webhook.Name+" of the "+webhook.Configuration
		show := kubectl("get", strings.ToLower(kind), configuration, "--output=yaml")
		if needs {
			subject = "what the server needs itself, such as its pods,"
		}
		if err := e.call(ctx, webhook.Client, !e.foreign && !needs); err != nil {
			results = append(results, consequence(err, webhook.FailurePolicy, name, "its address", "does not answer, and "+subject, show))
			continue
		}
		if service := webhook.Client.Service; needs && service != nil && slices.Contains(e.backends(), newBackend(service.Namespace, service.Name, service.Port)) {
			results = append(results, warning(name+" is this server itself, and asked about what the server needs, so that it can't start again once it is down", "except its namespace by the namespaceSelector").by(show))
		}
	}
	return orOK(results, "all webhooks that are asked about the groups answer (%d)", count)
}

// consequence returns the finding for a webhook or a policy that has an error, and says what that
// means for the requests that it is for. Without a command of its own, it shows the object.
func consequence(err error, policy *admissionregistrationv1.FailurePolicyType, name, what, fault, show string) Finding {
	status, end := Failure, " is refused: "
	if ignored(policy) {
		status, end = Warning, " passes without it: "
	}
	found := explain(what, status, err)
	if found.Status == Skipped {
		found.Cause = name + " is not looked at: " + found.Cause
		return found
	}
	found.Cause = name + " " + fault + end + found.Cause
	found.Command = cmp.Or(found.Command, show)
	return found
}

// allow returns a command that lets the server read a resource.
func (e *examination) allow(resource string) string {
	resource = strings.TrimSuffix(resource, ".") // The core group has no name.
	role := fmt.Sprintf("%s:%s:%s", e.namespace(), e.ServiceAccount, resource)
	return kubectl("create", "clusterrole", role, "--verb=get,list,watch", "--resource="+resource) + " && " +
		kubectl("create", "clusterrolebinding", role, "--clusterrole="+role, "--serviceaccount="+e.namespace()+":"+e.ServiceAccount)
}

// needs reports whether a webhook is asked about the server's pods.
func (e *examination) needs(ctx context.Context, webhook admission.Webhook) bool {
	if len(e.apiServices) == 0 || !slices.ContainsFunc(webhook.Rules, isNeeded) {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(webhook.NamespaceSelector)
	if err != nil || webhook.NamespaceSelector == nil {
		return webhook.NamespaceSelector == nil
	}
	namespace, err := e.kube.CoreV1().Namespaces().Get(ctx, e.namespace(), metav1.GetOptions{})
	return err == nil && selector.Matches(labels.Set(namespace.Labels))
}

// isNeeded reports whether a rule is about the creation of pods. No webhook is asked about reviews.
func isNeeded(rule admissionregistrationv1.RuleWithOperations) bool {
	creates := slices.Contains(rule.Operations, admissionregistrationv1.Create) || slices.Contains(rule.Operations, admissionregistrationv1.OperationAll)
	return creates && slices.ContainsFunc([]schema.GroupResource{{Resource: "pods"}, {Group: "apps", Resource: "replicasets"}}, func(needed schema.GroupResource) bool {
		return has(rule.APIGroups, needed.Group) && (has(rule.Resources, needed.Resource) || slices.Contains(rule.Resources, "*/*"))
	})
}

func ignored(policy *admissionregistrationv1.FailurePolicyType) bool {
	return policy != nil && *policy == admissionregistrationv1.Ignore
}

// call connects to a webhook without sending a request. Without connects, it only looks for
// addresses behind its Service.
func (e *examination) call(ctx context.Context, client admissionregistrationv1.WebhookClientConfig, connects bool) error {
	if client.Service == nil && !connects {
		return nil
	}
	if client.Service == nil {
		address, err := url.Parse(*client.URL)
		if err != nil {
			return &problem{fmt.Sprintf("its URL is none (%v)", err), "correct it", ""}
		}
		return e.connect(ctx, egressselector.ControlPlane, net.JoinHostPort(address.Hostname(), cmp.Or(address.Port(), "443")), address.Hostname(), client.CABundle)
	}
	backend := newBackend(client.Service.Namespace, client.Service.Name, client.Service.Port)
	addresses, err := e.resolve(ctx, backend)
	if err != nil || !connects {
		return err
	}
	// One of the addresses is enough, since all are behind the same Service.
	return e.connect(ctx, egressselector.Cluster, addresses[0], backend.host(), client.CABundle)
}

// connect opens a connection as the server does, and closes it.
func (e *examination) connect(ctx context.Context, network egressselector.EgressType, address, host string, bundle []byte) error {
	dial, err := e.Egress(network.AsNetworkContext())
	if err != nil {
		return err
	}
	_, err = connect(ctx, dial, address, host, bundle, "its caBundle")
	return err
}

// concerns reports whether rules are about resources of the groups.
func (e *examination) concerns(rules []admissionregistrationv1.RuleWithOperations) bool {
	for group, resources := range e.resources {
		if admission.Concern(rules, group, func(resource string) bool { return slices.Contains(resources, resource) }) {
			return true
		}
	}
	return false
}

// checkPolicies checks that the server can read the parameters of the policies for the groups'
// objects.
func (e *examination) checkPolicies(ctx context.Context) []Finding {
	policies, err := admission.ListPolicies(ctx, e.kube)
	if err != nil {
		return unread("the admission policies", err)
	}
	evaluates := true
	if e.foreign && e.ServiceAccount != "" {
		evaluates, err = e.allowed(ctx, cluster.Permission{Verb: "list", Resource: schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: "validatingadmissionpolicies"}})
		if err != nil {
			return unread("what "+e.user()+" may do", err)
		}
	}
	var results []Finding
	count := 0
	for _, policy := range policies {
		if !policy.Bound {
			continue
		}
		show := kubectl("get", strings.ToLower(policy.Kind), policy.Name, "--output=yaml")
		if dependsOn(policy, sets.KeySet(e.resources)) {
			results = append(results, warning(fmt.Sprintf("the parameters of the %s %s are of %s, which a server behind kube-apiserver has, and it is for other groups, too: after a restart of kube-apiserver, all of that is refused until the server answers",
				policy.Kind, policy.Name, policy.Parameters.APIVersion),
				"use parameters that kube-apiserver has itself, such as ConfigMaps, or the failurePolicy Ignore").by(show))
		}
		if !e.concerns(policy.Rules) {
			continue
		}
		count++
		if policy.Parameters == nil || e.ServiceAccount == "" || !evaluates {
			continue
		}
		if err := e.readsParameters(ctx, *policy.Parameters); err != nil {
			results = append(results, consequence(err, policy.FailurePolicy, "the "+policy.Kind+" "+policy.Name, "what it needs", "can't be evaluated, and what it is for", show))
		}
	}
	return orOK(results, "the parameters of all admission policies for the groups can be read (%d)", count)
}

// dependsOn reports whether a policy refuses objects of other groups while its parameters can't be
// read. The parameters have to be in one of the groups.
func dependsOn(policy admission.Policy, groups sets.Set[string]) bool {
	if policy.Parameters == nil || ignored(policy.FailurePolicy) {
		return false
	}
	version, err := schema.ParseGroupVersion(policy.Parameters.APIVersion)
	return err == nil && groups.Has(version.Group) && slices.ContainsFunc(policy.Rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return slices.ContainsFunc(rule.APIGroups, func(group string) bool { return group != version.Group })
	})
}

// readsParameters returns a problem if the server can't read the parameters of a
// policy.
func (e *examination) readsParameters(ctx context.Context, kind admissionregistrationv1.ParamKind) error {
	version, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return &problem{fmt.Sprintf("the apiVersion of its parameters is none (%v)", err), "correct its paramKind", ""}
	}
	resources, err := e.kube.Discovery().ServerResourcesForGroupVersion(kind.APIVersion)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err != nil {
		resources = &metav1.APIResourceList{}
	}
	i := slices.IndexFunc(resources.APIResources, func(resource metav1.APIResource) bool {
		return resource.Kind == kind.Kind && segment.MatchString(resource.Name)
	})
	if i < 0 {
		return &problem{fmt.Sprintf("its parameters are of the kind %s of %s, which the cluster does not have", kind.Kind, kind.APIVersion), "correct its paramKind, or install what has that kind", ""}
	}
	for _, verb := range []string{"list", "watch"} {
		permission := cluster.Permission{Verb: verb, Resource: schema.GroupResource{Group: version.Group, Resource: resources.APIResources[i].Name}}
		allowed, err := e.allowed(ctx, permission)
		if err != nil {
			return err
		}
		if !allowed {
			return &problem{fmt.Sprintf("%s may not %s, which are its parameters", e.user(), permission), "bind a ClusterRole to that user that allows get, list and watch",
				e.allow(resources.APIResources[i].Name + "." + version.Group)}
		}
	}
	return nil
}
