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
# REGISTRY is where the images are going to be, DOWNLOADS the URL of the directory where the files
# are. PLATFORMS are those of the binaries; the ones for Linux are in the images too. SIGNING_KEY is
# the file of a private key that signs the checksums; without it there is no signature. DIGESTS pins images of
# others, such as "quay.io/coreos/etcd=sha256:… rclone/rclone=sha256:…"; with SIGNING_KEY, it has to pin all.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly version=${1:?name a version, such as v0.37.0}
readonly registry=${REGISTRY:-registry.example.com/restaurant}
readonly platforms=${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64}
readonly out=_output/release
home=$(home)
readonly home downloads=${DOWNLOADS:-${home}/releases/download/${version}}

[[ ${version} =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9a-z.]+)?$ ]] ||
	fail "The version must be like v0.37.0 or v0.37.0-rc.1, not ${version}."
# A candidate for a release has its notes.
readonly section=${version%%-*}
grep --quiet "^## ${section}\( \|$\)" CHANGELOG.md ||
	fail "CHANGELOG.md has no section \"## ${section}\": write what is new for those who upgrade."
# Nobody could make the same from the commit that the release names.
changes=$(git status --porcelain)
[[ -z ${changes} ]] ||
	fail "${changes}" 'These files differ from the last commit. Commit or remove them: a release is made of a commit.'

# It signs what is made last.
[[ -z ${SIGNING_KEY:-} ]] || openssl pkey -in "${SIGNING_KEY}" -noout 2>/dev/null ||
	fail "openssl can't read SIGNING_KEY=${SIGNING_KEY}: name the file of a private key, or none."

pins=()
for pin in ${DIGESTS:-}; do
	[[ ${pin} =~ ^[^=@:]+=sha256:[0-9a-f]{64}$ ]] ||
		fail "DIGESTS has ${pin}: name an image and the digest of its index, as in quay.io/coreos/etcd=sha256:<64 hexadecimal digits>."
	pins+=(--expression="s|^\( *image: ${pin%%=*}:[^@]*\)\$|\1@${pin#*=}|")
done
# pin FILE... names images of others by digest, too.
pin() { sed --in-place --expression='' "${pins[@]}" "$@"; }
unpinned=$(sed --expression='' "${pins[@]}" artifacts/deploy/components/*/*.yaml |
	sed -n 's|^ *image: \([^@]*/[^@]*\):[^@]*$|\1|p' | sort --unique)
readonly unpinned=${unpinned//$'\n'/, }
# The signature vouches for images, too.
[[ -z ${SIGNING_KEY:-} || -z ${unpinned} ]] ||
	fail "A signed release names all images by digest, and these have only tags: ${unpinned}. Name their digests by DIGESTS, as docs/making-releases.md shows."

# Everything has the time of the commit.
created=$(git log -1 --format=%ct)
readonly created

rm -rf "${out}"
mkdir -p "${out}"

# The webhook runs on Linux only. The servers' binaries are also what operators use on their own
# machines: doctor, snapshot and migrate.
programs() {
	case $1 in
	linux/*) echo apiserver crd-apiserver webhook kubectl-apiservices conformance ;;
	*) echo apiserver crd-apiserver kubectl-apiservices conformance ;;
	esac
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

build_tool sbom
_output/bin/sbom -version="${version}" -created="${created}" -spdx="${out}/apiserver-${version}.spdx.json" "${binaries[@]}"

declare -A digests
for name in apiserver crd-apiserver webhook; do
	built=$(VERSION=${version} REGISTRY=${registry} BINARIES="${images[*]}" hack/build-image.sh "${name}" "${out}/${name}-${version}-image.tar")
	digests[${name}]=${built##* }
done

# One file each for those who do not use kustomize.
# install FILE SERVER OVERLAY
install() {
	local work=${out}/work
	mkdir "${work}"
	cat >"${work}/kustomization.yaml" <<EOF
resources: [../../../artifacts/$3]
images: [{name: $2, newName: ${registry}/$2, newTag: "${version}", digest: "${digests[$2]}"}]
EOF
	_output/bin/kubectl kustomize "${work}" >"${out}/install-$1.yaml"
	pin "${out}/install-$1.yaml"
	rm -r "${work}"
}
install standalone apiserver deploy/overlays/standalone
install ha apiserver deploy/overlays/ha
install crd-apiserver-standalone crd-apiserver crd-apiserver/overlays/standalone
install crd-apiserver-ha crd-apiserver crd-apiserver/overlays/ha
install crd-apiserver-external-etcd crd-apiserver crd-apiserver/overlays/external-etcd

# Images that have to be copied into a registry of a closed network: also for components, which are
# in none of these files. Without digests, which programs that copy do not take beside a tag.
{
	sed -n 's/^ *image: \([^@]*\).*/\1/p' "${out}"/install-*.yaml
	sed -n 's/^ *image: \(.*\/.*\)/\1/p' artifacts/deploy/components/*/*.yaml
	echo "${registry}/webhook:${version}"
} | sort --unique >"${out}/images.txt"

# The chart is a file of its own, and tests are for those who have the repository.
mkdir "${out}/work"
cp --recursive artifacts "${out}/work"
VERSION=${version} link_version "${out}/work"
pin "${out}"/work/artifacts/deploy/components/*/*.yaml
archive "${created}" "${out}/work" --exclude='*.go' --exclude=artifacts/chart artifacts | gzip --no-name >"${out}/manifests-${version}.tar.gz"
rm -r "${out}/work"
{
	for name in "${!digests[@]}"; do echo "${name}=${digests[${name}]}"; done
	for pin in ${DIGESTS:-}; do echo "${pin}"; done
} >"${out}/digests"
for chart in restaurant-apiserver crd-apiserver; do
	VERSION=${version} REGISTRY=${registry} DIGESTS=${out}/digests hack/build-chart.sh "${out}/chart/${chart}" "${chart}"
	archive "${created}" "${out}/chart" "${chart}" | gzip --no-name >"${out}/${chart}-${version#v}.tgz"
done
rm -r "${out}/chart" "${out}/digests"

# An archive for each program: those who want a plugin do not download the servers.
declare -A archives
for platform in ${platforms}; do
	dir=${out}/${platform/\//-}
	for program in "${dir}"/*; do
		name=$(basename "${program}" .exe)
		file=${name}-${version}-${platform/\//-}.tar.gz
		mkdir "${out}/work"
		cp LICENSE "${program}" "${out}/work"
		_output/bin/sbom -notices="${out}/work/NOTICES" "${program}"
		archive "${created}" "${out}/work" | gzip --no-name >"${out}/${file}"
		rm -r "${out}/work"
		archives["${name} ${platform}"]=$(sha256sum "${out}/${file}")
	done
	rm -r "${dir}"
done

# Plugins of kubectl, for krew.
# plugin NAME PROGRAM PAGE SUMMARY
plugin() {
	local platform suffix
	cat <<EOF
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: $1
spec:
  version: ${version}
  homepage: ${home}
  shortDescription: $4
  description: |
    Documentation:
    ${home}/blob/${version}/docs/$3
  platforms:
EOF
	for platform in ${platforms}; do
		suffix=
		[[ ${platform} != windows/* ]] || suffix=.exe
		cat <<EOF
    - selector: {matchLabels: {os: ${platform%%/*}, arch: ${platform##*/}}}
      uri: ${downloads}/$2-${version}-${platform/\//-}.tar.gz
      sha256: ${archives["$2 ${platform}"]%% *}
      bin: $2${suffix}
      files: [{from: $2${suffix}, to: .}, {from: LICENSE, to: .}, {from: NOTICES, to: .}]
EOF
	done
}
while IFS='|' read -r name program page summary; do
	plugin "${name}" "${program}" "${page}" "${summary}" >"${out}/krew-${name}.yaml"
done <<'EOF'
apiservices|kubectl-apiservices|apiservices.md|Find what is wrong with APIServices and their servers
conformance|conformance|conformance.md|Find where an API differs from Kubernetes
crd-apiserver|crd-apiserver|crd-apiserver/README.md|Move custom resources to an etcd of their own
restaurant-apiserver|apiserver|operations/README.md|Examine and migrate the restaurant's API server
EOF

# Beside the repository, links have to be absolute.
awk -v start="## ${section}" 'index($0, start) == 1 { on = 1; next } /^## / { on = 0 } on' CHANGELOG.md |
	sed "s|](\([a-z]*/\)|](${home}/blob/${version}/\1|g" >"${out}/notes.md"

# It describes all other files, and the signature is that of the checksums.
commit=$(git rev-parse HEAD)
CGO_ENABLED=0 go run -trimpath ./hack/provenance -version "${version}" -registry "${registry}" -downloads "${downloads}" \
	-platforms "${platforms}" -digests "${DIGESTS:-}" -commit "${commit}" "${out}"/* >"${out}.provenance"
mv "${out}.provenance" "${out}/provenance.intoto.json"

(cd "${out}" && sha256sum -- * >SHA256SUMS)
if [[ -n ${SIGNING_KEY:-} ]]; then
	# As a bundle of Sigstore, without an entry in its log.
	signature=$(openssl dgst -sha256 -sign "${SIGNING_KEY}" "${out}/SHA256SUMS" | base64 --wrap=0)
	digest=$(openssl dgst -sha256 -binary "${out}/SHA256SUMS" | base64 --wrap=0)
	cat >"${out}/SHA256SUMS.sigstore.json" <<EOF
{
  "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
  "verificationMaterial": {"publicKey": {"hint": ""}},
  "messageSignature": {
    "messageDigest": {"algorithm": "SHA2_256", "digest": "${digest}"},
    "signature": "${signature}"
  }
}
EOF
fi
ls -l "${out}"

# At the end, where they are seen.
[[ -n ${SIGNING_KEY:-} ]] ||
	echo 'WARNING: NOT SIGNED. Nobody can see who made this release: name a private key by SIGNING_KEY.' >&2
[[ -z ${unpinned} ]] ||
	echo "WARNING: NOT PINNED. Tags name these images, whose owners can change them: ${unpinned}. Name their digests by DIGESTS." >&2
! grep --quiet -e 'security@example[.]com' SECURITY.md ||
	echo 'WARNING: NO CONTACT. SECURITY.md names no place to report vulnerabilities to: choose one by hack/rename-module.sh.' >&2
