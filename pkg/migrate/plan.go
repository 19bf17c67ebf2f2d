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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/storage/value"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
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

func (p *plan) fail(reason Reason, fix, cause string, args ...any) {
	p.findings = append(p.findings, Finding{p.check, reason, Failure, fmt.Sprintf(cause, args...), fix})
}

func (p *plan) notice(reason Reason, fix, cause string, args ...any) {
	p.findings = append(p.findings, Finding{p.check, reason, Notice, fmt.Sprintf(cause, args...), fix})
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

// checkObjects decodes and encodes each object as the server does, and sums up the results.
func (p *plan) checkObjects(ctx context.Context, found []definition) error {
	for _, d := range found {
		store := p.storeOf(d)
		if store == nil || len(d.served()) == 0 {
			continue // checkDefinitions has said so.
		}
		if err := p.checkObjectsOf(ctx, d, move{store, d.stored(), d.hidden()}); err != nil {
			return err
		}
	}
	return p.checkNamespaces(ctx)
}

func (p *plan) checkObjectsOf(ctx context.Context, d definition, move move) error {
	seen := objectsSeen{finalizers: map[string]int{}}
	_, err := p.list(ctx, move.from, func(object *unstructured.Unstructured) error { return p.look(ctx, move, object, &seen) })
	if d.converts() && apierrors.IsInternalError(err) {
		p.fail(NotConverted, "correct these objects in the version that they are stored in, or the webhook", "%s", err)
		return nil
	}
	if err != nil {
		return err
	}
	if seen.refused.total > 0 {
		p.fail(ObjectsRefused, "change these objects, or use a server that knows their fields", "%d of %d %s can't be stored by the server without loss: %s", seen.refused.total, seen.count, move.GroupResource, seen.refused)
	}
	if seen.large.total > 0 {
		p.fail(ObjectsTooLarge, "make these objects smaller, or give the server's etcd a higher --max-request-bytes, which an embedded one does not have", "%d of %d %s are too large for the server's etcd: %s", seen.large.total, seen.count, move.GroupResource, seen.large)
	}
	if seen.bounded.total > 0 {
		p.notice(BoundExceeded, "make these objects smaller, or give the server and this command a higher --max-body-elements", "%d of %d %s exceed a bound of the server, so that clients can change them and make them smaller, but not larger: %s", seen.bounded.total, seen.count, move.GroupResource, seen.bounded)
	}
	if seen.rounded.total > 0 {
		p.notice(FractionsLost, "", "the server stores no fractions of seconds in %d of %d %s: %s", seen.rounded.total, seen.count, move.GroupResource, seen.rounded)
	}
	if seen.unconverted.total > 0 {
		p.fail(NotConverted, "change these objects: clients that use the version would get errors", "%d of %d %s can't be converted by the server to a version that it serves: %s", seen.unconverted.total, seen.count, move.GroupResource, seen.unconverted)
	}
	p.notice(ObjectsMove, "", "%d %s would move, %d kB as JSON: %d have finalizers, %d are being deleted, %d have owners", seen.count, move.GroupResource, seen.bytes/1000, seen.finalized, seen.deleted, seen.owned)
	if seen.invalid.total > 0 {
		p.notice(ObjectsInvalid, "correct them before or after they move: they move as they are, and the server refuses the next update that leaves them invalid", "%d of %d %s would be refused by the server's validation: %s", seen.invalid.total, seen.count, move.GroupResource, seen.invalid)
	}
	if len(seen.finalizers) > 0 {
		p.notice(Finalizers, "let the controllers that remove them run on", "%s have finalizers: %s", move.GroupResource, counts(seen.finalizers))
	}
	return nil
}

// look decodes, encodes, converts and validates an object as the server does.
func (p *plan) look(ctx context.Context, move move, object *unstructured.Unstructured, seen *objectsSeen) error {
	data, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	p.namespaces[object.GetNamespace()] = true
	seen.add(object, len(data))
	name := keyOf(object)
	decoded, _, err := move.Strict.Decode(data, nil, nil)
	var encoded []byte
	if err == nil {
		encoded, err = encode(move.Codec, data)
	}
	if err != nil {
		seen.refused.add(name, err)
		return nil
	}
	if err := p.tryThere(ctx, move, name, encoded); errors.Is(err, errTooLarge) {
		seen.large.add(name, err)
	} else if err != nil {
		return err
	}
	if move.Convert != nil { // For other objects, the server bounds what a request adds.
		bounds := limits.DefaultBounds()
		bounds.BodyElements, bounds.Owners = p.config.MaxElements, p.config.MaxOwners
		if err := bounds.CheckObject(object, len(data)); err != nil {
			seen.bounded.add(name, err)
		}
	}
	if lost, err := lostFraction(data, decoded); err != nil {
		return err
	} else if lost != "" {
		seen.rounded.add(name, errors.New(lost))
	}
	for _, version := range move.Versions {
		if move.Convert == nil {
			break
		}
		if err := move.Convert(decoded, version); err != nil {
			seen.unconverted.add(name, fmt.Errorf("%s: %w", version, err))
			return nil
		}
	}
	if move.Validate == nil {
		return nil
	}
	for _, version := range move.Versions {
		if errs := move.Validate(ctx, created(decoded), version); len(errs) > 0 {
			seen.invalid.add(name, errs.ToAggregate())
			return nil
		}
	}
	return nil
}

// triedBytes is the smallest size of objects that the plan tries to store in etcd. By default etcd
// stores half a megabyte more.
const triedBytes = 1 << 20

// largeBytes is the size of an object that an unreachable etcd may refuse. etcd's default limit is
// 1.5 MiB.
const largeBytes = 1_500_000

var errTooLarge = errors.New("etcd refuses it")

// tryThere returns errTooLarge if the server's etcd would not store an object.
func (p *plan) tryThere(ctx context.Context, move move, name string, encoded []byte) error {
	if len(encoded) < triedBytes {
		return nil
	}
	key := move.Prefix + name
	encrypted, err := move.Transformer.TransformToStorage(ctx, encoded, value.DefaultContext(key))
	if err != nil {
		return fmt.Errorf("encrypting %s: %w", key, err)
	}
	return tryStore(ctx, p.config.Etcd, key, encrypted)
}

// tryBack returns errTooLarge if kube-apiserver's etcd would not store an object. If that etcd
// can't be reached, the size decides.
func (p *plan) tryBack(ctx context.Context, move move, object *unstructured.Unstructured) error {
	to := p.inKubeEtcd()
	after, err := to.encode(move, object)
	switch size := len(after.data); {
	case err != nil || size < triedBytes:
		return err
	case p.config.KubeEtcd != nil:
		return tryStore(ctx, p.config.KubeEtcd, to.prefix(move)+keyOf(object), after.data)
	case size > largeBytes:
		return fmt.Errorf("%w with its default of 1.5 MiB: %d bytes", errTooLarge, size)
	}
	return nil
}

// tryStore returns errTooLarge if an etcd would not store a value. Its transaction is as large as a
// server's update of an object, and stores nothing.
func tryStore(ctx context.Context, etcd *clientv3.Client, key string, stored []byte) error {
	_, err := etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "<", 0)).Then(clientv3.OpPut(key, string(stored))).Else(clientv3.OpGet(key)).Commit()
	if code := status.Code(err); errors.Is(err, rpctypes.ErrRequestTooLarge) || code == codes.ResourceExhausted || code == codes.InvalidArgument {
		return fmt.Errorf("%w: %d bytes", errTooLarge, len(stored))
	}
	return err
}

// fraction matches a time with a fraction of a second, as JSON.
var fraction = regexp.MustCompile(`"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d\.\d+(?:[Zz]|[+-]\d\d:\d\d)"`)

// lostFraction returns a time with a fraction that the decoded object has lost, or "".
func lostFraction(data []byte, decoded runtime.Object) (string, error) {
	times := fraction.FindAll(data, -1)
	if len(times) == 0 {
		return "", nil
	}
	after, err := json.Marshal(decoded)
	if err != nil {
		return "", err
	}
	for _, time := range times {
		if !bytes.Contains(after, time) {
			return strings.Trim(string(time), `"`), nil
		}
	}
	return "", nil
}

// created returns an object as a client would send it to create it.
func created(object runtime.Object) runtime.Object {
	object = object.DeepCopyObject()
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetResourceVersion("")
	}
	return object
}

// objectsSeen sums up the objects of a resource.
type objectsSeen struct {
	count, bytes, finalized, deleted, owned int
	// finalizers counts the objects with each finalizer.
	finalizers                    map[string]int
	refused, unconverted, invalid named
	large, bounded, rounded       named
}

func (s *objectsSeen) add(object *unstructured.Unstructured, size int) {
	s.count++
	s.bytes += size
	if object.GetDeletionTimestamp() != nil {
		s.deleted++
	}
	if finalizers := object.GetFinalizers(); len(finalizers) > 0 {
		s.finalized++
		for _, finalizer := range finalizers {
			s.finalizers[finalizer]++
		}
	}
	if len(object.GetOwnerReferences()) > 0 {
		s.owned++
	}
}

// named counts objects, and names some of them, with an error each.
type named struct {
	total int
	first []string
}

func (n *named) add(name string, err error) {
	n.total++
	if len(n.first) < maxNamed {
		n.first = append(n.first, fmt.Sprintf("%s (%v)", name, err))
	}
}

// String implements fmt.Stringer.
func (n named) String() string { return strings.Join(n.first, "; ") }

// counts lists names with their counts.
func counts(of map[string]int) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		texts = append(texts, fmt.Sprintf("%d %s", of[name], name))
	}
	return strings.Join(texts, ", ")
}

// checkNamespaces fails if a namespace of the objects is being deleted, and its objects with it.
func (p *plan) checkNamespaces(ctx context.Context) error {
	list, err := p.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("reading the namespaces: %w", err)
	}
	for _, namespace := range list.Items {
		if p.namespaces[namespace.Name] && namespace.Status.Phase == corev1.NamespaceTerminating {
			p.fail(NamespaceDeleted, "wait until it is gone", "the namespace %s, which has some of the objects, is being deleted", namespace.Name)
		}
	}
	return nil
}

func isCompacted(err error) bool { return errors.Is(err, rpctypes.ErrCompacted) }
