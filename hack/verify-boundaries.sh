#!/usr/bin/env bash

# Copyright The Restaurant API Server Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

# Imports between the packages of this module point one way, and the generic
# packages know nothing of any group. The tests of a package import no package above it.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# A package belongs to the first layer that it matches, and may import the layers
# listed, besides its own. A star stands for the name of an API group, so that a new
# group needs no line here. Lines with "(tests)" list what only tests may import. As
# every package has a layer, looking at direct imports covers indirect ones.
layers() {
	cat <<'EOF'
cmd                           pkg/cmd/kit pkg/cmd/conformance pkg/cmd pkg/groups pkg/webhook/* pkg/webhook
pkg/cmd/kit                   pkg/kit pkg/kit/codegen
pkg/cmd/conformance           pkg/conformance
pkg/conformance
pkg/cmd                       pkg/apiserver pkg/crdserver pkg/doctor pkg/migrate pkg/etcd/keys pkg/etcd pkg/certificates pkg/cluster pkg/registry
pkg/crdserver                 pkg/apiserver/storage pkg/apiserver pkg/admission pkg/cluster pkg/etcd/keys
pkg/crdserver(tests)          pkg/etcd
pkg/kit/crd                   pkg/registry/definition pkg/registry pkg/kit/codegen
pkg/kit/crd(tests)            test/workshop
pkg/registry/definition       pkg/registry
pkg/registry/definition(tests) pkg/registry/testing test/workshop
pkg/registry/testing          pkg/registry pkg/etcd pkg/apiserver/limits
pkg/registry/testing(tests)   test/workshop
pkg/groups/*/lookup           pkg/generated pkg/apis
pkg/groups                    pkg/registry/* pkg/registry pkg/admission/plugin/* pkg/admission pkg/controller/* pkg/groups/*/lookup pkg/generated pkg/apis
pkg/groups(tests)             pkg/kit/crd
pkg/registry/*                pkg/registry pkg/apis
pkg/registry/*(tests)         pkg/registry/testing
pkg/admission/plugin/*        pkg/admission pkg/etcd/references pkg/groups/*/lookup pkg/generated pkg/apis
pkg/controller/*              pkg/groups/*/lookup pkg/generated pkg/apis
pkg/webhook/*                 pkg/webhook pkg/admission/plugin/* pkg/groups/*/lookup pkg/generated pkg/apis
pkg/apiserver/internal
pkg/apiserver/filters         pkg/apiserver/limits
pkg/apiserver/filters(tests)  pkg/apiserver/internal pkg/registry/testing pkg/registry pkg/apis
pkg/apiserver/limits
pkg/apiserver/limits(tests)   pkg/apiserver/internal
pkg/apiserver/transport       pkg/apiserver/limits
pkg/apiserver/authentication  pkg/apiserver/transport pkg/apiserver/limits
pkg/apiserver(tests)          test/workshop
pkg/apiserver/storage         pkg/apiserver/limits pkg/apiserver/transport pkg/registry pkg/etcd/references pkg/etcd/keys pkg/etcd pkg/cluster
pkg/apiserver/storage(tests)  pkg/apiserver/internal pkg/registry/testing
pkg/apiserver/requirements    pkg/apiserver/authentication pkg/admission pkg/certificates pkg/cluster
pkg/apiserver/authorization   pkg/apiserver/limits pkg/apiserver/authentication
pkg/apiserver                 pkg/apiserver/filters pkg/apiserver/limits pkg/apiserver/transport pkg/apiserver/storage pkg/apiserver/requirements pkg/apiserver/authentication pkg/apiserver/authorization pkg/registry pkg/admission pkg/etcd pkg/certificates pkg/cluster pkg/etcd/keys
pkg/doctor(tests)             pkg/registry/testing
pkg/doctor                    pkg/registry pkg/admission pkg/etcd pkg/cluster pkg/etcd/keys
pkg/registry                  pkg/admission
pkg/registry(tests)           pkg/registry/testing pkg/etcd test/workshop
pkg/webhook                   pkg/apiserver/limits pkg/apiserver/transport pkg/cluster
pkg/webhook(tests)            pkg/apis
pkg/admission
pkg/cluster
pkg/etcd/keys
pkg/etcd/references
pkg/etcd/references(tests)    pkg/etcd
pkg/etcd
pkg/certificates
pkg/kit/codegen
pkg/kit                       pkg/kit/codegen artifacts
artifacts
pkg/migrate                   pkg/admission pkg/apiserver/limits pkg/etcd/keys pkg/cluster
pkg/migrate(tests)            pkg/etcd
pkg/generated                 pkg/apis
pkg/apis
hack/reference                pkg/cmd/conformance pkg/cmd/kit pkg/cmd pkg/groups pkg/webhook/* pkg/webhook
hack
test/workshop                 pkg/registry
test/workshop(tests)          pkg/registry/testing
test(tests)                   pkg/registry/definition test/workshop
test                          cmd pkg/conformance pkg/doctor pkg/cmd/kit pkg/cmd pkg/crdserver pkg/apiserver pkg/apiserver/authentication pkg/apiserver/authorization pkg/webhook/* pkg/webhook pkg/admission/plugin/* pkg/admission pkg/controller/* pkg/groups pkg/registry/* pkg/registry pkg/etcd pkg/certificates pkg/cluster pkg/etcd/keys pkg/generated pkg/apis
EOF
}

# packages prints each package of this module, and its tests, with their imports,
# relative to the module.
packages() {
	local prefix
	prefix="$(go list -m)/"
	go list -f '{{.ImportPath}}{{range .Imports}} {{.}}{{end}}
{{.ImportPath}}(tests){{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}' ./... | sed "s,${prefix},./,g"
}

# In a variable, so that a failing "go list" ends this script.
packages=$(packages)

violations=$(awk '
	function layer(package, i, pattern) {
		for (i = 1; i <= count; i++) {
			pattern = "^\\./" directories[i] "/"
			gsub(/\*/, "[^/]+", pattern)
			if (package "/" ~ pattern) return directories[i]
		}
		return "no layer"
	}
	NR == FNR {
		if ($1 !~ /\(tests\)$/) directories[++count] = $1
		allowed[$1, $1] = 1
		for (i = 2; i <= NF; i++) allowed[$1, $i] = 1
		next
	}
	{
		tests = sub(/\(tests\)$/, "", $1) ? "(tests)" : ""
		from = layer($1)
		if (from == "no layer") { if (!tests) print $1 " belongs to no layer."; next }
		for (i = 2; i <= NF; i++) {
			if ($i !~ /^\.\//) continue
			to = layer($i)
			if ((from, to) in allowed || tests && (from tests, to) in allowed) continue
			print (tests ? "A test of " : "") $1 " imports " $i ": " from " must not import " to "."
		}
	}' <(layers) <(echo "${packages}"))

[[ -z ${violations} ]] ||
	fail "${violations}" 'Move the code to where the arrow is allowed, or pass it in from cmd. The layers, and what they may import, are listed in hack/verify-boundaries.sh.'
