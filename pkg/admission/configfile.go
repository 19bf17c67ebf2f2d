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

package admission

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
)

// ValidateConfigFile returns the errors in the file of
// --admission-control-config-file, which configures some of these plugins. The
// library reports them late, ends the process, or ignores them. Errors in the
// configuration of a plugin are known only to the plugin.
func ValidateConfigFile(file string, plugins []string) []error {
	if file == "" {
		return nil
	}
	config, err := readConfigFile(file)
	if err != nil {
		return []error{fmt.Errorf("--admission-control-config-file can't be used: %w", err)}
	}
	var errs []error
	for _, plugin := range config.Plugins {
		// Upstream fault 44.
		if !slices.Contains(plugins, plugin.Name) {
			errs = append(errs, fmt.Errorf("--admission-control-config-file: %s configures a plugin %q that does not exist; there are %s",
				file, plugin.Name, strings.Join(plugins, ", ")))
		}
		if plugin.Configuration != nil || plugin.Path == "" {
			continue
		}
		path := plugin.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(file), path)
		}
		// Upstream fault 45.
		if _, err := os.ReadFile(path); err != nil {
			errs = append(errs, fmt.Errorf("--admission-control-config-file: the configuration of the plugin %s, named in %s, can't be read: %w", plugin.Name, file, err))
		}
	}
	return errs
}

func readConfigFile(file string) (*apiserver.AdmissionConfiguration, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	obj, kind, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder().Decode(data, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	config, ok := obj.(*apiserver.AdmissionConfiguration)
	if !ok {
		return nil, fmt.Errorf("%s has the kind %s instead of AdmissionConfiguration", file, kind.Kind)
	}
	return config, nil
}
