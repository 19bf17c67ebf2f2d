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

# Generates all code that is generated, in this module or in that of the directory $1:
# what the types in its directories "apis" ask for beside them, and the directories
# "generated". pkg/codegen says which groups it finds. The tools come from the module
# hack/tools/codegen, which pins them; only protoc is expected on the machine.

module=$(realpath "${1:-$(dirname "${BASH_SOURCE[0]}")/..}")

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly module work="${PWD}/_output/codegen"
readonly tools=hack/tools/codegen

step() {
	echo "update-codegen: $*"
}

if ! command -v protoc >/dev/null && [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null; then
	step "installing protoc from the package protobuf-compiler"
	export DEBIAN_FRONTEND=noninteractive
	{ apt-get -qq update && apt-get -qq install --yes --no-install-recommends protobuf-compiler; } >/dev/null || true
fi
command -v protoc >/dev/null ||
	fail 'protoc, which translates the protobuf files, is not installed. Install it, on Debian by "apt-get install protobuf-compiler".'

step "building the tools"
GOBIN="${work}/bin" CGO_ENABLED=0 go -C "${tools}" install -trimpath tool
go -C "${tools}" mod download github.com/gogo/protobuf
go mod download k8s.io/apimachinery
gogo=$(go -C "${tools}" list -m -f '{{.Dir}}' github.com/gogo/protobuf)

header=
if [[ -f ${module}/hack/boilerplate.go.txt ]]; then
	header=${module}/hack/boilerplate.go.txt
fi
go run ./hack/codegen -module="${module}" -tools="${work}/bin" -gogo="${gogo}" -header="${header}"
