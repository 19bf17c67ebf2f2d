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
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	library "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
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
	return newCache(config, etcd)
}

// resource is a version of a definition with its storage.
type resource struct {
	definition *apiextensionsv1.CustomResourceDefinition
	columns    columns
	scope      *handlers.RequestScope
	store      *genericregistry.Store
}

// lister lists a resource, and presents the list as the client wants it.
type lister struct {
	*genericregistry.Store
	present presentation
}

// presentation makes what the encoder writes of a list.
type presentation func(context.Context, *objects) (runtime.Object, error)

// List lists what the options select.
func (l lister) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	listed, err := l.Store.List(ctx, options)
	list, ok := listed.(*objects)
	if err != nil || !ok {
		return listed, err
	}
	return l.present(ctx, list)
}

// plain copies the objects.
func plain(_ context.Context, list *objects) (runtime.Object, error) { return list, nil }

// asText has the list indented, or written in YAML, which takes memory.
func asText(ctx context.Context, list *objects) (runtime.Object, error) {
	return &indented{list}, limits.ReserveList(ctx, list.size())
}

// asMetadata decodes the metadata, which takes memory.
func asMetadata(ctx context.Context, list *objects) (runtime.Object, error) {
	if err := limits.ReserveList(ctx, list.size()); err != nil {
		return nil, err
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
		lazy := *config
		lazy.Codec = lazyCodec{config.Codec}
		stored, destroy, err := decorator(&lazy, prefix, key, newObject, newList, attributes, trigger, indexers)
		if err != nil {
			return nil, destroy, err
		}
		forget, err := o.handler.serve(gr, stored, prefix, newList, attributes)
		if err != nil {
			destroy()
			return nil, nil, err
		}
		return stored, func() {
			forget()
			destroy()
		}, nil
	}
	return options, err
}

// serve serves the objects of a storage until the returned function is called. The definition may have changed since the
// storage was asked for. Within seconds, k8s.io/apiextensions-apiserver destroys it then.
func (h *Handler) serve(gr schema.GroupResource, stored storage.Interface, prefix string, newList func() runtime.Object, attributes storage.AttrFunc) (forget func(), _ error) {
	gvk := newList().GetObjectKind().GroupVersionKind()
	gvr := gr.WithVersion(gvk.Version)
	if _, cached := h.cached.LoadAndDelete(gvr); !cached {
		return func() {}, nil
	}
	definition, err := h.Definitions.Get(gr.String())
	if err != nil {
		return nil, err
	}
	scope, err := newScope(definition, gvr)
	if err != nil {
		return nil, err
	}
	served := &resource{definition, newColumns(definition, gvr.Version), scope, newStore(definition, gvk, stored, prefix, attributes)}
	h.served.Store(gvr, served)
	return func() { h.served.CompareAndDelete(gvr, served) }, nil
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
func newScope(definition *apiextensionsv1.CustomResourceDefinition, gvr schema.GroupVersionResource) (*handlers.RequestScope, error) {
	copied := *definition // Its convertor knows which fields can be selected. It converts nothing.
	copied.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	convertors, err := conversion.NewCRConverterFactory(nil, nil)
	if err != nil {
		return nil, err
	}
	convertor, _, err := convertors.NewConverter(&copied)
	if err != nil {
		return nil, err
	}
	serializer := serializer{library.Codecs}
	scope := &handlers.RequestScope{
		Namer:            handlers.ContextBasedNaming{Namer: meta.NewAccessor(), ClusterScoped: definition.Spec.Scope == apiextensionsv1.ClusterScoped},
		Serializer:       serializer,
		Convertor:        convertor,
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
	return scope, nil
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
		present := served.presentationOf(req, info.Verb, accepted, serializer)
		if err != nil || present == nil {
			next.ServeHTTP(w, req)
			return
		}
		read := req.WithContext(withEncoded(req.Context()))
		if accepted.Convert != nil && accepted.Convert.Kind == "Table" {
			read.Header = req.Header.Clone() // The handler would make another table.
			read.Header.Set("Accept", runtime.ContentTypeJSON)
		}
		list := handlers.ListResource(lister{served.store, present}, served.store, served.scope, info.Verb == "watch", h.MinRequestTimeout)
		metrics.InstrumentHandlerFunc(strings.ToUpper(info.Verb), info.APIGroup, info.APIVersion, info.Resource, "", metrics.CleanScope(info), metrics.APIServerComponent, false, "", list)(w, read)
	})
}

// find returns the resource of a list or a watch. Versions that are deprecated are left to
// k8s.io/apiextensions-apiserver, which warns. So are definitions that have changed since, and answers that are logged,
// perhaps without managedFields.
func (h *Handler) find(req *http.Request) (*resource, *genericapirequest.RequestInfo) {
	info, ok := genericapirequest.RequestInfoFrom(req.Context())
	if !ok || !info.IsResourceRequest || info.Subresource != "" || info.Verb != "list" && info.Verb != "watch" {
		return nil, nil
	}
	if level := audit.AuditContextFrom(audit.WithAuditContext(req.Context())).GetEventLevel(); !level.Less(auditinternal.LevelRequestResponse) {
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

// presentationOf returns how a list or a watch is presented, or nil if k8s.io/apiextensions-apiserver does it.
func (r *resource) presentationOf(req *http.Request, verb string, accepted negotiation.MediaTypeOptions, serializer runtime.SerializerInfo) presentation {
	if verb == "watch" {
		if accepted.Convert == nil && serializer.MediaType == runtime.ContentTypeJSON {
			return plain
		}
		return nil
	}
	isPlain := serializer.MediaType == runtime.ContentTypeJSON && serializer.Serializer != serializer.PrettySerializer
	include := metav1.IncludeObjectPolicy(req.URL.Query().Get("includeObject"))
	switch {
	case accepted.Convert != nil && accepted.Convert.Kind == "Table":
		if !isPlain || !slices.Contains([]metav1.IncludeObjectPolicy{"", metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject}, include) {
			return nil
		}
		return func(_ context.Context, list *objects) (runtime.Object, error) {
			return &table{*list, r.columns, accepted.Convert.GroupVersion(), include}, nil
		}
	case accepted.Convert != nil:
		return asMetadata
	case isPlain:
		return plain
	}
	return asText
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
