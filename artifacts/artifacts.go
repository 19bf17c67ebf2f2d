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

// Package artifacts holds the manifests of an installation. The kit makes those of other
// API servers of them.
package artifacts

import (
	"embed"
)

// Deploy has the directory deploy.
//
//go:embed deploy
var Deploy embed.FS

// Restaurant are the files and directories in deploy that are of no use to another API server.
// They depend on the kinds and versions of the restaurant, are examples, or serve people that
// install manifests of others. The kit leaves them out.
func Restaurant() []string {
	return []string{
		"base/apiservices.yaml",
		"base/rbac-apiservices.yaml",
		"base/rbac-policy-parameters-restaurant.yaml",
		"base/rbac-users.yaml",
		"components/instance",
		"components/monitoring/prometheusrule-restaurant.yaml",
		"components/unregistered",
		"components/webhook",
	}
}
