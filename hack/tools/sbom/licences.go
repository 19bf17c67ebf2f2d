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
	"bytes"
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// licences has the licences of modules, by key.
type licences map[string]licence

// licence has the texts of a module that have to be passed on, by their paths in the module, and the
// names of their licences.
type licence struct {
	texts map[string]string
	names map[string]bool
}

// expression returns the licences as SPDX writes them.
func (l licence) expression() string {
	return strings.Join(slices.Sorted(maps.Keys(l.names)), " AND ")
}

// licenceFile matches the files that have to be passed on, some of them not licences themselves.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-._].*)?$`)

// recognized is the percentage of a text that its licences must cover. pkg.go.dev uses the same.
const recognized = 75

// find reads the licences of the modules that a program is made of.
func (l licences) find(info *buildinfo.BuildInfo) error {
	packages, err := packageDirectories(info)
	if err != nil {
		return err
	}
	for _, module := range parts(info) {
		if _, found := l[key(module)]; found {
			continue
		}
		if module.Replace != nil {
			return fmt.Errorf("%s is replaced, which other modules do not follow: remove the line from go.mod", key(module))
		}
		found := licence{map[string]string{}, map[string]bool{}}
		for dir, root := range packages[module.Path] {
			if err := found.read(root, dir); err != nil {
				return err
			}
		}
		if len(found.names) == 0 {
			return fmt.Errorf("%s has no licence that is known: look into its sources whether it may be passed on, and leave it out if not", key(module))
		}
		l[key(module)] = found
	}
	return nil
}

// packageDirectories returns the directories of the packages of a program by modules, with the root
// of their module.
func packageDirectories(info *buildinfo.BuildInfo) (map[string]map[string]string, error) {
	arguments := []string{"list", "-deps", "-f", "{{if not .Standard}}{{.Module.Path}}\t{{.Module.Dir}}\t{{.Dir}}{{end}}"}
	environment := os.Environ()
	for _, setting := range info.Settings {
		switch setting.Key {
		case "GOOS", "GOARCH", "CGO_ENABLED":
			environment = append(environment, setting.Key+"="+setting.Value)
		case "-tags":
			arguments = append(arguments, "-tags="+setting.Value)
		}
	}
	command := exec.Command("go", append(arguments, info.Path)...)
	command.Env, command.Stderr = environment, os.Stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", info.Path, err)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	goroot := strings.TrimSpace(string(root))
	packages := map[string]map[string]string{standardLibrary: {goroot: goroot}}
	for line := range strings.Lines(string(output)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if packages[fields[0]] == nil {
			packages[fields[0]] = map[string]string{}
		}
		packages[fields[0]][fields[2]] = fields[1]
	}
	return packages, nil
}

// read reads the licences that apply to a package: those in its directory and above.
func (l *licence) read(root, dir string) error {
	for {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if !licenceFile.MatchString(entry.Name()) || entry.IsDir() || filepath.Ext(entry.Name()) == ".go" {
				continue
			}
			path := filepath.Join(dir, entry.Name())
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			inside, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			l.texts[filepath.ToSlash(inside)] = strings.TrimSpace(string(content))
			coverage := licensecheck.Scan(content)
			for _, match := range coverage.Match {
				// SPDX has no licence for grants of patents.
				if coverage.Percent >= recognized && match.ID != "GooglePatentsFile" {
					l.names[match.ID] = true
				}
			}
		}
		if dir == root {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

// notices returns all texts, each once, below the modules that it applies to.
func (l licences) notices() []byte {
	modules := map[string][]string{}
	for module, licence := range l {
		for path, text := range licence.texts {
			modules[text] = append(modules[text], module+" ("+path+")")
		}
	}
	texts := slices.SortedFunc(maps.Keys(modules), func(a, b string) int {
		slices.Sort(modules[a])
		slices.Sort(modules[b])
		return slices.Compare(modules[a], modules[b])
	})
	var out bytes.Buffer
	out.WriteString("These programs contain software of others, under the licences and with the notices below.\n")
	for _, text := range texts {
		fmt.Fprintf(&out, "\n%s\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(modules[text], "\n"), strings.Repeat("-", 80), text)
	}
	return out.Bytes()
}
