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
pkg/registry/restaurant  pkg/registry pkg/apis
pkg/controller           pkg/generated pkg/apis
pkg/apiserver            pkg/registry pkg/admission
pkg/registry
pkg/admission
pkg/generated            pkg/apis
pkg/apis
cmd                      pkg/admission/plugin pkg/registry/restaurant pkg/controller pkg/apiserver pkg/registry pkg/admission pkg/generated pkg/apis
test                     cmd pkg/admission/plugin pkg/registry/restaurant pkg/controller pkg/apiserver pkg/registry pkg/admission pkg/generated pkg/apis
hack                     pkg/generated pkg/apis
EOF
}

# imports prints every import inside this module as "importer imported".
imports() {
	local module
	module=$(go list -m)
	go list -f '{{range .Imports}}{{$.ImportPath}} {{.}}{{"\n"}}{{end}}' ./... |
		awk -v prefix="${module}/" 'index($2, prefix) == 1 { gsub(prefix, ""); print }'
}

# The list of imports is taken first, so that a failing "go list" fails this
# script.
found=$(imports)

violations=$(awk '
	function layer(package, i) {
		for (i = 1; i <= count; i++)
			if (index(package "/", folders[i] "/") == 1) return folders[i]
		return ""
	}
	NR == FNR {
		folders[++count] = $1
		allowed[$1, $1] = 1
		for (i = 2; i <= NF; i++) allowed[$1, $i] = 1
		next
	}
	{
		from = layer($1); to = layer($2)
		if (from == "") print $1 " belongs to no layer."
		else if (!((from, to) in allowed)) print $1 " imports " $2 ": " from " must not import " (to == "" ? "a package without a layer" : to) "."
	}' <(layers) <(echo "${found}"))

[[ -z ${violations} ]] ||
	fail "${violations}" 'Move the code to where the arrow is allowed, or pass it in from cmd. The layers, and what they may import, are listed in hack/verify-boundaries.sh.'
