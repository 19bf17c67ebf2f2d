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

// The provenance command prints the build of a release's files as an in-toto statement
// (https://in-toto.io/Statement/v1) with SLSA's provenance (https://slsa.dev/provenance/v1).
// It contains no time: the same files give the same statement.
package main

import (
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

const source = "https://restaurant.programming-kubernetes.info/apiserver"

func main() {
	var parameters parameters
	flag.StringVar(&parameters.Version, "version", "", "Version of the release.")
	flag.StringVar(&parameters.Registry, "registry", "", "Registry of the images in the manifests.")
	flag.StringVar(&parameters.Downloads, "downloads", "", "URL of the directory of the files.")
	flag.StringVar(&parameters.Platforms, "platforms", "", "Platforms of the binaries, separated by spaces.")
	flag.StringVar(&parameters.Digests, "digests", "", "Digests of other projects' images, separated by spaces.")
	commit := flag.String("commit", "", "Commit of the sources.")
	builder := flag.String("builder", source+"/hack/release.sh", "URI of the builder.")
	flag.Parse()
	if err := run(os.Stdout, parameters, *commit, *builder, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// descriptor is in-toto's ResourceDescriptor.
type descriptor struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

// parameters are the parameters of a build that its user chooses.
type parameters struct {
	Version   string `json:"version"`
	Registry  string `json:"registry"`
	Downloads string `json:"downloads"`
	Platforms string `json:"platforms"`
	Digests   string `json:"digests,omitempty"`
}

type predicate struct {
	BuildDefinition struct {
		BuildType            string       `json:"buildType"`
		ExternalParameters   parameters   `json:"externalParameters"`
		ResolvedDependencies []descriptor `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

type statement struct {
	Type          string       `json:"_type"`
	Subject       []descriptor `json:"subject"`
	PredicateType string       `json:"predicateType"`
	Predicate     predicate    `json:"predicate"`
}

func run(out io.Writer, parameters parameters, commit, builder string, files []string) error {
	s := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		s.Subject = append(s.Subject, descriptor{Name: filepath.Base(file), Digest: map[string]string{"sha256": fmt.Sprintf("%x", sha256.Sum256(content))}})
	}
	s.Predicate.BuildDefinition.BuildType = source + "/blob/" + parameters.Version + "/docs/making-releases.md"
	s.Predicate.BuildDefinition.ExternalParameters = parameters
	// Modules are listed in go.sum of the commit.
	s.Predicate.BuildDefinition.ResolvedDependencies = []descriptor{
		{URI: "git+" + source, Digest: map[string]string{"gitCommit": commit}},
		{Name: runtime.Version(), URI: "pkg:golang/toolchain@" + runtime.Version()},
	}
	s.Predicate.RunDetails.Builder.ID = builder
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(s)
}
