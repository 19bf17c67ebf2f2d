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

# Issues the certificates for Konnectivity from a dedicated certificate authority: for the
# proxy server, for agents, and for clients of the proxy server (kube-apiserver). An
# existing certificate authority is kept; the other certificates are issued again.
#
#   hack/konnectivity-certificates.sh DIR HOST...
#
# Each HOST is a name or an address of the proxy server that agents or clients use.

working_directory=${PWD}
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "${working_directory}"

(($# >= 2)) || fail 'Usage: hack/konnectivity-certificates.sh DIR HOST...'
command -v openssl >/dev/null || fail 'openssl is missing. Install it (Debian: openssl).'

readonly authority_days=3650 days=365

dir=$1
shift
names=()
for host in "$@"; do
	if [[ ${host} =~ ^[0-9.]+$ || ${host} == *:* ]]; then
		names+=("IP:${host}")
	else
		names+=("DNS:${host}")
	fi
done
server_names=$(
	IFS=,
	echo "${names[*]}"
)

umask 077
mkdir -p "${dir}"
cd "${dir}"

# issue makes a key and a certificate for it.
issue() {
	local name=$1 output
	shift
	output=$(openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc \
		-subj "/CN=konnectivity-${name}" -keyout "${name}.key" -out "${name}.crt" "$@" 2>&1) ||
		fail "openssl could not make ${dir}/${name}.crt: that needs version 3 or later, and this is $(openssl version): ${output}"
}

if [[ ! -e ca.key ]]; then
	issue ca -days "${authority_days}"
fi
readonly issued=(-days "${days}" -CA ca.crt -CAkey ca.key -addext "basicConstraints=critical,CA:false")
issue server "${issued[@]}" -addext "subjectAltName=${server_names}" -addext extendedKeyUsage=serverAuth
for client in agent client; do
	issue "${client}" "${issued[@]}" -addext extendedKeyUsage=clientAuth
done
