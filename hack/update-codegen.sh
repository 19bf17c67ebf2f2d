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

# Generates all code that is generated: what the types in pkg/apis/restaurant
# ask for beside them, and pkg/generated. The tools come from the module
# hack/tools/codegen, which pins them; only protoc is expected on the machine.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly module=restaurant.programming-kubernetes.info/apiserver
readonly apis=pkg/apis/restaurant
readonly versions=(v1 v1beta1 v1alpha1)
readonly generated=pkg/generated
# The kind that a test adds to the group has no client.
readonly third=test/thirdkind
# The group for tests of generic packages has neither a client nor protobuf.
readonly workshop=pkg/registry/testing/apis/workshop
readonly header=hack/boilerplate.go.txt
readonly work="${PWD}/_output/codegen"

versioned=("${versions[@]/#/${module}/${apis}/}")
internal_types=("${module}/${apis}" "${module}/${third}/apis/bar")
versioned_types=("${versioned[@]}" "${module}/${third}/apis/bar/v1")
printf -v versioned_list '%s,' "${versioned_types[@]}"
workshop_types=("${module}/${workshop}/v1" "${module}/${workshop}/v1alpha1")
internal_types+=("${module}/${workshop}")
versioned_types+=("${workshop_types[@]}")

step() {
	echo "update-codegen: $*"
}

# module_dir prints the directory of a module that the module in directory $1 requires.
module_dir() {
	go -C "$1" mod download "$2"
	go -C "$1" list -m -f '{{.Dir}}' "$2"
}

if ! command -v protoc >/dev/null && [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null; then
	step "installing protoc from the package protobuf-compiler"
	export DEBIAN_FRONTEND=noninteractive
	{ apt-get -qq update && apt-get -qq install --yes --no-install-recommends protobuf-compiler; } >/dev/null || true
fi
command -v protoc >/dev/null ||
	fail 'protoc, which translates the protobuf files, is not installed. Install it, on Debian by "apt-get install protobuf-compiler".'

step "building the tools"
GOBIN="${work}/bin" CGO_ENABLED=0 go -C hack/tools/codegen install -trimpath tool
export PATH="${work}/bin:${PATH}"

# What a type no longer asks for must not stay behind.
find "${apis}" "${third}" "${workshop}" \( -name 'zz_generated.*.go' -o -name 'generated.p*' \) -delete
rm -rf "${generated}" "${third}/openapi" "${workshop}/openapi"

step "deep copies"
deepcopy-gen --go-header-file "${header}" --output-file zz_generated.deepcopy.go \
	"${internal_types[@]}" "${versioned_types[@]}"

step "defaults"
defaulter-gen --go-header-file "${header}" --output-file zz_generated.defaults.go \
	"${versioned_types[@]}"

step "conversions"
conversion-gen --go-header-file "${header}" --output-file zz_generated.conversion.go \
	"${versioned_types[@]}"

step "validations"
validation-gen --go-header-file "${header}" --output-file zz_generated.validations.go \
	--readonly-pkg k8s.io/apimachinery/pkg/api/resource \
	"${versioned_types[@]}"

# go-to-protobuf finds and writes files by import path below one directory, and so
# do the imports in .proto files; links make this repository and the module
# cache look that way.
step "protobuf"
rm -rf "${work}/proto"
mkdir -p "${work}/proto/out/$(dirname "${module}")" "${work}/proto/import/"{k8s.io,github.com/gogo}
ln -s "${PWD}" "${work}/proto/out/${module}"
ln -s "$(module_dir . k8s.io/apimachinery)" "${work}/proto/import/k8s.io/apimachinery"
gogo=$(module_dir hack/tools/codegen github.com/gogo/protobuf)
ln -s "${gogo}" "${work}/proto/import/github.com/gogo/protobuf"
# Debian has descriptor.proto in a package that protoc only recommends.
ln -s "${gogo}/protobuf/google" "${work}/proto/import/google"
go-to-protobuf --go-header-file "${header}" \
	--output-dir "${work}/proto/out" \
	--proto-import "${work}/proto/import" \
	--apimachinery-packages "-k8s.io/apimachinery/pkg/api/resource,-k8s.io/apimachinery/pkg/runtime/schema,-k8s.io/apimachinery/pkg/runtime,-k8s.io/apimachinery/pkg/apis/meta/v1" \
	--packages "${versioned_list%,}"

# The rules about names are about our types; the libraries' exceptions to them
# are not ours to list.
step "OpenAPI definitions"
libraries=(
	k8s.io/api/autoscaling/v1
	k8s.io/apimachinery/pkg/api/resource
	k8s.io/apimachinery/pkg/apis/meta/v1
	k8s.io/apimachinery/pkg/runtime
	k8s.io/apimachinery/pkg/version
)
# openapi FOLDER PACKAGE... generates the definitions of the packages, and of the
# libraries they use, into a directory.
openapi() {
	local directory=$1
	shift
	openapi-gen --go-header-file "${header}" --output-file zz_generated.openapi.go \
		--output-dir "${directory}" --output-pkg "${module}/${directory}" \
		--output-model-name-file zz_generated.model_name.go \
		--report-filename "${work}/api-violations" \
		"${libraries[@]/#/--readonly-pkg=}" "${libraries[@]}" "$@"
	if grep --fixed-strings "${module}" "${work}/api-violations" >&2; then
		fail "the types above break a rule for Kubernetes APIs; give their fields the names or list types that the rule asks for."
	fi
}
openapi "${generated}/openapi" "${versioned[@]}"
openapi "${third}/openapi" "${module}/${third}/apis/bar/v1"
openapi "${workshop}/openapi" "${workshop_types[@]}"

# applyconfiguration-gen expects models under names that follow from import
# paths, and writes those names into its code; ours are shorter.
step "apply configurations"
readonly model_names=info.programming-kubernetes.restaurant. path_names=info.programming-kubernetes.restaurant.apiserver.pkg.apis.restaurant.
go run ./hack/models-schema | sed "s,${model_names},${path_names},g" >"${work}/models-schema.json"
applyconfiguration-gen --go-header-file "${header}" \
	--output-dir "${generated}/applyconfiguration" --output-pkg "${module}/${generated}/applyconfiguration" \
	--openapi-schema "${work}/models-schema.json" \
	"${versioned[@]}"
find "${generated}/applyconfiguration" -name '*.go' -exec sed --in-place "s,${path_names},${model_names},g" {} +

step "clientset"
client-gen --go-header-file "${header}" \
	--output-dir "${generated}/clientset" --output-pkg "${module}/${generated}/clientset" \
	--clientset-name versioned \
	--apply-configuration-package "${module}/${generated}/applyconfiguration" \
	--prefers-protobuf \
	--input-base "${module}/pkg/apis" "${versions[@]/#/--input=restaurant/}"

# client-gen looks for the apply configuration of a subresource's kind among our
# own; that of Scale is in client-go.
find "${generated}/clientset" -name '*.go' -exec sed --in-place \
	"s,${module}/${generated}/applyconfiguration/autoscaling/v1,k8s.io/client-go/applyconfigurations/autoscaling/v1," {} +
gofmt -w "${generated}/clientset"

step "listers"
lister-gen --go-header-file "${header}" \
	--output-dir "${generated}/listers" --output-pkg "${module}/${generated}/listers" \
	"${versioned[@]}"

step "informers"
informer-gen --go-header-file "${header}" \
	--output-dir "${generated}/informers" --output-pkg "${module}/${generated}/informers" \
	--versioned-clientset-package "${module}/${generated}/clientset/versioned" \
	--listers-package "${module}/${generated}/listers" \
	"${versioned[@]}"
