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

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// The reasons of findings, see docs/migration.md.
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
	NamespaceDeleted Reason = "NamespaceDeleted"

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
	p, err := m.examine(ctx)
	if err != nil {
		return nil, err
	}
	err = p.run(ctx, planCheck{"hidden", p.checkHidden})
	return p.findings, err
}

// examine returns a plan with the findings that could keep the objects from moving.
func (m *Migration) examine(ctx context.Context) (*plan, error) {
	if _, err := m.Status(ctx); err == nil {
		return nil, errors.New("the migration has begun already: see \"migrate status\", and continue it with \"migrate run\"")
	} else if !errors.Is(err, ErrNone) {
		return nil, err
	}
	found, err := m.definitions(ctx)
	if err != nil {
		return nil, err
	}
	p := &plan{Migration: m, found: found, namespaces: map[string]bool{}}
	err = p.run(ctx,
		planCheck{"definitions", p.checkDefinitions}, planCheck{"apiservices", p.checkAPIServices}, planCheck{"etcd", p.checkEtcd},
		planCheck{"controllers", p.checkControllers}, planCheck{"objects", p.checkObjects}, planCheck{"updates", p.checkUpdates},
	)
	return p, err
}

// plan collects findings.
type plan struct {
	*Migration
	// state is the state of the migration, and found are the definitions, if the checks need them.
	state State
	found []definition
	// back says that the objects are to move back.
	back     bool
	check    string
	findings []Finding
	// namespaces are the namespaces of the objects.
	namespaces map[string]bool
}

type planCheck struct {
	name string
	run  func(context.Context) error
}

func (p *plan) run(ctx context.Context, checks ...planCheck) error {
	for _, check := range checks {
		p.check = check.name
		before := len(p.findings)
		if err := check.run(ctx); err != nil {
			return err
		}
		if len(p.findings) == before {
			p.findings = append(p.findings, Finding{Check: check.name, Status: OK, Cause: nothing})
		}
	}
	return nil
}

// require returns an error with the first failure that checks find.
func (p *plan) require(ctx context.Context, checks ...planCheck) error {
	if err := p.run(ctx, checks...); err != nil {
		return err
	}
	for _, finding := range p.findings {
		switch {
		case finding.Status != Failure:
		case finding.Fix == "":
			return errors.New(finding.Cause)
		default:
			return &refusal{finding.Cause, finding.Fix}
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

func (p *plan) failIf(failed bool, reason Reason, fix, cause string, args ...any) {
	if failed {
		p.fail(reason, fix, cause, args...)
	}
}

func (p *plan) notice(reason Reason, fix, cause string, args ...any) {
	p.find(reason, Notice, fix, cause, args...)
}

// refusal is an error that also says what to do about it.
type refusal struct{ cause, fix string }

func (r *refusal) Error() string { return r.cause + ": " + r.fix }

// precondition returns a check that fails with a reason if a precondition does not hold.
func (p *plan) precondition(name string, reason Reason, holds func(context.Context) error) planCheck {
	return planCheck{name, func(ctx context.Context) error {
		p.failOn(reason, holds(ctx))
		return nil
	}}
}

// failOn fails with a reason if there is an error.
func (p *plan) failOn(reason Reason, err error) {
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		p.fail(reason, refused.fix, "%s", refused.cause)
	} else if err != nil {
		p.fail(reason, "", "%s", err)
	}
}

// checkDefinitions compares the definitions with the server's resources.
func (p *plan) checkDefinitions(context.Context) error {
	if len(p.found) == 0 {
		p.fail(NothingDefined, "check the group: there is nothing to move", "no CustomResourceDefinition defines a resource of %s", p.config.Group)
	}
	for _, d := range p.found {
		p.failIf(d.DeletionTimestamp != nil, DefinitionDeleted, "nothing can keep its objects from being deleted", "the CustomResourceDefinition %s is being deleted", d.Name)
		store := p.storeOf(d)
		if store == nil {
			p.fail(NotStored, "use a server that has it: a group moves as a whole", "the server does not store %s", d.Name)
			continue
		}
		scope := map[bool]apiextensionsv1.ResourceScope{true: apiextensionsv1.NamespaceScoped, false: apiextensionsv1.ClusterScoped}[store.Namespaced]
		p.failIf(!apihelpers.IsCRDConditionTrue(&d.CustomResourceDefinition, apiextensionsv1.Established), NotEstablished,
			"free the names that another definition has, and wait for the condition Established", "the CustomResourceDefinition %s is not established, so that its objects can't be read", d.Name)
		p.failIf(store.Kind != d.Spec.Names.Kind, KindDiffers, "use a server with the same kinds", "the kind of %s is %s, and at the server %s", d.Name, d.Spec.Names.Kind, store.Kind)
		p.failIf(scope != d.Spec.Scope, ScopeDiffers, "use a server with the same scope", "the scope of %s is %s, and at the server %s", d.Name, d.Spec.Scope, scope)
		p.failIf(len(d.served()) == 0, NothingServed, "set served in one of its versions", "no version of %s is served, so that its objects can't be read", d.Name)
		for _, version := range d.Spec.Versions {
			p.failIf(!slices.Contains(store.Versions, version.Name), VersionMissing,
				"use a server that serves it, or remove the version from the definition", "the server does not serve %s in the version %s", d.Name, version.Name)
			p.failIf(version.Storage && !slices.Contains(d.served(), version.Name), StorageVersionNotServed,
				"set served in it: objects are read in this version", "%s is stored in the version %s, which is not served", d.Name, version.Name)
		}
		if d.converts() {
			p.notice(ConversionWebhook, "let it run until the objects have moved", "a webhook converts %s: reading all objects calls it for each one that is stored in another version than %s", d.Name, d.stored().Version)
		}
	}
	return nil
}

// checkAPIServices requires that kube-apiserver manages the APIServices.
func (p *plan) checkAPIServices(ctx context.Context) error {
	all, err := p.apiServices(ctx)
	for _, apiService := range all {
		switch {
		case apiService.Spec.Service != nil:
			p.fail(LeadsToServer, "nothing if the objects have moved there already; otherwise "+p.fixUnregister(), "the APIService %s leads to a server, so that clients do not see the custom resources", apiService.Name)
		case apiService.Labels[cluster.ManagedLabel] == "":
			p.fail(NotManaged, "delete the APIService: kube-apiserver creates it again with the label", "the APIService %s has no label %s", apiService.Name, cluster.ManagedLabel)
		}
	}
	return err
}

// checkEtcd requires a server without objects, and with a later revision than kube-apiserver's.
func (p *plan) checkEtcd(ctx context.Context) error {
	for _, store := range p.config.Stores {
		count, err := p.countAtServer(ctx, store)
		if err != nil {
			return err
		}
		p.failIf(count > 0, ServerHasObjects, "nothing if they have moved already, so that clients use them; otherwise delete them: those of the same names would be overwritten, and the others deleted",
			"the server has %d %s already", count, store.GroupResource)
	}
	return p.checkRevisions(ctx)
}

// countAtServer returns how many objects of a resource the server's etcd has.
func (m *Migration) countAtServer(ctx context.Context, store keys.Objects) (int, error) {
	return m.atServer().count(ctx, move{Objects: &store})
}

// checkRevisions says how many revisions are missing in the etcd that objects move to.
func (p *plan) checkRevisions(ctx context.Context) error {
	missed, err := p.checkRevision(ctx, p.back)
	p.failOn(RevisionTooLow, err)
	if err == nil && missed != "" {
		p.notice(RevisionTooLow, "", "%s, which --raise-revision writes", missed)
	}
	return nil
}

// checkUpdates fails if an update that the migration needs would be refused.
func (p *plan) checkUpdates(ctx context.Context) error {
	p.failOn(UpdateRefused, p.rehearse(ctx, p.state, p.back))
	return nil
}

// checkHidden notes what keeps definitions from being hidden, or shows that they are.
func (p *plan) checkHidden(ctx context.Context) error {
	if !p.config.Defined {
		return nil // They are deleted.
	}
	tried := *p.Migration
	tried.dryRun = []string{metav1.DryRunAll}
	if err := tried.tryRefuseCopies(ctx); errors.Is(err, cluster.ErrNotKept) {
		p.notice(DefinitionsNotKept, fmt.Sprintf("run \"crd-apiserver register --groups=%s\" after each time that they are applied, or upgrade the cluster", p.config.Group), "%s", err)
	}
	for _, d := range p.found {
		if cluster.AppliedByArgoCD(&d) {
			p.notice(DefinitionShown, "", "the CustomResourceDefinition %s: %s", d.Name, cluster.ErrShownByArgoCD)
		}
	}
	return nil
}

// checkControllers looks for controllers of the server, which must not change the objects before
// they have moved.
func (p *plan) checkControllers(ctx context.Context) error {
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
		_, err := client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{DryRun: m.dryRun})
		return errors.Join(err, cluster.GiveBack(ctx, client, name, m.dryRun...))
	})
	if err == nil {
		err = cluster.Apply(ctx, m.dynamic, m.dryRun, cluster.OwnPolicy(m.config.Group)...)
	}
	if err == nil {
		err = m.tryRefuseCopies(ctx)
	}
	if err != nil && !errors.Is(err, cluster.ErrNotKept) {
		return err
	}
	return m.hide(ctx)
}

func (m *Migration) rehearseReverse(ctx context.Context) error {
	client := m.aggregator.ApiregistrationV1().APIServices()
	if err := m.rehearseSwitch(ctx, "deleting", func(name string) error { return cluster.GiveBack(ctx, client, name, m.dryRun...) }); err != nil {
		return err
	}
	steps := []func(context.Context) error{m.allowCopies, m.serve, func(ctx context.Context) error { return m.annotate(ctx, keys.CopyNone) }}
	if m.config.KubeEtcd == nil {
		steps = append(steps, m.addVersions)
	}
	return inOrder(ctx, steps...)
}

// rehearseFreeze tries to create and to delete the objects that freeze writes.
func (m *Migration) rehearseFreeze(ctx context.Context) error {
	objects, err := m.holding(ctx, m.freezeName(), writes()...)
	if err != nil {
		return err
	}
	if err := cluster.Apply(ctx, m.dynamic, m.dryRun, append(objects, m.freezing()...)...); err != nil {
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
	all, err := m.apiServices(ctx)
	if err != nil {
		return err
	}
	for _, apiService := range all {
		if err := do(apiService.Name); err != nil {
			return fmt.Errorf("%s the APIService %s: %w", doing, apiService.Name, err)
		}
	}
	return nil
}
