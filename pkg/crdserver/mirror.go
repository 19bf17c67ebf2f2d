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

package crdserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	library "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	clients "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

const (
	// resyncPeriod is how often all definitions are compared with their copies.
	resyncPeriod = 10 * time.Minute
	// leftoverPeriod is how often the objects of a deleted definition are counted.
	leftoverPeriod = time.Minute
	// lastApplied is an annotation that repeats a whole definition.
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
)

// leftovers is the number of objects of definitions that the cluster no longer has, at the last
// count.
//
//nolint:gochecknoglobals // As Kubernetes declares its metrics.
var leftovers = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace:      "customresources",
	Name:           "deleted_definition_objects",
	Help:           "Objects that are served although their CustomResourceDefinition has been deleted in the cluster.",
	StabilityLevel: metrics.ALPHA,
}, []string{"definition"})

// mirror keeps copies of the definitions of some groups in the server's own etcd. All replicas do
// so, and write the same copies.
type mirror struct {
	groups sets.Set[string]
	purge  bool

	cluster     clients.CustomResourceDefinitionInterface
	informers   externalversions.SharedInformerFactory
	definitions listers.CustomResourceDefinitionLister
	synced      cache.InformerSynced
	queue       workqueue.TypedRateLimitingInterface[string]
	registrar   *registrar
	announcer   *announcer

	copies  storage.Interface
	prefix  string
	destroy func()
	// objects has the storage options of the definitions' objects.
	objects generic.RESTOptionsGetter
	caches  *caches
	// copied is closed when all definitions have been copied once.
	copied chan struct{}
}

func newMirror(o *Options, config *apiserver.Config, copies, objects generic.RESTOptionsGetter) (*mirror, error) {
	client, err := clientset.NewForConfig(config.Generic.ClientConfig)
	if err != nil {
		return nil, err
	}
	registrar, err := newRegistrar(config.Generic.ClientConfig, certified(config.Generic.SecureServing))
	if err != nil {
		return nil, err
	}
	_ = legacyregistry.Register(leftovers) // A process with several servers has it already.
	options, err := copies.GetRESTOptions(definitionResource(), &apiextensions.CustomResourceDefinition{})
	if err != nil {
		return nil, err
	}
	m := &mirror{
		groups:    sets.New(o.Groups...),
		purge:     o.PurgeDeleted,
		cluster:   client.ApiextensionsV1().CustomResourceDefinitions(),
		queue:     workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		registrar: registrar,
		announcer: newAnnouncer(registrar),
		prefix:    "/" + options.ResourcePrefix,
		objects:   objects,
		copied:    make(chan struct{}),
	}
	if m.caches, err = newCaches(config); err != nil {
		return nil, err
	}
	m.copies, m.destroy, err = factory.Create(*options.StorageConfig,
		func() runtime.Object { return &apiextensions.CustomResourceDefinition{} },
		func() runtime.Object { return &apiextensions.CustomResourceDefinitionList{} }, m.prefix)
	if err != nil {
		return nil, err
	}
	m.informers = externalversions.NewSharedInformerFactoryWithOptions(client, resyncPeriod, externalversions.WithTransform(m.slim))
	informer := m.informers.Apiextensions().V1().CustomResourceDefinitions()
	m.definitions, m.synced = informer.Lister(), informer.Informer().HasSynced
	_, err = informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    m.enqueue,
		UpdateFunc: func(_, definition any) { m.enqueue(definition) },
		DeleteFunc: m.enqueue,
	})
	return m, err
}

// slim reduces a definition of other groups to its metadata.
func (m *mirror) slim(object any) (any, error) {
	definition, ok := object.(*apiextensionsv1.CustomResourceDefinition)
	if !ok || m.groups.Has(definition.Spec.Group) {
		return object, nil
	}
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
		Name: definition.Name, UID: definition.UID, ResourceVersion: definition.ResourceVersion,
	}}, nil
}

// groupOf returns the group of a definition, which follows the first dot of its name.
func groupOf(name string) string {
	_, group, _ := strings.Cut(name, ".")
	return group
}

func (m *mirror) enqueue(object any) {
	if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil && m.groups.Has(groupOf(name)) {
		m.queue.Add(name)
	}
}

// start copies all definitions, and then keeps following them in the background. The server is not
// ready before it returns.
func (m *mirror) start(hook genericapiserver.PostStartHookContext) error {
	m.informers.Start(hook.Done())
	if !cache.WaitForCacheSync(hook.Done(), m.synced) {
		return nil // The server has been told to stop.
	}
	if cluster.Await(hook, "copies of the CustomResourceDefinitions", m.copyAll) != nil {
		return nil //nolint:nilerr // The server has been told to stop.
	}
	close(m.copied)
	m.caches.start()
	go work(hook, m.queue, m.syncAndRegister, "A CustomResourceDefinition can't be followed; trying again")
	go work(hook, m.announcer.queue, m.announcer.announce, "A changed version can't be announced; trying again")
	return nil
}

// copyAll copies all definitions, and handles the copies of deleted ones.
func (m *mirror) copyAll(ctx context.Context) error {
	names := sets.New[string]()
	definitions, err := m.definitions.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, definition := range definitions {
		if m.groups.Has(definition.Spec.Group) {
			names.Insert(definition.Name)
		}
	}
	copies, err := m.list(ctx)
	if err != nil {
		return err
	}
	for _, copied := range copies {
		if m.groups.Has(copied.Spec.Group) {
			names.Insert(copied.Name)
			continue
		}
		klog.InfoS("A group is no longer among --groups: its objects stay in etcd, unserved", "definition", copied.Name)
		if err := m.remove(ctx, &copied); err != nil {
			return err
		}
	}
	for _, name := range sets.List(names) {
		if err := m.sync(ctx, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// work handles the names in a queue until the context ends. It logs the problem before it tries one again.
func work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string], handle func(context.Context, string) error, problem string) {
	context.AfterFunc(ctx, queue.ShutDown)
	for {
		name, stopped := queue.Get()
		if stopped {
			return
		}
		if err := handle(ctx, name); err != nil {
			klog.ErrorS(err, problem, "name", name)
			queue.AddRateLimited(name)
		} else {
			queue.Forget(name)
		}
		queue.Done(name)
	}
}

func (m *mirror) syncAndRegister(ctx context.Context, name string) error {
	if err := m.sync(ctx, name); err != nil {
		return err
	}
	group := groupOf(name)
	definitions, err := m.definitions.List(labels.Everything())
	if err != nil {
		return err
	}
	definitions = slices.DeleteFunc(definitions, func(definition *apiextensionsv1.CustomResourceDefinition) bool { return definition.Spec.Group != group })
	// While "migrate" moves objects between kube-apiserver and this server, it alone sets the
	// APIServices. A version that it has given back to kube-apiserver is not new.
	if slices.ContainsFunc(definitions, func(definition *apiextensionsv1.CustomResourceDefinition) bool {
		return definition.Annotations[keys.CopyAnnotation] != ""
	}) {
		klog.InfoS("Changes of the group's CustomResourceDefinitions are not followed while \"migrate\" moves its objects; if no such command runs, see \"migrate status\"", "group", group)
		return nil
	}
	served, err := m.servedVersions(ctx, group, definitions)
	if err != nil {
		return err
	}
	return m.registrar.follow(ctx, group, served)
}

// sync updates the copy of a definition.
func (m *mirror) sync(ctx context.Context, name string) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { return m.trySync(ctx, name) })
}

// trySync returns a conflict if another replica changes the copy at the same time.
func (m *mirror) trySync(ctx context.Context, name string) error {
	copied, err := m.copyNamed(ctx, name)
	if err != nil {
		return err
	}
	definition, err := existing(m.definitions.Get(name))
	if err != nil {
		return err
	}
	wanted, err := wantedCopy(definition, copied)
	if err != nil {
		return err
	}
	if !apiequality.Semantic.DeepEqual(wanted, copied) {
		// The informer may be behind the one in the replica that has written the copy. A read from
		// kube-apiserver after the read of the copy can't return an older definition.
		if definition, err = existing(m.cluster.Get(ctx, name, metav1.GetOptions{})); err != nil {
			return err
		}
		if wanted, err = wantedCopy(definition, copied); err != nil {
			return err
		}
	}
	if definition == nil && copied != nil {
		return m.syncDeleted(ctx, copied)
	}
	leftovers.DeleteLabelValues(name)
	switch wanted {
	case copied:
		return nil
	case nil:
		return m.remove(ctx, copied)
	}
	written, err := m.write(ctx, wanted)
	if err == nil {
		m.caches.fill(ctx, written)
	}
	return err
}

// existing returns nil for a definition that is not found.
func existing(definition *apiextensionsv1.CustomResourceDefinition, err error) (*apiextensionsv1.CustomResourceDefinition, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return definition, err
}

// wantedCopy returns the copy that a definition should have, with the resourceVersion of the
// present one. It returns nil for no copy, and the present one if that does not change.
func wantedCopy(definition *apiextensionsv1.CustomResourceDefinition, copied *apiextensions.CustomResourceDefinition) (*apiextensions.CustomResourceDefinition, error) {
	switch {
	case definition == nil:
		return nil, nil
	case !apihelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established):
		return copied, nil // It will be, or its names are taken.
	case definition.Annotations[keys.CopyAnnotation] == keys.CopyKept:
		return copied, nil
	case definition.Annotations[keys.CopyAnnotation] == keys.CopyNone:
		return nil, nil
	}
	wanted := &apiextensions.CustomResourceDefinition{}
	if err := library.Scheme.Convert(copyOf(definition), wanted, nil); err != nil {
		return nil, err
	}
	if copied != nil {
		wanted.ResourceVersion = copied.ResourceVersion
	}
	return wanted, nil
}

// copyOf returns a definition that serves the versions that clients have. It has no deletion marks, which would make
// k8s.io/apiextensions-apiserver delete the objects. syncDeleted handles the deletion once the definition is gone.
func copyOf(definition *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	out := definition.DeepCopy()
	out.ResourceVersion, out.ManagedFields = "", nil
	out.DeletionTimestamp, out.DeletionGracePeriodSeconds, out.Finalizers = nil, nil, nil
	maps.DeleteFunc(out.Annotations, func(name, _ string) bool { return name == lastApplied || name == cluster.ServedAnnotation })
	served := servedVersions(definition)
	for i := range out.Spec.Versions {
		version := &out.Spec.Versions[i]
		version.Served = slices.Contains(served, version.Name)
	}
	out.Status.Conditions = slices.DeleteFunc(out.Status.Conditions, func(condition apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return condition.Type == apiextensionsv1.Terminating
	})
	return out
}

// syncDeleted handles the copy of a definition that the cluster does not have.
func (m *mirror) syncDeleted(ctx context.Context, copied *apiextensions.CustomResourceDefinition) error {
	name := copied.Name
	count, err := m.count(ctx, schema.GroupResource{Group: copied.Spec.Group, Resource: copied.Spec.Names.Plural})
	if err != nil {
		return err
	}
	leftovers.WithLabelValues(name).Set(float64(count))
	if count == 0 && copied.DeletionTimestamp.IsZero() {
		klog.InfoS("A CustomResourceDefinition has been deleted in the cluster, and has no objects here: it is served no longer", "definition", name)
		return m.remove(ctx, copied)
	}
	m.queue.AddAfter(name, leftoverPeriod)
	if m.purge {
		return m.purgeObjects(ctx, copied, count)
	}
	klog.ErrorS(nil, "A CustomResourceDefinition has been deleted in the cluster while it has objects here. They stay, and are served by the last definition: apply it again, or delete the objects, or start this server with --purge-deleted",
		"definition", name, "objects", count)
	return nil
}

// purgeObjects marks a copy as being deleted. apiextensions-apiserver then deletes the objects and the copy.
func (m *mirror) purgeObjects(ctx context.Context, copied *apiextensions.CustomResourceDefinition, count int64) error {
	klog.InfoS("A CustomResourceDefinition has been deleted in the cluster: its objects are being deleted, by --purge-deleted", "definition", copied.Name, "objects", count)
	if !copied.DeletionTimestamp.IsZero() {
		return nil
	}
	now := metav1.Now()
	copied.DeletionTimestamp = &now
	copied.Finalizers = []string{apiextensions.CustomResourceCleanupFinalizer}
	_, err := m.write(ctx, copied)
	return err
}

// copyNamed returns the copy of a definition, or nil if there is none.
func (m *mirror) copyNamed(ctx context.Context, name string) (*apiextensions.CustomResourceDefinition, error) {
	copied := &apiextensions.CustomResourceDefinition{}
	err := m.copies.Get(ctx, m.key(name), storage.GetOptions{}, copied)
	if storage.IsNotFound(err) {
		return nil, nil
	}
	return copied, err
}

// write replaces the copy with the same resourceVersion.
func (m *mirror) write(ctx context.Context, copied *apiextensions.CustomResourceDefinition) (*apiextensions.CustomResourceDefinition, error) {
	written := &apiextensions.CustomResourceDefinition{}
	return written, m.copies.GuaranteedUpdate(ctx, m.key(copied.Name), written, true, nil,
		storage.SimpleUpdate(func(now runtime.Object) (runtime.Object, error) {
			return copied.DeepCopy(), unchanged(copied, now)
		}), nil)
}

// remove deletes a copy, which ends the serving of its objects.
func (m *mirror) remove(ctx context.Context, copied *apiextensions.CustomResourceDefinition) error {
	leftovers.DeleteLabelValues(copied.Name)
	delete(m.caches.filled, copied.Name)
	err := m.copies.Delete(ctx, m.key(copied.Name), &apiextensions.CustomResourceDefinition{}, nil,
		func(_ context.Context, now runtime.Object) error { return unchanged(copied, now) }, nil, storage.DeleteOptions{})
	if storage.IsNotFound(err) {
		return nil
	}
	return err
}

// unchanged returns a conflict if another replica has changed the copy since it was read.
func unchanged(read *apiextensions.CustomResourceDefinition, now runtime.Object) error {
	if accessor, err := meta.Accessor(now); err != nil || accessor.GetResourceVersion() == read.ResourceVersion {
		return err
	}
	return apierrors.NewConflict(definitionResource(), read.Name, errors.New("another replica has changed the copy"))
}

func (m *mirror) list(ctx context.Context) ([]apiextensions.CustomResourceDefinition, error) {
	list := &apiextensions.CustomResourceDefinitionList{}
	err := m.copies.GetList(ctx, m.prefix+"/", storage.ListOptions{Recursive: true, Predicate: storage.Everything}, list)
	return list.Items, err
}

// servedVersions returns the versions that any definition or copy of a group serves. The informer
// may be behind the one in the replica that has written a copy.
func (m *mirror) servedVersions(ctx context.Context, group string, definitions []*apiextensionsv1.CustomResourceDefinition) (sets.Set[string], error) {
	copies, err := m.list(ctx)
	if err != nil {
		return nil, err
	}
	served := sets.New[string]()
	for _, definition := range definitions {
		served = served.Union(versionsOf(group, definition))
	}
	for _, copied := range copies {
		for _, version := range copied.Spec.Versions {
			if copied.Spec.Group == group && version.Served {
				served.Insert(version.Name)
			}
		}
	}
	return served, nil
}

// count returns the number of stored objects of a resource.
func (m *mirror) count(ctx context.Context, resource schema.GroupResource) (int64, error) {
	options, err := m.objects.GetRESTOptions(resource, nil)
	if err != nil {
		return 0, err
	}
	store, destroy, err := factory.Create(*options.StorageConfig, nil, nil, "/"+options.ResourcePrefix)
	if err != nil {
		return 0, err
	}
	defer destroy()
	stats, err := store.Stats(ctx)
	return stats.ObjectCount, err
}

func (m *mirror) key(name string) string { return path.Join(m.prefix, name) }
