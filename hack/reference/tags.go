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

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"

	"restaurant.programming-kubernetes.info/apiserver/pkg/kit/crd"
)

// generator is the program that writes the validation of tags. It describes them, too.
const generator = "k8s.io/code-generator/cmd/validation-gen"

// firstSentence matches the beginning of a description.
var firstSentence = regexp.MustCompile(`(?s)^.*?[.]\s`)

func sentence(description string) string {
	if first := firstSentence.FindString(description); first != "" {
		return first
	}
	return description
}

// writeTags describes the tags for the validation of fields.
func writeTags(p *page) error {
	version, err := exec.Command("go", "list", "-m", "-f={{.Version}}", "k8s.io/apimachinery").Output()
	if err != nil {
		return fmt.Errorf("reading the version of Kubernetes' libraries: %w", err)
	}
	command := exec.Command("go", "run", generator+"@"+strings.TrimSpace(string(version)), "--docs")
	command.Env, command.Stderr = append(os.Environ(), "GOFLAGS=-trimpath"), os.Stderr
	output, err := command.Output()
	if err != nil {
		return fmt.Errorf("running %s: %w", generator, err)
	}
	var tags []struct {
		Tag, Usage, Description, StabilityLevel string
		Scopes                                  []string
	}
	if err := json.Unmarshal(output, &tags); err != nil {
		return err
	}
	p.paragraph("# Tags")
	p.paragraph("For authors: comments of the types of a version that begin with `+k8s:` declare the validation of a field, a type, or the elements of a " +
		"list or map. `make generate` writes the code. The descriptions are those of Kubernetes. What no tag can express, such as a relation of " +
		"two fields, is a function in Go (`Validate`); there is no tag for CEL.")
	p.paragraph("`export crd` keeps the tags that have a yes, and prints a line for each other one that it finds. " +
		"A tag with `k8s:alpha` or `k8s:beta` before it, or of that stability, may change with any release of Kubernetes.")
	p.table("tag", "what it does", "stability", "exported")
	for _, tag := range tags {
		if strings.HasPrefix(tag.Tag, "k8s:validate") {
			continue // For tests of the generator.
		}
		exported := "no"
		if crd.Exports(strings.TrimPrefix(tag.Tag, "k8s:")) {
			exported = "yes"
		}
		p.row(code("+"+strings.ReplaceAll(strings.TrimPrefix(tag.Usage, "+"), "`", "")), cell(sentence(tag.Description)), strings.ToLower(tag.StabilityLevel), exported)
	}
	p.paragraph("Besides these: `+optional` and `+required` for OpenAPI; `+default=VALUE`; `+enum` beside `+k8s:enum`, for OpenAPI; " +
		"`+listType`, `+listMapKey`, `+mapType` and `+structType` for server-side apply; `+genclient` for clients; `+k8s:supportsSubresource` for a type with " +
		"`/status` or `/scale`.")
	return nil
}
