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

package conformance

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	certutil "k8s.io/client-go/util/cert"
)

const (
	validatingPolicies = "https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/"
	mutatingPolicies   = "https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/"
	admissionWebhooks  = "https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/"

	admissionregistration = "admissionregistration.k8s.io"
	// mutated is the annotation that mutations add. Its value is the operation.
	mutated = "conformance.example.com/mutated"
)

func admissionChecks() []Check {
	var checks []Check
	for _, way := range []struct {
		name, rule, source string
		needs              string
		install            func(p *Probe, user string)
	}{{
		"validating-policy", "A ValidatingAdmissionPolicy is asked about each verb that writes, of the resource and of each subresource, also in a dry run.",
		validatingPolicies, "create", func(p *Probe, user string) {
			p.validatingPolicy(user, "'"+p.ID+" is asked about ' + request.operation + ' of ' + request.resource.resource + '/' + request.?subResource.orValue('')")
		},
	}, {
		"mutating-policy", "A MutatingAdmissionPolicy is asked about each create, update and patch, of the resource and of each subresource, and what it changes is in the object.",
		mutatingPolicies, "create get", (*Probe).mutatingPolicy,
	}, {
		"validating-webhook", "A validating webhook is asked about each verb that writes, of the resource and of each subresource, with the objects and whether it is a dry run.",
		admissionWebhooks, "create", func(p *Probe, user string) { p.webhook("Validating", user, "Fail", p.refuse) },
	}, {
		"mutating-webhook", "A mutating webhook is asked about each verb that writes, of the resource and of each subresource, and what it changes is in the object.",
		admissionWebhooks, "create get", func(p *Probe, user string) { p.webhook("Mutating", user, "Fail", p.mutate) },
	}} {
		checks = append(checks, basic("security/"+way.name, way.source, way.needs+" admission",
			way.rule, func(p *Probe) {
				object, who := p.subject("a"), p.user(way.name, "system:masters")
				way.install(p, way.name)
				p.asked(object, who, slices.DeleteFunc(p.writing(), func(a action) bool { return way.name == "mutating-policy" && strings.HasPrefix(a.verb, "delete") }))
			}))
	}
	return append(checks, basic("security/identity", aggregation+"#kubernetes-apiserver-client-authentication", "create admission",
		"Admission sees the user, with groups, UID and extra values, as kube-apiserver has authenticated it, and nothing that a client claims.", func(p *Probe) {
			who := p.user("identity", "system:masters", "tasters:ÖZ")
			p.validatingPolicy("identity", "'user=' + request.userInfo.username + ' uid=' + request.userInfo.?uid.orValue('') + "+
				"' groups=' + request.userInfo.groups.filter(g, g.startsWith('tasters')).join(',') + ' scopes=' + request.userInfo.extra['example.com/scopes'].join(',')")
			want := "user=" + p.Name("identity") + " uid=4711 groups=tasters:ÖZ scopes=eat,drink"
			p.Eventually(func() Answer {
				return p.act(action{"create", ""}, p.New("a"), append(who.as, forged, func(r *Request) {
					r.Header.Set("Impersonate-Uid", "4711")
					r.Header["Impersonate-Extra-Example.com%2fscopes"] = []string{"eat", "drink"}
				})...)
			}, until(fmt.Sprintf("a policy is expected to see %q", want), func(answer Answer) bool { return strings.Contains(statusOf(answer), want) }))
		}), basic("security/webhook-failure", admissionWebhooks+"#failure-policy", "create admission",
		"If a webhook fails, its failurePolicy decides: Fail refuses the request, Ignore lets it through.", func(p *Probe) {
			for _, policy := range []string{"Fail", "Ignore"} {
				var asked atomic.Bool
				who := p.user("webhook-"+strings.ToLower(policy), "system:masters")
				p.webhook("Validating", "webhook-"+strings.ToLower(policy), policy, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
					asked.Store(true)
					return nil
				})
				answer := p.Eventually(func() Answer { return p.act(action{"create", ""}, p.New("a"), who.as...) },
					until("the webhook is not asked", func(Answer) bool { return asked.Load() }))
				if policy == "Ignore" {
					p.Object(answer, http.StatusCreated)
				} else {
					p.Refused(answer, http.StatusInternalServerError, metav1.StatusReasonInternalError)
				}
			}
		}))
}

// refuse returns a refusal that says what the webhook has been asked.
func (p *Probe) refuse(review *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: p.question(review)}}
}

// mutate annotates an object. It refuses subresources and deletions, which may have no annotations.
func (p *Probe) mutate(review *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	if review.SubResource != "" || review.Operation == admissionv1.Delete {
		return p.refuse(review)
	}
	patch := inJSON([]any{map[string]any{"op": "add", "path": "/metadata/annotations", "value": map[string]any{mutated: review.Operation}}})
	return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch), PatchType: new(admissionv1.PatchTypeJSONPatch)}
}

// asked requires that admission is asked about each action of a user. Either it refuses, in the
// words of question, or its change is in the answer.
func (p *Probe) asked(object *unstructured.Unstructured, who actor, actions []action) {
	for _, a := range actions {
		operation := map[string]string{"create": "CREATE", "update": "UPDATE", "patch": "UPDATE"}[a.verb]
		if operation == "" {
			operation = "DELETE"
		}
		p.Eventually(func() Answer { return p.act(a, object, who.as...) }, func(answer Answer) string {
			var changed unstructured.Unstructured
			switch text := strings.ReplaceAll(statusOf(answer), "~1", "/"); { // A JSON patch escapes slashes.
			case answer.Code < 300 && json.Unmarshal(answer.Body, &changed.Object) == nil && changed.GetAnnotations()[mutated] == operation:
			case answer.Code >= 500:
				return "a refusal by the admission of the check is expected"
			case strings.Contains(text, fmt.Sprintf("%s is asked about %s of %s/%s", p.ID, operation, p.GroupVersionResource.Resource, a.subresource)):
			case a.subresource != "" && a.verb == "create" && answer.Code >= 400:
				// The subresource takes another body.
			case a.subresource != "" && connects(answer):
			default:
				return fmt.Sprintf("admission is expected to be asked about %s of %s", operation, a.resource(p))
			}
			return ""
		})
	}
	p.unchanged(object)
}

// question returns a text that says what a webhook has been asked.
func (p *Probe) question(review *admissionv1.AdmissionRequest) string {
	text := fmt.Sprintf("%s is asked about %s of %s/%s", p.ID, review.Operation, review.Resource.Resource, review.SubResource)
	hasObject, hasOld := len(review.Object.Raw) > 0, len(review.OldObject.Raw) > 0
	switch {
	case review.DryRun == nil || !*review.DryRun:
		return "of a dry run, but not told so: " + review.SubResource
	case review.Operation == admissionv1.Update && (!hasObject || !hasOld), review.Operation == admissionv1.Delete && !hasOld, review.Operation == admissionv1.Create && !hasObject:
		return "without the object or the old one: " + text[len(p.ID):]
	}
	return text
}

// matching returns rules for the resource and its subresources, a selector of the check's
// namespace, and a condition for one user. All are JSON.
func (p *Probe) matching(user string, operations ...string) (rules, selector, conditions string) {
	name, namespace := p.GroupVersionResource.Resource, metav1.LabelSelector{}
	if p.Namespace != "" {
		namespace.MatchLabels = map[string]string{corev1.LabelMetadataName: p.Namespace}
	}
	rule := map[string]any{"apiGroups": []string{p.Group}, "apiVersions": []string{p.Version}, "resources": []string{name, name + "/*"}, "operations": operations}
	condition := map[string]any{"name": "user", "expression": "request.userInfo.username == '" + p.Name(user) + "'"}
	return inJSON([]any{rule}), inJSON(namespace), inJSON([]any{condition})
}

// validatingPolicy refuses all writes of a user, with a message in CEL.
func (p *Probe) validatingPolicy(user, message string) {
	p.policy("v1", "Validating", user, []string{"*"}, `validations: [{expression: "false", messageExpression: `+inJSON(message)+`, reason: Forbidden}]`, "validationActions: [Deny]")
}

// mutatingPolicy annotates objects that a user writes. It refuses writes of subresources, which may
// have no annotations.
func (p *Probe) mutatingPolicy(user string) {
	version := ""
	for _, known := range []string{"v1beta1", "v1"} {
		entries, err := p.run.entries(p.ctx, schema.GroupVersion{Group: admissionregistration, Version: known})
		if err == nil && slices.ContainsFunc(entries, func(entry metav1.APIResource) bool { return entry.Name == "mutatingadmissionpolicies" }) {
			version = known
		}
	}
	p.OnlyIf(version != "", "kube-apiserver serves no MutatingAdmissionPolicies")
	expression := fmt.Sprintf(`request.?subResource.orValue("") == "" ? [JSONPatch{op: "add", path: "/metadata/annotations", value: {%q: request.operation}}] : `+
		`[JSONPatch{op: "remove", path: "/%s is asked about " + request.operation + " of " + request.resource.resource + "~1" + request.subResource}]`, mutated, p.ID)
	p.policy(version, "Mutating", user, []string{"CREATE", "UPDATE"}, "reinvocationPolicy: Never, mutations: [{patchType: JSONPatch, jsonPatch: {expression: "+inJSON(expression)+"}}]", "")
}

// policy makes a policy and its binding, each with fields of its kind.
func (p *Probe) policy(version, kind, user string, operations []string, spec, binding string) {
	rules, selector, conditions := p.matching(user, operations...)
	p.Make(`
apiVersion: admissionregistration.k8s.io/%s
kind: %sAdmissionPolicy
metadata: {name: %s}
spec: {failurePolicy: Fail, matchConstraints: {resourceRules: %s, namespaceSelector: %s}, matchConditions: %s, %s}`, version, kind, p.ID, rules, selector, conditions, spec)
	p.Make(`
apiVersion: admissionregistration.k8s.io/%s
kind: %sAdmissionPolicyBinding
metadata: {name: %[3]s}
spec: {policyName: %[3]s, %[4]s}`, version, kind, p.ID, binding)
}

// webhooks answer reviews at a path for each check and user.
type webhooks struct {
	server   *http.Server
	url      string
	caBundle []byte
	mu       sync.Mutex
	answers  map[string]func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse
}

// webhook registers a webhook for all writes of a user. An answer of nil is a failure.
func (p *Probe) webhook(kind, user, failurePolicy string, answer func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) {
	hooks, name := p.run.hooks, p.Name(user)
	p.OnlyIf(hooks != nil, "the run has no webhooks: an option names an address where the API's servers reach them")
	hooks.mu.Lock()
	hooks.answers["/"+name] = answer
	hooks.mu.Unlock()
	rules, selector, conditions := p.matching(user, "*")
	p.Make(`
apiVersion: admissionregistration.k8s.io/v1
kind: %sWebhookConfiguration
metadata: {name: %[2]s}
webhooks:
- name: %[2]s.example.com
  rules: %s
  namespaceSelector: %s
  matchConditions: %s
  failurePolicy: %s
  sideEffects: None
  admissionReviewVersions: [v1]
  clientConfig: {url: "%[7]s/%[2]s", caBundle: %[8]s}`, kind, name, rules, selector, conditions, failurePolicy, hooks.url, inJSON(hooks.caBundle))
}

// serveWebhooks listens at the address, with a certificate of its own.
func serveWebhooks(address string) (*webhooks, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("the address of webhooks is a host and a port: %w", err)
	}
	certificate, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("webhooks can't be served: %w", err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	hooks := &webhooks{url: "https://" + net.JoinHostPort(host, port), caBundle: certificate, answers: map[string]func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse{}}
	hooks.server = &http.Server{Handler: hooks, ReadHeaderTimeout: 10 * time.Second, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}}
	go func() { _ = hooks.server.ServeTLS(listener, "", "") }()
	return hooks, nil
}

// ServeHTTP answers a review.
func (h *webhooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	answer := h.answers[r.URL.Path]
	h.mu.Unlock()
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || answer == nil || review.Request == nil {
		http.Error(w, "no review that is known", http.StatusBadRequest)
		return
	}
	if review.Response = answer(review.Request); review.Response == nil {
		http.Error(w, "the check has this fail", http.StatusInternalServerError)
		return
	}
	review.Response.UID, review.Request = review.Request.UID, nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}
