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

package apiserver

import (
	"fmt"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	baseversion "k8s.io/component-base/version"
)

// emulatedReleases is how many releases of k8s.io/apiserver --emulated-version may go back,
// KEP-4330.
const emulatedReleases = 3

// newComponent returns the name of k8s.io/apiserver as a component, and a registry with its
// versions and features.
func newComponent() (name string, components compatibility.ComponentGlobalsRegistry) {
	// Upstream fault 51.
	gate := utilfeature.DefaultMutableFeatureGate
	// Features can be added until the gate's flag is made, and the features of the logs only once.
	if err := logsapi.AddFeatureGates(gate); err != nil {
		if _, known := gate.GetAll()[logsapi.ContextualLogging]; !known {
			utilruntime.Must(err)
		}
	}
	// k8s.io/apiserver's features follow the version of k8s.io/apiserver, whatever version
	// is stamped into the binary.
	library := version.MustParse(baseversion.DefaultKubeBinaryVersion)
	oldest := library.SubtractMinor(emulatedReleases)
	components = compatibility.NewComponentGlobalsRegistry()
	utilruntime.Must(components.Register(compatibility.DefaultKubeComponent,
		compatibility.NewEffectiveVersion(library, false, oldest, oldest), gate))
	return compatibility.DefaultKubeComponent, components
}

// ApplyFeatureGates applies --feature-gates, --emulated-version and
// --min-compatibility-version to the whole process, since k8s.io/apiserver has one feature gate.
// Complete calls it. A caller that needs the gate earlier, for example to configure logs,
// may call it before.
func (o *Options) ApplyFeatureGates() error {
	components := o.ServerRun.ComponentGlobalsRegistry
	err := components.Set()
	if err == nil {
		err = utilerrors.NewAggregate(components.Validate())
	}
	if err != nil {
		return fmt.Errorf("--feature-gates, --emulated-version or --min-compatibility-version: %w", err)
	}
	return nil
}

// FeatureGate tells which features are on.
func (o *Options) FeatureGate() featuregate.FeatureGate {
	return o.ServerRun.ComponentGlobalsRegistry.FeatureGateFor(o.ServerRun.ComponentName)
}
