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

// Package doctor finds faults that keep API groups from being served in a cluster, or are going to.
// It only reads. It skips objects that its user may not read, with a line that says so. It can be
// used before anything is installed.
//
// The function checks returns the table of checks. A new check is a new entry in it.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// checkTimeout bounds every check.
const checkTimeout = 20 * time.Second

// Status is how serious a Result is.
type Status string

const (
	// OK means that all is as it should be.
	OK Status = "ok"
	// Skipped means that nothing could be found out from here, or that there is
	// nothing to find out.
	Skipped Status = "skipped"
	// Warning means that something works, but not forever or not for everybody.
	Warning Status = "warning"
	// Failure means that something does not work.
	Failure Status = "failure"
)

// Result is a finding of a check.
type Result struct {
	// Server is the Service of the examined server, with the APIServices that lead to it. Only
	// ExamineAPIServices sets it.
	Server string `json:"server,omitempty"`
	Check  string `json:"check"`
	Finding
}

// Finding is one thing that a check has found.
type Finding struct {
	Status Status `json:"status"`
	// Cause says what was found.
	Cause string `json:"cause"`
	// Since is when it began, if that is known, in the format of RFC 3339.
	Since string `json:"since,omitempty"`
	// Fix says what to do about it, unless the cause says so itself.
	Fix string `json:"fix,omitempty"`
	// Command is a shell command that does that without breaking what works, or shows what helps to
	// decide. The function kubectl has built it.
	Command string `json:"command,omitempty"`
}

// Config says which groups and which server to examine.
type Config struct {
	// Groups are the groups that are served, or are to be.
	Groups []registry.Group
	// Defined are the names of further groups, which CustomResourceDefinitions of the cluster
	// define.
	Defined []string
	// Cluster reaches kube-apiserver as the user that runs the checks.
	Cluster *rest.Config
	// Namespace and ServiceAccount are the server's own. An empty namespace stands for the one that
	// the groups' APIServices lead to.
	Namespace, ServiceAccount string
	// Address is where the server can be reached from here. If it is empty, the
	// endpoints of its Service are tried.
	Address string
	// Audiences are the audiences that the server accepts tokens for.
	Audiences []string
	// Permissions returns the permissions that a server in a namespace needs.
	Permissions func(namespace string) []cluster.Permission
	// AdmissionOff are the admission plugins that a server with these flags does not run.
	AdmissionOff []string
	// EtcdServers are the members of the server's etcd, and EtcdClient reaches them.
	EtcdServers []string
	EtcdClient  func(servers ...string) (*clientv3.Client, error)
	// Stores returns where and how the server stores objects.
	Stores func(context.Context) ([]keys.Objects, error)
	// Egress returns the dialer that the server uses for a network.
	Egress egressselector.Lookup
	// EtcdSocket is the Unix socket of an embedded etcd.
	EtcdSocket string
}

// examination is a run of all checks.
type examination struct {
	Config
	kube       kubernetes.Interface
	aggregator aggregator.Interface
	registration
	// foreign is set for a server whose flags are not known.
	foreign bool
	// allGroups is discoverAll.
	allGroups func() (*apidiscoveryv2.APIGroupDiscoveryList, error)
	// self is the user that runs the checks, once that is known.
	self string
	// listings returns what listAll has found, which several checks need.
	listings func() ([]listing, error)
}

// scope says what a check depends on.
type scope int

const (
	// ofCluster checks have the same results for all servers.
	ofCluster scope = iota
	// ofServer checks can be made for any server.
	ofServer
	// ofFlags checks need the flags of the server.
	ofFlags
)

// check is an entry in the table of checks.
type check struct {
	name  string
	scope scope
	// needs are the checks that must succeed first. If one fails, this check would only repeat its
	// finding.
	needs []string
	// registered is set if the check needs an APIService.
	registered bool
	// explains is set if its failures make the server unavailable. They began when the server
	// became unavailable.
	explains bool
	run      func(*examination, context.Context) []Finding
}

// checks returns all checks in order.
func checks() []check {
	const (
		version        = "kube-apiserver"
		requestHeaders = "request-headers"
		registered     = "apiservices"
		definitions    = "definitions"
		permissions    = "permissions"
		service        = "service"
		certificate    = "certificate"
		availability   = "availability"
		discovery      = "discovery"
		etcd           = "etcd"
	)
	return []check{
		{version, ofCluster, nil, false, false, (*examination).checkVersion},
		{requestHeaders, ofCluster, []string{version}, false, false, (*examination).checkRequestHeaders},
		{registered, ofFlags, []string{version}, false, false, (*examination).checkRegistered},
		{definitions, ofServer, []string{version, registered}, true, false, (*examination).checkDefinitions},
		{permissions, ofServer, []string{version}, false, false, (*examination).checkPermissions},
		{"priority", ofFlags, []string{version, registered}, true, false, (*examination).checkPriority},
		{service, ofServer, []string{registered}, true, true, (*examination).checkService},
		{certificate, ofServer, []string{service}, true, true, (*examination).checkCertificate},
		{availability, ofServer, []string{requestHeaders, registered, service, certificate}, true, true, (*examination).checkAvailability},
		{discovery, ofServer, []string{definitions, availability}, true, false, (*examination).checkDiscovery},
		{"precedence", ofServer, []string{discovery}, true, false, (*examination).checkPrecedence},
		{"lists", ofServer, []string{discovery, permissions}, true, false, (*examination).checkLists},
		{"admission", ofFlags, nil, false, false, (*examination).checkAdmission},
		{"webhooks", ofServer, []string{version}, false, false, (*examination).checkWebhooks},
		{"policies", ofServer, []string{version, permissions}, false, false, (*examination).checkPolicies},
		{etcd, ofFlags, nil, false, false, (*examination).checkEtcd},
		{"storage", ofFlags, []string{etcd}, false, false, (*examination).checkStorage},
		{"proxy", ofServer, []string{version}, false, false, (*examination).checkProxy},
		{"leftovers", ofFlags, []string{version}, false, false, (*examination).checkLeftovers},
	}
}

// Examine runs all checks. Each has at least one result.
func Examine(ctx context.Context, config Config) ([]Result, error) {
	e, err := newExamination(ctx, config)
	if err != nil {
		return nil, err
	}
	return e.runAll(ctx, "", map[string]bool{}, ofCluster, ofServer, ofFlags), ctx.Err()
}

func newExamination(ctx context.Context, config Config) (*examination, error) {
	config.Cluster = rest.CopyConfig(config.Cluster)
	config.Cluster.QPS = -1 // kube-apiserver's priority and fairness is enough.
	kube, err := kubernetes.NewForConfig(config.Cluster)
	if err != nil {
		return nil, err
	}
	apiServices, err := aggregator.NewForConfig(config.Cluster)
	if err != nil {
		return nil, err
	}
	e := &examination{Config: config, kube: kube, aggregator: apiServices, allGroups: discoverAll(ctx, kube)}
	e.listings = e.listAll(ctx)
	e.findRegistration(ctx)
	return e, nil
}

// runAll runs the checks of some scopes, and records failed ones in failed.
func (e *examination) runAll(ctx context.Context, server string, failed map[string]bool, scopes ...scope) (results []Result) {
	for _, check := range checks() {
		if !slices.Contains(scopes, check.scope) {
			continue
		}
		for _, found := range e.runOne(ctx, check, failed) {
			failed[check.name] = failed[check.name] || found.Status == Failure
			results = append(results, Result{server, check.name, found})
		}
	}
	return results
}

func (e *examination) runOne(ctx context.Context, check check, failed map[string]bool) []Finding {
	if i := slices.IndexFunc(check.needs, func(name string) bool { return failed[name] }); i >= 0 {
		failed[check.name] = true
		return []Finding{skipped("not looked at because of %s", check.needs[i])}
	}
	if check.registered && len(e.apiServices) == 0 {
		return []Finding{skipped("no version is registered")}
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	found := check.run(e, ctx)
	for i := range found {
		if check.explains && found[i].Status == Failure && found[i].Since == "" {
			found[i] = found[i].since(e.unavailable().LastTransitionTime)
		}
	}
	return found
}

func ok(format string, args ...any) Finding {
	return Finding{Status: OK, Cause: fmt.Sprintf(format, args...)}
}

// orOK returns the findings, or an OK with a text if there are none.
func orOK(found []Finding, format string, args ...any) []Finding {
	if len(found) == 0 {
		return []Finding{ok(format, args...)}
	}
	return found
}

func skipped(format string, args ...any) Finding {
	return Finding{Status: Skipped, Cause: fmt.Sprintf(format, args...)}
}

func warning(cause, fix string) Finding { return Finding{Status: Warning, Cause: cause, Fix: fix} }

func failure(cause, fix string) Finding { return Finding{Status: Failure, Cause: cause, Fix: fix} }

// by adds the command of a finding.
func (f Finding) by(command string) Finding {
	f.Command = command
	return f
}

// since adds the time when it began.
func (f Finding) since(began metav1.Time) Finding {
	if !began.IsZero() {
		f.Since = date(began.Time)
	}
	return f
}

// problem is an error that says what to do about it.
type problem struct {
	cause, fix, command string
}

// Error returns cause and fix.
func (p *problem) Error() string { return p.cause + ": " + p.fix }

// explain returns the finding that an error means. A problem gets the status.
func explain(what string, status Status, err error) Finding {
	if found := (*problem)(nil); errors.As(err, &found) {
		return Finding{Status: status, Cause: found.cause, Fix: found.fix, Command: found.command}
	}
	if away := (unreachable{}); errors.As(err, &away) {
		return Finding{Status: Skipped, Cause: fmt.Sprintf("%s can't be reached from here (%v)", what, away.error), Fix: "run this in a pod of the cluster"}
	}
	if apierrors.IsForbidden(err) {
		return skipped("%s can't be read by this user (%v)", what, err)
	}
	return failure(fmt.Sprintf("%s can't be read (%v)", what, err), "try again, and see the log of kube-apiserver if that does not help")
}

// unread returns the finding for something that a check needs and can't read.
func unread(what string, err error) []Finding { return []Finding{explain(what, Failure, err)} }

// namespace returns the server's namespace.
func (e *examination) namespace() string {
	if e.Namespace == "" && len(e.apiServices) > 0 {
		return e.apiServices[0].Spec.Service.Namespace
	}
	return e.Namespace
}

// plural returns a count with its noun.
func plural(count int, noun string) string {
	if count == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", count, noun)
}
