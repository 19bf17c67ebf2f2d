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

# Builds an image of a program, with nothing else in it, into an OCI archive, and prints the archive
# and the digest: reproducibly, by any user.
#
#   hack/build-image.sh [NAME [FILE]]    by default apiserver and _output/image/NAME.tar
#
# BINARIES lists the architectures that there are programs for, and where: "amd64=DIR arm64=DIR". By
# default that is this machine's, in _output/bin. The image is called REGISTRY/NAME:VERSION.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly name=${1:-apiserver}
readonly file=${2:-_output/image/${name}.tar}
readonly image=${REGISTRY:-registry.example.com/restaurant}/${name}:${VERSION:-unreleased}
architecture=$(go env GOARCH)
read -ra binaries <<<"${BINARIES:-${architecture}=_output/bin}"
created=$(git log -1 --format=%ct 2>/dev/null || echo 0)

work=$(mktemp --directory)
readonly work
trap 'rm -r "${work}"' EXIT
arguments=("-out=${work}/image" "-name=${image}" "-created=${created}")
files=()

# Own images say where they come from, and have a list of what they contain, with its licences. The others stand in
# for those of other projects in tests, with programs where these have them.
programs=("/${name}")
case ${name} in
apiserver | crd-apiserver | webhook)
	home=$(home)
	revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
	arguments+=(
		"-label=org.opencontainers.image.title=${name}"
		"-label=org.opencontainers.image.version=${VERSION:-unreleased}"
		"-label=org.opencontainers.image.revision=${revision}"
		"-label=org.opencontainers.image.licenses=Apache-2.0"
		"-label=org.opencontainers.image.url=${home}"
		"-label=org.opencontainers.image.source=${home}"
		"-label=org.opencontainers.image.documentation=${home}/blob/${VERSION:-main}/docs/README.md"
	)
	files=(LICENSE "${work}/NOTICES" "${work}/${name}.spdx.json")
	build_tool sbom
	directories=("${binaries[@]#*=}")
	_output/bin/sbom "-version=${VERSION:-unreleased}" "-created=${created}" "-notices=${work}/NOTICES" \
		"-spdx=${work}/${name}.spdx.json" "${directories[@]/%//${name}}"
	;;
etcd) programs=(/usr/local/bin/etcd /usr/local/bin/etcdctl) arguments+=(-user=) ;;
rclone) programs=("/usr/local/bin/${name}") arguments+=(-user=) ;;
busybox) programs=(/bin/sh=busybox /bin/cat=busybox /bin/ls=busybox /bin/rm=busybox /bin/sleep=busybox) arguments+=(-user=) ;;
pause) ;;
*) fail "There is no image ${name}: add it to hack/build-image.sh." ;;
esac

layers=()
for part in "${binaries[@]}"; do
	root=${work}/root-${part%%=*}
	for program in "${programs[@]}"; do
		inside=${program%%=*}
		install -D "${part#*=}/$(basename "${program#*=}")" "${root}${inside}"
	done
	((${#files[@]} == 0)) || install --mode=644 "${files[@]}" "${root}"
	archive "${created}" "${root}" >"${root}.tar"
	layers+=("${part%%=*}=${root}.tar")
done
build_tool image
digest=$(_output/bin/image "${arguments[@]}" "-entrypoint=${programs[0]%%=*}" "${layers[@]}")
mkdir -p "$(dirname "${file}")"
archive "${created}" "${work}/image" >"${file}"
echo "${file} ${digest}"
