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

// Package migrate has the commands that move objects from CustomResourceDefinitions to a
// server.
package migrate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver"
	"restaurant.programming-kubernetes.info/apiserver/pkg/certificates"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	tool "restaurant.programming-kubernetes.info/apiserver/pkg/cmd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
	"restaurant.programming-kubernetes.info/apiserver/pkg/migrate"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// NewCommand returns the commands that move the objects of a group from
// CustomResourceDefinitions to a server of this name, and back. For the name and the base,
// see apiserver.NewOptions and apiserver.Base.
func NewCommand(name string, base *apiserver.Base, groups ...registry.Group) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Moves objects from CustomResourceDefinitions to this server",
		Long:  "Moves the objects of an API group from CustomResourceDefinitions to this server, while they are used, with all of their metadata but the resourceVersion.",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	tool.AsTool(cmd)
	cmd.AddCommand(
		newCommand(name, base, groups, "plan", "Finds out whether the objects can move; changes nothing",
			"Reads all objects, and prints one line per finding. The exit code is 1 if there is a failure, which keeps the objects from moving.", plan),
		newCommand(name, base, groups, "run", "Moves the objects, or continues to",
			"Copies the objects while they are used, keeps clients waiting with writes for some seconds, compares all objects, and makes kube-apiserver send requests to the server. "+
				"It can be run again after it was interrupted. The CustomResourceDefinitions keep their objects, but are no longer served.", thenStatus((*migrate.Migration).Run,
				"Look after the group's controllers. \"migrate back\" undoes the move, until \"migrate finish\" deletes the copies that are left.")),
		newCommand(name, base, groups, "back", "Moves the objects back into the CustomResourceDefinitions, or continues to",
			"Copies the objects back into kube-apiserver's etcd while they are used, keeps clients waiting with writes for some seconds, compares all objects, and makes kube-apiserver answer requests itself. "+
				"It can be run again after it was interrupted. The server keeps its objects, which no client sees, until \"migrate finish\".", thenStatus((*migrate.Migration).Back,
				"\"migrate finish\" deletes the copies that the server has.")),
		newCommand(name, base, groups, "status", "Says how far a migration is", "", printStatus),
		newCommand(name, base, groups, "abort", "Undoes a migration before clients use what the objects move to",
			"Removes the objects from the server again, or leaves them there on the way back, and lets clients write. That is possible until the phase Switching.", abort),
		newCommand(name, base, groups, "finish", "Deletes the copies from which the objects have moved",
			"Deletes the copies of the objects that are left where these have moved from. For a server that does not need the CustomResourceDefinitions these are deleted as well. That can't be undone: with --dry-run it only says what it would delete, and what is in the way.", finish),
	)
	return cmd
}

// options are the flags of a command.
type options struct {
	server   *apiserver.Options
	groups   []registry.Group
	group    string
	service  apiregistrationv1.ServiceReference
	port     int32
	caFile   string
	format   string
	kubeEtcd tool.Etcd
	// kubePrefix begins the keys in that etcd.
	kubePrefix string
	back       bool
	dryRun     bool
	raise      bool
	discard    bool
}

func newCommand(name string, base *apiserver.Base, groups []registry.Group, use, short, long string, do func(*cobra.Command, *options, *migrate.Migration) error) *cobra.Command {
	o := &options{server: apiserver.NewOptions(name, groups...), groups: groups}
	o.server.Base = base
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Long:  cmp.Or(long, short+"."),
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			named := cmd.Flags().Changed("service-namespace") || cmd.Flags().Changed("service-name")
			completed, err := o.server.Complete()
			if err != nil {
				return err
			}
			m, closeEtcd, err := o.migration(cmd.Context(), completed, use, named, func(progress migrate.Progress) { o.report(cmd.ErrOrStderr(), progress) })
			if err != nil {
				return err
			}
			defer closeEtcd()
			return do(cmd, o, m)
		},
	}
	own := pflag.NewFlagSet("migrate", pflag.ContinueOnError)
	own.StringVar(&o.group, "group", "", ""+
		"API group whose objects move. It may be left out for a server with one group.")
	own.StringVar(&o.service.Namespace, "service-namespace", "", ""+
		"Namespace of the server. By default that of --kubeconfig, or of this pod.")
	own.StringVar(&o.service.Name, "service-name", name, ""+
		"Service that leads kube-apiserver to the server.")
	own.Int32Var(&o.port, "service-port", 443, ""+
		"Port of that Service.")
	own.StringVarP(&o.format, "output", "o", "", `"json" for programs; progress is then a line of JSON each.`)
	if use == "run" {
		own.StringVar(&o.caFile, "service-ca-file", "", ""+
			"File with the certificate authority of the certificate that the server serves, as PEM. By default that of --serving-ca-secret.")
	}
	if use == "plan" {
		own.BoolVar(&o.back, "back", false, "Plan the way back.")
	}
	if use == "finish" {
		own.BoolVar(&o.dryRun, "dry-run", false, "Say what would be deleted, and whether that is possible; change nothing.")
	}
	if use == "plan" || use == "back" || use == "finish" {
		o.kubeEtcd.AddFlags(own, "kube-etcd-",
			"Addresses of kube-apiserver's etcd, such as https://10.0.0.1:2379. With it all objects keep their UIDs on the way back; otherwise kube-apiserver gives new ones to those that were created since.",
			"Certificate authority of kube-apiserver's etcd.", "Client certificate for kube-apiserver's etcd.", "Key of that certificate.")
		own.StringVar(&o.kubePrefix, "kube-etcd-prefix", "/registry", "Prefix of the keys in kube-apiserver's etcd, as in its flag --etcd-prefix.")
		own.BoolVar(&o.discard, "discard-written", false, ""+
			"Give up what was written to kube-apiserver's copies past the server. Otherwise it keeps objects from moving back, and copies from being deleted.")
	}
	if use == "plan" || use == "run" || use == "back" {
		own.BoolVar(&o.raise, "raise-revision", false, ""+
			"Write empty revisions to the etcd that the objects move to, until it is no longer behind the other one. Restoring a snapshot of it with --bump-revision does so without these writes.")
	}
	tool.AddToolFlags(cmd, own, o.server)
	return cmd
}

// migration returns a migration as the flags describe it, and a function that closes its
// clients of etcd.
func (o *options) migration(ctx context.Context, completed apiserver.CompletedOptions, use string, serviceNamed bool, report func(migrate.Progress)) (_ *migrate.Migration, closeEtcd func(), err error) {
	errs := append(completed.Validate(), tool.CheckFormat(o.format), o.completeGroup())
	config := migrate.Config{
		Group:   o.group,
		Service: o.service,
		Lease:   completed.LeaderElection.ResourceName,
		Report:  report,
	}
	config.RaiseRevision, config.DiscardWritten = o.raise, o.discard
	config.RequestTimeout = completed.ServerRun.RequestTimeout
	config.MaxElements, config.MaxOwners = completed.Bounds.BodyElements, completed.Bounds.Owners
	config.Service.Port = &o.port
	config.Service.Namespace = cmp.Or(o.service.Namespace, cluster.Namespace(o.server.CoreAPI.CoreAPIKubeconfigPath))
	if use == "finish" && !serviceNamed {
		config.Service = apiregistrationv1.ServiceReference{} // The migration knows it.
	}
	if use == "run" && o.caFile == "" && completed.ServingCert.Secret == "" {
		errs = append(errs, errors.New("--service-ca-file must name a file, since there is no --serving-ca-secret"))
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		return nil, nil, err
	}
	if err := o.addStores(ctx, completed, &config); err != nil {
		return nil, nil, err
	}
	if config.Cluster, err = completed.Kubeconfig(); err != nil {
		return nil, nil, err
	}
	if use == "run" {
		if config.CABundle, err = o.caBundle(ctx, completed, config.Cluster); err != nil {
			return nil, nil, err
		}
	}
	if config.Etcd, err = completed.NewEtcdClient(completed.Etcd.StorageConfig.Transport.ServerList...); err != nil {
		return nil, nil, err
	}
	if err := answers(ctx, completed, config.Etcd); err != nil {
		_ = config.Etcd.Close()
		return nil, nil, err
	}
	if config.KubeEtcd, err = o.kubeEtcd.Client(); err != nil {
		_ = config.Etcd.Close()
		return nil, nil, err
	}
	config.KubePrefix = path.Join("/", o.kubePrefix)
	closeEtcd = func() {
		_ = config.Etcd.Close()
		if config.KubeEtcd != nil {
			_ = config.KubeEtcd.Close()
		}
	}
	m, err := migrate.New(config)
	if err != nil {
		closeEtcd()
	}
	return m, closeEtcd, err
}

// answerTimeout is how long the server's etcd may take for its first answer.
const answerTimeout = 10 * time.Second

// answers returns an error unless the server's etcd answers. Its client would wait for it without end.
func answers(ctx context.Context, completed apiserver.CompletedOptions, client *clientv3.Client) error {
	if completed.Embedded() {
		return completed.EmbeddedEtcd.CheckServed()
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if _, err := client.Get(ctx, completed.Etcd.StorageConfig.Prefix, clientv3.WithCountOnly()); err != nil {
		return fmt.Errorf("the server's etcd at %s does not answer within %s: check --etcd-servers, and the certificates for it: %w", strings.Join(client.Endpoints(), ","), answerTimeout, err)
	}
	return nil
}

// caBundle returns the certificate authority that the APIServices are to trust.
func (o *options) caBundle(ctx context.Context, completed apiserver.CompletedOptions, cluster *rest.Config) ([]byte, error) {
	if o.caFile == "" {
		kube, err := kubernetes.NewForConfig(cluster)
		if err != nil {
			return nil, err
		}
		return certificates.CABundle(ctx, kube, completed.ServingCert.Namespace, completed.ServingCert.Secret)
	}
	bundle, err := os.ReadFile(o.caFile)
	if err != nil {
		return nil, fmt.Errorf("--service-ca-file: %w", err)
	}
	return bundle, nil
}

// report prints how far a migration is: a line of text, or of JSON.
func (o *options) report(out io.Writer, progress migrate.Progress) {
	if o.format == tool.FormatJSON {
		_ = json.NewEncoder(out).Encode(progress)
		return
	}
	fmt.Fprintln(out, progress.Message)
}

// names returns the names of the groups that the server has.
func (o *options) names() (names []string) {
	for _, group := range o.groups {
		names = append(names, group.Name)
	}
	if o.server.Base != nil {
		names = append(names, o.server.Base.Groups()...)
	}
	return names
}

// completeGroup fills in the group.
func (o *options) completeGroup() error {
	names := o.names()
	if o.group == "" && len(names) == 1 {
		o.group = names[0]
	}
	if !slices.Contains(names, o.group) {
		return fmt.Errorf("--group must be one of %s, not %q", strings.Join(names, ", "), o.group)
	}
	return nil
}

// stateKey is the key of the state of a group's migration in the server's etcd.
func stateKey(completed apiserver.CompletedOptions, group string) string {
	return path.Join("/", completed.Etcd.StorageConfig.Prefix, "migrations", group)
}

// addStores adds the APIServices, keys and stores of the group.
func (o *options) addStores(ctx context.Context, completed apiserver.CompletedOptions, config *migrate.Config) error {
	for _, group := range o.groups {
		if group.Name != o.group {
			continue
		}
		var err error
		if config.APIServices, err = group.APIServices(); err != nil {
			return err
		}
	}
	config.StateKey = stateKey(completed, o.group)
	config.HistoryKey = keys.HistoryKey(completed.Etcd.StorageConfig.Prefix, o.group)
	stores, err := completed.Stores(ctx)
	if err != nil {
		return err
	}
	for _, store := range stores {
		if store.Group != o.group {
			continue
		}
		if len(store.Servers) > 0 {
			return fmt.Errorf("--etcd-servers-overrides stores %s in an etcd of their own, and the objects of a group move into one: start the server without it, and leave it out here, too", store.GroupResource)
		}
		config.Stores = append(config.Stores, store)
	}
	if config.APIServices != nil {
		return nil
	}
	// It is not one of the groups in Go.
	config.Defined = true
	for _, store := range config.Stores {
		for _, version := range store.Versions {
			if name := version + "." + o.group; version != cluster.BypassVersion && !slices.Contains(config.APIServices, name) {
				config.APIServices = append(config.APIServices, name)
			}
		}
	}
	return nil
}

func plan(cmd *cobra.Command, o *options, m *migrate.Migration) error {
	find := m.Plan
	if o.back {
		find = m.PlanBack
	}
	findings, err := find(cmd.Context())
	if err != nil {
		return err
	}
	return o.printFindings(cmd.OutOrStdout(), findings, "the objects from moving")
}

// printFindings returns an error if findings keep something from being done.
func (o *options) printFindings(out io.Writer, findings []migrate.Finding, what string) (err error) {
	failures := migrate.Failures(findings, what)
	if o.format == tool.FormatJSON {
		err = tool.PrintJSON(out, map[string]any{"findings": findings})
	} else {
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, finding := range findings {
			text := finding.Cause
			if finding.Fix != "" {
				text += ": " + finding.Fix
			}
			name := finding.Check
			if finding.Reason != "" {
				name += "/" + string(finding.Reason)
			}
			fmt.Fprintf(table, "%s\t%s\t%s\n", finding.Status, name, strings.Join(strings.Fields(text), " "))
		}
		err = table.Flush()
		if failures == nil {
			fmt.Fprintf(out, "\nNone of %d findings keeps %s.\n", len(findings), what)
		}
	}
	return errors.Join(err, failures)
}

// thenStatus returns what a command does that moves objects: it prints the status at the end, and what comes next.
func thenStatus(move func(*migrate.Migration, context.Context) error, next string) func(*cobra.Command, *options, *migrate.Migration) error {
	return func(cmd *cobra.Command, o *options, m *migrate.Migration) error {
		if err := move(m, cmd.Context()); err != nil {
			return err
		}
		if err := printStatus(cmd, o, m); err != nil || o.format == tool.FormatJSON {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "\n%s\n", next)
		return nil
	}
}

func abort(cmd *cobra.Command, _ *options, m *migrate.Migration) error {
	return m.Abort(cmd.Context())
}

func finish(cmd *cobra.Command, o *options, m *migrate.Migration) error {
	if !o.dryRun {
		return m.Finish(cmd.Context())
	}
	findings, err := m.PlanFinish(cmd.Context())
	if err != nil {
		return err
	}
	return o.printFindings(cmd.OutOrStdout(), findings, "the copies from being deleted")
}

func printStatus(cmd *cobra.Command, o *options, m *migrate.Migration) error {
	state, err := m.Status(cmd.Context())
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if o.format == tool.FormatJSON {
		return tool.PrintJSON(out, state)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	direction := "to the server"
	if state.Returning {
		direction = "back"
	}
	fmt.Fprintf(table, "Group:\t%s\nDirection:\t%s\nPhase:\t%s\nStarted:\t%s\nChanged:\t%s\n", state.Group, direction, state.Phase, state.Started.Format(time.RFC3339), state.Changed.Format(time.RFC3339))
	for _, resource := range slices.Sorted(maps.Keys(state.Objects)) {
		fmt.Fprintf(table, "Objects:\t%d %s\n", state.Objects[resource], resource)
	}
	return table.Flush()
}
