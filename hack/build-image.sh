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

# Builds the image of a program from its binaries into an archive, and prints the image's
# digest. Neither a daemon nor a registry nor the machine's own storage of images takes
# part. The same binaries give the same image: its only time is that of the commit.
#
#   hack/build-image.sh [NAME [FILE]]    by default apiserver and _output/image/NAME.tar
#
# BINARIES says for which architectures there are binaries, and where: "amd64=DIR arm64=DIR".
# By default that is this machine's, in _output/bin. VERSION goes into a label. DOCKERFILE
# names another one than the servers'.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly name=${1:-apiserver}
readonly archive=${2:-_output/image/${name}.tar}
readonly image=localhost/${name}
architecture=$(go env GOARCH)
readonly binaries=${BINARIES:-${architecture}=_output/bin}

command -v buildah >/dev/null ||
	fail 'buildah is missing. Install it (Debian: buildah), or build the Dockerfile by another program: docker build .'

mkdir -p "$(dirname "${archive}")"
storage=$(mktemp --directory)
readonly storage
trap cleanup EXIT

# cleanup deletes the storage, in which files may belong to other users, for whom only
# the builder may act if this is not root.
cleanup() {
	if ((EUID == 0)); then
		rm -rf "${storage}"
	else
		buildah unshare rm -rf "${storage}"
	fi
}

# The plain copying driver and isolation by chroot ask the least of the kernel.
builder() {
	buildah --root "${storage}/root" --runroot "${storage}/run" --storage-driver vfs "$@"
}

created=$(git log -1 --format=%ct 2>/dev/null || echo 0)
labels=(
	--label "org.opencontainers.image.title=${name}"
	--label org.opencontainers.image.licenses=Apache-2.0
	--label "org.opencontainers.image.revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)"
	--label "org.opencontainers.image.version=${VERSION:-unreleased}"
)
rm -f "${archive}"
builder manifest create "${image}" >/dev/null
for binary in ${binaries}; do
	builder build --quiet --isolation chroot --format oci --timestamp "${created}" --identity-label=false "${labels[@]}" \
		--arch "${binary%%=*}" --build-arg "BINARIES=${binary#*=}" --file "${DOCKERFILE:-Dockerfile}" --target "${name}" --manifest "${image}" . >/dev/null
done
builder manifest push --quiet --all --format oci --digestfile "${archive}.digest" "${image}" "oci-archive:${archive}"
echo "${archive} $(<"${archive}.digest")"
