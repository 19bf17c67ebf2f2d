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
	"regexp"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

// registration says how the versions of the groups are registered.
type registration struct {
	// apiServices are the APIServices that lead to a server. kube-apiserver serves the versions in
	// local itself, and is about to reset those in managed.
	apiServices             []*apiregistrationv1.APIService
	missing, local, managed []string
	// undefined are the groups of Defined that have no version, and unmoved the versions of others that kube-apiserver
	// serves itself.
	undefined, unmoved []string
	// resources are the resources of the groups, by group.
	resources map[string][]string
	// unread is the finding for what keeps the rest from being read.
	unread []Finding
}

// findRegistration finds the registration, which many checks begin with.
func (e *examination) findRegistration(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	e.resources = map[string][]string{}
	for _, group := range e.Groups {
		names, err := group.APIServices()
		if err != nil {
			e.unread = unread("the declaration of "+group.Name, err)
			return
		}
		for _, resource := range group.Resources() {
			e.resources[group.Name] = append(e.resources[group.Name], resource.Resource)
		}
		for _, name := range names {
			apiService, err := e.aggregator.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				e.missing = append(e.missing, name)
			case err != nil:
				e.unread = unread("the APIService "+name, err)
				return
			default:
				e.add(apiService)
			}
		}
	}
	if len(e.Defined) > 0 {
		e.findDefined(ctx)
	}
}

// findDefined adds the groups that CustomResourceDefinitions define. As long as a version has no
// other APIService, kube-apiserver keeps one that says that it serves the version itself.
func (e *examination) findDefined(ctx context.Context) {
	apiServices, err := e.aggregator.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		e.unread = unread("the APIServices", err)
		return
	}
	for _, group := range e.Defined {
		e.resources[group] = nil
		if !slices.ContainsFunc(apiServices.Items, func(service apiregistrationv1.APIService) bool { return service.Spec.Group == group }) {
			e.undefined = append(e.undefined, group)
		}
	}
	for i := range apiServices.Items {
		apiService := &apiServices.Items[i]
		switch {
		case !slices.Contains(e.Defined, apiService.Spec.Group):
			continue
		case apiService.Spec.Service == nil:
			e.unmoved = append(e.unmoved, apiService.Name)
		default:
			e.add(apiService)
		}
		e.learnResources(apiService)
	}
}

// add adds an existing APIService.
func (r *registration) add(apiService *apiregistrationv1.APIService) {
	if apiService.Spec.Service == nil {
		r.local = append(r.local, apiService.Name)
		return
	}
	r.apiServices = append(r.apiServices, apiService)
	if apiService.Labels[cluster.ManagedLabel] != "" {
		r.managed = append(r.managed, apiService.Name)
	}
}

// checkRegistered checks that all versions are registered, lead to a server, and will keep doing
// so.
func (e *examination) checkRegistered(context.Context) []Finding {
	if e.unread != nil {
		return e.unread
	}
	var found []Finding
	if len(e.undefined) > 0 {
		found = append(found, warning("no CustomResourceDefinition defines a version of "+strings.Join(e.undefined, ", "),
			"apply the definitions, or remove the group from --groups"))
	}
	if len(e.unmoved) > 0 {
		found = append(found, warning("kube-apiserver serves "+strings.Join(e.unmoved, ", ")+" itself, from CustomResourceDefinitions",
			"move the objects by \"migrate plan\" and \"migrate run\"; until then, keep the CustomResourceDefinitions, since deleting them deletes their objects"))
	}
	if len(e.local)+len(e.apiServices)+len(e.undefined)+len(e.unmoved) == 0 {
		return []Finding{warning("no version is registered, so that kube-apiserver knows nothing of this server", "install it by its manifests, which have the APIServices")}
	}
	if len(e.local) > 0 {
		found = append(found, failure("kube-apiserver serves "+strings.Join(e.local, ", ")+" itself, from CustomResourceDefinitions",
			"move the objects by \"migrate plan\" and \"migrate run\"; until then, keep the CustomResourceDefinitions, since deleting them deletes their objects and whatever those own, "+
				"and do not apply the APIServices, since kube-apiserver resets them"))
	}
	if len(e.managed) > 0 {
		found = append(found, failure("kube-apiserver is about to reset "+strings.Join(e.managed, ", ")+", or delete it, because of the label "+cluster.ManagedLabel+" of a CustomResourceDefinition",
			"move the objects by \"migrate plan\" and \"migrate run\", which remove the label with the same patch that sets spec.service"))
	}
	if len(e.missing) > 0 {
		found = append(found, warning(strings.Join(e.missing, ", ")+" is not registered, so that its clients find nothing", "apply the APIServices of this release, unless it is left out on purpose"))
	}
	return orOK(found, "%s are registered", plural(len(e.apiServices), "version"))
}

// checkAvailability explains why kube-apiserver gets no answer from the server. It does not repeat
// causes that other checks find.
func (e *examination) checkAvailability(ctx context.Context) []Finding {
	var firsts []*apiregistrationv1.APIService
	alike := map[string][]*apiregistrationv1.APIService{}
	for _, apiService := range e.apiServices {
		condition := availability(apiService)
		if condition.Status == apiregistrationv1.ConditionTrue {
			continue
		}
		kind := condition.Reason + answerTo(condition.Message).fix
		if alike[kind] == nil {
			firsts = append(firsts, apiService)
		}
		alike[kind] = append(alike[kind], apiService)
	}
	var results []Finding
	for _, first := range firsts {
		condition := availability(first)
		affected := alike[condition.Reason+answerTo(condition.Message).fix]
		results = append(results, e.answered(ctx, backendOf(first), "kube-apiserver gets no answer from the server of "+listed(affected), condition.Reason+": "+condition.Message))
	}
	return orOK(results, "kube-apiserver gets answers from the server")
}

// answer is what to do about a message of kube-apiserver.
type answer struct {
	message *regexp.Regexp
	fix     string
	// command returns what helps.
	command func(*examination, context.Context, backend) string
}

// answers returns what to do about messages of kube-apiserver about a server without a good answer.
// The first that matches counts.
func answers() []answer {
	return []answer{
		{regexp.MustCompile(`bad status from .*: 401`), "restart the server, which has read the certificate authority of kube-apiserver's front proxy at its start, if at all", (*examination).restart},
		{regexp.MustCompile(`bad status from .*: 403`), "see the log of the server for why it refuses kube-apiserver, and give it what it needs to ask", (*examination).logs},
		{regexp.MustCompile(`bad status from .*: 404`), "the server behind the Service does not have this version: correct the selector and the port of the Service if it is another server, or install a release that has the version", (*examination).around},
		{regexp.MustCompile(`bad status from .*: 3\d\d`), "an API server never redirects: see what listens there, such as a web server or an ingress, and have the Service lead to the API server", (*examination).around},
		{regexp.MustCompile(`bad status from .*: `), "see the log of the server", (*examination).logs},
		{regexp.MustCompile(`connection refused`), "see whether the server listens on all addresses of its pods, at the targetPort of the Service", (*examination).around},
		{regexp.MustCompile(`no such host|server misbehaving`), "correct the externalName of the Service", (*examination).around},
		{regexp.MustCompile(`unsupported service type "ExternalName"`), "with --enable-aggregator-routing, kube-apiserver needs a Service with a cluster IP: give it one and an EndpointSlice with the address, or take that flag from kube-apiserver", (*examination).around},
		{regexp.MustCompile(`ClusterIP "None"`), "have the APIService lead to a Service with a cluster IP, or give kube-apiserver the flag --enable-aggregator-routing", (*examination).around},
		{regexp.MustCompile(`certificate has expired or is not yet valid`), "renew the certificate of the server, which has expired, or is not valid yet", (*examination).reissue},
		{regexp.MustCompile(`certificate is (not )?valid for|IP SANs|legacy Common Name|not valid for any names`), "issue a certificate for the name of the Service, as NAME.NAMESPACE.svc", (*examination).reissue},
		{regexp.MustCompile(`unknown authority|certificate is not (trusted|standards compliant)|failed to verify certificate`), "put the certificate authority that issued the certificate of the server into caBundle", (*examination).trustServed},
		{regexp.MustCompile(`remote error: tls: (.*certificate|handshake failure|access denied|unknown CA)`), "the server, or the proxy of a service mesh in front of it, refuses the client certificate of kube-apiserver's front proxy: let it accept those of the requestheader-client-ca-file in the ConfigMap extension-apiserver-authentication of kube-system, or except the port from mutual TLS of the mesh", (*examination).logs},
		{regexp.MustCompile(`HTTP response to HTTPS client|first record does not look like a TLS handshake|tls: `), "have the Service lead to the port at which the server speaks TLS", (*examination).around},
		{regexp.MustCompile(`EOF$|connection reset by peer|broken pipe|stream error|server sent GOAWAY|malformed HTTP`), "the server, or a proxy in front of it such as that of a service mesh, closes connections: see its log", (*examination).logs},
		{regexp.MustCompile(`while waiting for connection|i/o timeout|connection timed out|timed out waiting|no route to host|network is unreachable`), "let connections from the control plane to the nodes and their pods pass NetworkPolicies, firewalls, security groups and an egress proxy, unless the server hangs before it accepts them", (*examination).around},
		{regexp.MustCompile(`context deadline exceeded$`), "the server does not answer within five seconds: see its log, and what it waits for, and let connections from the control plane to the nodes and their pods pass NetworkPolicies, firewalls, security groups and an egress proxy", (*examination).logs},
		{regexp.MustCompile(`awaiting headers`), "the server accepts the connection, and does not answer within five seconds: see its log, and what it waits for", (*examination).logs},
		{regexp.MustCompile(`has not looked at it yet`), "see the log of kube-apiserver, unless the APIService is new", (*examination).around},
	}
}

// answered returns the finding for a message of kube-apiserver about a server.
func (e *examination) answered(ctx context.Context, b backend, cause, message string) Finding {
	answer := answerTo(message)
	return failure(fmt.Sprintf("%s (%s)", cause, brief(message)), answer.fix).by(answer.command(e, ctx, b))
}

// repeated matches the URL of a version in messages, which have it up to three times.
var repeated = regexp.MustCompile(`failing or missing response from \S+: |Get "[^"]*": `)

// brief returns a message of kube-apiserver without that.
func brief(message string) string { return repeated.ReplaceAllString(message, "") }

// answerTo returns what to do about a message.
func answerTo(message string) answer {
	all := answers()
	if i := slices.IndexFunc(all, func(answer answer) bool { return answer.message.MatchString(message) }); i >= 0 {
		return all[i]
	}
	return answer{fix: "see the log of the server, and what is between the two: firewalls, an egress proxy", command: (*examination).logs}
}

// availability returns the condition Available of an APIService, or Unknown if it has none yet.
func availability(apiService *apiregistrationv1.APIService) apiregistrationv1.APIServiceCondition {
	return cmp.Or(cluster.Availability(apiService), apiregistrationv1.APIServiceCondition{Reason: "Unknown", Message: "kube-apiserver has not looked at it yet"})
}

// checkLeftovers looks for APIServices of any group that no server answers for. Such an APIService
// keeps all namespaces from being deleted, since their content is not known.
func (e *examination) checkLeftovers(ctx context.Context) []Finding {
	list, err := e.aggregator.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return unread("the APIServices", err)
	}
	var results []Finding
	for _, apiService := range list.Items {
		condition := availability(&apiService)
		if e.staleThoughLocal(&apiService) {
			results = append(results, failure("kube-apiserver serves "+apiService.Name+" itself, and still asks the server that it led to for its discovery, so that no namespace can be deleted", "restart kube-apiserver, or delete the APIService, which kube-apiserver creates again at once").
				by(kubectl("get", "apiservice", apiService.Name, "--output=yaml")))
		}
		known := slices.ContainsFunc(e.apiServices, func(known *apiregistrationv1.APIService) bool { return known.Name == apiService.Name })
		if known || apiService.Spec.Service == nil || condition.Status == apiregistrationv1.ConditionTrue {
			continue
		}
		status, of := Warning, "another server"
		if e.owns(apiService.Spec.Group) {
			status, of = Failure, "a release that is not this one"
		}
		results = append(results, Finding{
			Status: status, Cause: fmt.Sprintf("no server answers for %s, a version of %s, so that no namespace can be deleted (%s: %s)", apiService.Name, of, condition.Reason, cmp.Or(condition.Message, "no message")),
			Fix: "see what is wrong with it by --apiservice=" + apiService.Name + "; if its server is gone for good, delete the APIService", Command: kubectl("describe", "apiservice", apiService.Name),
		})
	}
	return orOK(results, "all APIServices of others have a server")
}

// staleThoughLocal reports whether kube-apiserver still asks a server about a version that it serves
// itself. It leaves out the server's own groups: that kube-apiserver serves them is a finding
// already.
//
// Upstream fault 88.
func (e *examination) staleThoughLocal(apiService *apiregistrationv1.APIService) bool {
	if apiService.Spec.Service != nil || e.owns(apiService.Spec.Group) {
		return false
	}
	told, err := e.told(apiService)
	return err == nil && told != nil && told.Freshness == apidiscoveryv2.DiscoveryFreshnessStale
}

func (e *examination) owns(group string) bool {
	_, own := e.resources[group]
	return own
}
