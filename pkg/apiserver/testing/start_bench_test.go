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

package testing

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/kube-aggregator/pkg/generated/openapi"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/testing/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// BenchmarkStart measures, for servers of few and of many kinds, the time from their options
// until they are ready. Both take turns, so that other load of the machine meets both.
func BenchmarkStart(b *testing.B) {
	few, many := 3, 30
	extended := cluster.Start(b)
	durations := map[int][]time.Duration{}
	for b.Loop() {
		for _, kinds := range []int{few, many} {
			began := time.Now()
			server := StartTestServer(b, Config{Groups: []registry.Group{numbered(kinds)}, Flags: []string{"--storage-media-type=application/json"}, Cluster: extended})
			durations[kinds] = append(durations[kinds], time.Since(began))
			require.NoError(b, server.Stop())
		}
	}
	median := func(kinds int) float64 {
		sorted := slices.Sorted(slices.Values(durations[kinds]))
		return sorted[len(sorted)/2].Seconds()
	}
	b.ReportMetric(0, "ns/op") // It would be the sum.
	b.ReportMetric(median(few), "s/3-kinds")
	b.ReportMetric(median(many), "s/30-kinds")
	b.ReportMetric(median(many)/median(few), "ratio")
}

const numberedGroup = "numbered.example.com"

// Numbered is one of many types that differ in their number only, which is that of the
// bytes in N.
type Numbered[N any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              NumberedContent `json:"spec"`
	Status            NumberedContent `json:"status"`
}

// NumberedList is a list of them.
type NumberedList[N any] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Numbered[N] `json:"items"`
}

// NumberedContent is the content of each of them.
type NumberedContent struct {
	Text string `json:"text"`
}

func (NumberedContent) OpenAPIModelName() string { return "com.example.numbered.v1.Content" }

func (n *Numbered[N]) DeepCopyObject() runtime.Object {
	out := *n
	n.DeepCopyInto(&out.ObjectMeta)
	return &out
}

func (l *NumberedList[N]) DeepCopyObject() runtime.Object {
	out := *l
	l.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Numbered[N], len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Numbered[N])
	}
	return &out
}

func (Numbered[N]) OpenAPIModelName() string { return "com.example.numbered.v1." + kindOf[N]() }
func (NumberedList[N]) OpenAPIModelName() string {
	return "com.example.numbered.v1." + kindOf[N]() + "List"
}

func kindOf[N any]() string {
	var n N
	number, _, _ := strings.Cut(strings.TrimPrefix(fmt.Sprintf("%T", n), "["), "]")
	return "Kind" + number
}

// numberedKind is a kind, how its types are registered, and their OpenAPI definitions.
type numberedKind struct {
	registry.Declaration
	install func(*runtime.Scheme, schema.GroupVersion)
	define  func(common.ReferenceCallback) map[string]common.OpenAPIDefinition
}

func numberedKindOf[N any]() numberedKind {
	kind := kindOf[N]()
	return numberedKind{
		Declaration: registry.Kind[*Numbered[N]]{
			New:        func() *Numbered[N] { return &Numbered[N]{} },
			NewList:    func() runtime.Object { return &NumberedList[N]{} },
			Resource:   strings.ToLower(kind) + "s",
			Singular:   strings.ToLower(kind),
			Namespaced: true,
			Columns:    []registry.Column[*Numbered[N]]{registry.NameColumn[*Numbered[N]](), registry.AgeColumn[*Numbered[N]]()},
			Spec:       func(n *Numbered[N]) any { return n.Spec },
			KeepStatus: func(to, from *Numbered[N]) { to.Status = from.Status },
			KeepSpec:   func(to, from *Numbered[N]) { to.Spec = from.Spec },
		},
		install: func(scheme *runtime.Scheme, gv schema.GroupVersion) {
			scheme.AddKnownTypeWithName(gv.WithKind(kind), &Numbered[N]{})
			scheme.AddKnownTypeWithName(gv.WithKind(kind+"List"), &NumberedList[N]{})
		},
		define: func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
			text := *spec.StringProperty()
			to := func(name string) spec.Schema { return spec.Schema{SchemaProps: spec.SchemaProps{Ref: ref(name)}} }
			object := func(properties map[string]spec.Schema, dependencies ...string) common.OpenAPIDefinition {
				return common.OpenAPIDefinition{
					Schema:       spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Properties: properties}},
					Dependencies: dependencies,
				}
			}
			one, content := Numbered[N]{}.OpenAPIModelName(), NumberedContent{}.OpenAPIModelName()
			objectMeta, listMeta := metav1.ObjectMeta{}.OpenAPIModelName(), metav1.ListMeta{}.OpenAPIModelName()
			return map[string]common.OpenAPIDefinition{
				content: object(map[string]spec.Schema{"text": text}),
				one: object(map[string]spec.Schema{
					"apiVersion": text, "kind": text, "metadata": to(objectMeta), "spec": to(content), "status": to(content),
				}, objectMeta, content),
				NumberedList[N]{}.OpenAPIModelName(): object(map[string]spec.Schema{
					"apiVersion": text, "kind": text, "metadata": to(listMeta), "items": *spec.ArrayProperty(new(to(one))),
				}, listMeta, one),
			}
		},
	}
}

// numbered returns a group with a number of kinds, at most 30.
func numbered(count int) registry.Group {
	kinds := []numberedKind{
		numberedKindOf[[1]byte](), numberedKindOf[[2]byte](), numberedKindOf[[3]byte](), numberedKindOf[[4]byte](), numberedKindOf[[5]byte](),
		numberedKindOf[[6]byte](), numberedKindOf[[7]byte](), numberedKindOf[[8]byte](), numberedKindOf[[9]byte](), numberedKindOf[[10]byte](),
		numberedKindOf[[11]byte](), numberedKindOf[[12]byte](), numberedKindOf[[13]byte](), numberedKindOf[[14]byte](), numberedKindOf[[15]byte](),
		numberedKindOf[[16]byte](), numberedKindOf[[17]byte](), numberedKindOf[[18]byte](), numberedKindOf[[19]byte](), numberedKindOf[[20]byte](),
		numberedKindOf[[21]byte](), numberedKindOf[[22]byte](), numberedKindOf[[23]byte](), numberedKindOf[[24]byte](), numberedKindOf[[25]byte](),
		numberedKindOf[[26]byte](), numberedKindOf[[27]byte](), numberedKindOf[[28]byte](), numberedKindOf[[29]byte](), numberedKindOf[[30]byte](),
	}[:count]
	group := registry.Group{
		Name: numberedGroup,
		Install: func(scheme *runtime.Scheme) {
			v1 := schema.GroupVersion{Group: numberedGroup, Version: "v1"}
			for _, kind := range kinds {
				kind.install(scheme, schema.GroupVersion{Group: numberedGroup, Version: runtime.APIVersionInternal})
				kind.install(scheme, v1)
			}
			metav1.AddToGroupVersion(scheme, v1)
			utilruntime.Must(scheme.SetVersionPriority(v1))
		},
		OpenAPI: func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
			all := openapi.GetOpenAPIDefinitions(ref)
			for _, kind := range kinds {
				maps.Copy(all, kind.define(ref))
			}
			return all
		},
	}
	for _, kind := range kinds {
		group.Kinds = append(group.Kinds, kind)
	}
	return group
}
