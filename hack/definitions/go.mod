module restaurant.programming-kubernetes.info/apiserver/hack/definitions

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/prometheus-operator/prometheus-operator v0.94.1
	sigs.k8s.io/cluster-api v1.14.2
	sigs.k8s.io/gateway-api v1.6.3
	sigs.k8s.io/jobset v0.12.0
)

require (
	github.com/alecthomas/kingpin/v2 v2.4.0 // indirect
	github.com/alecthomas/units v0.0.0-20240927000941-0f3dac36c52b // indirect
	github.com/prometheus/common v0.71.0 // indirect
	github.com/xhit/go-str2duration/v2 v2.1.0 // indirect
)
