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
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Sources of the checks.
const (
	authorization  = "https://kubernetes.io/docs/reference/access-authn-authz/authorization/"
	rbac           = "https://kubernetes.io/docs/reference/access-authn-authz/rbac/"
	authentication = "https://kubernetes.io/docs/reference/access-authn-authz/authentication/"
	aggregation    = "https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/"
	auditing       = "https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/"
)

// forged adds the headers of a front proxy that asserts the identity of an administrator.
func forged(r *Request) {
	for name, value := range map[string]string{"User": "root", "Uid": "0", "Group": "system:masters", "Extra-Scopes": "all"} {
		r.Header.Set("X-Remote-"+name, value)
	}
}

// refused ends the check unless the answer is 401 or 403.
func (p *Probe) refused(answer Answer) {
	if answer.Code == http.StatusUnauthorized {
		p.Refused(answer, http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
		return
	}
	p.Refused(answer, http.StatusForbidden, metav1.StatusReasonForbidden)
}

// denied tries all actions on an object through each door, and ends the check unless all are
// refused. Actions that every user may do may succeed.
func (p *Probe) denied(doors []Option, who ...Option) {
	object := p.subject("denied")
	for _, door := range doors {
		for _, a := range p.actions() {
			if answer := p.act(a, object, append(slices.Clone(who), door)...); answer.Code >= 400 || strings.Contains(p.check.ID, "anonymous") || !p.granted(a) {
				p.refused(answer)
			}
		}
	}
	p.unchanged(object)
}

// granted reports whether every user has the permission, for example for self-reviews.
func (p *Probe) granted(a action) bool {
	answer := p.Do(http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": map[string]any{
			"user": p.Name("everybody"), "groups": []string{"system:authenticated"},
			"resourceAttributes": map[string]any{"namespace": p.Namespace, "verb": a.verb, "group": p.Group, "resource": p.GroupVersionResource.Resource, "subresource": a.subresource},
		},
	})
	return bytes.Contains(answer.Body, []byte(`"allowed":true`))
}

func securityChecks() []Check {
	return []Check{
		basic("security/denied-anonymous", authentication+"#anonymous-requests", "",
			"A client without credentials may do nothing that no role of anonymous users allows: 401, or 403.", func(p *Probe) { p.denied([]Option{through(p.run.anonymous)}) }),
		basic("security/denied-user", authorization+"#determine-the-request-verb", "",
			"Each verb of the resource and of each subresource needs a permission: 403, Forbidden, and nothing changes.", func(p *Probe) { p.denied([]Option{throughMain}, p.user("nobody").as...) }),
		basic("security/denied-account", rbac+"#service-account-permissions", "create",
			"A service account has no permission but those that it is given.", func(p *Probe) { p.denied(p.doors(), p.account("nobody-account").as...) }),
		basic("security/denied-first", authorization, "",
			"The permission is asked for before anything else: a user without it does not learn whether an object exists or a body is valid.", func(p *Probe) {
				nobody := p.user("stranger").as
				if p.granted(action{"create", ""}) {
					p.NotOffered("every user may create it")
				}
				for _, body := range []string{"{", "null", `{"kind":"Unknown"}`} {
					for _, kind := range []string{"application/json", "text/plain"} {
						for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
							path := p.Collection(p.Name("missing"))
							if method == http.MethodPost {
								path = p.Collection()
							}
							p.refused(p.Do(method, path, body, append(nobody, Header("Content-Type", kind))...))
						}
					}
				}
				p.refused(p.Get(p.Name("missing"), nobody...))
				p.refused(p.Get(p.Name("missing"), append(nobody, Query("resourceVersion", "x"))...))
			}),
		full("security/one-verb", rbac+"#referring-to-resources", "create",
			"A permission for one verb of the resource or of a subresource gives no other.", func(p *Probe) {
				object := p.subject("verb")
				doors, actions := p.doors(), p.actions()
				for i, granted := range actions {
					cook := p.account(fmt.Sprintf("verb-%d", i))
					p.may(cook, fmt.Sprintf("verb-%d", i), granted.verb, granted.resource(p))
					p.permitted(granted, object, cook)
					for _, door := range doors {
						for _, a := range actions {
							answer := p.act(a, object, append(cook.as, door)...)
							if a != granted {
								p.refused(answer)
							} else if answer.Code == http.StatusUnauthorized || answer.Code == http.StatusForbidden {
								p.Fail(answer, "a permission to %s %s is expected to suffice", a.verb, a.resource(p))
							}
						}
					}
				}
			}),
		basic("security/one-name", rbac+"#referring-to-resources", "create get list",
			"A permission for the name of an object gives none for others, and none to list but those of that name.", func(p *Probe) {
				object, other := p.Create("a"), p.Create("b")
				cook := p.account("named")
				p.may(cook, "named-get", "get", p.GroupVersionResource.Resource, object.GetName())
				p.may(cook, "named-list", "list", p.GroupVersionResource.Resource, object.GetName())
				p.permitted(action{"get", ""}, object, cook)
				byName := func(object *unstructured.Unstructured) []Option {
					return append(slices.Clone(cook.as), Query("fieldSelector", "metadata.name="+object.GetName()))
				}
				p.Eventually(func() Answer { return p.Do(http.MethodGet, p.Collection(), nil, byName(object)...) }, notYetPermitted)
				for _, door := range p.doors() {
					p.Object(p.Get(object.GetName(), append(cook.as, door)...), http.StatusOK)
					p.refused(p.Get(other.GetName(), append(cook.as, door)...))
					p.refused(p.List(append(cook.as, door)...))
					p.Items(p.Do(http.MethodGet, p.Collection(), nil, append(byName(object), door)...))
					p.refused(p.Do(http.MethodGet, p.Collection(), nil, append(byName(other), door)...))
				}
			}),
		basic("security/one-namespace", rbac+"#role-and-clusterrole", "create get list namespaces",
			"A permission in one namespace gives none in another, and none for all.", func(p *Probe) {
				cook, other := p.account("local"), p.OtherNamespace("other")
				p.may(cook, "local", "*", p.GroupVersionResource.Resource)
				object := p.Create("a")
				p.permitted(action{"get", ""}, object, cook)
				for _, door := range p.doors() {
					p.Items(p.List(append(cook.as, door)...))
					for _, path := range []string{p.CollectionIn(other, p.Version), p.CollectionIn(other, p.Version, object.GetName()), p.CollectionIn("", p.Version)} {
						p.refused(p.Do(http.MethodGet, path, nil, append(cook.as, door)...))
					}
					p.refused(p.Do(http.MethodPost, p.CollectionIn(other, p.Version), p.New("b").Object, append(cook.as, door)...))
				}
			}),
		basic("security/apply-creates", "https://kubernetes.io/docs/reference/using-api/server-side-apply/#api-implementation", "create get patch",
			"An apply that creates an object needs the permission to create, too.", func(p *Probe) {
				cook := p.account("patcher")
				p.may(cook, "patcher", "patch", p.GroupVersionResource.Resource)
				p.permitted(action{"patch", ""}, p.Create("a"), cook)
				for _, door := range p.doors() {
					p.refused(p.Apply("conformance", p.New("b"), append(cook.as, door)...))
				}
				p.Refused(p.Get(p.Name("b")), http.StatusNotFound, metav1.StatusReasonNotFound)
			}),
		basic("security/impersonation", "https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/", "create",
			"A user acts in the name of another only with a permission for that.", func(p *Probe) {
				p.denied(p.doors(), append(p.account("pretender").as, As("root", "system:masters"))...)
			}),
		basic("security/forged-headers", aggregation, "",
			"Headers that only a front proxy sets have no effect if a client of kube-apiserver sends them.", func(p *Probe) { p.denied([]Option{throughMain}, append(p.user("forger").as, forged)...) }),
		basic("security/direct-anonymous", aggregation+"#kubernetes-apiserver-client-authentication", "",
			"A server believes the headers of a front proxy only if its certificate proves that it is one.", func(p *Probe) { p.denied([]Option{p.directly()}, forged) }),
		basic("security/direct-forged", aggregation+"#extension-apiserver-authenticates-the-request", "create",
			"A client that reaches a server past kube-apiserver acts as itself, whatever headers it sends.", func(p *Probe) {
				p.denied([]Option{p.directly()}, append(p.account("direct").as, forged)...)
			}),
		basic("security/direct-paths", "https://kubernetes.io/docs/reference/access-authn-authz/rbac/#discovery-roles", "create",
			"Reading what a server tells about itself needs a permission.", func(p *Probe) {
				door := p.directly()
				for _, who := range [][]Option{nil, p.account("monitor").as} {
					for _, path := range []string{"/metrics", "/debug/pprof/", "/configz", "/logs/"} {
						p.refused(p.Do(http.MethodGet, path, nil, append(who, door)...))
					}
				}
			}),
		basic("security/audit", auditing, "create",
			"Each request is in the audit log under the identifier that its answer has, with user, verb, object and code.", audited),
	}
}

// permitted waits until kube-apiserver knows about a permission. The server behind it must not be asked
// before: it may remember a refusal.
func (p *Probe) permitted(a action, object *unstructured.Unstructured, who actor) {
	p.Eventually(func() Answer { return p.act(a, object, who.as...) }, notYetPermitted)
}

func notYetPermitted(answer Answer) string {
	return while("a permission has no effect", http.StatusForbidden, http.StatusUnauthorized)(answer)
}

// audited looks for the events of all actions.
func audited(p *Probe) {
	p.OnlyIf(p.run.AuditLog != "", "the run has no audit log: an option names it")
	before, err := os.ReadFile(p.run.AuditLog)
	p.OnlyIf(err == nil, "the audit log can't be read: %v", err)
	object, who := p.subject("audited"), p.user("audited", "system:masters")
	type event struct {
		AuditID, Stage, Verb   string
		User, ImpersonatedUser struct{ Username string }
		ObjectRef              struct{ Resource, Subresource, Namespace, APIGroup string }
		ResponseStatus         struct{ Code int }
	}
	answers := map[action]Answer{}
	for _, a := range p.actions() {
		answers[a] = p.act(a, object, who.as...)
	}
	for a, answer := range answers {
		p.Eventually(func() Answer { return answer }, func(answer Answer) string {
			found, id := event{}, answer.Header.Get("Audit-Id")
			log, err := os.ReadFile(p.run.AuditLog)
			p.Require(answer, err == nil, "the audit log can't be read: %v", err)
			for line := range bytes.Lines(bytes.TrimPrefix(log, before)) {
				if id != "" && bytes.Contains(line, []byte(id)) && bytes.Contains(line, []byte(`"ResponseComplete"`)) {
					_ = json.Unmarshal(line, &found)
				}
			}
			want := event{AuditID: id, Stage: "ResponseComplete", Verb: a.verb, User: found.User, ImpersonatedUser: found.ImpersonatedUser}
			want.ObjectRef.Resource, want.ObjectRef.Subresource = p.GroupVersionResource.Resource, a.subresource
			want.ObjectRef.Namespace, want.ObjectRef.APIGroup, want.ResponseStatus.Code = p.Namespace, p.Group, answer.Code
			name := p.Name("audited")
			if found != want || found.User.Username != name && found.ImpersonatedUser.Username != name {
				return fmt.Sprintf("the audit log is expected to have %s, by %s; it has %s", inJSON(want), name, inJSON(found))
			}
			return ""
		})
	}
}
