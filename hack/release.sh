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

# Makes everything that a release has, in _output/release: the same commit gives the same
# files. See docs/releases.md for what they are.
#
#   hack/release.sh VERSION
#
# REGISTRY is where the images are going to be; PLATFORMS are those of the binaries, of which
# the ones for Linux are in the images too. SIGNING_KEY is the file of a private key that
# signs the checksums; without it there is no signature.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly version=${1:?name a version, such as v0.37.0}
readonly registry=${REGISTRY:-registry.example.com/restaurant}
readonly platforms=${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64}
readonly out=_output/release

[[ ${version} =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9a-z.]+)?$ ]] ||
	fail "The version must be like v0.37.0 or v0.37.0-rc.1, not ${version}."
# What comes before a release has what is not released yet.
section=${version}
[[ ${version} != *-* ]] || section=Unreleased
readonly section
grep --quiet "^## ${section}\( \|$\)" CHANGELOG.md ||
	fail "CHANGELOG.md has no section \"## ${section}\": write what is new for those who upgrade."

# What is signed and verified is the list of all files.
created=$(git log -1 --format=%ct)
readonly created

rm -rf "${out}"
mkdir -p "${out}"

# Servers run on Linux. What operators use on their own machines is a part of the servers'
# binaries: doctor, snapshot and migrate.
programs() {
	case $1 in
	linux/*) echo apiserver crd-apiserver webhook ;;
	*) echo apiserver crd-apiserver ;;
	esac
}

# archive FILE DIRECTORY [MEMBER...] packs without anything that differs from run to run.
archive() {
	tar --create --directory="$2" --sort=name --mtime="@${created}" --owner=0 --group=0 --numeric-owner \
		--mode=u=rwX,go=rX "${@:3}" | gzip --no-name >"$1"
}

binaries=()
images=()
for platform in ${platforms}; do
	dir=${out}/${platform/\//-}
	names=$(programs "${platform}")
	read -r -a names <<<"${names}"
	VERSION=${version} DIRECTORY=${dir} GOOS=${platform%%/*} GOARCH=${platform##*/} hack/build-binaries.sh "${names[@]}"
	case ${platform} in
	linux/*) images+=("${platform##*/}=${dir}") ;;
	windows/*) for name in "${names[@]}"; do mv "${dir}/${name}" "${dir}/${name}.exe"; done ;;
	esac
	binaries+=("${dir}"/*)
done

CGO_ENABLED=0 go run -trimpath ./hack/sbom -version "${version}" -created "${created}" "${binaries[@]}" >"${out}/apiserver-${version}.spdx.json"

for name in apiserver crd-apiserver webhook; do
	VERSION=${version} BINARIES="${images[*]}" hack/build-image.sh "${name}" "${out}/${name}-${version}-image.tar"
done

# One file each for those who do not use kustomize.
# install FILE SERVER OVERLAY
install() {
	local work=${out}/work
	mkdir "${work}"
	cat >"${work}/kustomization.yaml" <<EOF
resources: [../../../artifacts/$3]
images: [{name: $2, newName: ${registry}/$2, newTag: ${version}}]
EOF
	_output/bin/kubectl kustomize "${work}" >"${out}/install-$1.yaml"
	rm -r "${work}"
}
install standalone apiserver deploy/overlays/standalone
install ha apiserver deploy/overlays/ha
install crd-apiserver-standalone crd-apiserver crd-apiserver/overlays/standalone
install crd-apiserver-external-etcd crd-apiserver crd-apiserver/overlays/external-etcd

# What has to be copied into a registry of a closed network: also for components, which are in
# none of these files.
{
	sed -n 's/^ *image: //p' "${out}"/install-*.yaml
	sed -n 's/^ *image: \(.*\/.*\)/\1/p' artifacts/deploy/components/*/*.yaml
	echo "${registry}/webhook:${version}"
} | sort --unique >"${out}/images.txt"

archive "${out}/manifests-${version}.tar.gz" . artifacts
VERSION=${version} REGISTRY=${registry} hack/build-chart.sh "${out}/chart/restaurant-apiserver"
archive "${out}/restaurant-apiserver-${version#v}.tgz" "${out}/chart" restaurant-apiserver
rm -r "${out}/chart"
for platform in ${platforms}; do
	dir=${platform/\//-}
	cp LICENSE "${out}/${dir}"
	archive "${out}/apiserver-${version}-${dir}.tar.gz" "${out}/${dir}" .
	rm -r "${out:?}/${dir}"
done
awk -v start="## ${section}" 'index($0, start) == 1 { on = 1; next } /^## / { on = 0 } on' CHANGELOG.md >"${out}/notes.md"
rm "${out}"/*.digest

# It describes all other files, and the signature is that of the checksums.
commit=$(git rev-parse HEAD)
CGO_ENABLED=0 go run -trimpath ./hack/provenance -version "${version}" -registry "${registry}" -platforms "${platforms}" \
	-commit "${commit}" "${out}"/* >"${out}.provenance"
mv "${out}.provenance" "${out}/provenance.intoto.json"

(cd "${out}" && sha256sum -- * >SHA256SUMS)
if [[ -n ${SIGNING_KEY:-} ]]; then
	openssl dgst -sha256 -sign "${SIGNING_KEY}" "${out}/SHA256SUMS" | base64 --wrap=0 >"${out}/SHA256SUMS.sig"
fi
ls -l "${out}"
