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
	"path"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"restaurant.programming-kubernetes.info/apiserver/pkg/stored"
)

// managedLabel is on APIServices that kube-apiserver manages, because of a
// CustomResourceDefinition. It undoes any change of their spec.
const managedLabel = "kube-aggregator.kubernetes.io/automanaged"

// Status is how serious a Finding is.
type Status string

const (
	// OK is how it should be.
	OK Status = "ok"
	// Notice is what to know before the objects move.
	Notice Status = "notice"
	// Failure is what keeps them from moving.
	Failure Status = "failure"
)

// Finding is one result of a plan.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	// Cause says what was found.
	Cause string `json:"cause"`
	// Fix says what to do about it.
	Fix string `json:"fix,omitempty"`
}

// Failures returns an error if there are any.
func Failures(findings []Finding) error {
	count := 0
	for _, finding := range findings {
		if finding.Status == Failure {
			count++
		}
	}
	if count == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d findings keep the objects from moving", count, len(findings))
}

// Plan finds out whether the objects can move, and changes nothing. It reads all of them.
func (m *Migration) Plan(ctx context.Context) ([]Finding, error) {
	if _, err := m.Status(ctx); err == nil {
		return nil, errors.New("the migration has begun already: see \"migrate status\", and continue it with \"migrate run\"")
	} else if !errors.Is(err, ErrNone) {
		return nil, err
	}
	found, err := m.definitions(ctx)
	if err != nil {
		return nil, err
	}
	p := &plan{Migration: m, namespaces: map[string]bool{}}
	for _, check := range []struct {
		name string
		run  func(context.Context, []definition) error
	}{
		{"definitions", p.checkDefinitions},
		{"apiservices", p.checkAPIServices},
		{"etcd", p.checkEtcd},
		{"controllers", p.checkControllers},
		{"objects", p.checkObjects},
	} {
		p.check = check.name
		before := len(p.findings)
		if err := check.run(ctx, found); err != nil {
			return nil, err
		}
		if len(p.findings) == before {
			p.findings = append(p.findings, Finding{Check: check.name, Status: OK, Cause: "nothing is in the way"})
		}
	}
	return p.findings, nil
}

type plan struct {
	*Migration
	check    string
	findings []Finding
	// namespaces are those of the objects.
	namespaces map[string]bool
}

func (p *plan) fail(fix, cause string, args ...any) {
	p.findings = append(p.findings, Finding{p.check, Failure, fmt.Sprintf(cause, args...), fix})
}

// checkDefinitions compares what is defined with what the server has.
func (p *plan) checkDefinitions(_ context.Context, found []definition) error {
	if len(found) == 0 {
		p.fail("check the group: there is nothing to move", "no CustomResourceDefinition defines a resource of %s", p.Group)
	}
	for _, d := range found {
		if d.DeletionTimestamp != nil {
			p.fail("nothing can keep its objects from being deleted", "the CustomResourceDefinition %s is being deleted", d.Name)
		}
		i := slices.IndexFunc(p.Stores, func(store stored.Objects) bool { return store.Resource == d.Spec.Names.Plural })
		if i < 0 {
			p.fail("use a server that has it: a group moves as a whole", "the server does not store %s", d.Name)
			continue
		}
		store := p.Stores[i]
		if store.Kind != d.Spec.Names.Kind {
			p.fail("use a server with the same kinds", "the kind of %s is %s, and at the server %s", d.Name, d.Spec.Names.Kind, store.Kind)
		}
		if scope := map[bool]string{true: "Namespaced", false: "Cluster"}[store.Namespaced]; scope != d.Spec.Scope {
			p.fail("use a server with the same scope", "the scope of %s is %s, and at the server %s", d.Name, d.Spec.Scope, scope)
		}
		if len(d.served()) == 0 {
			p.fail("set served in one of its versions", "no version of %s is served, so that its objects can't be read", d.Name)
		}
		for _, version := range d.Spec.Versions {
			if !slices.Contains(store.Versions, version.Name) {
				p.fail("use a server that serves it, or remove the version from the definition", "the server does not serve %s in the version %s", d.Name, version.Name)
			}
			if version.Storage && !version.Served {
				p.fail("set served in it: objects are read in this version", "%s is stored in the version %s, which is not served", d.Name, version.Name)
			}
		}
	}
	return nil
}

// checkAPIServices finds out who serves the versions now.
func (p *plan) checkAPIServices(ctx context.Context, _ []definition) error {
	for _, name := range p.APIServices {
		apiService, err := p.aggregator.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			// No definition has the version, so that the server's manifests can register it.
		case err != nil:
			return fmt.Errorf("reading the APIService %s: %w", name, err)
		case apiService.Spec.Service != nil:
			p.fail("delete the APIService: kube-apiserver creates it again for the definitions", "the APIService %s leads to a server, so that clients do not see the custom resources", name)
		case apiService.Labels[managedLabel] == "":
			p.fail("delete the APIService: kube-apiserver creates it again with the label", "the APIService %s has no label %s", name, managedLabel)
		}
	}
	return nil
}

// checkEtcd requires a server without objects, whose watches begin at later revisions than
// kube-apiserver's have reached.
func (p *plan) checkEtcd(ctx context.Context, found []definition) error {
	for _, store := range p.Stores {
		response, err := p.Etcd.Get(ctx, store.Prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return fmt.Errorf("reading the server's etcd: %w", err)
		}
		if response.Count > 0 {
			p.fail("delete them: those of the same names would be overwritten, and the others deleted", "the server has %d %s already", response.Count, store.GroupResource)
		}
	}
	for _, d := range found {
		list, err := p.dynamic.Resource(d.stored()).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return fmt.Errorf("reading the %s from kube-apiserver: %w", d.Name, err)
		}
		revision, err := revisionOf(list.GetResourceVersion())
		if err != nil {
			return err
		}
		_, err = p.Etcd.Get(ctx, p.StateKey, clientv3.WithRev(revision))
		if isCompacted(err) {
			continue
		}
		if err != nil && !errors.Is(err, rpctypes.ErrFutureRev) {
			return fmt.Errorf("reading the server's etcd: %w", err)
		}
		if p.Defined {
			now, err := p.serverRevision(ctx)
			if err != nil {
				return err
			}
			if revision-now <= maxRaise {
				break // The rest is raised by writes.
			}
		}
		p.fail("before its first object, restore a snapshot of the server's etcd, which continues at a later revision: \"snapshot save\" and \"snapshot restore\" for the embedded etcd, \"etcdutl snapshot restore --bump-revision --mark-compacted\" for another",
			"the server's etcd has not compacted the revision %d that kube-apiserver's has reached, so that clients that resume a watch would miss changes", revision)
		break
	}
	return nil
}

// checkControllers looks for controllers of the server, which would change the objects
// while others still do.
func (p *plan) checkControllers(ctx context.Context, _ []definition) error {
	lease, err := p.kube.CoordinationV1().Leases(p.Service.Namespace).Get(ctx, p.Lease, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the Lease of the server's controllers: %w", err)
	}
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
		p.fail("start the server with --run-controllers=false until the objects have moved; a Lease that a killed server has left can be deleted", "the Lease %s/%s says that controllers of the server run, in %s", lease.Namespace, lease.Name, *holder)
	}
	return nil
}

// checkObjects lets the server decode and encode each object, and sums up what is special.
func (p *plan) checkObjects(ctx context.Context, found []definition) error {
	for _, d := range found {
		i := slices.IndexFunc(p.Stores, func(store stored.Objects) bool { return store.Resource == d.Spec.Names.Plural })
		if i < 0 || len(d.served()) == 0 {
			continue // checkDefinitions has said so.
		}
		if err := p.checkObjectsOf(ctx, move{&p.Stores[i], d.stored()}); err != nil {
			return err
		}
	}
	return p.checkNamespaces(ctx)
}

func (p *plan) checkObjectsOf(ctx context.Context, move move) error {
	var count, bytes, finalizers, deleted, owned int
	var refused []string
	refusals := 0
	_, err := p.list(ctx, move.from, func(object *unstructured.Unstructured) error {
		data, err := object.MarshalJSON()
		if err != nil {
			return err
		}
		p.namespaces[object.GetNamespace()] = true
		count++
		bytes += len(data)
		if len(object.GetFinalizers()) > 0 {
			finalizers++
		}
		if object.GetDeletionTimestamp() != nil {
			deleted++
		}
		if len(object.GetOwnerReferences()) > 0 {
			owned++
		}
		if _, _, err = move.Strict.Decode(data, nil, nil); err == nil {
			_, err = encode(move.Codec, data)
		}
		if err != nil {
			refusals++
			if len(refused) < maxNamed {
				refused = append(refused, fmt.Sprintf("%s (%v)", path.Join(object.GetNamespace(), object.GetName()), err))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if refusals > 0 {
		p.fail("change these objects, or use a server that knows their fields", "%d of %d %s can't be stored by the server without loss: %s", refusals, count, move.GroupResource, strings.Join(refused, "; "))
	}
	p.findings = append(p.findings, Finding{p.check, Notice, fmt.Sprintf("%d %s would move, %d kB as JSON: %d have finalizers, %d are being deleted, %d have owners", count, move.GroupResource, bytes/1000, finalizers, deleted, owned), ""})
	return nil
}

// checkNamespaces looks for namespaces of the objects that are being deleted: the objects
// would go while they move.
func (p *plan) checkNamespaces(ctx context.Context) error {
	list, err := p.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("reading the namespaces: %w", err)
	}
	for _, namespace := range list.Items {
		if p.namespaces[namespace.Name] && namespace.Status.Phase == corev1.NamespaceTerminating {
			p.fail("wait until it is gone", "the namespace %s, which has some of the objects, is being deleted", namespace.Name)
		}
	}
	return nil
}

func isCompacted(err error) bool { return errors.Is(err, rpctypes.ErrCompacted) }
