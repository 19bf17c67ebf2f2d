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

# Builds the Helm chart: artifacts/chart with the manifests of artifacts/deploy, rendered by
# kustomize with names that the chart's template replaces, and those of artifacts/crd-apiserver.
#
#   hack/build-chart.sh [DIR]    by default _output/chart
#
# VERSION is that of chart and images, REGISTRY where these are, and the file DIGESTS has a line
# NAME=DIGEST for each. It needs _output/bin/kubectl.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly version=${VERSION:-v0.0.0} registry=${REGISTRY:-registry.example.com/restaurant}
out=$(realpath --canonicalize-missing "${1:-_output/chart}")
readonly out

rm -rf "${out}"
mkdir -p "${out%/*}"
cp --recursive artifacts/chart "${out}"
printf 'version: %s\nappVersion: %s\n' "${version#v}" "${version}" >>"${out}/Chart.yaml"
sed --in-place "s|registry.example.com/restaurant/|${registry}/|" "${out}/values.yaml"
while IFS='=' read -r name digest; do
	sed --in-place "\|repository: ${registry}/${name}\$|,/tag:/ s|tag: \"\"|tag: ${version}@${digest}|" "${out}/values.yaml"
done <"${DIGESTS:-/dev/null}"
mkdir "${out}/manifests"

work=$(mktemp --directory)
readonly work
trap 'rm -rf "${work}"' EXIT
cat >"${work}/instance.yaml" <<END
apiVersion: v1
kind: ConfigMap
metadata:
  name: instance
  annotations: {config.kubernetes.io/local-config: "true"}
data: {name: the-instance, namespace: the-namespace}
END

# render FILE OVERLAY [COMPONENT...] writes the manifests of an overlay, if it has one, and of
# components.
render() {
	local deploy
	deploy=$(realpath --relative-to="${work}" artifacts/deploy)
	{
		echo "resources: [instance.yaml${2:+, ${deploy}/overlays/$2}]"
		echo components:
		printf -- "- ${deploy}/components/%s\n" "${@:3}" instance
	} >"${work}/kustomization.yaml"
	_output/bin/kubectl kustomize "${work}" >"${out}/manifests/$1.yaml"
}
render standalone standalone
render ha ha
render external-etcd external-etcd
render monitoring '' monitoring
render backup-standalone '' backup-embedded
render backup-ha '' backup-etcd
render doctor '' doctor
render webhook '' webhook
for mode in standalone external-etcd; do
	_output/bin/kubectl kustomize "artifacts/crd-apiserver/overlays/${mode}" >"${out}/manifests/crd-apiserver-${mode}.yaml"
done
