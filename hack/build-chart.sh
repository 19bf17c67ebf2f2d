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

# Builds a Helm chart: artifacts/chart with the manifests of artifacts/deploy or
# artifacts/crd-apiserver, rendered by kustomize with names that the chart's templates replace. Its README
# lists the values as docs/reference does.
#
#   hack/build-chart.sh [DIR [CHART]]    by default _output/chart, and restaurant-apiserver
#
# CHART is restaurant-apiserver or crd-apiserver. VERSION is that of chart and image, REGISTRY where
# the image is, and the file DIGESTS has a line NAME=DIGEST for each. It needs _output/bin/kubectl.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly version=${VERSION:-v0.0.0} registry=${REGISTRY:-registry.example.com/restaurant} chart=${2:-restaurant-apiserver}
out=$(realpath --canonicalize-missing "${1:-_output/chart}")
readonly out

# our_registry puts the images where they are going to be.
our_registry() { sed "s|registry.example.com/restaurant/|${registry}/|"; }

# documented SECTION prints the rows of a table of docs/reference/chart-values.md.
documented() { awk -v section="## $1" '/^## / { on = $0 == section } on && /^[|] `/' docs/reference/chart-values.md; }

rm -rf "${out}"
mkdir -p "${out}/manifests"
cp --recursive artifacts/chart/templates LICENSE "${out}"
cp "artifacts/chart/${chart}/NOTES.txt" "${out}/templates"
cat "artifacts/chart/${chart}/values.yaml" <(sed '1,/^# Values of both/d' artifacts/chart/values.yaml) |
	our_registry >"${out}/values.yaml"
{
	cat "artifacts/chart/${chart}/README.md"
	printf '\n## Values\n\n| value | type | default | what it is |\n|---|---|---|---|\n'
	documented "${chart}"
	documented 'Both charts'
} | our_registry >"${out}/README.md"
# Some values are those of one chart only.
sed "/\"only /{/\"only ${chart}\"/!d; s/\"[$]comment\": \"only ${chart}\", //}" artifacts/chart/values.schema.json >"${out}/values.schema.json"

work=$(mktemp --directory)
readonly work
trap 'rm -rf "${work}"' EXIT
instance() {
	cat <<END
apiVersion: v1
kind: ConfigMap
metadata:
  name: instance
  annotations: {config.kubernetes.io/local-config: "true"}
data: {name: $1, namespace: $2}
END
}
instance crd crd-apiserver >"${work}/crd.yaml"
instance the-instance the-namespace >"${work}/instance.yaml"
# Not in values.yaml: "helm upgrade --reuse-values" keeps the values of the chart before.
{
	echo 'images:'
	while IFS='=' read -r name digest; do
		echo "- {name: ${name}, digest: \"${digest}\"}"
	done <"${DIGESTS:-/dev/null}"
} >"${work}/images.yaml"
artifacts=$(realpath --relative-to="${work}" artifacts)
readonly artifacts

# render FILE OVERLAY [COMPONENT...] writes the manifests of an overlay, if it has one, and of
# components. Names are replaced in what they are together.
render() {
	local from=${artifacts}/deploy overlay=
	if [[ ${chart} == crd-apiserver ]]; then
		from=${artifacts}/crd-apiserver overlay=crd.yaml
	fi
	if [[ -n $2 ]]; then
		overlay=${from}/overlays/$2
	fi
	{
		echo "resources: [${overlay}]"
		echo components:
		for component in "${@:3}"; do
			echo "- ${from}/components/${component}"
		done
	} >"${work}/kustomization.yaml"
	_output/bin/kubectl kustomize "${work}" >"${work}/plain.yaml"
	cat - "${work}/images.yaml" >"${work}/kustomization.yaml" <<END
resources: [plain.yaml, instance.yaml]
components: [${artifacts}/deploy/components/instance]
END
	_output/bin/kubectl kustomize "${work}" >"${out}/manifests/$1.yaml"
}
render external-etcd external-etcd
for mode in standalone=embedded ha=etcd; do
	overlay=${mode%=*} kind=${mode#*=}
	render "${overlay}" "${overlay}"
	render "${overlay}-stdin" "${overlay}" "restore-${kind}"
	render "${overlay}-store" "${overlay}" "restore-${kind}" restore-store
	render "backup-${overlay}" '' "backup-${kind}"
	render "backup-${overlay}-store" '' "backup-${kind}" backup-store
done
render monitoring '' monitoring
render doctor '' doctor
if [[ ${chart} == restaurant-apiserver ]]; then
	render webhook '' webhook
fi
sed "1,/limitations under/d; s/the-server/${chart#restaurant-}/" artifacts/chart/unregister.yaml >"${work}/unregister.yaml"
cat - "${work}/images.yaml" >"${work}/kustomization.yaml" <<<'resources: [unregister.yaml]'
_output/bin/kubectl kustomize "${work}" >"${out}/manifests/unregister.yaml"

{
	cat "artifacts/chart/${chart}/Chart.yaml"
	echo '  artifacthub.io/images: |'
	cat "${out}"/manifests/*.yaml | sed -n 's/^ *image: //p' | sort --unique | while read -r image; do
		[[ ${image} == */* ]] || image=${registry}/${image%@*}:${version}
		name=${image##*/}
		printf '    - name: %s\n      image: %s\n' "${name%%[:@]*}" "${image}"
	done
	[[ ${version} != *-* ]] || echo '  artifacthub.io/prerelease: "true"'
	printf 'version: %s\nappVersion: %s\n' "${version#v}" "${version}"
	printf 'icon: data:image/svg+xml;base64,%s\n' "$(base64 --wrap=0 artifacts/chart/icon.svg)"
} >"${out}/Chart.yaml"
link_version "${out}"
