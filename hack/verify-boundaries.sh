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
# packages know nothing of the restaurant. Tests may import anything.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# A package belongs to the first layer whose folder it is in, and may import
# the layers listed, besides its own. As every package has a layer, looking at
# direct imports covers indirect ones.
layers() {
	cat <<'EOF'
pkg/admission/plugin     pkg/admission pkg/generated pkg/apis
pkg/registry/restaurant  pkg/registry pkg/admission pkg/admission/plugin pkg/controller pkg/generated pkg/apis
pkg/webhook/restaurant   pkg/webhook pkg/admission/plugin pkg/generated pkg/apis
pkg/controller           pkg/generated pkg/apis
pkg/apiserver            pkg/registry pkg/admission pkg/quantities
pkg/registry             pkg/admission
pkg/webhook              pkg/quantities
pkg/admission
pkg/generated            pkg/apis
pkg/apis
pkg/quantities
cmd                      pkg/admission/plugin pkg/registry/restaurant pkg/webhook/restaurant pkg/webhook pkg/controller pkg/apiserver pkg/registry pkg/admission pkg/generated pkg/apis
test                     cmd pkg/admission/plugin pkg/registry/restaurant pkg/controller pkg/apiserver pkg/registry pkg/admission pkg/generated pkg/apis
hack                     pkg/generated pkg/apis
EOF
}

# packages prints each package of this module with its imports, relative to the
# module.
packages() {
	local prefix
	prefix="$(go list -m)/"
	go list -f '{{.ImportPath}}{{range .Imports}} {{.}}{{end}}' ./... | sed "s,${prefix},./,g"
}

# In a variable, so that a failing "go list" ends this script.
packages=$(packages)

violations=$(awk '
	function layer(package, i) {
		for (i = 1; i <= count; i++)
			if (index(package "/", "./" folders[i] "/") == 1) return folders[i]
		return "no layer"
	}
	NR == FNR {
		folders[++count] = $1
		for (i = 1; i <= NF; i++) allowed[$1, $i] = 1
		next
	}
	{
		from = layer($1)
		if (from == "no layer") { print $1 " belongs to no layer."; next }
		for (i = 2; i <= NF; i++) {
			if ($i !~ /^\.\//) continue
			to = layer($i)
			if (!((from, to) in allowed)) print $1 " imports " $i ": " from " must not import " to "."
		}
	}' <(layers) <(echo "${packages}"))

[[ -z ${violations} ]] ||
	fail "${violations}" 'Move the code to where the arrow is allowed, or pass it in from cmd. The layers, and what they may import, are listed in hack/verify-boundaries.sh.'
