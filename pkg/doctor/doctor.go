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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	Check string `json:"check"`
	Finding
}

// Finding is one thing that a check has found.
type Finding struct {
	Status Status `json:"status"`
	// Cause says what was found.
	Cause string `json:"cause"`
	// Fix says what to do about it, unless the cause says so itself.
	Fix string `json:"fix,omitempty"`
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
	// self is the user who wants to know, once that is known.
	self string
}

// check is an entry in the table of checks.
type check struct {
	name string
	// needs are checks without whose success this one could only repeat, in other
	// words, what they have found.
	needs []string
	// run returns what it has found, and an error if it could not look.
	run func(*examination, context.Context) ([]Finding, error)
}

// checks is all that is examined, in order.
func checks() []check {
	const (
		version        = "kube-apiserver"
		requestHeaders = "request-headers"
		registered     = "apiservices"
		permissions    = "permissions"
		service        = "service"
		certificate    = "certificate"
		etcd           = "etcd"
	)
	return []check{
		{version, nil, (*examination).checkVersion},
		{requestHeaders, []string{version}, (*examination).checkRequestHeaders},
		{registered, []string{version}, (*examination).checkRegistered},
		{permissions, []string{version}, (*examination).checkPermissions},
		{"priority", []string{version, registered}, (*examination).checkPriority},
		{service, []string{registered}, (*examination).checkService},
		{certificate, []string{service}, (*examination).checkCertificate},
		{"availability", []string{requestHeaders, registered, service, certificate}, (*examination).checkAvailability},
		{"admission", nil, (*examination).checkAdmission},
		{"webhooks", []string{version}, (*examination).checkWebhooks},
		{"policies", []string{version, permissions}, (*examination).checkPolicies},
		{etcd, nil, (*examination).checkEtcd},
		{"storage", []string{etcd}, (*examination).checkStorage},
		{"proxy", []string{version}, (*examination).checkProxy},
		{"leftovers", []string{version}, (*examination).checkLeftovers},
	}
}

// Examine runs all checks. Each has at least one result.
func Examine(ctx context.Context, config Config) ([]Result, error) {
	e, err := newExamination(ctx, config)
	if err != nil {
		return nil, err
	}
	var results []Result
	failed := map[string]bool{}
	for _, check := range checks() {
		for _, found := range e.runOne(ctx, check, failed) {
			failed[check.name] = failed[check.name] || found.Status == Failure
			results = append(results, Result{check.name, found})
		}
	}
	return results, ctx.Err()
}

func newExamination(ctx context.Context, config Config) (*examination, error) {
	kube, err := kubernetes.NewForConfig(config.Cluster)
	if err != nil {
		return nil, err
	}
	apiServices, err := aggregator.NewForConfig(config.Cluster)
	if err != nil {
		return nil, err
	}
	e := &examination{Config: config, kube: kube, aggregator: apiServices}
	e.registration = e.findRegistration(ctx)
	return e, nil
}

func (e *examination) runOne(ctx context.Context, check check, failed map[string]bool) []Finding {
	if i := slices.IndexFunc(check.needs, func(name string) bool { return failed[name] }); i >= 0 {
		failed[check.name] = true
		return []Finding{skipped("not looked at because of %s", check.needs[i])}
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	found, err := check.run(e, ctx)
	if err != nil {
		found = append(found, explain("", Failure, err))
	}
	return found
}

// Print writes a line for each result.
func Print(out io.Writer, results []Result) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, result := range results {
		text := result.Cause
		if result.Fix != "" {
			text += ": " + result.Fix
		}
		// Messages of others can have several lines.
		fmt.Fprintf(table, "%s\t%s\t%s\n", result.Status, result.Check, strings.Join(strings.Fields(text), " "))
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

func warning(cause, fix string) Finding { return Finding{Warning, cause, fix} }

func failure(cause, fix string) Finding { return Finding{Failure, cause, fix} }

// problem is an error that says what to do about it.
type problem struct {
	cause, fix string
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
		return Finding{status, found.cause, found.fix}
	}
	if away := (unreachable{}); errors.As(err, &away) {
		return Finding{Skipped, fmt.Sprintf("%s can't be reached from here (%v)", what, away.error), "run this in a pod of the cluster"}
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
