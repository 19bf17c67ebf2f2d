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

package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	registrytesting "restaurant.programming-kubernetes.info/apiserver/pkg/registry/testing"
	"restaurant.programming-kubernetes.info/apiserver/test/workshop"
	types "restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop"
)

// machines is the storage of the neutral group as tests call it, in version v1.
type machines struct {
	*testing.T
	*registrytesting.Storage
}

func newMachines(t *testing.T, kinds ...registry.Declaration) machines {
	t.Helper()
	group := workshop.Group()
	if kinds != nil {
		group.Kinds = kinds
	}
	return machines{t, registrytesting.NewStorage(t, group)}
}

func (m machines) context(path string) context.Context {
	return m.Context(m.T.Context(), "v1", path, "default")
}

func (m machines) create(machine *types.Machine, dryRun ...string) (*types.Machine, error) {
	obj, err := m.ByVersion["v1"]["machines"].(rest.Creater).Create(m.context("machines"), machine, rest.ValidateAllObjectFunc, &metav1.CreateOptions{DryRun: dryRun})
	if err != nil {
		return nil, err
	}
	return obj.(*types.Machine), nil
}

func (m machines) mustCreate(machine *types.Machine) *types.Machine {
	m.Helper()
	created, err := m.create(machine)
	if err != nil {
		m.Fatal(err)
	}
	return created
}

func (m machines) get(name string) (*types.Machine, error) {
	obj, err := m.ByVersion["v1"]["machines"].(rest.Getter).Get(m.context("machines"), name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return obj.(*types.Machine), nil
}

func (m machines) update(path, name string, obj runtime.Object, dryRun ...string) (runtime.Object, error) {
	updated, _, err := m.ByVersion["v1"][path].(rest.Updater).Update(m.context(path), name, rest.DefaultUpdatedObjectInfo(obj),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{DryRun: dryRun})
	return updated, err
}

func drill() *types.Machine {
	return &types.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: "drill", Namespace: "default"},
		Spec:       types.MachineSpec{Site: "hall", Parts: []types.Part{{Name: "motor", Count: 1}}, Replicas: 3},
	}
}

// TestStatusAndSpec writes the status and the spec through their own paths. Only the
// spec changes the generation.
func TestStatusAndSpec(t *testing.T) {
	m := newMachines(t)
	machine := drill()
	machine.Status.Replicas = 2
	created := m.mustCreate(machine)
	if created.Generation != 1 || created.Status.Replicas != 0 {
		t.Errorf("created with generation %d and %d running, want generation 1 and none", created.Generation, created.Status.Replicas)
	}
	for _, step := range []struct {
		name, path string
		want       func(*types.Machine)
	}{
		{"a status", "machines/status", func(m *types.Machine) { m.Status.Replicas = 7 }},
		{"a spec", "machines", func(m *types.Machine) {
			m.Spec.Replicas, m.Labels, m.Generation = 7, map[string]string{"step": "taken"}, 2
		}},
		{"metadata only", "machines", func(m *types.Machine) { m.Labels = map[string]string{"step": "again"} }},
	} {
		t.Run(step.name, func(t *testing.T) {
			before, err := m.get("drill")
			if err != nil {
				t.Fatal(err)
			}
			sent := before.DeepCopy()
			sent.Generation = 99
			sent.Spec.Replicas = 7
			sent.Status.Replicas = 7
			sent.Labels = map[string]string{"step": "taken"}
			if step.name == "metadata only" {
				sent.Labels = map[string]string{"step": "again"}
			}
			want := before.DeepCopy()
			step.want(want)
			got, err := m.update(step.path, "drill", sent)
			if err != nil {
				t.Fatal(err)
			}
			want.ResourceVersion = got.(*types.Machine).ResourceVersion
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("unexpected machine (-want +got):\n%s", diff)
			}
		})
	}
}

// TestResetFields checks the fields that get no owner by server-side apply.
func TestResetFields(t *testing.T) {
	m := newMachines(t)
	for path, want := range map[string][]string{"machines": {".status"}, "machines/status": {".metadata", ".spec"}, "sites": nil} {
		fields := m.ByVersion["v1"][path].(rest.ResetFieldsStrategy).GetResetFields()
		for _, version := range []string{"v1", "v1alpha1"} {
			var got []string
			if set := fields[fieldpath.APIVersion("workshop.example.com/"+version)]; set != nil {
				set.Iterate(func(p fieldpath.Path) { got = append(got, p.String()) })
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("unexpected fields of %s in %s (-want +got):\n%s", path, version, diff)
			}
		}
	}
}

func TestInvalidWrites(t *testing.T) {
	m := newMachines(t)
	created := m.mustCreate(drill())
	for name, test := range map[string]struct {
		path   string
		change func(*types.Machine)
		want   string
	}{
		"by a tag":        {"machines", func(m *types.Machine) { m.Spec.Replicas = 101 }, "spec.replicas: Invalid value: 101: must be less than or equal to 100"},
		"by a function":   {"machines", func(m *types.Machine) { m.Spec.Dimensions.Width = 2 }, `spec.dimensions: Invalid value: "2×0": must have both a width and a height, or neither`},
		"compared":        {"machines", func(m *types.Machine) { m.Spec.Site = "yard" }, "spec.site: Forbidden: can't be changed"},
		"a status":        {"machines/status", func(m *types.Machine) { m.Status.Replicas = -1 }, "status.replicas: Invalid value: -1: must be greater than or equal to 0"},
		"a wrong version": {"machines", func(m *types.Machine) { m.ResourceVersion = "x" }, `metadata.resourceVersion: Invalid value: "x": must be a resourceVersion that this server has returned`},
	} {
		t.Run(name, func(t *testing.T) {
			sent := created.DeepCopy()
			test.change(sent)
			_, err := m.update(test.path, "drill", sent)
			// Errors name the kind, not the resource.
			if want := `Machine.workshop.example.com "drill" is invalid: ` + test.want; err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
	for name, change := range map[string]func(*types.Machine){
		"with a resourceVersion": func(m *types.Machine) { m.ResourceVersion = "1" },
		"with a bad name":        func(m *types.Machine) { m.Name = "Drill" },
	} {
		t.Run(name, func(t *testing.T) {
			machine := drill()
			machine.Name = "other"
			change(machine)
			if _, err := m.create(machine); !apierrors.IsInvalid(err) {
				t.Errorf("got %v, want Invalid", err)
			}
		})
	}
}

func TestDryRun(t *testing.T) {
	m := newMachines(t)
	if _, err := m.create(drill(), metav1.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if _, err := m.get("drill"); !apierrors.IsNotFound(err) {
		t.Fatalf("got %v after a dry run of a create, want NotFound", err)
	}
	created := m.mustCreate(drill())
	changed := created.DeepCopy()
	changed.Spec.Replicas, changed.Status.Replicas = 9, 9
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "drill", Namespace: "default"}, Spec: autoscalingv1.ScaleSpec{Replicas: 9}}
	for path, obj := range map[string]runtime.Object{"machines": changed, "machines/status": changed, "machines/scale": scale} {
		if _, err := m.update(path, "drill", obj, metav1.DryRunAll); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	after, err := m.get("drill")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(created, after); diff != "" {
		t.Errorf("a dry run has changed the machine (-want +got):\n%s", diff)
	}
}

func TestScale(t *testing.T) {
	m := newMachines(t)
	created := m.mustCreate(drill())
	storage := m.ByVersion["v1"]["machines/scale"]
	scale := func(change func(*autoscalingv1.Scale)) *autoscalingv1.Scale {
		s := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "drill", Namespace: "default"}, Spec: autoscalingv1.ScaleSpec{Replicas: 4}}
		change(s)
		return s
	}
	for _, test := range []struct {
		name, machine string
		scale         *autoscalingv1.Scale
		want          func(error) bool
	}{
		{"a stale version", "drill", scale(func(s *autoscalingv1.Scale) { s.ResourceVersion = "1" }), apierrors.IsConflict},
		{"another uid", "drill", scale(func(s *autoscalingv1.Scale) { s.UID = "other" }), apierrors.IsConflict},
		{"no version", "drill", scale(func(s *autoscalingv1.Scale) { s.ResourceVersion = "x" }), apierrors.IsInvalid},
		{"a negative number", "drill", scale(func(s *autoscalingv1.Scale) { s.Spec.Replicas = -1 }), apierrors.IsInvalid},
		{"no such machine", "saw", scale(func(s *autoscalingv1.Scale) { s.Name = "saw" }), apierrors.IsNotFound},
		{"valid", "drill", scale(func(*autoscalingv1.Scale) {}), func(err error) bool { return err == nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := m.update("machines/scale", test.machine, test.scale); !test.want(err) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := m.update("machines/scale", "drill", created); !apierrors.IsBadRequest(err) {
		t.Errorf("got %v for a Machine instead of a Scale, want BadRequest", err)
	}
	obj, err := storage.(rest.Getter).Get(m.context("machines/scale"), "drill", &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := obj.(*autoscalingv1.Scale); got.Spec.Replicas != 4 || got.UID != created.UID {
		t.Errorf("got %d replicas of %s, want 4 of %s", got.Spec.Replicas, got.UID, created.UID)
	}
	table, err := storage.(rest.TableConvertor).ConvertToTable(t.Context(), obj, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]any{"drill", int64(4), int64(0)}, table.Rows[0].Cells[:3]); diff != "" {
		t.Errorf("unexpected cells (-want +got):\n%s", diff)
	}
	if got := storage.(rest.GroupVersionKindProvider).GroupVersionKind(schema.GroupVersion{}).Kind; got != "Scale" {
		t.Errorf("got the kind %s, want Scale", got)
	}
}

func TestListsAndTables(t *testing.T) {
	m := newMachines(t)
	m.mustCreate(drill())
	storage := m.ByVersion["v1"]["machines"]
	for selector, want := range map[string]int{
		"metadata.name=drill": 1, "metadata.namespace=default": 1, "spec.site=hall": 1, "spec.site=yard": 0, "status.replicas=0": 1, "status.replicas!=0": 0,
	} {
		list, err := storage.(rest.Lister).List(m.context("machines"), &metainternalversion.ListOptions{FieldSelector: fields.ParseSelectorOrDie(selector)})
		if err != nil {
			t.Fatal(err)
		}
		if got := meta.LenList(list); got != want {
			t.Errorf("got %d machines for %s, want %d", got, selector, want)
		}
		table, err := storage.(rest.TableConvertor).ConvertToTable(t.Context(), list, &metav1.TableOptions{NoHeaders: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(table.ColumnDefinitions) != 0 || len(table.Rows) != want || table.ResourceVersion == "" {
			t.Errorf("got a table with %d columns, %d rows and the version %q, want no columns and %d rows", len(table.ColumnDefinitions), len(table.Rows), table.ResourceVersion, want)
		}
	}
	table, err := storage.(rest.TableConvertor).ConvertToTable(t.Context(), drill(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, column := range table.ColumnDefinitions {
		names = append(names, column.Name)
	}
	if diff := cmp.Diff([]string{"Name", "Replicas", "Age", "Parts"}, names); diff != "" {
		t.Errorf("unexpected columns (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]any{"drill", "0/3", "<unknown>", int64(1)}, table.Rows[0].Cells); diff != "" {
		t.Errorf("unexpected cells (-want +got):\n%s", diff)
	}
	if _, err := m.Scheme.New(schema.GroupVersionKind{Group: types.GroupName, Version: "v1", Kind: "Machine"}); err != nil {
		t.Error(err)
	}
	if _, _, err := m.Scheme.ConvertFieldLabel(schema.GroupVersionKind{Group: types.GroupName, Version: "v1", Kind: "Machine"}, "spec.turbo", "true"); err == nil {
		t.Error("spec.turbo is accepted as a field selector")
	}
}

func TestNames(t *testing.T) {
	m := newMachines(t)
	storage := m.ByVersion["v1"]["machines"]
	got := []string{storage.(rest.SingularNameProvider).GetSingularName()}
	got = append(got, storage.(rest.ShortNamesProvider).ShortNames()...)
	got = append(got, storage.(rest.CategoriesProvider).Categories()...)
	if diff := cmp.Diff([]string{"machine", "mc", "all"}, got); diff != "" {
		t.Errorf("unexpected names (-want +got):\n%s", diff)
	}
}

// TestHooks tests a kind that has all optional functions.
func TestHooks(t *testing.T) {
	kind := workshop.Machine()
	kind.Prepare = func(_ context.Context, m, old *types.Machine) {
		if old == nil || !old.Spec.Turbo {
			m.Spec.Turbo = false // As if its feature gate were disabled.
		}
	}
	kind.Warnings = func(_ context.Context, m, old *types.Machine) []string {
		if old == nil || m.Spec.Parts == nil {
			return []string{"spec.parts: is deprecated"}
		}
		return nil
	}
	kind.ValidateName = func(name string, _ bool) []string {
		if strings.HasPrefix(name, "x") {
			return []string{"must not begin with x"}
		}
		return nil
	}
	kind.AllowCreateOnUpdate = true
	kind.CheckGracefulDelete = func(_ context.Context, m *types.Machine, options *metav1.DeleteOptions) bool {
		if options.GracePeriodSeconds == nil {
			options.GracePeriodSeconds = new(int64(30))
		}
		return m.Status.Replicas == 0
	}
	m := newMachines(t, kind)

	var warnings recordedWarnings
	machine := drill()
	machine.Name = "Drill" // The rule for names is the kind's own.
	machine.Spec.Turbo = true
	ctx := warning.WithWarningRecorder(m.context("machines"), &warnings)
	obj, err := m.ByVersion["v1"]["machines"].(rest.Creater).Create(ctx, machine, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err == nil && obj.(*types.Machine).Spec.Turbo {
		err = errors.New("spec.turbo has been kept")
	}
	if err != nil {
		// Names are part of paths, and so may contain capital letters.
		t.Fatal(err)
	}
	if diff := cmp.Diff(recordedWarnings{"spec.parts: is deprecated"}, warnings); diff != "" {
		t.Errorf("unexpected warnings (-want +got):\n%s", diff)
	}
	status := obj.DeepCopyObject().(*types.Machine)
	status.Status.Selector = "a=b"
	warnings = nil
	if _, _, err := m.ByVersion["v1"]["machines/status"].(rest.Updater).Update(warning.WithWarningRecorder(m.context("machines/status"), &warnings), "Drill", rest.DefaultUpdatedObjectInfo(status),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{}); err != nil || warnings != nil {
		t.Errorf("got the error %v and the warnings %v for an update of the status, want neither", err, warnings)
	}

	bad := drill()
	bad.Name = "xdrill"
	if _, err := m.create(bad); err == nil || !strings.Contains(err.Error(), "must not begin with x") {
		t.Errorf("got %v for a name that the kind forbids", err)
	}
	saw := drill()
	saw.Name = "saw"
	if _, err := m.update("machines", "saw", saw); err != nil {
		t.Errorf("an update created nothing: %v", err)
	}
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "none", Namespace: "default"}}
	if _, err := m.update("machines/scale", "none", scale); !apierrors.IsNotFound(err) {
		t.Errorf("got %v for the scale of no machine, want NotFound: a subresource creates nothing", err)
	}
	saw.Name = "none"
	if _, err := m.update("machines/status", "none", saw); !apierrors.IsNotFound(err) {
		t.Errorf("got %v for the status of no machine, want NotFound", err)
	}

	deleter := m.ByVersion["v1"]["machines"].(rest.GracefulDeleter)
	for _, step := range []struct {
		grace   *int64
		deleted bool
	}{{nil, false}, {new(int64(0)), true}} {
		if _, deleted, err := deleter.Delete(m.context("machines"), "saw", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{GracePeriodSeconds: step.grace}); err != nil || deleted != step.deleted {
			t.Errorf("got deleted=%t and the error %v, want deleted=%t", deleted, err, step.deleted)
		}
	}
}

// TestValidationOptions enables options for tags such as +k8s:ifEnabled.
func TestValidationOptions(t *testing.T) {
	for short, want := range map[bool]string{
		false: "",
		true:  `Site.workshop.example.com "hall" is invalid: spec.region: Too long: may not be more than 4 characters`,
	} {
		site := workshop.Site()
		site.ValidationOptions = func(context.Context, *types.Site, *types.Site) map[string]bool {
			return map[string]bool{"ShortRegions": short}
		}
		m := newMachines(t, site)
		_, err := m.ByVersion["v1"]["sites"].(rest.Creater).Create(m.Context(t.Context(), "v1", "sites", ""),
			&types.Site{ObjectMeta: metav1.ObjectMeta{Name: "hall"}, Spec: types.SiteSpec{Capacity: 1, Region: "north"}},
			rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
		if (err != nil || want != "") && (err == nil || err.Error() != want) {
			t.Errorf("with short regions %t: got %v, want %q", short, err, want)
		}
	}
}

type recordedWarnings []string

func (w *recordedWarnings) AddWarning(_, text string) { *w = append(*w, text) }

// TestRatcheting checks that stored values may stay under stricter rules.
func TestRatcheting(t *testing.T) {
	kind := workshop.Machine()
	strict, forgetful := false, false
	kind.Validate = func(_ context.Context, m, old *types.Machine) field.ErrorList {
		var errs field.ErrorList
		if strict && (old == nil || m.Spec.Site != old.Spec.Site) {
			errs = append(errs, field.Forbidden(field.NewPath("spec", "site"), "not any more"))
		}
		if forgetful && m.Spec.Replicas > 0 {
			errs = append(errs, field.Invalid(field.NewPath("spec", "replicas"), m.Spec.Replicas, "must be 0"))
		}
		return errs
	}
	m := newMachines(t, kind)
	machine := m.mustCreate(drill())
	strict = true
	machine.Spec.Replicas = 1
	obj, err := m.update("machines", "drill", machine)
	if err != nil {
		t.Fatalf("what has not changed is refused: %v", err)
	}
	machine = obj.(*types.Machine)
	forgetful = true // This rule does not look at the stored object.
	machine.Labels = map[string]string{"a": "b"}
	if obj, err = m.update("machines", "drill", machine); err != nil {
		t.Fatalf("a label is refused: %v", err)
	}
	machine = obj.(*types.Machine)
	machine.Spec.Dimensions = types.Dimensions{Width: 2, Height: 3}
	if _, err := m.update("machines", "drill", machine); !apierrors.IsInvalid(err) {
		t.Errorf("got %v for another field of the spec, want Invalid", err)
	}
	forgetful, machine.Spec.Dimensions = false, types.Dimensions{}
	machine.Spec.Site = "yard"
	if _, err := m.update("machines", "drill", machine); !apierrors.IsInvalid(err) {
		t.Errorf("got %v for a change, want Invalid", err)
	}
}

// TestKindOfOneVersionIsStored is a regression test. Kinds that the storage version of
// their group lacked failed to encode.
func TestKindOfOneVersionIsStored(t *testing.T) {
	group := workshop.Group()
	scheme := runtime.NewScheme()
	if err := group.InstallTypes(scheme); err != nil {
		t.Fatal(err)
	}
	versions, err := group.StorageVersions(scheme)
	if err != nil {
		t.Fatal(err)
	}
	want := map[schema.GroupResource]schema.GroupVersion{
		types.Resource("machines"):   {Group: types.GroupName, Version: "v1"},
		types.Resource("sites"):      {Group: types.GroupName, Version: "v1"},
		types.Resource("prototypes"): {Group: types.GroupName, Version: "v1alpha1"},
	}
	if diff := cmp.Diff(want, versions); diff != "" {
		t.Errorf("unexpected versions (-want +got):\n%s", diff)
	}
	m := newMachines(t)
	created, err := m.ByVersion["v1alpha1"]["prototypes"].(rest.Creater).Create(m.Context(t.Context(), "v1alpha1", "prototypes", "default"),
		&types.Prototype{ObjectMeta: metav1.ObjectMeta{Name: "robot"}, Spec: types.PrototypeSpec{Note: "it walks"}}, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil || created.(*types.Prototype).Spec.Note != "it walks" {
		t.Errorf("got %v and the error %v", created, err)
	}
	if _, served := m.ByVersion["v1"]["prototypes"]; served {
		t.Error("v1 serves prototypes, which it does not have")
	}
}

func TestChosenStorageVersion(t *testing.T) {
	machine, prototype := workshop.Machine(), workshop.Prototype()
	machine.StorageVersion = "v1alpha1"
	group := workshop.Group()
	group.Kinds = []registry.Declaration{machine}
	etcd := registrytesting.StartEtcd(t)
	wide := drill()
	wide.Spec.Dimensions = types.Dimensions{Width: 2, Height: 3}
	machines{t, etcd.Storage(t, group)}.mustCreate(wide)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	stored, err := client.Get(t.Context(), "/"+t.Name()+"/workshop.example.com/machines/default/drill")
	if err != nil || len(stored.Kvs) != 1 {
		t.Fatalf("got %d values and the error %v, want one", len(stored.Kvs), err)
	}
	var got struct {
		APIVersion string
		Spec       struct{ Width, Height int32 }
	}
	if err := json.Unmarshal(stored.Kvs[0].Value, &got); err != nil {
		t.Fatal(err)
	}
	// In v1, these would be in spec.dimensions.
	if got.APIVersion != "workshop.example.com/v1alpha1" || got.Spec.Width != 2 || got.Spec.Height != 3 {
		t.Errorf("stored as %s", stored.Kvs[0].Value)
	}

	prototype.StorageVersion = "v1"
	group.Kinds = []registry.Declaration{prototype}
	scheme := runtime.NewScheme()
	if err := group.InstallTypes(scheme); err != nil {
		t.Fatal(err)
	}
	_, err = group.StorageVersions(scheme)
	if want := "prototypes.workshop.example.com can't be stored: its StorageVersion is v1, which has no kind Prototype: choose a version that has, or none"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	group.Kinds = []registry.Declaration{workshop.Site()}
	onlyInternal := runtime.NewScheme()
	if err := types.AddToScheme(onlyInternal); err != nil {
		t.Fatal(err)
	}
	_, err = group.StorageVersions(onlyInternal)
	if want := "sites.workshop.example.com can't be stored: no version of the group has the kind Site: register its type in one in Install"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
