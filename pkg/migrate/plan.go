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

package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/client/v3"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// Status is how serious a Finding is.
type Status string

const (
	// OK means that nothing is in the way.
	OK Status = "ok"
	// Notice is something to know before the objects move.
	Notice Status = "notice"
	// Failure keeps the objects from moving.
	Failure Status = "failure"
)

// Finding is one result of a plan.
type Finding struct {
	Check string `json:"check"`
	// Reason names what was found, for programs. It is empty if nothing is in the way.
	Reason Reason `json:"reason,omitempty"`
	Status Status `json:"status"`
	// Cause says what was found.
	Cause string `json:"cause"`
	// Fix says what to do about it.
	Fix string `json:"fix,omitempty"`
}

// Reason names what a Finding is about.
type Reason string

// The reasons of findings, see docs/migration-findings.md.
const (
	NothingDefined          Reason = "NothingDefined"
	DefinitionDeleted       Reason = "DefinitionDeleted"
	NotEstablished          Reason = "NotEstablished"
	NotStored               Reason = "NotStored"
	KindDiffers             Reason = "KindDiffers"
	ScopeDiffers            Reason = "ScopeDiffers"
	NothingServed           Reason = "NothingServed"
	VersionMissing          Reason = "VersionMissing"
	StorageVersionNotServed Reason = "StorageVersionNotServed"
	ConversionWebhook       Reason = "ConversionWebhook"

	LeadsToServer Reason = "LeadsToServer"
	NotManaged    Reason = "NotManaged"

	ServerHasObjects Reason = "ServerHasObjects"
	RevisionTooLow   Reason = "RevisionTooLow"
	ControllersRun   Reason = "ControllersRun"
	UpdateRefused    Reason = "UpdateRefused"

	ObjectsMove      Reason = "ObjectsMove"
	ObjectsRefused   Reason = "ObjectsRefused"
	ObjectsTooLarge  Reason = "ObjectsTooLarge"
	BoundExceeded    Reason = "BoundExceeded"
	FractionsLost    Reason = "FractionsLost"
	NotConverted     Reason = "NotConverted"
	ObjectsInvalid   Reason = "ObjectsInvalid"
	Finalizers       Reason = "Finalizers"
	NamespaceDeleted Reason = "NamespaceDeleted"

	Webhooks Reason = "Webhooks"
	Policies Reason = "Policies"

	DefinitionsNotKept Reason = "DefinitionsNotKept"
	DefinitionShown    Reason = "DefinitionShown"

	// Only plans of the way back have these.
	NotMoved      Reason = "NotMoved"
	NotRegistered Reason = "NotRegistered"
	Encrypted     Reason = "Encrypted"
	NewUIDs       Reason = "NewUIDs"
	Quotas        Reason = "Quotas"
	// ObjectsUndefined are at the server, whose definition is gone.
	ObjectsUndefined Reason = "ObjectsUndefined"
	// OtherEtcd is also a finding of "finish".
	OtherEtcd Reason = "OtherEtcd"

	// Only plans of "finish" have these.
	NotEnded        Reason = "NotEnded"
	CopiesFinalized Reason = "CopiesFinalized"
	CopiesUsed      Reason = "CopiesUsed"
	VersionNotMoved Reason = "VersionNotMoved"
	CopiesWritten   Reason = "CopiesWritten"
	CopiesDeleted   Reason = "CopiesDeleted"
)

// Failures returns an error if findings keep something from being done.
func Failures(findings []Finding, what string) error {
	count := 0
	for _, finding := range findings {
		if finding.Status == Failure {
			count++
		}
	}
	if count == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d findings keep %s", count, len(findings), what)
}

// Plan returns what keeps the objects from moving, and what to know before. It changes nothing. It
// reads all of the objects.
func (m *Migration) Plan(ctx context.Context) ([]Finding, error) {
	p, found, err := m.examine(ctx)
	if err != nil {
		return nil, err
	}
	err = p.run(ctx, found, []planCheck{{"admission", p.checkAdmission}, {"hidden", p.checkHidden}})
	return p.findings, err
}

// examine returns a plan with the findings that could keep the objects from moving.
func (m *Migration) examine(ctx context.Context) (*plan, []definition, error) {
	if _, err := m.Status(ctx); err == nil {
		return nil, nil, errors.New("the migration has begun already: see \"migrate status\", and continue it with \"migrate run\"")
	} else if !errors.Is(err, ErrNone) {
		return nil, nil, err
	}
	found, err := m.definitions(ctx)
	if err != nil {
		return nil, nil, err
	}
	p := &plan{Migration: m, namespaces: map[string]bool{}}
	err = p.run(ctx, found, []planCheck{
		{"definitions", p.checkDefinitions}, {"apiservices", p.checkAPIServices}, {"etcd", p.checkEtcd}, {"controllers", p.checkControllers}, {"objects", p.checkObjects},
		{"updates", p.checkUpdates(State{}, false)},
	})
	return p, found, err
}

type plan struct {
	*Migration
	check    string
	findings []Finding
	// namespaces are the namespaces of the objects.
	namespaces map[string]bool
}

type planCheck struct {
	name string
	run  func(context.Context, []definition) error
}

func (p *plan) run(ctx context.Context, found []definition, checks []planCheck) error {
	for _, check := range checks {
		p.check = check.name
		before := len(p.findings)
		if err := check.run(ctx, found); err != nil {
			return err
		}
		if len(p.findings) == before {
			p.findings = append(p.findings, Finding{Check: check.name, Status: OK, Cause: nothing})
		}
	}
	return nil
}

// nothing is the cause of a Finding with the status OK.
const nothing = "nothing is in the way"

func (p *plan) find(reason Reason, status Status, fix, cause string, args ...any) {
	p.findings = append(p.findings, Finding{p.check, reason, status, fmt.Sprintf(cause, args...), fix})
}

func (p *plan) fail(reason Reason, fix, cause string, args ...any) {
	p.find(reason, Failure, fix, cause, args...)
}

func (p *plan) notice(reason Reason, fix, cause string, args ...any) {
	p.find(reason, Notice, fix, cause, args...)
}

// refusal is an error that also says what to do about it.
type refusal struct{ cause, fix string }

func (r *refusal) Error() string { return r.cause + ": " + r.fix }

// require fails with a reason if a precondition does not hold.
func (p *plan) require(reason Reason, precondition func(context.Context) error) func(context.Context, []definition) error {
	return func(ctx context.Context, _ []definition) error {
		err := precondition(ctx)
		if refused := (*refusal)(nil); errors.As(err, &refused) {
			p.fail(reason, refused.fix, "%s", refused.cause)
		} else if err != nil {
			p.fail(reason, "", "%s", err)
		}
		return nil
	}
}

// checkDefinitions compares the definitions with the server's resources.
func (p *plan) checkDefinitions(_ context.Context, found []definition) error {
	if len(found) == 0 {
		p.fail(NothingDefined, "check the group: there is nothing to move", "no CustomResourceDefinition defines a resource of %s", p.config.Group)
	}
	for _, d := range found {
		if d.DeletionTimestamp != nil {
			p.fail(DefinitionDeleted, "nothing can keep its objects from being deleted", "the CustomResourceDefinition %s is being deleted", d.Name)
		}
		store := p.storeOf(d)
		if store == nil {
			p.fail(NotStored, "use a server that has it: a group moves as a whole", "the server does not store %s", d.Name)
			continue
		}
		if !apihelpers.IsCRDConditionTrue(&d.CustomResourceDefinition, apiextensionsv1.Established) {
			p.fail(NotEstablished, "free the names that another definition has, and wait for the condition Established", "the CustomResourceDefinition %s is not established, so that its objects can't be read", d.Name)
		}
		if store.Kind != d.Spec.Names.Kind {
			p.fail(KindDiffers, "use a server with the same kinds", "the kind of %s is %s, and at the server %s", d.Name, d.Spec.Names.Kind, store.Kind)
		}
		if scope := map[bool]apiextensionsv1.ResourceScope{true: apiextensionsv1.NamespaceScoped, false: apiextensionsv1.ClusterScoped}[store.Namespaced]; scope != d.Spec.Scope {
			p.fail(ScopeDiffers, "use a server with the same scope", "the scope of %s is %s, and at the server %s", d.Name, d.Spec.Scope, scope)
		}
		if len(d.served()) == 0 {
			p.fail(NothingServed, "set served in one of its versions", "no version of %s is served, so that its objects can't be read", d.Name)
		}
		for _, version := range d.Spec.Versions {
			if !slices.Contains(store.Versions, version.Name) {
				p.fail(VersionMissing, "use a server that serves it, or remove the version from the definition", "the server does not serve %s in the version %s", d.Name, version.Name)
			}
			if version.Storage && !slices.Contains(d.served(), version.Name) {
				p.fail(StorageVersionNotServed, "set served in it: objects are read in this version", "%s is stored in the version %s, which is not served", d.Name, version.Name)
			}
		}
		if d.converts() {
			p.notice(ConversionWebhook, "let it run until the objects have moved", "a webhook converts %s: reading all objects calls it for each one that is stored in another version than %s", d.Name, d.stored().Version)
		}
	}
	return nil
}

// checkAPIServices requires that kube-apiserver manages the APIServices.
func (p *plan) checkAPIServices(ctx context.Context, _ []definition) error {
	for _, name := range p.config.APIServices {
		apiService, err := p.apiService(ctx, name)
		switch {
		case err != nil:
			return err
		case apiService == nil:
			// No definition has the version, so that the server's manifests can register it.
		case apiService.Spec.Service != nil:
			p.fail(LeadsToServer, "nothing if the objects have moved there already; otherwise "+p.fixUnregister(), "the APIService %s leads to a server, so that clients do not see the custom resources", name)
		case apiService.Labels[cluster.ManagedLabel] == "":
			p.fail(NotManaged, "delete the APIService: kube-apiserver creates it again with the label", "the APIService %s has no label %s", name, cluster.ManagedLabel)
		}
	}
	return nil
}

// checkEtcd requires a server without objects, and with a later revision than kube-apiserver's.
func (p *plan) checkEtcd(ctx context.Context, found []definition) error {
	for _, store := range p.config.Stores {
		response, err := p.config.Etcd.Get(ctx, store.Prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return fmt.Errorf("reading the server's etcd: %w", err)
		}
		if response.Count > 0 {
			p.fail(ServerHasObjects, "nothing if they have moved already, so that clients use them; otherwise delete them: those of the same names would be overwritten, and the others deleted", "the server has %d %s already", response.Count, store.GroupResource)
		}
	}
	return p.checkRevisions(false)(ctx, found)
}

// checkRevisions says how many revisions are missing in the etcd that objects move to.
func (p *plan) checkRevisions(back bool) func(context.Context, []definition) error {
	return p.require(RevisionTooLow, func(ctx context.Context) error {
		missed, err := p.checkRevision(ctx, back)
		if err == nil && missed != "" {
			p.notice(RevisionTooLow, "", "%s, which --raise-revision writes", missed)
		}
		return err
	})
}

// checkUpdates fails if an update that the migration needs would be refused.
func (p *plan) checkUpdates(state State, back bool) func(context.Context, []definition) error {
	return p.require(UpdateRefused, func(ctx context.Context) error { return p.rehearse(ctx, state, back) })
}

// checkHidden notes what keeps definitions from being hidden, or shows that they are.
func (p *plan) checkHidden(ctx context.Context, found []definition) error {
	if !p.config.Defined {
		return nil // They are deleted.
	}
	tried := *p.Migration
	tried.dryRun = []string{metav1.DryRunAll}
	if err := tried.tryRefuseCopies(ctx); errors.Is(err, cluster.ErrNotKept) {
		p.notice(DefinitionsNotKept, fmt.Sprintf("run \"crd-apiserver register --groups=%s\" after each time that they are applied, or upgrade the cluster", p.config.Group), "%s", err)
	}
	for _, d := range found {
		if cluster.AppliedByArgoCD(&d) {
			p.notice(DefinitionShown, "", "the CustomResourceDefinition %s: %s", d.Name, cluster.ErrShownByArgoCD)
		}
	}
	return nil
}

// checkAdmission names the webhooks and policies that apply to writes now, and at the server.
func (p *plan) checkAdmission(ctx context.Context, found []definition) error {
	resources := sets.New[string]()
	for _, d := range found {
		resources.Insert(d.Spec.Names.Plural)
	}
	webhooks, err := admission.ListWebhooks(ctx, p.kube)
	if err != nil {
		return fmt.Errorf("reading the webhooks: %w", err)
	}
	var names []string
	for _, webhook := range webhooks {
		if admission.Concern(webhook.Rules, p.config.Group, resources.Has) {
			names = append(names, webhook.Name)
		}
	}
	if len(names) > 0 {
		p.notice(Webhooks, "let the server reach them, also through network policies: it asks them as kube-apiserver does", "webhooks are asked about writes: %s", strings.Join(names, ", "))
	}
	policies, err := admission.ListPolicies(ctx, p.kube)
	if err != nil {
		return fmt.Errorf("reading the policies: %w", err)
	}
	names = nil
	fix := ""
	for _, policy := range policies {
		if !admission.Concern(policy.Rules, p.config.Group, resources.Has) {
			continue
		}
		name := policy.Name
		if policy.Parameters != nil {
			name += " (with parameters)"
			fix = "bind a ClusterRole that allows get, list and watch of the parameters to the server's ServiceAccount: the server reads them itself"
		}
		names = append(names, name)
	}
	if len(names) > 0 {
		p.notice(Policies, fix, "policies apply to writes, now and at the server: %s", strings.Join(names, ", "))
	}
	return nil
}

// checkControllers looks for controllers of the server, which must not change the objects before
// they have moved.
func (p *plan) checkControllers(ctx context.Context, _ []definition) error {
	lease, err := p.kube.CoordinationV1().Leases(p.config.Service.Namespace).Get(ctx, p.config.Lease, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the Lease of the server's controllers: %w", err)
	}
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
		p.fail(ControllersRun, "start the server with --run-controllers=false until the objects have moved; a Lease that a killed server has left can be deleted", "the Lease %s/%s says that controllers of the server run, in %s", lease.Namespace, lease.Name, *holder)
	}
	return nil
}

// rehearse returns the first refusal of a dry run of the migration's changes. It leaves out changes
// of objects. Without it, an update could be refused while writes wait.
func (m *Migration) rehearse(ctx context.Context, state State, back bool) error {
	tried := *m
	tried.state, tried.dryRun, tried.config.Report = state, []string{metav1.DryRunAll}, func(Progress) {}
	try := tried.rehearseForward
	if back {
		try = tried.rehearseReverse
	}
	err := try(ctx)
	if err == nil {
		err = tried.rehearseFreeze(ctx)
	}
	if err != nil {
		return &refusal{"an update that moving the objects takes is refused: " + err.Error(), "correct the definition, or change the policy or webhook that refuses it"}
	}
	return nil
}

func (m *Migration) rehearseForward(ctx context.Context) error {
	patch, client := cluster.LedTo(m.config.Service, m.config.CABundle), m.aggregator.ApiregistrationV1().APIServices()
	err := m.rehearseSwitch(ctx, "patching", func(name string) error {
		return errors.Join(m.patchAPIService(ctx, name, patch), cluster.GiveBack(ctx, client, name, m.dryRun...))
	})
	if err != nil {
		return err
	}
	if err := cluster.Apply(ctx, m.dynamic, m.dryRun, cluster.OwnPolicy(m.config.Group)...); err != nil {
		return err
	}
	if err := m.tryRefuseCopies(ctx); err != nil && !errors.Is(err, cluster.ErrNotKept) {
		return err
	}
	return m.hide(ctx, keys.CopyKept)
}

func (m *Migration) rehearseReverse(ctx context.Context) error {
	client := m.aggregator.ApiregistrationV1().APIServices()
	if err := m.rehearseSwitch(ctx, "deleting", func(name string) error { return cluster.GiveBack(ctx, client, name, m.dryRun...) }); err != nil {
		return err
	}
	if m.config.KubeEtcd == nil {
		if err := m.addVersions(ctx); err != nil {
			return err
		}
	}
	if err := m.allowCopies(ctx); err != nil {
		return err
	}
	if err := m.serve(ctx, keys.CopyKept); err != nil {
		return err
	}
	return m.annotate(ctx, keys.CopyNone)
}

// rehearseFreeze tries to create and to delete the objects that freeze writes.
func (m *Migration) rehearseFreeze(ctx context.Context) error {
	versions, err := m.frozenVersions(ctx)
	if err != nil {
		return err
	}
	objects, err := m.holding(ctx, m.freezeName(), writes()...)
	if err != nil {
		return err
	}
	if err := cluster.Apply(ctx, m.dynamic, m.dryRun, append(objects, m.denying(m.freezeName(), versions, "false")...)...); err != nil {
		return err
	}
	// The objects do not exist, so that their deletion can only be forbidden.
	if err := m.allow(ctx, m.freezeName()); err != nil {
		return err
	}
	return m.either(m.remove(ctx, "flowschemas", m.freezeName()), m.remove(ctx, "prioritylevelconfigurations", m.freezeName()))
}

// rehearseSwitch tries a change of all APIServices.
func (m *Migration) rehearseSwitch(ctx context.Context, doing string, do func(name string) error) error {
	for _, name := range m.config.APIServices {
		apiService, err := m.apiService(ctx, name)
		if err == nil && apiService != nil {
			err = do(name)
		}
		if err != nil {
			return fmt.Errorf("%s the APIService %s: %w", doing, name, err)
		}
	}
	return nil
}
