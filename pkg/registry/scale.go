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

package registry

import (
	"context"
	"errors"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// installScale registers autoscaling/v1 Scale as its own internal type. The endpoint handlers decode
// every body into an internal version.
// Upstream fault 67.
func installScale(scheme *runtime.Scheme) {
	for _, version := range []string{autoscalingv1.SchemeGroupVersion.Version, runtime.APIVersionInternal} {
		scheme.AddKnownTypes(schema.GroupVersion{Group: autoscalingv1.GroupName, Version: version}, &autoscalingv1.Scale{})
	}
}

// scaleREST serves /scale as autoscaling/v1 Scale.
type scaleREST[O Object] struct {
	tableConvertor[*autoscalingv1.Scale]
	strategy strategy[O]
	store    *genericregistry.Store
	// replicasPaths is the path of the number of replicas in each version. With it, the field keeps its
	// owner whether it is written here or in the object. It is empty without /scale.
	replicasPaths managedfields.ResourcePathMappings
}

var (
	_ rest.Patcher                  = &scaleREST[Object]{}
	_ rest.TableConvertor           = &scaleREST[Object]{}
	_ rest.GroupVersionKindProvider = &scaleREST[Object]{}
)

func newScaleREST[O Object](strategy strategy[O], store *genericregistry.Store, versions []schema.GroupVersion) *scaleREST[O] {
	paths := managedfields.ResourcePathMappings{}
	for _, version := range versions {
		if strategy.kind.Scale != nil {
			paths[version.String()] = fieldpath.MakePathOrDie("spec", "replicas")
		} else if strategy.kind.Definition != nil {
			// The Definition lacks only versions that don't serve the kind.
			if of, err := strategy.kind.Definition.Schema(version.Version); err == nil && of.Replicas() != nil {
				paths[version.String()] = of.Replicas()
			}
		}
	}
	return &scaleREST[O]{
		strategy: strategy,
		store:    store,
		tableConvertor: tableConvertor[*autoscalingv1.Scale]{
			NameColumn[*autoscalingv1.Scale](),
			{metav1.TableColumnDefinition{Name: "Desired", Type: "integer", Description: "The number of replicas that should exist."},
				func(s *autoscalingv1.Scale) any { return int64(s.Spec.Replicas) }},
			{metav1.TableColumnDefinition{Name: "Available", Type: "integer", Description: "The number of replicas that were observed."},
				func(s *autoscalingv1.Scale) any { return int64(s.Status.Replicas) }},
			AgeColumn[*autoscalingv1.Scale](),
		},
		replicasPaths: paths,
	}
}

// GroupVersionKind returns the kind of the body, in any version of the group.
func (r *scaleREST[O]) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return autoscalingv1.SchemeGroupVersion.WithKind("Scale")
}

// New returns an empty Scale.
func (r *scaleREST[O]) New() runtime.Object { return &autoscalingv1.Scale{} }

// Destroy does nothing: the store is destroyed by objectREST.
func (r *scaleREST[O]) Destroy() {}

// Get returns the Scale of an object.
func (r *scaleREST[O]) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := r.store.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return r.scaleOf(ctx, obj.(O))
}

// Update writes the number of replicas. Admission sees the Scale, not the object.
func (r *scaleREST[O]) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	validate := func(ctx context.Context, obj, old runtime.Object) error {
		after, err := r.scaleOf(ctx, obj.(O))
		before, errBefore := r.scaleOf(ctx, old.(O))
		if err := errors.Join(err, errBefore); err != nil {
			return err
		}
		return update(ctx, after, before)
	}
	obj, _, err := r.store.Update(ctx, name, scaleUpdate[O]{checkedUpdate{info, autoscalingv1.SchemeGroupVersion.WithKind("Scale").GroupKind()}, r}, rest.ValidateAllObjectFunc, validate, false, options)
	if err != nil {
		return nil, false, err
	}
	shown, err := r.scaleOf(ctx, obj.(O))
	return shown, false, err
}

// scaleOf returns the Scale of an object, with 0 replicas if the object has no such number.
func (r *scaleREST[O]) scaleOf(ctx context.Context, o O) (*autoscalingv1.Scale, error) {
	shown := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name:              o.GetName(),
			Namespace:         o.GetNamespace(),
			UID:               o.GetUID(),
			ResourceVersion:   o.GetResourceVersion(),
			CreationTimestamp: o.GetCreationTimestamp(),
		},
	}
	if scale := r.strategy.kind.Scale; scale != nil {
		shown.Spec.Replicas = *scale.Replicas(o)
		shown.Status = autoscalingv1.ScaleStatus{Replicas: scale.StatusReplicas(o), Selector: scale.Selector(o)}
		return shown, nil
	}
	of, _, fields, err := r.strategy.definedFields(ctx, o)
	if err != nil {
		return nil, err
	}
	shown.Spec, shown.Status, err = of.Scale(fields)
	return shown, err
}

func (r *scaleREST[O]) setReplicas(ctx context.Context, o O, replicas int32) error {
	if scale := r.strategy.kind.Scale; scale != nil {
		*scale.Replicas(o) = replicas
		return nil
	}
	of, versioned, fields, err := r.strategy.definedFields(ctx, o)
	if err == nil {
		err = of.SetReplicas(fields, replicas)
	}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, versioned)
	}
	if err != nil {
		return err
	}
	return r.strategy.Convert(versioned, o, nil)
}

// scaleUpdate turns an update of the Scale into an update of the object.
type scaleUpdate[O Object] struct {
	rest.UpdatedObjectInfo
	rest *scaleREST[O]
}

// UpdatedObject applies an update of the Scale to the stored object. It carries back the replicas,
// their owners and the resourceVersion.
func (u scaleUpdate[O]) UpdatedObject(ctx context.Context, stored runtime.Object) (runtime.Object, error) {
	o := stored.DeepCopyObject().(O)
	owners := managedfields.NewScaleHandler(o.GetManagedFields(), u.requestVersion(ctx), u.rest.replicasPaths)

	before, err := u.rest.scaleOf(ctx, o)
	if err != nil {
		return nil, err
	}
	if before.ManagedFields, err = owners.ToSubresource(); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("reading the managed fields of %s: %w", o.GetName(), err))
	}
	obj, err := u.UpdatedObjectInfo.UpdatedObject(ctx, before)
	if err != nil {
		return nil, err
	}
	after, ok := obj.(*autoscalingv1.Scale)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the body must be an autoscaling/v1 Scale, not %T", obj))
	}

	if after.UID != "" && after.UID != o.GetUID() {
		return nil, apierrors.NewConflict(u.rest.store.DefaultQualifiedResource, o.GetName(),
			fmt.Errorf("the uid of the Scale is %s, but the object's is %s", after.UID, o.GetUID()))
	}
	if err := u.rest.setReplicas(ctx, o, after.Spec.Replicas); err != nil {
		return nil, err
	}
	if after.ResourceVersion != "" {
		o.SetResourceVersion(after.ResourceVersion)
	}
	entries, err := owners.ToParent(after.ManagedFields)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("metadata.managedFields of the Scale can't be read: %v", err))
	}
	o.SetManagedFields(entries)
	return o, nil
}

func (u scaleUpdate[O]) requestVersion(ctx context.Context) schema.GroupVersion {
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	if !ok {
		return schema.GroupVersion{}
	}
	return schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
}
