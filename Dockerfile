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

# A program and nothing else, as "make build" has built it: a static binary needs no system
# around it. "make image" builds the images reproducibly; --target names another one than
# the server's.
FROM scratch AS webhook
ARG BINARIES=_output/bin
COPY ${BINARIES}/webhook /webhook
# A number, so that a cluster can see that it is not root.
USER 65532:65532
ENTRYPOINT ["/webhook"]

FROM scratch AS crd-apiserver
ARG BINARIES=_output/bin
COPY ${BINARIES}/crd-apiserver /crd-apiserver
USER 65532:65532
ENTRYPOINT ["/crd-apiserver"]

FROM scratch AS apiserver
ARG BINARIES=_output/bin
COPY ${BINARIES}/apiserver /apiserver
USER 65532:65532
ENTRYPOINT ["/apiserver"]
