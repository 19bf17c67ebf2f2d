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
# artifacts/crd-apiserver, rendered by kustomize with names that the chart's templates replace.
#
#   hack/build-chart.sh [DIR [CHART]]    by default _output/chart, and restaurant-apiserver
#
# CHART is restaurant-apiserver or crd-apiserver. VERSION is that of chart and image, REGISTRY where
# the image is, and the file DIGESTS has a line NAME=DIGEST for each. It needs _output/bin/kubectl.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly version=${VERSION:-v0.0.0} registry=${REGISTRY:-registry.example.com/restaurant} chart=${2:-restaurant-apiserver}
out=$(realpath --canonicalize-missing "${1:-_output/chart}")
readonly out

rm -rf "${out}"
mkdir -p "${out}/manifests"
cp --recursive artifacts/chart/templates "${out}"
cp "artifacts/chart/${chart}/NOTES.txt" "${out}/templates"
cp "artifacts/chart/${chart}/Chart.yaml" "${out}"
printf 'version: %s\nappVersion: %s\n' "${version#v}" "${version}" >>"${out}/Chart.yaml"
cat "artifacts/chart/${chart}/values.yaml" <(sed '1,/^# Values of both/d' artifacts/chart/values.yaml) |
	sed "s|registry.example.com/restaurant/|${registry}/|" >"${out}/values.yaml"
while IFS='=' read -r name digest; do
	sed --in-place "\|repository: ${registry}/${name}\$|,/digest:/ s|digest: \"\"|digest: ${digest}|" "${out}/values.yaml"
done <"${DIGESTS:-/dev/null}"
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
	cat >"${work}/kustomization.yaml" <<END
resources: [plain.yaml, instance.yaml]
components: [${artifacts}/deploy/components/instance]
END
	_output/bin/kubectl kustomize "${work}" >"${out}/manifests/$1.yaml"
}
render standalone standalone
render ha ha
render external-etcd external-etcd
render monitoring '' monitoring
render backup-standalone '' backup-embedded
render backup-ha '' backup-etcd
render doctor '' doctor
if [[ ${chart} == restaurant-apiserver ]]; then
	render webhook '' webhook
fi
sed "1,/limitations under/d; s/the-server/${chart#restaurant-}/" artifacts/chart/unregister.yaml >"${out}/manifests/unregister.yaml"
