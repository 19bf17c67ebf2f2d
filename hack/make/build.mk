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

##@ Build

KUBERNETES_BINARIES := etcd kube-apiserver kube-controller-manager kube-scheduler kubectl
KONNECTIVITY_BINARIES := proxy-server proxy-agent
NODE_BINARIES := etcdctl kubelet kube-proxy coredns pause rclone versitygw

# kubectl finds them by these names.
.PHONY: plugins
plugins: ## Builds the plugins of kubectl, and the kit
	@hack/build-binaries.sh apiserver crd-apiserver conformance kubectl-apiservices kit
	@cd $(BIN) && ln -sf apiserver kubectl-restaurant_apiserver && ln -sf crd-apiserver kubectl-crd_apiserver && \
		ln -sf conformance kubectl-conformance && ln -sf kubectl-apiservices kubectl_complete-apiservices

.PHONY: image
image: build ## Builds images of the servers into archives, reproducibly: VERSION, REGISTRY
	@for image in apiserver crd-apiserver webhook; do hack/build-image.sh $${image} || exit 1; done

.PHONY: chart
chart: $(BIN)/kubectl ## Builds the Helm charts into directories of _output/chart: VERSION, REGISTRY
	@for chart in restaurant-apiserver crd-apiserver; do hack/build-chart.sh _output/chart/$${chart} $${chart}; done

.PHONY: release
release: $(BIN)/kubectl ## Makes everything that a release has, reproducibly: VERSION=v0.37.0, REGISTRY, PLATFORMS, DIGESTS and SIGNING_KEY
	@hack/release.sh $(VERSION)

.PHONY: binaries
binaries: build $(addprefix $(BIN)/,$(KUBERNETES_BINARIES) $(KONNECTIVITY_BINARIES)) ## Builds the servers, the webhook and what the tests run with them

$(addprefix $(BIN)/,$(KUBERNETES_BINARIES) etcdctl kubelet kube-proxy sample-apiserver): hack/build-binaries.sh test/controlplane/binaries/kubernetes.mod test/controlplane/binaries/kubernetes.sum
	@hack/build-binaries.sh $(@F)

$(addprefix $(BIN)/,$(KONNECTIVITY_BINARIES)): hack/build-binaries.sh hack/konnectivity/go.mod hack/konnectivity/go.sum
	@hack/build-binaries.sh $(@F)

.PHONY: run-remote
run-remote: binaries ## Runs the same behind a bastion with sshd, as root, until Ctrl-C
	@hack/build-binaries.sh bastion
	@exec $(BIN)/bastion -dir=$(REMOTE) -bin=$(BIN)

$(BIN)/stress: hack/tools/stress/go.mod hack/tools/stress/go.sum
	@go -C $(<D) build -o $(CURDIR)/$@ golang.org/x/tools/cmd/stress

$(BIN)/etcd-%: hack/tools/etcd-%/go.mod hack/tools/etcd-%/go.sum
	@go -C $(<D) build -buildvcs=false -o $(CURDIR)/$@ go.etcd.io/etcd/server/v3

$(BIN)/kine: hack/tools/kine/go.mod hack/tools/kine/go.sum
	@go -C $(<D) build -o $(CURDIR)/$@ github.com/k3s-io/kine

$(BIN)/coredns: hack/tools/coredns/go.mod hack/tools/coredns/go.sum hack/tools/coredns/main.go
	@go -C $(<D) build -buildvcs=false -o $(CURDIR)/$@ .

$(BIN)/rclone: hack/tools/rclone/go.mod hack/tools/rclone/go.sum hack/tools/rclone/main.go
	@go -C $(<D) build -buildvcs=false -o $(CURDIR)/$@ .

$(BIN)/versitygw: hack/tools/versitygw/go.mod hack/tools/versitygw/go.sum
	@go -C $(<D) build -o $(CURDIR)/$@ github.com/versity/versitygw/cmd/versitygw

$(BIN)/metrics-server: hack/tools/metrics-server/go.mod hack/tools/metrics-server/go.sum
	@go -C $(<D) build -o $(CURDIR)/$@ sigs.k8s.io/metrics-server/cmd/metrics-server

$(BIN)/custom-metrics-adapter $(BIN)/acme-webhook: $(BIN)/%: hack/tools/%/go.mod hack/tools/%/go.sum hack/tools/%/main.go
	@go -C $(<D) build -buildvcs=false -o $(CURDIR)/$@ .

# Of what finds targets, only Kubernetes is wanted.
$(BIN)/prometheus $(BIN)/promtool: hack/tools/prometheus/go.mod hack/tools/prometheus/go.sum
	@go -C $(<D) build -tags=remove_all_sd,enable_kubernetes_sd -o $(CURDIR)/$@ github.com/prometheus/prometheus/cmd/$(@F)

$(BIN)/pause: test/nodes/pause/main.go
	@go build -buildvcs=false -ldflags='-s -w' -o $@ ./$(<D)

.PHONY: site
site: ## Builds the site of the documentation into _output/site
	@hack/test-needs.sh mkdocs
	@mkdocs build --quiet --strict
