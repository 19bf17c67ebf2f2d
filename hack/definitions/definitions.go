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

// Package definitions pins the projects with the CustomResourceDefinitions and examples for test/e2e/conformance,
// test/e2e/definitions and test/kit/definitions. It imports their smallest packages to require the modules, and builds
// nothing from them.
package definitions

import (
	_ "github.com/cert-manager/cert-manager/pkg/apis/certmanager"
	_ "github.com/prometheus-operator/prometheus-operator/pkg/versionutil"
	_ "sigs.k8s.io/cluster-api/cmd/clusterctl/config"
	_ "sigs.k8s.io/gateway-api/pkg/consts"
	_ "sigs.k8s.io/jobset/pkg/constants"
)
