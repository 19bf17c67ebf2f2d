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

package artifacts

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// role is a Role or a ClusterRole of the manifests, or a binding to one.
type role struct {
	Kind     string
	Metadata struct{ Name string }
	Rules    []rbacv1.PolicyRule
	RoleRef  rbacv1.RoleRef
}

// permission is what a row of the table in docs/security.md says of one role.
type permission struct{ role, may string }

// manifests returns the roles and their bindings in all manifests.
func manifests(t *testing.T) (roles []role) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.IsDir() && entry.Name() == "templates" {
			return filepath.SkipDir // The chart's, which are made of the other manifests.
		}
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		for decoder := utilyaml.NewYAMLOrJSONDecoder(file, 4096); ; {
			var found role
			if err := decoder.Decode(&found); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			roles = append(roles, found)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return roles
}

// permissions are those that the manifests grant.
func permissions(roles []role) (granted []permission) {
	own := map[string]bool{}
	for _, r := range roles {
		if r.Kind == "Role" || r.Kind == "ClusterRole" {
			own[r.Metadata.Name] = true
			for _, rule := range r.Rules {
				granted = append(granted, permission{r.Metadata.Name, describe(rule)})
			}
		}
	}
	for _, r := range roles {
		if r.RoleRef.Name != "" && !own[r.RoleRef.Name] {
			granted = append(granted, permission{r.Metadata.Name, "the cluster's " + r.RoleRef.Name})
		}
	}
	return granted
}

func describe(rule rbacv1.PolicyRule) string {
	text := strings.Join(rule.Verbs, ", ") + " " + strings.Join(append(slices.Clone(rule.Resources), rule.NonResourceURLs...), ", ")
	groups := slices.Clone(rule.APIGroups)
	if core := slices.Index(groups, ""); core >= 0 && len(groups) > 1 {
		groups[core] = "core"
	}
	if group := strings.Join(groups, ", "); group != "" {
		text += " of " + group
	}
	if len(rule.ResourceNames) > 0 {
		text += " named " + strings.Join(rule.ResourceNames, ", ")
	}
	return text
}

// documented returns the rows of the table. Each must have a reason.
func documented(t *testing.T) (rows []permission) {
	t.Helper()
	page, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| role | may | purpose; possible misuse |\n| --- | --- | --- |\n")
	if !found {
		t.Fatal("docs/security.md has no table of permissions")
	}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "|\n "), " | ")
		if !strings.HasPrefix(line, "|") {
			break
		}
		if len(cells) != 3 || strings.TrimSpace(cells[2]) == "" {
			t.Errorf("a permission has no reason: %s", line)
			continue
		}
		for role := range strings.SplitSeq(cells[0], ", ") {
			rows = append(rows, permission{strings.Trim(role, "`"), strings.ReplaceAll(cells[1], "`", "")})
		}
	}
	return rows
}

// Every permission of the manifests is in docs/security.md with its reason, and no other.
func TestPermissionsAreDocumented(t *testing.T) {
	order := func(a, b permission) int { return strings.Compare(a.role+" "+a.may, b.role+" "+b.may) }
	got, want := documented(t), permissions(manifests(t))
	slices.SortFunc(got, order)
	slices.SortFunc(want, order)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(permission{})); diff != "" {
		t.Errorf("docs/security.md does not list what the manifests grant (-granted +documented):\n%s", diff)
	}
}

const (
	create = "create"
	change = "create update patch"
	read   = "get list watch"
)

// escalations are the verbs, by resource, with which one becomes somebody else, or more.
var escalations = map[string]string{
	// The token of any ServiceAccount is in a Secret that one asks for.
	"secrets":               create + " patch " + read + " update",
	"serviceaccounts/token": create,
	// A pod runs as any ServiceAccount of its namespace, and has any of its Secrets.
	"pods": change, "pods/exec": "get create", "pods/attach": "get create", "pods/portforward": "get create", "pods/ephemeralcontainers": "update patch", "pods/proxy": "get create",
	"podtemplates": change, "replicationcontrollers": change, "deployments": change, "daemonsets": change, "statefulsets": change, "replicasets": change, "jobs": change, "cronjobs": change,
	"nodes": change, "nodes/proxy": "get create", "services/proxy": "get create", "persistentvolumes": change,
	"roles": change, "clusterroles": change, "rolebindings": change, "clusterrolebindings": change,
	// These see all requests of others, or are granted without a review.
	"apiservices": change, "customresourcedefinitions": change,
	"mutatingwebhookconfigurations": change, "validatingwebhookconfigurations": change,
	"mutatingadmissionpolicies": change, "mutatingadmissionpolicybindings": change,
	"certificatesigningrequests/approval": "update patch", "certificatesigningrequests/status": "update patch",
	"tokenreviews/status": change, "configmaps": change,
}

// escalating are the parts of a rule with which one becomes more. Objects that are named are
// those of the server itself.
func escalating(rule rbacv1.PolicyRule) (parts []string) {
	for _, verb := range rule.Verbs {
		if slices.Contains([]string{"escalate", "bind", "impersonate", "approve", "sign", rbacv1.VerbAll}, verb) {
			parts = append(parts, verb)
		}
		for _, resource := range rule.Resources {
			// A name cannot be given of what is created.
			named := len(rule.ResourceNames) > 0 && verb != create
			if !named && slices.Contains(strings.Fields(escalations[resource]), verb) {
				parts = append(parts, verb+" "+resource)
			}
		}
	}
	for _, wide := range slices.Concat(rule.Resources, rule.APIGroups, rule.NonResourceURLs) {
		if strings.Contains(wide, "*") {
			parts = append(parts, wide)
		}
	}
	return parts
}

// No permission leads to another one, but for what is known.
func TestPermissionsDoNotEscalate(t *testing.T) {
	known := map[string]string{
		// It registers whatever groups are defined.
		"crd-apiserver": "[create apiservices patch apiservices]",
		// It keeps the caBundle of those, whose names only an installation knows.
		"crd-apiserver:certificates": "[patch apiservices]",
		// It makes kube-apiserver serve the definitions again, while "helm uninstall" runs.
		"the-instance-apiserver:unregister": "[update customresourcedefinitions]",
	}
	got := map[string]string{}
	for _, r := range manifests(t) {
		for _, rule := range r.Rules {
			if parts := escalating(rule); len(parts) > 0 {
				got[r.Metadata.Name] += fmt.Sprint(parts)
			}
		}
	}
	if diff := cmp.Diff(known, got); diff != "" {
		t.Errorf("unexpected ways to get more permissions (-known +got):\n%s", diff)
	}
}

func TestEscalating(t *testing.T) {
	for name, test := range map[string]struct {
		rule rbacv1.PolicyRule
		want []string
	}{
		"reading":                         {rbacv1.PolicyRule{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"services"}}, nil},
		"a named secret":                  {rbacv1.PolicyRule{Verbs: []string{"get", "update"}, Resources: []string{"secrets"}, ResourceNames: []string{"own"}}, nil},
		"a named secret that is created":  {rbacv1.PolicyRule{Verbs: []string{"create"}, Resources: []string{"secrets"}, ResourceNames: []string{"own"}}, []string{"create secrets"}},
		"all secrets":                     {rbacv1.PolicyRule{Verbs: []string{"list"}, Resources: []string{"secrets"}}, []string{"list secrets"}},
		"tokens":                          {rbacv1.PolicyRule{Verbs: []string{"create"}, Resources: []string{"serviceaccounts/token"}}, []string{"create serviceaccounts/token"}},
		"pods":                            {rbacv1.PolicyRule{Verbs: []string{"create"}, Resources: []string{"configmaps", "pods"}}, []string{"create configmaps", "create pods"}},
		"any verb":                        {rbacv1.PolicyRule{Verbs: []string{"*"}, Resources: []string{"services"}}, []string{"*"}},
		"any resource":                    {rbacv1.PolicyRule{Verbs: []string{"get"}, Resources: []string{"*"}}, []string{"*"}},
		"being somebody else":             {rbacv1.PolicyRule{Verbs: []string{"impersonate"}, Resources: []string{"users"}}, []string{"impersonate"}},
		"granting what one does not have": {rbacv1.PolicyRule{Verbs: []string{"escalate", "bind"}, Resources: []string{"roles"}}, []string{"escalate", "bind"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, escalating(test.rule)); diff != "" {
				t.Errorf("unexpected parts (-want +got):\n%s", diff)
			}
		})
	}
}
