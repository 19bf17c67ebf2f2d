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

package encodedcache

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	library "k8s.io/apiextensions-apiserver/pkg/apiserver"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
	apiserverstorage "restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/storage"
)

// Handler answers lists and watches in JSON from encoded objects. Its zero value answers none.
type Handler struct {
	// Definitions are those that the handler of k8s.io/apiextensions-apiserver serves. They are set before the first
	// request.
	Definitions listers.CustomResourceDefinitionLister
	// MinRequestTimeout is the shortest time after which a watch without a timeout ends.
	MinRequestTimeout time.Duration

	// served are the resources by their schema.GroupVersionResource, and cached those whose storage is being created with a
	// watch cache.
	served, cached sync.Map
}

// NewCache returns a watch cache for a storage that RESTOptions is creating.
func (h *Handler) NewCache(config cacher.Config, etcd storage.Interface) (apiserverstorage.CacheLayer, error) {
	gvk := config.NewListFunc().GetObjectKind().GroupVersionKind()
	h.cached.Store(config.GroupResource.WithVersion(gvk.Version), nil)
	return New(config, etcd)
}

// resource is a version of a definition with its storage.
type resource struct {
	definition *apiextensionsv1.CustomResourceDefinition
	columns    columns
	scope      *handlers.RequestScope
	store      *genericregistry.Store
}

// form is how a client gets a list.
type form int

const (
	plain   form = iota // In JSON: its objects are copied.
	ofTable             // A table in JSON.
	ofMeta              // Metadata only.
	ofText              // In indented JSON or in YAML.
)

// lister lists a resource in a form.
type lister struct {
	*genericregistry.Store
	form  form
	table table
}

// List lists what the options select. What is not written from the watch cache's JSON takes memory.
func (l lister) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	listed, err := l.Store.List(ctx, options)
	list, ok := listed.(*objects)
	if err != nil || !ok || l.form == plain {
		return listed, err
	}
	if l.form == ofTable {
		l.table.objects = *list
		return &l.table, nil
	}
	if err := limits.ReserveList(ctx, list.size()); err != nil {
		return nil, err
	}
	if l.form == ofText {
		return &indented{list}, nil
	}
	return list.metadata()
}

// RESTOptions makes the handler serve the storage that k8s.io/apiextensions-apiserver creates with these options.
func (h *Handler) RESTOptions(getter generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return restOptions{getter, h}
}

type restOptions struct {
	generic.RESTOptionsGetter
	handler *Handler
}

// GetRESTOptions returns how a resource is stored.
func (o restOptions) GetRESTOptions(gr schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := o.RESTOptionsGetter.GetRESTOptions(gr, example)
	decorator := options.Decorator
	options.Decorator = func(config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error), newObject, newList func() runtime.Object, attributes storage.AttrFunc, trigger storage.IndexerFuncs, indexers *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
		stored, destroy, err := decorator(config, prefix, key, newObject, newList, attributes, trigger, indexers)
		if err != nil {
			return nil, destroy, err
		}
		forget := o.handler.serve(gr, stored, prefix, newList, attributes)
		return stored, func() {
			forget()
			destroy()
		}, nil
	}
	return options, err
}

// serve serves the objects of a storage until the returned function is called. The definition may have changed since the
// storage was asked for. Within seconds, k8s.io/apiextensions-apiserver destroys it then.
func (h *Handler) serve(gr schema.GroupResource, stored storage.Interface, prefix string, newList func() runtime.Object, attributes storage.AttrFunc) (forget func()) {
	gvk := newList().GetObjectKind().GroupVersionKind()
	gvr := gr.WithVersion(gvk.Version)
	_, cached := h.cached.LoadAndDelete(gvr)
	definition, err := h.Definitions.Get(gr.String())
	if err != nil || !cached {
		return func() {}
	}
	served := &resource{definition, newColumns(definition, gvr.Version), newScope(definition, gvr), newStore(definition, gvk, stored, prefix, attributes)}
	h.served.Store(gvr, served)
	return func() { h.served.CompareAndDelete(gvr, served) }
}

func newStore(definition *apiextensionsv1.CustomResourceDefinition, listKind schema.GroupVersionKind, stored storage.Interface, prefix string, attributes storage.AttrFunc) *genericregistry.Store {
	list := objects{TypeMeta: metav1.TypeMeta{APIVersion: listKind.GroupVersion().String(), Kind: listKind.Kind}}
	gr := schema.GroupResource{Group: definition.Spec.Group, Resource: definition.Status.AcceptedNames.Plural}
	return &genericregistry.Store{
		NewListFunc: list.DeepCopyObject,
		PredicateFunc: func(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
			return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: attributes}
		},
		DefaultQualifiedResource: gr,
		KeyRootFunc:              func(ctx context.Context) string { return genericregistry.NamespaceKeyRootFunc(ctx, prefix) },
		KeyFunc: func(ctx context.Context, name string) (string, error) {
			if definition.Spec.Scope == apiextensionsv1.ClusterScoped {
				return genericregistry.NoNamespaceKeyFunc(ctx, prefix, name)
			}
			return genericregistry.NamespaceKeyFunc(ctx, prefix, name)
		},
		Storage: genericregistry.DryRunnableStorage{Storage: stored},
	}
}

// newScope returns what the handler of k8s.io/apiserver has to know about lists and watches.
func newScope(definition *apiextensionsv1.CustomResourceDefinition, gvr schema.GroupVersionResource) *handlers.RequestScope {
	clusterScoped := definition.Spec.Scope == apiextensionsv1.ClusterScoped
	selectable := []string{"metadata.name"}
	if !clusterScoped {
		selectable = append(selectable, "metadata.namespace")
	}
	for _, version := range definition.Spec.Versions {
		for _, field := range version.SelectableFields {
			if version.Name == gvr.Version {
				selectable = append(selectable, strings.TrimPrefix(field.JSONPath, "."))
			}
		}
	}
	serializer := serializer{library.Codecs}
	scope := &handlers.RequestScope{
		Namer:            handlers.ContextBasedNaming{Namer: meta.NewAccessor(), ClusterScoped: clusterScoped},
		Serializer:       serializer,
		Convertor:        selectableFields{fields: selectable},
		Resource:         gvr,
		Kind:             gvr.GroupVersion().WithKind(definition.Status.AcceptedNames.Kind),
		MetaGroupVersion: metav1.SchemeGroupVersion,
		TableConvertor:   &genericregistry.Store{}, // Tables are negotiated, but the encoder writes them.
	}
	for _, info := range serializer.SupportedMediaTypes() {
		if info.MediaType != runtime.ContentTypeProtobuf {
			scope.StandardSerializers = append(scope.StandardSerializers, info)
		}
	}
	return scope
}

// selectableFields is a convertor that only knows which fields can be selected.
type selectableFields struct {
	runtime.ObjectConvertor
	fields []string
}

// ConvertFieldLabel refuses fields that can't be selected.
func (s selectableFields) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	if slices.Contains(s.fields, label) {
		return label, value, nil
	}
	return "", "", fmt.Errorf("field label not supported: %s", label)
}

// Before returns a handler that answers what it can, and passes all other requests to the handler of
// k8s.io/apiextensions-apiserver.
func (h *Handler) Before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		served, info := h.find(req)
		if served == nil {
			next.ServeHTTP(w, req)
			return
		}
		accepted, serializer, err := negotiation.NegotiateOutputMediaType(req, served.scope.Serializer, served.scope)
		form, ok := formOf(req, info.Verb, accepted, serializer)
		if err != nil || !ok {
			next.ServeHTTP(w, req)
			return
		}
		read := req.WithContext(withEncoded(req.Context()))
		lister := lister{Store: served.store, form: form}
		if form == ofTable {
			lister.table = table{columns: served.columns, version: accepted.Convert.GroupVersion(), include: includeObject(req)}
			read.Header = req.Header.Clone() // The handler would make a table itself.
			read.Header.Set("Accept", runtime.ContentTypeJSON)
		}
		list := handlers.ListResource(lister, served.store, served.scope, info.Verb == "watch", h.MinRequestTimeout)
		metrics.InstrumentHandlerFunc(strings.ToUpper(info.Verb), info.APIGroup, info.APIVersion, info.Resource, "", metrics.CleanScope(info), metrics.APIServerComponent, false, "", list)(w, read)
	})
}

// find returns the resource of a list or a watch. Versions that are deprecated are left to
// k8s.io/apiextensions-apiserver, which warns, and so are definitions that have changed since.
func (h *Handler) find(req *http.Request) (*resource, *request.RequestInfo) {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok || !info.IsResourceRequest || info.Subresource != "" || info.Verb != "list" && info.Verb != "watch" {
		return nil, nil
	}
	entry, ok := h.served.Load(schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource})
	if !ok {
		return nil, nil
	}
	served := entry.(*resource)
	definition, err := h.Definitions.Get(served.definition.Name)
	if err != nil || !sameDefinition(definition, served.definition) || !servesPlainly(definition, info.APIVersion) ||
		definition.Spec.Scope == apiextensionsv1.ClusterScoped && info.Namespace != "" {
		return nil, nil
	}
	return served, info
}

// formOf returns the form of an answer, if the handler has it.
func formOf(req *http.Request, verb string, accepted negotiation.MediaTypeOptions, serializer runtime.SerializerInfo) (form, bool) {
	watches := verb == "watch"
	isPlain := serializer.MediaType == runtime.ContentTypeJSON && (watches || serializer.Serializer != serializer.PrettySerializer)
	switch {
	case accepted.Convert != nil && accepted.Convert.Kind == "Table":
		known := []metav1.IncludeObjectPolicy{"", metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject}
		return ofTable, isPlain && !watches && slices.Contains(known, includeObject(req))
	case accepted.Convert != nil:
		return ofMeta, !watches
	case isPlain:
		return plain, true
	}
	return ofText, !watches
}

func includeObject(req *http.Request) metav1.IncludeObjectPolicy {
	return metav1.IncludeObjectPolicy(req.URL.Query().Get("includeObject"))
}

// sameDefinition reports whether k8s.io/apiextensions-apiserver serves two definitions by the same storage.
func sameDefinition(a, b *apiextensionsv1.CustomResourceDefinition) bool {
	return a.UID == b.UID && a.Generation == b.Generation && reflect.DeepEqual(a.Status.AcceptedNames, b.Status.AcceptedNames)
}

func servesPlainly(definition *apiextensionsv1.CustomResourceDefinition, version string) bool {
	serves := func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == version && v.Served && !v.Deprecated
	}
	return slices.ContainsFunc(definition.Spec.Versions, serves) && apiextensionshelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established)
}
