// stress repeats tests beside each other, for "make nightly SUITE=stress".
module restaurant.programming-kubernetes.info/apiserver/hack/tools/stress

go 1.26.0

toolchain go1.26.11

tool golang.org/x/tools/cmd/stress

require golang.org/x/tools v0.52.0 // indirect
