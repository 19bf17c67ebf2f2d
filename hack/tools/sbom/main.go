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

// Command sbom describes the modules that programs consist of. It writes a software bill of
// materials in SPDX 2.3 (https://spdx.github.io/spdx-spec/v2.3), and the licences and notices that
// have to be passed on with the programs.
//
// It runs in the module that the programs are built from. It reads the list of modules from the
// programs, and the licences from the modules' sources. The same programs give the same files.
package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

func main() {
	version := flag.String("version", "unreleased", "Version of the programs.")
	created := flag.Int64("created", 0, "When the document is said to be created, in seconds since 1970.")
	spdx := flag.String("spdx", "", "File for the bill of materials.")
	notices := flag.String("notices", "", "File for the licences and notices of others.")
	flag.Parse()
	if err := run(*version, time.Unix(*created, 0), *spdx, *notices, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type document struct {
	SPDXVersion       string         `json:"spdxVersion"`
	DataLicense       string         `json:"dataLicense"`
	SPDXID            string         `json:"SPDXID"`
	Name              string         `json:"name"`
	DocumentNamespace string         `json:"documentNamespace"`
	CreationInfo      creationInfo   `json:"creationInfo"`
	Packages          []spdxPackage  `json:"packages"`
	Relationships     []relationship `json:"relationships"`
}

type creationInfo struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	Name             string        `json:"name"`
	SPDXID           string        `json:"SPDXID"`
	VersionInfo      string        `json:"versionInfo,omitempty"`
	FileName         string        `json:"packageFileName,omitempty"`
	DownloadLocation string        `json:"downloadLocation"`
	FilesAnalyzed    bool          `json:"filesAnalyzed"`
	Checksums        []checksum    `json:"checksums,omitempty"`
	LicenseDeclared  string        `json:"licenseDeclared"`
	ExternalRefs     []externalRef `json:"externalRefs,omitempty"`
	PrimaryPurpose   string        `json:"primaryPackagePurpose,omitempty"`
	Comment          string        `json:"comment,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type externalRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const (
	documentID  = "SPDXRef-DOCUMENT"
	noAssertion = "NOASSERTION"
)

// run writes the files whose names are set.
func run(version string, created time.Time, spdx, notices string, files []string) error {
	doc := document{
		SPDXVersion:  "SPDX-2.3",
		DataLicense:  "CC0-1.0",
		SPDXID:       documentID,
		Name:         "apiserver-" + version,
		CreationInfo: creationInfo{created.UTC().Format(time.RFC3339), []string{"Organization: The Restaurant API Server Authors"}},
	}
	modules := map[string]spdxPackage{}
	licences := licences{}
	sums := sha256.New()
	home := ""
	for _, file := range files {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		home = "https://" + info.Main.Path
		if err := licences.find(info); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := doc.addProgram(file, version, info, modules, licences); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		fmt.Fprintln(sums, doc.Packages[len(doc.Packages)-1].Checksums)
	}
	for _, module := range modules {
		doc.Packages = append(doc.Packages, module)
	}
	slices.SortFunc(doc.Packages, func(a, b spdxPackage) int { return strings.Compare(a.SPDXID, b.SPDXID) })
	slices.SortFunc(doc.Relationships, func(a, b relationship) int {
		return cmp.Or(strings.Compare(a.Element, b.Element), strings.Compare(a.Type, b.Type), strings.Compare(a.Related, b.Related))
	})
	doc.DocumentNamespace = fmt.Sprintf("%s/spdx/%s-%x", home, doc.Name, sums.Sum(nil))
	var content bytes.Buffer
	encoder := json.NewEncoder(&content)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(doc); err != nil {
		return err
	}
	return cmp.Or(write(spdx, content.Bytes()), write(notices, licences.notices()))
}

// write writes a file that others may read, unless the name is empty.
func write(file string, content []byte) error {
	if file == "" {
		return nil
	}
	return os.WriteFile(file, content, 0o644) //nolint:gosec // G306: it is published.
}

// addProgram adds a file and its modules.
func (d *document) addProgram(file, version string, info *buildinfo.BuildInfo, modules map[string]spdxPackage, licences licences) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	// The directory has the name of a platform.
	name := filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file)
	program := spdxPackage{
		Name: info.Path, SPDXID: id("Program", name), VersionInfo: version, FileName: name,
		DownloadLocation: noAssertion, LicenseDeclared: "Apache-2.0", PrimaryPurpose: "APPLICATION",
		Checksums: []checksum{{"SHA256", fmt.Sprintf("%x", sha256.Sum256(content))}},
	}
	d.Packages = append(d.Packages, program)
	d.Relationships = append(d.Relationships, relationship{documentID, "DESCRIBES", program.SPDXID})
	for _, module := range parts(info) {
		part := describe(module, licences[key(module)].expression())
		modules[part.SPDXID] = part
		d.Relationships = append(d.Relationships, relationship{program.SPDXID, "CONTAINS", part.SPDXID})
	}
	return nil
}

// parts returns the modules of a program, the standard library included.
func parts(info *buildinfo.BuildInfo) []*debug.Module {
	return append([]*debug.Module{{Path: standardLibrary, Version: strings.TrimPrefix(info.GoVersion, "go")}}, info.Deps...)
}

const standardLibrary = "stdlib"

// key names a module in messages and notices.
func key(module *debug.Module) string { return module.Path + " " + module.Version }

func describe(module *debug.Module, licence string) spdxPackage {
	return spdxPackage{
		Name: module.Path, SPDXID: id("Module", module.Path+"-"+module.Version), VersionInfo: module.Version,
		DownloadLocation: noAssertion, LicenseDeclared: licence,
		// The hash in go.sum is the one of a module's files. It is not comparable with the hash of an
		// archive.
		Comment:      module.Sum,
		ExternalRefs: []externalRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + module.Path + "@" + module.Version}},
	}
}

// id returns an identifier with the valid characters: letters, digits, dots and hyphens.
func id(kind, name string) string {
	return "SPDXRef-" + kind + "-" + strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, name)
}
