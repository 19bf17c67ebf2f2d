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
	"os"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/util/apihelpers"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

// A freeze is made of objects that kube-apiservers and the server watch. It needs neither a process
// nor a network path.
//
//   - A priority level without a seat makes kube-apiserver hold each write for a quarter of its
//     time. kube-apiserver then answers it with 429 and Retry-After. Clients notice a pause.
//   - A ValidatingAdmissionPolicy refuses writes that are not held. Members of system:masters are
//     exempt from priority and fairness, and a write may have been held too late. The policy can
//     only answer 401, 403, 413 or 422, and clients retry after none of these. So it is created
//     after the priority level, and deleted before it.

const (
	// freezeTimeout bounds the wait for kube-apiserver to begin or end a freeze.
	freezeTimeout = 20 * time.Second
	// writeLimit is longer than any write takes that is not held (k8s.io/apiserver/pkg/endpoints/handlers/rest.go).
	writeLimit = 36 * time.Second
	// maxHeld is how many writes kube-apiserver holds. It answers others with 429 at once.
	maxHeld = 10_000
	// releaseShares are the concurrency shares of held writes when the freeze ends.
	releaseShares = 100
)

// freezeName returns the name of all objects that freeze writes.
func (m *Migration) freezeName() string { return "migrate." + m.config.Group }

// ownName returns the name of the FlowSchema that exempts this process from the freeze.
func (m *Migration) ownName() string { return m.freezeName() + ".own" }

// readsName returns the name of the objects that make kube-apiserver hold reads.
func (m *Migration) readsName() string { return m.freezeName() + ".reads" }

// bypassName returns the name of the policy that keeps BypassVersion for this process.
func (m *Migration) bypassName() string { return m.freezeName() + ".bypass" }

// owner returns annotations that name this process and say how to end the freeze.
func (m *Migration) owner() map[string]string {
	host, _ := os.Hostname()
	return map[string]string{
		"migrate/owner": fmt.Sprintf("process %d on %s, since %s", os.Getpid(), host, time.Now().UTC().Format(time.RFC3339)),
		"migrate/end":   "the server does that a minute after that process has ended, if it may; otherwise run the same command again, or \"migrate abort\"; without the server, delete all objects of this name",
	}
}

// freeze returns once every kube-apiserver keeps clients from writing.
func (m *Migration) freeze(ctx context.Context) error {
	if m.frozen {
		return nil
	}
	if !m.state.Returning {
		// Of a group that was registered before.
		if err := m.allowCopies(ctx); err != nil {
			return err
		}
	}
	if err := m.hold(ctx, m.freezeName(), writes()...); err != nil {
		return err
	}
	m.held = time.Now()
	if err := cluster.Apply(ctx, m.dynamic, m.dryRun, m.freezing()...); err != nil {
		return err
	}
	if err := eventually(ctx, freezeTimeout, func(ctx context.Context) error { return m.checkWrites(ctx, true) }); err != nil {
		return fmt.Errorf("kube-apiserver does not keep clients from writing: %w", err)
	}
	m.frozen = true
	longest, err := m.longestWrite(ctx)
	if err != nil {
		return err
	}
	if longest == writeLimit {
		m.progress("waiting for %s, since a webhook that converts objects may still have one that is then stored", longest)
	}
	return wait(ctx, max(cluster.SettleTime, longest))
}

// longestWrite returns how long a write may take after the policy, which may not have existed yet. Validating webhooks
// are called then, and have timeouts. Webhooks that convert are called last, and have none.
func (m *Migration) longestWrite(ctx context.Context) (longest time.Duration, err error) {
	found, err := m.definitions(ctx)
	if err != nil {
		return 0, err
	}
	for _, d := range found {
		if len(d.Spec.Versions) > 1 && (d.converts() || byWebhook(m.state.Conversions[d.Name])) {
			return writeLimit, nil
		}
	}
	configurations, err := m.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("reading the webhooks: %w", err)
	}
	resources := sets.New[string]()
	for _, store := range m.config.Stores {
		resources.Insert(store.Resource)
	}
	for _, configuration := range configurations.Items {
		for _, webhook := range configuration.Webhooks {
			if admission.Concern(webhook.Rules, m.config.Group, resources.Has) && webhook.TimeoutSeconds != nil {
				longest = max(longest, time.Duration(*webhook.TimeoutSeconds)*time.Second)
			}
		}
	}
	return longest, nil
}

func wait(ctx context.Context, duration time.Duration) error {
	select {
	case <-time.After(duration):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// writes returns the verbs of requests that a freeze makes kube-apiserver hold.
func writes() []string { return []string{"create", "update", "patch", "delete", "deletecollection"} }

// holding returns the objects, of a name, that make kube-apiserver hold requests of clients.
func (m *Migration) holding(ctx context.Context, name string, verbs ...string) ([]runtime.Object, error) {
	me, err := m.user(ctx)
	if err != nil {
		return nil, err
	}
	own := flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: me}}
	all := flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: flowcontrolv1.NameAll}}
	return []runtime.Object{
		m.priorityLevel(name, 0),
		m.flowSchema(m.ownName(), flowcontrolv1.PriorityLevelConfigurationNameExempt, 2, own, flowcontrolv1.VerbAll),
		m.flowSchema(name, name, 3, all, verbs...),
	}, nil
}

// hold makes kube-apiserver hold requests of clients.
func (m *Migration) hold(ctx context.Context, name string, verbs ...string) error {
	objects, err := m.holding(ctx, name, verbs...)
	if err != nil {
		return err
	}
	if err := cluster.Apply(ctx, m.dynamic, m.dryRun, objects...); err != nil {
		return err
	}
	err = eventually(ctx, cluster.SettleTime, func(ctx context.Context) error {
		applied, err := m.kube.FlowcontrolV1().FlowSchemas().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		condition := apihelpers.GetFlowSchemaConditionByType(applied, flowcontrolv1.FlowSchemaConditionDangling)
		if condition == nil || condition.Status != flowcontrolv1.ConditionFalse {
			return errors.New("kube-apiserver has not accepted it")
		}
		return nil
	})
	if err != nil {
		m.progress("kube-apiserver does not hold requests, so that they may fail until the freeze ends: the FlowSchema %s: %v", name, err)
	}
	return cluster.Settle(ctx)
}

// unhold lets requests go on that are held. Without a seat they would wait until their time is over.
func (m *Migration) unhold(ctx context.Context, name string) error {
	return m.either(cluster.Apply(ctx, m.dynamic, m.dryRun, m.priorityLevel(name, releaseShares)), m.remove(ctx, "flowschemas", name))
}

// priorityLevel returns a level whose requests wait if it has no shares.
func (m *Migration) priorityLevel(name string, shares int32) *flowcontrolv1.PriorityLevelConfiguration {
	none := int32(0)
	return &flowcontrolv1.PriorityLevelConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: flowcontrolv1.SchemeGroupVersion.String(), Kind: "PriorityLevelConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: m.owner()},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: &shares,
				LendablePercent:          &none,
				BorrowingLimitPercent:    &none,
				// Without a queue, one request at a time would pass.
				LimitResponse: flowcontrolv1.LimitResponse{
					Type:    flowcontrolv1.LimitResponseTypeQueue,
					Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 1, HandSize: 1, QueueLengthLimit: maxHeld},
				},
			},
		},
	}
}

func (m *Migration) flowSchema(name, level string, precedence int32, subject flowcontrolv1.Subject, verbs ...string) *flowcontrolv1.FlowSchema {
	return &flowcontrolv1.FlowSchema{
		TypeMeta:   metav1.TypeMeta{APIVersion: flowcontrolv1.SchemeGroupVersion.String(), Kind: "FlowSchema"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: m.owner()},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level},
			MatchingPrecedence:         precedence,
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{subject},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs:        verbs,
					APIGroups:    []string{m.config.Group},
					Resources:    []string{flowcontrolv1.ResourceAll},
					ClusterScope: true,
					Namespaces:   []string{flowcontrolv1.NamespaceEvery},
				}},
			}},
		},
	}
}

// user returns the name of this process's user.
func (m *Migration) user(ctx context.Context) (string, error) {
	review, err := m.kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("asking kube-apiserver who this process is: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

// freezing returns the objects that refuse writes in all versions but BypassVersion, which only this process writes.
func (m *Migration) freezing() []runtime.Object {
	return m.denying(m.freezeName(), "*", fmt.Sprintf("request.resource.version == %q", cluster.BypassVersion))
}

// denying returns the objects that refuse writes in a version, unless an expression allows them.
func (m *Migration) denying(name, version, allowed string) []runtime.Object {
	policy, binding := cluster.WritePolicy(name, m.config.Group, []string{version}, allowed, "the objects are being moved to another server: try again in a moment; \"migrate status\" says more")
	policy.Annotations = m.owner()
	return []runtime.Object{policy, binding}
}

// refuseCopies keeps kube-apiserver from storing objects of the group that the server has, and from serving its own. A
// failure is only reported.
func (m *Migration) refuseCopies(ctx context.Context) {
	m.optional("a kube-apiserver that starts may answer for the objects", m.tryRefuseCopies(ctx))
}

func (m *Migration) tryRefuseCopies(ctx context.Context) error {
	return cluster.RefuseCopies(ctx, m.dynamic, m.config.Group, m.dryRun...)
}

// allowCopies lets kube-apiserver store and serve objects of the group again.
func (m *Migration) allowCopies(ctx context.Context) error {
	return cluster.AllowCopies(ctx, m.dynamic, m.dryRun, m.config.Group)
}

// checkWrites returns an error unless writes are refused, or, if denied is not set, while they are. It tries dry runs on an
// object of each resource that has any.
func (m *Migration) checkWrites(ctx context.Context, denied bool) error {
	return m.eachMove(ctx, func(move move) error {
		list, err := m.dynamic.Resource(move.from).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil || len(list.Items) == 0 {
			return err
		}
		switch got, err := m.tryWrite(ctx, move, &list.Items[0]); {
		case denied && err == nil:
			return fmt.Errorf("%s can still be written", move.GroupResource)
		case got != denied:
			return err
		}
		return nil
	})
}

// tryWrite reports whether the freeze denies a dry run of a patch or of a deletion. The patch could
// be invalid for other reasons, and another policy could refuse the deletion.
func (m *Migration) tryWrite(ctx context.Context, move move, object *unstructured.Unstructured) (denied bool, err error) {
	patch := `{"metadata":{"annotations":{"` + m.freezeName() + `":"dry run"}}}`
	client := m.kube.Discovery().RESTClient()
	for _, request := range []*rest.Request{client.Patch(types.MergePatchType).Body([]byte(patch)), client.Delete()} {
		request.AbsPath("apis", move.from.Group, move.from.Version).NamespaceIfScoped(object.GetNamespace(), move.Namespaced).Resource(move.from.Resource).Name(object.GetName())
		err = request.Param("dryRun", metav1.DryRunAll).MaxRetries(0).Do(ctx).Error()
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+m.freezeName()+"'") {
			return true, err
		}
	}
	return false, err
}

// unfreeze ends a freeze after an error, and lets clients write again where they did before it.
func (m *Migration) unfreeze(ctx context.Context, err error) error {
	ctx = context.WithoutCancel(ctx)
	// If another process has continued the migration, that one decides about the freeze. Once
	// clients write, all objects have to be compared again.
	if saveErr := m.enter(ctx, Freezing); saveErr != nil {
		return errors.Join(err, saveErr)
	}
	m.frozen = false
	if m.state.Returning {
		m.refuseCopies(ctx)
		m.optional("a kube-apiserver that starts may answer for the objects", m.hide(ctx))
	}
	if thawErr := m.thaw(ctx, time.Time{}); thawErr != nil {
		return errors.Join(err, thawErr)
	}
	return errors.Join(err, m.enter(ctx, Copying))
}

// thaw lets clients write again, but not before a time.
func (m *Migration) thaw(ctx context.Context, until time.Time) error {
	_, err := m.kube.FlowcontrolV1().PriorityLevelConfigurations().Get(ctx, m.freezeName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		// Somebody may have deleted it, since writes hang.
		_, err = m.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(ctx, m.freezeName(), metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading what freezes writes: %w", err)
	}
	err = inOrder(ctx,
		// Writes are held until no kube-apiserver and no server would refuse them.
		func(ctx context.Context) error { return m.allow(ctx, m.freezeName()) },
		func(ctx context.Context) error {
			err := eventually(ctx, freezeTimeout, func(ctx context.Context) error { return m.checkWrites(ctx, false) })
			m.optional("clients that write may get errors for a moment", err)
			return wait(ctx, max(cluster.SettleTime, time.Until(until)))
		},
		func(ctx context.Context) error { return m.unhold(ctx, m.freezeName()) },
		cluster.Settle,
	)
	if err != nil {
		return err
	}
	for _, name := range []string{m.readsName(), m.ownName()} {
		m.optional(leftOver, m.remove(ctx, "flowschemas", name))
	}
	m.optional(leftOver, m.remove(ctx, "prioritylevelconfigurations", m.readsName()))
	m.optional(leftOver, m.remove(ctx, "prioritylevelconfigurations", m.freezeName()))
	return nil
}

// allow ends the effect of the objects of denying.
func (m *Migration) allow(ctx context.Context, name string) error {
	_, err := cluster.DeletePolicies(ctx, m.dynamic, m.dryRun, name)
	return err
}

// leftOver explains an error that leaves an object behind.
const leftOver = "an object is left that is not needed any more: delete it"

// either returns an error if both of two steps with the same effect have failed.
func (m *Migration) either(one, other error) error {
	if one != nil && other != nil {
		return errors.Join(one, other)
	}
	m.optional(leftOver, errors.Join(one, other))
	return nil
}

// remove deletes an object of priority and fairness.
func (m *Migration) remove(ctx context.Context, resource, name string) error {
	err := m.dynamic.Resource(flowcontrolv1.SchemeGroupVersion.WithResource(resource)).Delete(ctx, name, metav1.DeleteOptions{DryRun: m.dryRun})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the %s %s: %w", resource, name, err)
	}
	return nil
}
