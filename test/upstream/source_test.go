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

package upstream

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// source returns a file beside the one that has the function, in the version that this
// test is compiled with. It is for faults that show only in time or memory that no test
// should take.
func source(t *testing.T, function any, file string) string {
	t.Helper()
	pc := reflect.ValueOf(function).Pointer()
	path, _ := runtime.FuncForPC(pc).FileLine(pc)
	if !filepath.IsAbs(path) { // With -trimpath, it begins with the module.
		cache, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
		if err != nil {
			t.Fatalf("the sources can't be found: %v", err)
		}
		path = filepath.Join(strings.TrimSpace(string(cache)), path)
	}
	content, err := os.ReadFile(filepath.Join(filepath.Dir(path), file))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestSources looks for faults that show only in time, in memory, or in much set-up.
func TestSources(t *testing.T) {
	each(t, map[int]struct {
		beside any
		file   string
		// has are texts of the file while there is the fault, and lacks are texts of a repair.
		has, lacks []string
	}{
		// Each comparison of two elements takes time only.
		2: {strategicpatch.StrategicMergePatch, "patch.go", []string{"for k, v := range m {", "if ok && valueToMatch == value {"}, nil},
		// So do moves in memory, one for each field.
		3:  {(*fieldpath.PathElementSet).Insert, "element.go", []string{"s.members = slices.Insert(s.members, loc, pe)"}, nil},
		10: {(*genericapiserver.SecureServingInfo).Serve, "secure_serving.go", nil, []string{"ReadTimeout:", "WriteTimeout:"}},
		// The wait can be neither ended nor shortened, and leaves its client behind.
		33: {factory.Create, "etcd3.go", []string{"dialTimeout = 20 * time.Second", `fmt.Errorf("etcd grpc connection not ready: %w", ctx.Err())`}, nil},
		// A gate that is passed in has no effect where the package's variable is asked.
		51: {(*genericregistry.Store).Get, "store.go", []string{"utilfeature.DefaultFeatureGate.Enabled("}, nil},
		59: {genericoptions.NewTracingOptions, "tracing.go", []string{"semconv.ServiceNameKey.String(apiserverService),"}, nil},
		65: {mutating.NewDispatcher, "dispatcher.go", []string{"ConvertToVersion(newVersionedObject, versionedAttributes.GetKind().GroupVersion())"}, nil},
		// kube-apiserver does not wait until it knows the APIServices, as it does with paths that it does not have.
		89: {apiextensions.NewCustomResourceDefinitionHandler, "customresource_handler.go",
			[]string{"if !apiextensionshelpers.HasServedCRDVersion(crd, requestInfo.APIVersion) {"}, []string{"MuxAndDiscoveryComplete"}},
	}, func(t *testing.T, c struct {
		beside     any
		file       string
		has, lacks []string
	}) {
		text := source(t, c.beside, c.file)
		for _, part := range c.has {
			if !strings.Contains(text, part) {
				fixed(t, "%s does not have %q", c.file, part)
			}
		}
		for _, part := range c.lacks {
			if strings.Contains(text, part) {
				fixed(t, "%s has %q", c.file, part)
			}
		}
	})
}
