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

# Builds the named binaries into _output/bin.
#
#   hack/build-binaries.sh apiserver crd-apiserver webhook kube-apiserver etcd
#
# For a release, VERSION is what the binaries say that they are, and DIRECTORY is another one.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly root=${PWD} bin=${PWD}/${DIRECTORY:-_output/bin}

# The same for all, so that what the modules have in common is compiled once. The
# version is set below; that Go asks git for it, too, would fail for an owner whom
# git does not trust.
readonly flags=(-trimpath -buildvcs=false)
export CGO_ENABLED=0

# In the same file system as the binaries, where the go command puts a binary in
# place by renaming it: an interrupted build leaves no part of one.
export GOTMPDIR=${PWD}/_output/tmp
mkdir -p "${bin}" "${GOTMPDIR}"

# build NAME MODULE PACKAGE LDFLAGS
build() {
	[[ -e ${bin}/$1 ]] || echo "$1: building, which can take two minutes the first time"
	go build -C "$2" "${flags[@]}" -ldflags "$4" -o "${bin}/$1" "$3" ||
		fail "$1 could not be built, see above."
	# Also a binary that was up to date is now newer than what it is made from.
	touch "${bin}/$1"
}

# own_ldflags sets the version to git's name for what is built, if it has one.
own_ldflags() {
	local version=${VERSION:-}
	[[ -n ${version} ]] ||
		version=$(git describe --tags --match 'v*' --dirty 2>/dev/null) ||
		version=v0.0.0-g$(git describe --always --exclude '*' --dirty 2>/dev/null || echo unknown)
	echo "-s -w -X k8s.io/component-base/version.gitVersion=${version}"
}

# prebuilt takes a program of Kubernetes from PREBUILT_BIN_DIR, if it is there.
prebuilt() {
	local program=${PREBUILT_BIN_DIR:-}/$1 wanted version
	[[ -n ${PREBUILT_BIN_DIR:-} && -x ${program} ]] || return 1
	if [[ $1 == kube* ]]; then
		wanted=$(sed -n 's,^.*k8s.io/kubernetes \(v[0-9]*\.[0-9]*\)\..*,\1,p' test/controlplane/binaries/kubernetes.mod)
		if [[ $1 == kubectl ]]; then
			version=$("${program}" version --client)
		else
			version=$("${program}" --version)
		fi
		[[ ${version} == *" ${wanted}."* ]] ||
			fail "${program} is \"${version}\", and this server is tested with ${wanted}. Name another directory by CONTROLPLANE_BIN_DIR, or none: then $1 is built."
	fi
	install "${program}" "${bin}/$1"
	echo "$1: taken from ${PREBUILT_BIN_DIR}"
}

for name in "$@"; do
	case ${name} in
	etcd | etcdctl | kube-* | kubectl | kubelet)
		if ! prebuilt "${name}"; then
			cache=$(go run -trimpath ./test/controlplane/kubernetes "${name}")
			install "${cache}/${name}" "${bin}/${name}"
		fi
		;;
	sample-apiserver)
		build "${name}" hack/kubernetes k8s.io/sample-apiserver "-s -w"
		;;
	proxy-server | proxy-agent)
		build "${name}" hack/konnectivity "sigs.k8s.io/apiserver-network-proxy/cmd/${name#proxy-}" "-s -w"
		;;
	local)
		build "${name}" "${root}" ./test/controlplane/local "-s -w"
		;;
	bastion)
		build "${name}" "${root}" ./test/bastion/local "-s -w"
		;;
	*)
		ldflags=$(own_ldflags)
		build "${name}" "${root}" "./cmd/${name}" "${ldflags}"
		;;
	esac
done
