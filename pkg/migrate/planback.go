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
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// PlanBack returns what keeps the objects from moving back, and what happens to them. It changes
// nothing.
func (m *Migration) PlanBack(ctx context.Context) ([]Finding, error) {
	state, err := m.Status(ctx)
	if err != nil && !errors.Is(err, ErrNone) {
		return nil, err
	}
	p := &plan{Migration: m, state: state, back: true}
	err = p.run(ctx, append(p.reversible(),
		p.precondition("kube-etcd", OtherEtcd, m.checkKubeEtcd),
		p.precondition("encryption", Encrypted, m.checkEncryption),
		planCheck{"objects", p.checkObjectsBack},
		planCheck{"updates", p.checkUpdates},
	)...)
	return p.findings, err
}

// reversible returns the checks before objects begin to move back.
func (p *plan) reversible() []planCheck {
	return []planCheck{
		p.precondition("migration", NotMoved, p.checkReturnable),
		p.precondition("apiservices", NotRegistered, p.checkRegistered),
		p.precondition("copies", NotMoved, p.checkCopies),
		{"etcd", p.checkRevisions},
		p.precondition("undefined", ObjectsUndefined, p.checkUndefined),
		p.precondition("written", CopiesWritten, func(ctx context.Context) error { return p.checkWritten(ctx, p.state) }),
	}
}

func (p *plan) checkReturnable(context.Context) error {
	if p.state.Phase == "" || p.state.Phase == Moved || p.state.Returning && p.state.Phase != Returned {
		return nil
	}
	return &refusal{fmt.Sprintf("the migration is in the phase %s, and not in %s", p.state.Phase, Moved), "end it by \"migrate run\", \"migrate abort\" or \"migrate finish\""}
}

// checkCopies returns an error if kube-apiserver has no copies of the objects whose UIDs can be kept. It has none
// without a migration, or of a definition that was deleted since.
func (p *plan) checkCopies(ctx context.Context) error {
	if p.config.KubeEtcd != nil || p.state.Phase != "" && p.state.Phase != Moved {
		return nil
	}
	found, err := p.definitions(ctx)
	if p.state.Phase == "" || slices.ContainsFunc(found, func(d definition) bool {
		before := p.state.Definitions[d.Name].UID
		return before != "" && before != d.UID
	}) {
		return errAllNew
	}
	return err
}

// checkKubeEtcd returns an error unless kube-apiserver's etcd has the definitions, as kube-apiserver shows them. Another
// prefix, or another cluster's etcd, has no such objects, or others.
func (m *Migration) checkKubeEtcd(ctx context.Context) error {
	if m.config.KubeEtcd == nil {
		return nil
	}
	// A definition may just change.
	return eventually(ctx, cluster.SettleTime, func(ctx context.Context) error {
		found, err := m.definitions(ctx)
		if err != nil {
			return err
		}
		for _, d := range found {
			response, err := m.config.KubeEtcd.Get(ctx, path.Join(m.config.KubePrefix, "apiextensions.k8s.io/customresourcedefinitions", d.Name))
			if err != nil {
				return fmt.Errorf("reading kube-apiserver's etcd: %w", err)
			}
			if len(response.Kvs) == 0 || strconv.FormatInt(response.Kvs[0].ModRevision, 10) != d.ResourceVersion {
				return &refusal{fmt.Sprintf("%s is not in the etcd of --kube-etcd-servers, below --kube-etcd-prefix, as in kube-apiserver", d.Name), "give the --etcd-servers and the --etcd-prefix of this cluster's kube-apiserver"}
			}
		}
		return nil
	})
}

// checkEncryption returns an error if kube-apiserver encrypts objects that this process would write
// unencrypted.
func (m *Migration) checkEncryption(ctx context.Context) error {
	if m.config.KubeEtcd == nil {
		return nil
	}
	return m.eachMove(ctx, func(move move) error {
		_, err := m.inKubeEtcd().all(ctx, move)
		return err
	})
}

// checkUndefined returns an error if the server has objects whose definition is gone. Clients would not reach them any
// more.
func (m *Migration) checkUndefined(ctx context.Context) error {
	if !m.config.Defined || len(m.config.Stores) == 0 {
		return nil
	}
	stored, err := m.config.Etcd.Get(ctx, path.Dir(path.Dir(m.config.Stores[0].Prefix))+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return fmt.Errorf("reading the server's etcd: %w", err)
	}
	undefined := slices.DeleteFunc(stored.Kvs, func(kv *mvccpb.KeyValue) bool {
		return slices.ContainsFunc(m.config.Stores, func(store keys.Objects) bool { return strings.HasPrefix(string(kv.Key), store.Prefix) })
	})
	if len(undefined) == 0 {
		return nil
	}
	return &refusal{fmt.Sprintf("the server has %d objects of %s without a CustomResourceDefinition, which clients would not reach any more", len(undefined), m.config.Group),
		"apply their definition again, or delete them"}
}

// checkObjectsBack names the objects that get another UID, and those that are too large.
func (p *plan) checkObjectsBack(ctx context.Context) error {
	return p.eachMove(ctx, func(move move) error {
		count, created := 0, []string{}
		var large named
		_, err := p.list(ctx, move.from, func(object *unstructured.Unstructured) error {
			count++
			name := keyOf(object)
			if !object.GetCreationTimestamp().Time.Before(p.state.Switched) {
				created = append(created, name)
			}
			to := p.inKubeEtcd()
			after, err := to.encode(move, object)
			if err == nil {
				err = p.tryStore(ctx, p.config.KubeEtcd, to.prefix(move)+name, after.data)
			}
			if errors.Is(err, errTooLarge) {
				large.add(name, err)
				return nil
			}
			return err
		})
		switch {
		case err != nil:
			return err
		case p.config.KubeEtcd != nil || len(created) == 0:
			p.notice(ObjectsMove, "", "%d %s would move back, with their UIDs", count, move.GroupResource)
		default:
			if err := p.checkQuotas(ctx, move.GroupResource); err != nil {
				return err
			}
			p.notice(NewUIDs, "give --kube-etcd-servers to keep their UIDs", "%d %s would move back, and %d of them get another UID, since kube-apiserver has no copies with the same: the garbage collector deletes what they own: %v", count, move.GroupResource, len(created), created)
		}
		if large.total == 0 {
			return nil
		}
		status, are := Failure, "are"
		if p.config.KubeEtcd == nil {
			status, are = Notice, "may be"
		}
		p.find(ObjectsTooLarge, status, "make these objects smaller, or give kube-apiserver's etcd a higher --max-request-bytes",
			"%d of %d %s %s too large for kube-apiserver's etcd: %s", large.total, count, move.GroupResource, are, large)
		return nil
	})
}

// checkQuotas names the quotas that count new objects of a resource twice while they move back.
func (p *plan) checkQuotas(ctx context.Context, resource schema.GroupResource) error {
	list, err := p.kube.CoreV1().ResourceQuotas(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("reading the quotas: %w", err)
	}
	var quotas []string
	for _, quota := range list.Items {
		for name := range quota.Spec.Hard {
			if of, counted := strings.CutPrefix(string(name), "count/"); counted && of == resource.String() {
				quotas = append(quotas, quota.Namespace+"/"+quota.Name)
				break
			}
		}
	}
	if len(quotas) > 0 {
		p.notice(Quotas, "raise them, or give --kube-etcd-servers", "quotas count the new %s twice while they move back, and may refuse them: %s", resource, strings.Join(quotas, ", "))
	}
	return nil
}

// checkRegistered returns an error unless the server serves the group.
func (m *Migration) checkRegistered(ctx context.Context) error {
	found, err := m.definitions(ctx)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("no CustomResourceDefinition defines a resource of %s: apply them first", m.config.Group)
	}
	all, err := m.apiServices(ctx)
	if err != nil {
		return err
	}
	registered, local := false, []string{}
	for _, apiService := range all {
		if apiService.Spec.Service == nil {
			local = append(local, apiService.Name)
		} else {
			registered = true
		}
	}
	if !registered {
		return fmt.Errorf("no version of %s leads to a server: there is nothing to move back", m.config.Group)
	}
	if len(local) > 0 {
		return &refusal{
			fmt.Sprintf("%s lead to no server, so that clients of these versions use what kube-apiserver has, and what they have written there would be overwritten", strings.Join(local, ", ")),
			"make these APIServices lead to the server, after what is missing there has been written through another version",
		}
	}
	return nil
}

// checkWritten returns an error if kube-apiserver has objects that were written there past the server, as while no
// APIService led to it. They would be deleted or overwritten as copies. Without a migration, all are such objects.
// While kube-apiserver hides them, only BypassVersion and its etcd show them.
func (m *Migration) checkWritten(ctx context.Context, state State) error {
	if state.Phase != "" && (state.Phase != Moved || state.Revisions == nil) {
		return nil // An aborted way back has written some of the copies.
	}
	if !m.config.Defined || m.config.DiscardWritten {
		return nil
	}
	bypassed := state.Phase == Moved && len(state.Conversions) > 0
	var (
		written []string
		first   move
	)
	err := m.eachMove(ctx, func(move move) error {
		// All objects of a resource that was defined later are new.
		moved, _ := strconv.ParseInt(state.Revisions[move.Resource], 10, 64)
		look := func(object *unstructured.Unstructured, revision int64) error {
			if revision <= moved || object.GetDeletionTimestamp() != nil {
				return nil // An earlier process may have deleted it.
			}
			lost, err := m.lost(ctx, move, object)
			if lost {
				if len(written) == 0 {
					first = move
				}
				written = append(written, move.Resource+"/"+keyOf(object))
			}
			return err
		}
		if m.config.KubeEtcd != nil {
			return m.inKubeEtcd().each(ctx, move, func(_ string, kv *mvccpb.KeyValue) error {
				object, err := objectAtKube(move, kv)
				if err != nil {
					return err
				}
				return look(object, kv.ModRevision)
			})
		}
		from := local(move.from)
		switch {
		case bypassed:
			from = move.bypass()
		case move.hidden:
			return nil
		}
		_, err := m.list(ctx, from, func(object *unstructured.Unstructured) error {
			object.SetAPIVersion(move.from.GroupVersion().String())
			revision, err := revisionOf(object.GetResourceVersion())
			return cmp.Or(err, look(object, revision))
		})
		return err
	})
	if err != nil || len(written) == 0 {
		return err
	}
	own, read := local(first.from), "read them"
	if first.hidden {
		read = fmt.Sprintf("delete the MutatingAdmissionPolicyBinding %s, set served in the versions of the definition, read them", cluster.CopiesPolicyName(m.config.Group))
	}
	return &refusal{
		fmt.Sprintf("%d objects were written at kube-apiserver past the server, which does not have them like that: %s", len(written), strings.Join(written[:min(maxNamed, len(written))], ", ")),
		fmt.Sprintf("%s at /apis/%s, and create or change them at the server; --discard-written gives up what is still missing then", read, path.Join(own.Group, own.Version, own.Resource)),
	}
}

// lost reports whether the server lacks what kube-apiserver has of an object. Each write changes managedFields and the
// generation.
func (m *Migration) lost(ctx context.Context, move move, object *unstructured.Unstructured) (bool, error) {
	response, err := m.config.Etcd.Get(ctx, move.Prefix+keyOf(object))
	if err != nil {
		return false, fmt.Errorf("reading the server's etcd: %w", err)
	}
	if len(response.Kvs) == 0 {
		return true, nil
	}
	data, err := readAtServer(ctx, move, response.Kvs[0])
	if err != nil {
		return false, err
	}
	there := &unstructured.Unstructured{}
	if err := there.UnmarshalJSON(data); err != nil {
		return false, err
	}
	var contents []content
	for _, object := range []*unstructured.Unstructured{object, there} {
		object.SetManagedFields(nil)
		object.SetGeneration(0)
		encoded, err := atServer{}.encode(move, object)
		if err != nil {
			return false, err
		}
		contents = append(contents, encoded.content)
	}
	return contents[0] != contents[1], nil
}
