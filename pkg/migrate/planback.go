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
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

// PlanBack returns what keeps the objects from moving back, and what happens to them. It changes
// nothing.
func (m *Migration) PlanBack(ctx context.Context) ([]Finding, error) {
	state, err := m.Status(ctx)
	if err != nil && !errors.Is(err, ErrNone) {
		return nil, err
	}
	p := &plan{Migration: m}
	err = p.run(ctx, nil, []planCheck{
		{"migration", p.require(NotMoved, func(ctx context.Context) error {
			return errors.Join(m.checkReturnable(state), m.checkCopies(ctx, state))
		})},
		{"apiservices", p.require(NotRegistered, m.checkRegistered)},
		{"etcd", p.checkRevisions(true)},
		{"kube-etcd", p.require(OtherEtcd, m.checkKubeEtcd)},
		{"encryption", p.require(Encrypted, m.checkEncryption)},
		{"undefined", p.require(ObjectsUndefined, m.checkUndefined)},
		{"written", p.require(CopiesWritten, func(ctx context.Context) error { return m.checkWritten(ctx, state) })},
		{"objects", func(ctx context.Context, _ []definition) error { return p.checkObjectsBack(ctx, state) }},
		{"updates", p.checkUpdates(state, true)},
	})
	return p.findings, err
}

func (m *Migration) checkReturnable(state State) error {
	switch {
	case state.Phase == "" && m.config.KubeEtcd == nil:
		return errAllNew
	case state.Phase == "", state.Phase == Moved, state.Returning && state.Phase != Returned:
		return nil
	}
	return fmt.Errorf("the migration is in the phase %s, and not in %s", state.Phase, Moved)
}

// checkCopies returns an error if a definition was deleted since the objects moved, and kube-apiserver's copies with it.
func (m *Migration) checkCopies(ctx context.Context, state State) error {
	if state.Phase != Moved || m.config.KubeEtcd != nil {
		return nil
	}
	found, err := m.definitions(ctx)
	for _, d := range found {
		if before := state.Definitions[d.Name].UID; before != "" && before != d.UID {
			return errAllNew
		}
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
	moves, err := m.moves(ctx)
	if err != nil {
		return err
	}
	to := m.inKubeEtcd()
	for _, move := range moves {
		response, err := to.Get(ctx, to.prefix(move), clientv3.WithPrefix(), clientv3.WithLimit(1))
		if err != nil {
			return fmt.Errorf("reading kube-apiserver's etcd: %w", err)
		}
		for _, kv := range response.Kvs {
			if _, err := to.decode(ctx, move, string(kv.Key), kv.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkUndefined returns an error if the server has objects whose definition is gone. Clients would not reach them any
// more.
func (m *Migration) checkUndefined(ctx context.Context) error {
	if !m.config.Defined || len(m.config.Stores) == 0 {
		return nil
	}
	prefixes := []string{path.Dir(path.Dir(m.config.Stores[0].Prefix)) + "/"}
	for _, store := range m.config.Stores {
		prefixes = append(prefixes, store.Prefix)
	}
	// At the same moment.
	var counts []clientv3.Op
	for _, prefix := range prefixes {
		counts = append(counts, clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithCountOnly()))
	}
	response, err := m.config.Etcd.Txn(ctx).Then(counts...).Commit()
	if err != nil {
		return fmt.Errorf("reading the server's etcd: %w", err)
	}
	undefined := response.Responses[0].GetResponseRange().Count
	for _, defined := range response.Responses[1:] {
		undefined -= defined.GetResponseRange().Count
	}
	if undefined == 0 {
		return nil
	}
	return &refusal{fmt.Sprintf("the server has %d objects of %s without a CustomResourceDefinition, which clients would not reach any more", undefined, m.config.Group),
		"apply their definition again, or delete them"}
}

// uidsAtKube returns the UIDs of kube-apiserver's copies by key, or nil if it hides them.
func (m *Migration) uidsAtKube(ctx context.Context, move move) (map[string]types.UID, error) {
	if move.hidden || m.config.KubeEtcd != nil {
		return nil, nil
	}
	uids := map[string]types.UID{}
	_, err := m.list(ctx, local(move.from), func(object *unstructured.Unstructured) error {
		uids[keyOf(object)] = object.GetUID()
		return nil
	})
	return uids, err
}

// checkObjectsBack names the objects that get another UID, and those that are too large.
func (p *plan) checkObjectsBack(ctx context.Context, state State) error {
	moves, err := p.moves(ctx)
	if err != nil {
		return err
	}
	for _, move := range moves {
		count, created := 0, []string{}
		var large named
		uids, err := p.uidsAtKube(ctx, move)
		if err != nil {
			return err
		}
		_, err = p.list(ctx, move.from, func(object *unstructured.Unstructured) error {
			count++
			name := keyOf(object)
			if uids == nil && !object.GetCreationTimestamp().Time.Before(state.Switched) || uids != nil && uids[name] != object.GetUID() {
				created = append(created, name)
			}
			to := p.inKubeEtcd()
			after, err := to.encode(move, object)
			if err == nil {
				err = p.tryStore(ctx, p.config.KubeEtcd, to.prefix(move)+name, len(after.data), func(string) ([]byte, error) { return after.data, nil })
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
			continue
		}
		status, are := Failure, "are"
		if p.config.KubeEtcd == nil {
			status, are = Notice, "may be"
		}
		p.find(ObjectsTooLarge, status, "make these objects smaller, or give kube-apiserver's etcd a higher --max-request-bytes",
			"%d of %d %s %s too large for kube-apiserver's etcd: %s", large.total, count, move.GroupResource, are, large)
	}
	return nil
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
	registered, local := false, []string{}
	for _, name := range m.config.APIServices {
		apiService, err := m.apiService(ctx, name)
		switch {
		case err != nil:
			return err
		case apiService == nil: // No definition has the version.
		case apiService.Spec.Service == nil:
			local = append(local, name)
		default:
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
	moves, err := m.moves(ctx)
	if err != nil {
		return err
	}
	var (
		written []string
		first   move
	)
	for _, move := range moves {
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
			err = m.inKubeEtcd().each(ctx, move, func(key string, kv *mvccpb.KeyValue) error {
				object, err := objectAtKube(move, key, kv.Value)
				if err != nil {
					return err
				}
				return look(object, kv.ModRevision)
			})
		} else if own := move.bypass(); bypassed || !move.hidden {
			if !bypassed {
				own = local(move.from)
			}
			_, err = m.list(ctx, own, func(object *unstructured.Unstructured) error {
				object.SetAPIVersion(move.from.GroupVersion().String())
				revision, err := revisionOf(object.GetResourceVersion())
				return cmp.Or(err, look(object, revision))
			})
		}
		if err != nil {
			return err
		}
	}
	if len(written) == 0 {
		return nil
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
	key := move.Prefix + keyOf(object)
	response, err := m.config.Etcd.Get(ctx, key)
	if err != nil {
		return false, fmt.Errorf("reading the server's etcd: %w", err)
	}
	if len(response.Kvs) == 0 {
		return true, nil
	}
	data, err := readAtServer(ctx, move, key, response.Kvs[0].Value)
	if err != nil {
		return false, err
	}
	there := &unstructured.Unstructured{}
	if err := there.UnmarshalJSON(data); err != nil {
		return false, err
	}
	var contents []content
	for _, object := range []*unstructured.Unstructured{object.DeepCopy(), there} {
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
