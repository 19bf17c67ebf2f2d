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

// Package doctor finds out what keeps API groups from being served in a cluster, or
// is going to. It reads only, and needs no more permissions than it has: what its user may
// not read is skipped, with a line that says so. It can be used before anything is
// installed.
//
// What is looked at is a table, see checks. A new check is a new entry in it.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
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
	// OK is how it should be.
	OK Status = "ok"
	// Skipped means that nothing could be found out from here, or that there is
	// nothing to find out.
	Skipped Status = "skipped"
	// Warning is what works, and will not for ever or for everybody.
	Warning Status = "warning"
	// Failure is what does not work.
	Failure Status = "failure"
)

// Result is what a check has found, or why it could not be made.
type Result struct {
	// Server is the Service of the server that was examined, if ExamineAPIServices has found that, with
	// the APIServices that lead to it.
	Server string `json:"server,omitempty"`
	Check  string `json:"check"`
	Finding
}

// Finding is one thing that a check has found.
type Finding struct {
	Status Status `json:"status"`
	// Cause says what was found.
	Cause string `json:"cause"`
	// Since is when it began, if that is known, as RFC 3339 has it.
	Since string `json:"since,omitempty"`
	// Fix says what to do about it, unless the cause says so itself.
	Fix string `json:"fix,omitempty"`
	// Command does that, or shows what to decide by, as a line for a shell.
	Command string `json:"command,omitempty"`
}

// Config says what to examine.
type Config struct {
	// Groups are those that are served, or are to be.
	Groups []registry.Group
	// Defined are the names of further ones, which CustomResourceDefinitions of the cluster define.
	Defined []string
	// Cluster reaches kube-apiserver as the user who wants to know.
	Cluster *rest.Config
	// Namespace and ServiceAccount are the server's own. An empty namespace stands
	// for the one to which the groups' APIServices lead.
	Namespace, ServiceAccount string
	// Address is where the server can be reached from here. If it is empty, the
	// endpoints of its Service are tried.
	Address string
	// Audiences are the server's: a token has to be for one of them.
	Audiences []string
	// Authentication returns what is wrong with the way in which kube-apiserver
	// says for whom it makes a request.
	Authentication func(context.Context) error
	// Permissions are those of a server in a namespace.
	Permissions func(namespace string) []cluster.Permission
	// AdmissionOff are the admission plugins that a server with these flags does not run.
	AdmissionOff []string
	// EtcdServers are the members of the server's etcd, and EtcdClient reaches them.
	EtcdServers []string
	EtcdClient  func(servers ...string) (*clientv3.Client, error)
	// Stores returns where and how the server stores objects.
	Stores func(context.Context) ([]keys.Objects, error)
	// Egress says how the server connects with a network.
	Egress egressselector.Lookup
	// EtcdSocket is the file by which an embedded etcd is reached.
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
	// self is the user who wants to know, once that is known.
	self string
}

// scope says what a check is about.
type scope int

const (
	// ofCluster is what is the same for all servers.
	ofCluster scope = iota
	// ofServer is what can be known of any server.
	ofServer
	// ofFlags is what only the flags of the server say.
	ofFlags
)

// check is an entry in the table of checks.
type check struct {
	name  string
	scope scope
	// needs are checks without whose success this one could only repeat, in other
	// words, what they have found.
	needs []string
	// registered is set if there is nothing to look at without an APIService.
	registered bool
	// explains is set if its failures are why the server is unavailable, and as old as that.
	explains bool
	// run returns what it has found, and an error if it could not look.
	run func(*examination, context.Context) ([]Finding, error)
}

// checks is all that is examined, in order.
func checks() []check {
	const (
		version        = "kube-apiserver"
		requestHeaders = "request-headers"
		registered     = "apiservices"
		definitions    = "definitions"
		permissions    = "permissions"
		network        = "network"
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
		{"priority", ofServer, []string{version, registered}, true, false, (*examination).checkPriority},
		{network, ofServer, []string{registered}, true, true, (*examination).checkNetwork},
		{service, ofServer, []string{registered, network}, true, true, (*examination).checkService},
		{certificate, ofServer, []string{service}, true, true, (*examination).checkCertificate},
		{availability, ofServer, []string{requestHeaders, registered, network, service, certificate}, true, true, (*examination).checkAvailability},
		{discovery, ofServer, []string{availability}, true, false, (*examination).checkDiscovery},
		{"precedence", ofServer, []string{discovery}, true, false, (*examination).checkPrecedence},
		{"lists", ofServer, []string{discovery, permissions}, true, false, (*examination).checkLists},
		{"admission", ofFlags, nil, false, false, (*examination).checkAdmission},
		{"webhooks", ofServer, []string{version}, false, false, (*examination).checkWebhooks},
		{"policies", ofServer, []string{version, permissions}, false, false, (*examination).checkPolicies},
		{etcd, ofFlags, nil, false, false, (*examination).checkEtcd},
		{"storage", ofFlags, []string{etcd}, false, false, (*examination).checkStorage},
		{"proxy", ofServer, []string{version}, false, false, (*examination).checkProxy},
		{"leftovers", ofFlags, []string{version}, false, false, (*examination).checkLeftovers},
		{"consequences", ofServer, []string{version}, true, false, (*examination).checkConsequences},
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
	e.registration = e.findRegistration(ctx)
	return e, nil
}

// runAll runs the checks of some scopes, and notes in failed which of them have failed.
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
	found, err := check.run(e, ctx)
	if err != nil {
		found = append(found, explain("", Failure, err))
	}
	for i := range found {
		if check.explains && found[i].Status == Failure && found[i].Since == "" {
			found[i] = found[i].since(e.unavailable().LastTransitionTime)
		}
	}
	return found
}

// Print writes a line for each result, below it its command, and above those of a server its name.
func Print(out io.Writer, results []Result) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	server := ""
	for _, result := range results {
		if result.Server != server {
			server = result.Server
			fmt.Fprintf(table, "\n%s\n", server)
		}
		text := result.Cause
		if result.Since != "" {
			text += " (since " + result.Since + ")"
		}
		if result.Fix != "" {
			text += ": " + result.Fix
		}
		// Messages of others can have several lines.
		fmt.Fprintf(table, "%s\t%s\t%s\n", result.Status, result.Check, strings.Join(strings.Fields(text), " "))
		if result.Command != "" {
			fmt.Fprintf(table, "\t\t  %s\n", result.Command)
		}
	}
	return table.Flush()
}

func ok(format string, args ...any) Finding {
	return Finding{Status: OK, Cause: fmt.Sprintf(format, args...)}
}

// orOK returns what has been found, or if that is nothing what is right.
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

// by adds the command that fixes what was found.
func (f Finding) by(format string, args ...any) Finding {
	f.Command = fmt.Sprintf(format, args...)
	return f
}

// since adds when it began.
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

// unreadable is what a check needs and can't read.
type unreadable struct {
	what string
	error
}

// explain returns what an error about something means; the status is that of a problem.
func explain(what string, status Status, err error) Finding {
	if found := (*problem)(nil); errors.As(err, &found) {
		return Finding{Status: status, Cause: found.cause, Fix: found.fix, Command: found.command}
	}
	if away := (unreachable{}); errors.As(err, &away) {
		return Finding{Status: Skipped, Cause: fmt.Sprintf("%s can't be reached from here (%v)", what, away.error), Fix: "run this in a pod of the cluster"}
	}
	if unread := (unreadable{}); errors.As(err, &unread) {
		what, err = unread.what, unread.error
	}
	if apierrors.IsForbidden(err) {
		return skipped("%s can't be read by this user (%v)", what, err)
	}
	return failure(fmt.Sprintf("%s can't be read (%v)", what, err), "try again, and see the log of kube-apiserver if that does not help")
}

// namespace is the server's.
func (e *examination) namespace() string {
	if e.Namespace == "" && len(e.apiServices) > 0 {
		return e.apiServices[0].Spec.Service.Namespace
	}
	return e.Namespace
}

// plural is a count with its noun.
func plural(count int, noun string) string {
	if count == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", count, noun)
}
