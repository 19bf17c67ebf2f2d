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
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	library "k8s.io/apiextensions-apiserver/pkg/apiserver"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/cacher/consistency"
	"k8s.io/client-go/tools/cache"
)

const widget = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"a":"b","quoted":"\"\u003c"},` +
	`"managedFields":[{"apiVersion":"example.com/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}},"manager":"m","operation":"Update","time":"2026-01-02T03:04:05Z"}],` +
	`"name":"one","namespace":"ns","resourceVersion":"7","uid":"u"},"spec":{"list":[{"name":"x","on":true}],"ref":{"resourceVersion":"7"},"size":3,"text":"\"metadata\":{}"}}`

func config() *cacher.Config {
	return &cacher.Config{
		Versioner: storage.APIObjectVersioner{},
		KeyFunc: func(o runtime.Object) (string, error) {
			return "/widgets/ns/" + o.(*unstructured.Unstructured).GetName(), nil
		},
		GetAttrsFunc: func(o runtime.Object) (labels.Set, fields.Set, error) {
			decoded := o.(*unstructured.Unstructured)
			return decoded.GetLabels(), fields.Set{"metadata.name": decoded.GetName(), "metadata.namespace": "ns", "spec.size": "three"}, nil
		},
	}
}

func decoded(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(t, u.UnmarshalJSON([]byte(widget)))
	return u
}

func encoded(t *testing.T) *object {
	t.Helper()
	o, err := encode(config(), decoded(t))
	require.NoError(t, err)
	return o
}

func TestObjects(t *testing.T) {
	o := encoded(t)
	require.Equal(t, widget, o.json)
	require.Equal(t, "/widgets/ns/one", o.key)
	require.Equal(t, map[string]string{"a": "b", "quoted": `"<`}, o.labels)
	require.Equal(t, map[string]string{"metadata.name": "one", "metadata.namespace": "ns", "spec.size": "three"}, o.fields)
	require.Equal(t, "7", o.GetResourceVersion())
	back, err := o.decode()
	require.NoError(t, err)
	require.Equal(t, decoded(t), back)

	// A deleted object has the revision of its deletion, and another one that looks like it stays.
	deleted := o.DeepCopyObject().(*object)
	deleted.SetResourceVersion("7")
	require.Equal(t, o, deleted)
	deleted.SetResourceVersion("8")
	text, err := deleted.text()
	require.NoError(t, err)
	want := decoded(t)
	want.SetResourceVersion("8")
	wanted, err := want.MarshalJSON()
	require.NoError(t, err)
	require.JSONEq(t, string(wanted), text)
	require.Equal(t, widget, o.json)
	require.Equal(t, "8", deleted.GetResourceVersion())
}

// Lists and events are those of k8s.io/apiextensions-apiserver, also if some objects come from etcd itself.
func TestEncoder(t *testing.T) {
	list := &objects{
		TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "WidgetList"}, ListMeta: metav1.ListMeta{ResourceVersion: "9", RemainingItemCount: new(int64)},
		Items: []object{*encoded(t), {Unstructured: decoded(t)}},
	}
	theirs := &unstructured.UnstructuredList{Items: []unstructured.Unstructured{*decoded(t), *decoded(t)}}
	theirs.SetAPIVersion("example.com/v1")
	theirs.SetKind("WidgetList")
	theirs.SetResourceVersion("9")
	theirs.SetContinue("")
	theirs.SetRemainingItemCount(new(int64))
	wanted, err := theirs.MarshalJSON()
	require.NoError(t, err)
	json, ok := runtime.SerializerInfoForMediaType(library.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	require.True(t, ok)
	for name, form := range map[string]struct {
		list     runtime.Object
		delegate runtime.Encoder
	}{
		"plain":    {list, json.Serializer},
		"indented": {&indented{list}, json.PrettySerializer},
	} {
		t.Run(name, func(t *testing.T) {
			var got, indentedWant bytes.Buffer
			require.NoError(t, serializer{library.Codecs}.EncoderForVersion(form.delegate, nil).Encode(form.list, &got))
			require.NoError(t, form.delegate.Encode(theirs, &indentedWant))
			require.JSONEq(t, string(wanted), got.String())
			require.Equal(t, indentedWant.Len(), got.Len(), "the spaces differ")
		})
	}
	var event bytes.Buffer
	require.NoError(t, encoder{}.Encode(&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: []byte(widget)}}, &event))
	require.Equal(t, `{"type":"ADDED","object":`+widget+"}\n", event.String())
}

// Tables are those of k8s.io/apiextensions-apiserver, whether some or all fields of an object are decoded for the columns.
func TestTables(t *testing.T) {
	for name, paths := range map[string][]string{
		"fields":       {".spec.size", ".spec.list[0].name", ".spec.none"},
		"metadata":     {".metadata.creationTimestamp", `.metadata.labels['quoted']`},
		"all metadata": {".metadata"},
		"a filter":     {`.spec.list[?(@.name=="x")].on`},
		"anything":     {"..size"},
		"unparsable":   {".spec.size", ".spec.list[", ".spec.text"},
		"default":      nil,
	} {
		t.Run(name, func(t *testing.T) {
			version := apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1"}
			for _, path := range paths {
				version.AdditionalPrinterColumns = append(version.AdditionalPrinterColumns, apiextensionsv1.CustomResourceColumnDefinition{Name: path, Type: "string", JSONPath: path})
			}
			definition := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version}}}
			ours := columnsOf(definition, "v1")
			convertor, _ := tableconvertor.New(ours)
			want, err := convertor.ConvertToTable(t.Context(), decoded(t), &metav1.TableOptions{})
			require.NoError(t, err)
			want.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "Table"}
			want.ResourceVersion = "9"
			for include, row := range map[metav1.IncludeObjectPolicy]string{
				metav1.IncludeNone:     "null",
				metav1.IncludeObject:   widget,
				metav1.IncludeMetadata: `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":` + metadataOf(t) + `}`,
			} {
				want.Rows[0].Object = runtime.RawExtension{Raw: []byte(row)}
				wanted, err := json.Marshal(want)
				require.NoError(t, err)
				var got bytes.Buffer
				require.NoError(t, encoder{}.Encode(&table{
					objects: objects{ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []object{*encoded(t)}},
					columns: newColumns(definition, "v1"), version: metav1.SchemeGroupVersion, include: include,
				}, &got))
				require.JSONEq(t, string(wanted), got.String())
			}
		})
	}
}

func metadataOf(t *testing.T) string {
	t.Helper()
	content, err := json.Marshal(decoded(t).Object["metadata"])
	require.NoError(t, err)
	return string(content)
}

// Clients of the storage that know nothing of JSON get maps.
func TestDecodedEvents(t *testing.T) {
	status := &metav1.Status{Message: "gone"}
	event, keep := decodeEvent(watch.Event{Type: watch.Error, Object: status})
	require.True(t, keep)
	require.Equal(t, watch.Event{Type: watch.Error, Object: status}, event)
	event, keep = decodeEvent(watch.Event{Type: watch.Added, Object: encoded(t)})
	require.True(t, keep)
	require.Equal(t, watch.Event{Type: watch.Added, Object: decoded(t)}, event)

	// The object of many watches is encoded once.
	shared := &sharedObject{Object: encoded(t), object: encoded(t)}
	event, keep = decodeEvent(watch.Event{Type: watch.Added, Object: shared})
	require.True(t, keep)
	require.Equal(t, decoded(t), event.Object.(runtime.CacheableObject).GetObject())
	require.NoError(t, event.Object.(runtime.CacheableObject).CacheEncode("id", func(o runtime.Object, _ io.Writer) error {
		require.Equal(t, decoded(t), o)
		return nil
	}, io.Discard))
	require.Equal(t, []runtime.Identifier{"id"}, shared.asked)
}

type sharedObject struct {
	runtime.Object
	object *object
	asked  []runtime.Identifier
}

func (o *sharedObject) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	o.asked = append(o.asked, id)
	return encode(o.object, w)
}

func (o *sharedObject) GetObject() runtime.Object { return o.object }

// stored is an etcd with objects. The seventh is stored in another version.
type stored struct {
	storage.Interface
	codec   runtime.Codec
	objects []unstructured.Unstructured
	// pagesOnly refuses a list without a limit, and compacted the next page that continues a list.
	pagesOnly bool
	compacted *atomic.Bool
}

func (s stored) Versioner() storage.Versioner                              { return storage.APIObjectVersioner{} }
func (s stored) RequestWatchProgress(context.Context) error                { return nil }
func (s stored) GetCurrentResourceVersion(context.Context) (uint64, error) { return 9, nil }
func (s stored) CompactRevision() int64                                    { return 0 }
func (s stored) EnableResourceSizeEstimation(storage.KeysFunc) error {
	panic("the sizes are remembered")
}
func (s stored) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}

func (s stored) GetList(_ context.Context, _ string, opts storage.ListOptions, list runtime.Object) error {
	if opts.Predicate.Limit == 0 && s.pagesOnly || opts.Predicate.Continue != "" && s.compacted.CompareAndSwap(true, false) {
		return apierrors.NewResourceExpired("compacted")
	}
	begin, end := 0, len(s.objects)
	if limit := int(opts.Predicate.Limit); limit > 0 && limit < len(s.objects) {
		begin, _ = strconv.Atoi(opts.Predicate.Continue)
		end = min(begin+limit, len(s.objects))
	}
	items, continues := s.objects[begin:end], ""
	if end < len(s.objects) {
		continues = strconv.Itoa(end)
	}
	switch into := list.(type) {
	case *unstructured.UnstructuredList:
		into.Items, into.Object = items, map[string]any{}
		into.SetResourceVersion("9")
		into.SetContinue(continues)
	case *storedList:
		into.ListMeta = metav1.ListMeta{ResourceVersion: "9", Continue: continues}
		for i := range items {
			item := &storedObject{ObjectMeta: metav1.ObjectMeta{ResourceVersion: items[i].GetResourceVersion()}}
			data, err := items[i].MarshalJSON()
			if err != nil {
				return err
			}
			if begin+i == 7 {
				data = bytes.Replace(data, []byte("example.com/v1"), []byte("example.com/v2"), 1)
			}
			if _, _, err := s.codec.Decode(data, nil, item); err != nil {
				return err
			}
			into.Items = append(into.Items, *item)
		}
	}
	return nil
}

// convertingCodec converts to the version of an object that it decodes into.
type convertingCodec struct {
	runtime.Codec
	converted *atomic.Int32
}

func (c convertingCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	version := into.(*unstructured.Unstructured).GetAPIVersion()
	decoded, gvk, err := c.Codec.Decode(data, defaults, into)
	if version != "" && err == nil {
		c.converted.Add(1)
		decoded.(*unstructured.Unstructured).SetAPIVersion(version)
	}
	return decoded, gvk, err
}

// The Cacher lists in pages of its own, k8s.io/apiserver compares it with etcd every few minutes, and clients of the storage
// get maps.
func TestNewCache(t *testing.T) {
	codec := convertingCodec{unstructured.UnstructuredJSONScheme, &atomic.Int32{}}
	etcd := stored{codec: lazyCodec{codec}, pagesOnly: true, compacted: &atomic.Bool{}}
	etcd.compacted.Store(true) // The Cacher lists again without a limit.
	for i := range 3*smallestPage + 1 {
		o := decoded(t)
		o.SetName(fmt.Sprintf("object-%05d", i))
		etcd.objects = append(etcd.objects, *o)
	}
	config := *config()
	config.Storage, config.ResourcePrefix, config.EventsHistoryWindow = etcd, "/widgets", cacher.DefaultEventFreshDuration
	config.Codec = etcd.codec
	config.NewFunc = func() runtime.Object {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1"}}
	}
	config.NewListFunc = func() runtime.Object { return &unstructured.UnstructuredList{Object: map[string]any{}} }
	layer, err := newCache(config, etcd)
	require.NoError(t, err)
	defer layer.Stop()
	require.NoError(t, layer.Wait(t.Context()))

	cached, all := &objects{}, storage.ListOptions{Recursive: true, Predicate: storage.Everything, ResourceVersion: "0"}
	require.NoError(t, layer.GetList(t.Context(), "/widgets/", all, cached))
	require.Len(t, cached.Items, len(etcd.objects))
	require.NotEmpty(t, cached.Items[3*smallestPage].json)
	read := &unstructured.UnstructuredList{}
	require.NoError(t, layer.GetList(t.Context(), "/widgets/", all, read))
	require.Equal(t, etcd.objects, read.Items)
	got := &unstructured.Unstructured{}
	require.NoError(t, layer.Get(t.Context(), "/widgets/ns/object-00007", storage.GetOptions{ResourceVersion: "0"}, got))
	require.Equal(t, &etcd.objects[7], got)
	require.EqualValues(t, 2, codec.converted.Load(), "The one that is stored in another version is read twice.")

	etcd.pagesOnly = false
	require.False(t, etcd.compacted.Load())
	newList := func() runtime.Object { return &objects{} }
	checker := consistency.NewChecker("/widgets/", config.GroupResource, newList, always{layer.Interface.(*Storage).Interface}, &decodedStorage{etcd, config.NewListFunc})
	digests, err := checker.CalculateDigests(t.Context())
	require.NoError(t, err)
	require.Equal(t, digests.EtcdDigest, digests.CacheDigest)
}

// always is a cache that is ready.
type always struct{ storage.Interface }

func (always) Ready() bool         { return true }
func (always) MarkConsistent(bool) {}

// All requests but lists and watches of what is cached pass to k8s.io/apiextensions-apiserver, and those whose definition
// has changed, that get a warning, or that are logged with their answers.
func TestFind(t *testing.T) {
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", UID: "u", Generation: 1},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.ClusterScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true}, {Name: "v2", Served: true, Deprecated: true}, {Name: "v3"}},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			AcceptedNames: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets"},
			Conditions:    []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}},
		},
	}
	type changes struct {
		request    func(*genericapirequest.RequestInfo)
		definition func(*apiextensionsv1.CustomResourceDefinition)
		level      auditinternal.Level
		want       bool
	}
	for name, test := range map[string]changes{
		"a list":             {want: true},
		"a watch":            {request: func(i *genericapirequest.RequestInfo) { i.Verb = "watch" }, want: true},
		"logged metadata":    {level: auditinternal.LevelRequest, want: true},
		"logged answer":      {level: auditinternal.LevelRequestResponse},
		"a get":              {request: func(i *genericapirequest.RequestInfo) { i.Verb = "get" }},
		"a subresource":      {request: func(i *genericapirequest.RequestInfo) { i.Subresource = "status" }},
		"another resource":   {request: func(i *genericapirequest.RequestInfo) { i.Resource = "gadgets" }},
		"a namespace":        {request: func(i *genericapirequest.RequestInfo) { i.Namespace = "ns" }},
		"deprecated":         {request: func(i *genericapirequest.RequestInfo) { i.APIVersion = "v2" }},
		"not served":         {request: func(i *genericapirequest.RequestInfo) { i.APIVersion = "v3" }},
		"another definition": {definition: func(d *apiextensionsv1.CustomResourceDefinition) { d.UID = "v" }},
		"another generation": {definition: func(d *apiextensionsv1.CustomResourceDefinition) { d.Generation = 2 }},
		"other names":        {definition: func(d *apiextensionsv1.CustomResourceDefinition) { d.Status.AcceptedNames.Kind = "Widget" }},
		"not established":    {definition: func(d *apiextensionsv1.CustomResourceDefinition) { d.Status.Conditions = nil }},
		"no definition":      {definition: func(d *apiextensionsv1.CustomResourceDefinition) { d.Name = "gadgets.example.com" }},
	} {
		t.Run(name, func(t *testing.T) {
			now := definition.DeepCopy()
			info := &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "list", APIGroup: "example.com", APIVersion: "v1", Resource: "widgets"}
			if test.request != nil {
				test.request(info)
			}
			if test.definition != nil {
				test.definition(now)
			}
			indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			require.NoError(t, indexer.Add(now))
			h := &Handler{Definitions: listers.NewCustomResourceDefinitionLister(indexer)}
			for _, version := range definition.Spec.Versions {
				h.served.Store(schema.GroupVersionResource{Group: "example.com", Version: version.Name, Resource: "widgets"}, &resource{definition: definition})
			}
			ctx := audit.WithAuditContext(genericapirequest.WithRequestInfo(t.Context(), info))
			require.NoError(t, audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: test.level}, nil))
			served, _ := h.find(httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			require.Equal(t, test.want, served != nil)
		})
	}
}

func TestSelectableFields(t *testing.T) {
	definition := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.com", Scope: apiextensionsv1.ClusterScoped,
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			{Name: "v1", SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".spec.size"}}}, {Name: "v2"},
		},
	}}
	for version, selectable := range map[string][]string{"v1": {"metadata.name", "spec.size"}, "v2": {"metadata.name"}} {
		scope, err := newScope(definition, schema.GroupVersionResource{Group: "example.com", Version: version, Resource: "widgets"})
		require.NoError(t, err)
		for _, label := range []string{"metadata.name", "metadata.namespace", "spec.size"} {
			_, _, err := scope.Convertor.ConvertFieldLabel(scope.Kind, label, "x")
			require.Equal(t, slices.Contains(selectable, label), err == nil, "%s of %s: %v", label, version, err)
		}
	}
}
