/*
Copyright The Restaurant API Server Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

	http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package limits

import (
	"fmt"
	"math"
	"runtime/debug"

	"github.com/spf13/pflag"
)

// Bounds are what a request may cost. Each is checked before the cost is paid, and what
// exceeds one is refused with a metav1.Status. docs/bounds.md has them as a table.
type Bounds struct {
	// PathBytes is how long a path may be, unescaped. k8s.io/apiserver keeps 8192 reviews, with their paths or names.
	PathBytes int
	// HeaderBytes is how large all headers may be together, counted as in RFC 9113,
	// section 6.5.2: names, values and 32 bytes for each.
	HeaderBytes int
	// QueryBytes is how long a query may be, escaped.
	QueryBytes int
	// ParameterBytes is how long a parameter of a query may be that has no bound of its own.
	ParameterBytes int
	// SelectorBytes is how long a selector of labels or fields, or the parameter continue, may be.
	SelectorBytes int
	// SelectorRequirements is how many requirements and values a selector may have.
	SelectorRequirements int

	// BodyElements is how many elements all lists and objects of a body may have together. To tell
	// owners of fields, structured-merge-diff inserts the keys of each into a sorted list, one by one. 200
	// 000 labels kept a processor busy for half a minute. Errors of custom resources are compared
	// with each other.
	// Upstream fault 3.
	// Upstream fault 85.
	BodyElements int
	// PatchDepth is how deep objects and lists of a patch may be nested. A patch
	// library reads a patch again on every level, so that the cost of a deep one
	// grows with the square of its size. No kind's schema comes near a hundred.
	// Upstream fault 1.
	PatchDepth int
	// PatchListElements is how many elements a list of a strategic merge patch may
	// have. apimachinery looks for each of them among all others, one by one.
	// Upstream fault 2.
	PatchListElements int
	// FieldPathBytes is how long the paths of all elements of a body may be together. kube-openapi makes the path of each element
	// to validate it, and keeps the paths of unknown and invalid ones. 20 000 below a key of 1 MiB were 20
	// GB.
	// Upstream fault 84.
	FieldPathBytes int
	// Owners is how many owners an object may have. Before it validates anything,
	// k8s.io/apiserver compares each of them with each other.
	// Upstream fault 5.
	Owners int

	// RequestMemory is how many bytes large bodies, lists and objects may take together while requests are worked on. An
	// account may have a quarter.
	RequestMemory int
	// WatchesPerUser is how many watches and streams an account may have.
	WatchesPerUser int
	// ConnectionsPerClient is how many connections an IP address may have that leaves as many to others, without
	// those that have a front proxy's certificate.
	ConnectionsPerClient int
	// TokensPerClient is how many bearer tokens that have not been valid before an IP
	// address may present in a second. Each takes a TokenReview.
	TokensPerClient int
}

// DefaultBounds are enough for all that clients of Kubernetes are known to send.
func DefaultBounds() Bounds {
	memory := debug.SetMemoryLimit(-1) // GOMEMLIMIT.
	if memory == math.MaxInt64 {
		memory = 1 << 30
	}
	return Bounds{
		PathBytes:            4 << 10,
		HeaderBytes:          64 << 10,
		QueryBytes:           256 << 10,
		ParameterBytes:       256,
		SelectorBytes:        32 << 10,
		SelectorRequirements: 1000,

		BodyElements:      20_000,
		PatchDepth:        100,
		PatchListElements: 1000,
		FieldPathBytes:    8 << 20,
		Owners:            256,

		RequestMemory:        int(memory / 2),
		WatchesPerUser:       2000,
		ConnectionsPerClient: 512,
		TokensPerClient:      10,
	}
}

// AddFlags adds flags for the bounds that a kind or a cluster may need to be higher.
func (b *Bounds) AddFlags(flags *pflag.FlagSet) {
	for _, flag := range b.flags() {
		flags.IntVar(flag.value, flag.name, *flag.value, flag.usage)
	}
}

type boundFlag struct {
	name  string
	value *int
	usage string
}

func (b *Bounds) flags() []boundFlag {
	return []boundFlag{
		{"max-header-bytes", &b.HeaderBytes, "How large the headers of a request may be together, in bytes. Users in many groups need more."},
		{"max-selector-bytes", &b.SelectorBytes, "How long a label or field selector may be, in bytes."},
		{"max-selector-requirements", &b.SelectorRequirements, "How many requirements and values a label or field selector may have."},
		{"max-body-elements", &b.BodyElements, "How many elements all lists and objects in a request's body may have together."},
		{"max-request-memory-bytes", &b.RequestMemory, "How many bytes of memory large bodies, lists and objects may take at once, estimated from their sizes; an account may have a quarter. Requests beyond are told to retry. By default half of GOMEMLIMIT, or 512 MiB."},
		{"max-watches-per-user", &b.WatchesPerUser, "How many watches and streams an account may have at once. Accounts of the cluster may have any number. Requests beyond are told to retry."},
		{"max-connections-per-client", &b.ConnectionsPerClient, "How many connections an IP address may have to this server, as far as it leaves as many to others. All addresses may have three times as many together, but for those that kube-apiserver has. Further ones are closed."},
		{"max-new-tokens-per-client", &b.TokensPerClient, "How many new bearer tokens an IP address may present in a second; ten times as many at once. kube-apiserver is asked about each that this server has not found valid before. Requests beyond are told to retry."},
	}
}

// Validate returns everything that is wrong, each error with its flag.
func (b *Bounds) Validate() (errs []error) {
	for _, flag := range b.flags() {
		if *flag.value <= 0 {
			errs = append(errs, fmt.Errorf("--%s must be above 0, not %d", flag.name, *flag.value))
		}
	}
	return errs
}
