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

// Package tutorial executes docs/tutorial.md, command by command.
package tutorial

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

const (
	root = "../.."
	// library is the module of this repository, and version what it is released as for the test.
	library, version = "restaurant.programming-kubernetes.info/apiserver", "v0.37.0"
	// ready is the last line of what "make run" says once everything is up.
	ready = "Ctrl-C stops everything."
)

// TestTutorial follows the document as a reader does, from top to bottom. It executes the
// commands, applies the diffs and writes the files. Each command prints what the document
// says.
func TestTutorial(t *testing.T) {
	blocks := read(t, filepath.Join(root, "docs", "tutorial.md"))
	require.Len(t, blocks, count(blocks, "console")+count(blocks, "diff")+count(blocks, "yaml")+count(blocks, "go"), "a block of another language is not tested")
	r := newReader(t)
	for _, block := range blocks {
		switch block.language {
		case "console":
			for _, command := range block.commands(t) {
				r.execute(t, block, command)
			}
		case "diff":
			r.apply(t, block)
		default:
			path := filepath.Join(r.dir(t), block.file)
			require.NoError(t, os.WriteFile(path, []byte(block.text), 0o600))
		}
	}
}

// TestHandwrittenLines bounds what a person writes for the bakery. That is a cluster-scoped
// kind, and a namespaced one with status, scale, defaults, validation, columns, protobuf and
// two versions with a conversion. There are an action, an admission plugin, a controller, and
// the tests of all that, too.
func TestHandwrittenLines(t *testing.T) {
	t.Parallel()
	lines, header := 0, 0
	for _, block := range read(t, filepath.Join(root, "docs", "tutorial.md")) {
		for line := range strings.Lines(block.text) {
			switch {
			case block.language == "console":
			case block.language == "diff" && (!strings.HasPrefix(line, "+") || strings.HasPrefix(line, "+++ ")):
			default:
				lines++
				if strings.Contains(line, "License") || strings.Contains(line, "zz_generated") || strings.Contains(line, "DO NOT EDIT") {
					header++
				}
			}
		}
	}
	t.Logf("%d lines are written by hand", lines)
	require.NotZero(t, lines)
	require.LessOrEqual(t, lines, 250)
	require.Zero(t, header, "headers and generated code are not for people to write")
}

// block is a fenced block of code.
type block struct {
	// line is where it begins, and file the name of what it is the content of.
	line                 int
	language, file, text string
}

var fence = regexp.MustCompile("(?ms)^```([a-z]+)(?: (\\S+))?\n(.*?)^```$") //nolint:gocritic // badRegexp: with (?m), a ^ may be anywhere.

func read(t *testing.T, path string) (blocks []block) {
	t.Helper()
	document, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, found := range fence.FindAllSubmatchIndex(document, -1) {
		group := func(i int) string {
			if found[2*i] < 0 {
				return ""
			}
			return string(document[found[2*i]:found[2*i+1]])
		}
		blocks = append(blocks, block{bytes.Count(document[:found[0]], []byte("\n")) + 1, group(1), group(2), group(3)})
	}
	require.NotEmpty(t, blocks)
	require.Equal(t, 2*len(blocks), strings.Count("\n"+string(document), "\n```"), "a fence is missing")
	return blocks
}

func count(blocks []block, language string) (n int) {
	for _, block := range blocks {
		if block.language == language {
			n++
		}
	}
	return n
}

// command is a line behind a prompt, with what it prints.
type command struct {
	line, want string
	// code is what it exits with.
	code int
}

var exitCode = regexp.MustCompile(`(?m)^\[exit code (\d+)\]\n\z`)

func (b block) commands(t *testing.T) (commands []command) {
	t.Helper()
	before, rest, found := strings.Cut("\n"+b.text, "\n$ ")
	require.True(t, found && before == "", "line %d: no command begins the block", b.line)
	for text := range strings.SplitSeq(rest, "\n$ ") {
		line, want, _ := strings.Cut(text, "\n")
		if want != "" && !strings.HasSuffix(want, "\n") {
			want += "\n"
		}
		c := command{line: line, want: want}
		if code := exitCode.FindStringSubmatch(want); code != nil {
			_, err := fmt.Sscan(code[1], &c.code)
			require.NoError(t, err)
			c.want = strings.TrimSuffix(want, code[0])
		}
		commands = append(commands, c)
	}
	return commands
}

// matches reports whether an output is what the document says, where … stands for anything: alone
// in a line, for any number of lines.
func matches(want, output string) bool {
	var pattern strings.Builder
	for line := range strings.Lines(want) {
		if line == "…\n" {
			pattern.WriteString(`(?:.*\n)*?`)
			continue
		}
		// Columns are as wide as what is in them.
		words := strings.Fields(line)
		for i, word := range words {
			words[i] = strings.ReplaceAll(regexp.QuoteMeta(word), "…", ".*?")
		}
		pattern.WriteString(`[ \t]*` + strings.Join(words, `[ \t]+`) + `[ \t]*\n`)
	}
	if output != "" && !strings.HasSuffix(output, "\n") {
		output += "\n"
	}
	return regexp.MustCompile(`\A` + pattern.String() + `\z`).MatchString(output)
}

// reader follows the document like a person, with a terminal for "make run" and one for the rest.
type reader struct {
	// state is where the working directory and the environment are kept from one command to
	// the next.
	state   string
	env     []string
	running *exec.Cmd
	output  *transcript
	ended   chan struct{}
}

func newReader(t *testing.T) *reader {
	t.Helper()
	r := &reader{state: t.TempDir()}
	work, bin := t.TempDir(), filepath.Join(t.TempDir(), "bin")
	require.NoError(t, os.WriteFile(filepath.Join(r.state, "pwd"), []byte(work), 0o600))
	require.NoError(t, os.Mkdir(bin, 0o700))
	// With the compiler flags of all binaries, what they have in common is compiled once.
	r.env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=", "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false")
	// Others are had as ever. This one is in no database of checksums, and must not stay in the user's cache.
	configured := strings.Split(goCommand(t, "env", "GOMODCACHE", "GOPROXY"), "\n")
	proxies := []string{"file://" + publish(t), "file://" + filepath.Join(configured[0], "cache", "download"), configured[1]}
	r.env = append(r.env, "GOPROXY="+strings.Join(proxies, ","), "GOSUMDB=off", "GOMODCACHE="+t.TempDir())
	// The files of a module cache are read-only.
	clean := exec.CommandContext(context.WithoutCancel(t.Context()), "go", "clean", "-modcache")
	clean.Env = r.env
	t.Cleanup(func() {
		output, err := clean.CombinedOutput()
		require.NoError(t, err, "%s", output)
	})
	// The programs of Kubernetes that there are, but not the server of this repository.
	if dir := os.Getenv(controlplane.BinDirVariable); dir != "" {
		for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kubectl"} {
			require.NoError(t, os.Symlink(filepath.Join(dir, name), filepath.Join(bin, name)))
		}
		r.env = append(r.env, controlplane.BinDirVariable+"="+bin, "PATH="+bin+":"+os.Getenv("PATH"))
	}
	t.Cleanup(func() { r.interrupt(t) })
	return r
}

// publish returns the directory of a module proxy that has the working tree as a release.
func publish(t *testing.T) (proxy string) {
	t.Helper()
	proxy = t.TempDir()
	dir := filepath.Join(proxy, filepath.FromSlash(library), "@v")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for _, name := range moduleFiles(t) {
		content, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		file, err := w.Create(library + "@" + version + "/" + name)
		require.NoError(t, err)
		_, err = file.Write(content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	for name, content := range map[string][]byte{
		"list": []byte(version + "\n"), version + ".info": []byte(`{"Version": "` + version + `"}`),
		version + ".mod": goMod, version + ".zip": archive.Bytes(),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return proxy
}

// moduleFiles returns the files of the working tree that the module's archive has: no links, and nothing of modules in
// it.
func moduleFiles(t *testing.T) (names []string) {
	t.Helper()
	git := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard")
	git.Dir = root
	output, err := git.Output()
	require.NoError(t, err)
	all := strings.Fields(string(output))
	var modules []string
	for _, name := range all {
		if dir, found := strings.CutSuffix(name, "/go.mod"); found {
			modules = append(modules, dir+"/")
		}
	}
	for _, name := range all {
		inModule := slices.ContainsFunc(modules, func(dir string) bool { return strings.HasPrefix(name, dir) })
		// A file that has been deleted is not there.
		if info, err := os.Lstat(filepath.Join(root, name)); err == nil && info.Mode().IsRegular() && !inModule {
			names = append(names, name)
		}
	}
	return names
}

func goCommand(t *testing.T, args ...string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "go", args...).Output()
	require.NoError(t, err)
	return string(output)
}

// dir is the working directory.
func (r *reader) dir(t *testing.T) string {
	t.Helper()
	dir, err := os.ReadFile(filepath.Join(r.state, "pwd"))
	require.NoError(t, err)
	return strings.TrimSpace(string(dir))
}

// shell is a shell that goes on where the one before has ended.
func (r *reader) shell(ctx context.Context, dir, line string) *exec.Cmd {
	script := `cd "$1"; [ ! -e "$0/env" ] || . "$0/env"; trap 'code=$?; pwd >"$0/pwd"; export -p >"$0/env"; exit $code' EXIT` + "\n" + line
	shell := exec.CommandContext(ctx, "bash", "-c", script, r.state, dir)
	shell.Env = r.env
	return shell
}

func (r *reader) execute(t *testing.T, b block, c command) {
	t.Helper()
	began := time.Now()
	where := fmt.Sprintf("line %d of the document: %s", b.line, c.line)
	if c.line == "make run" {
		r.run(t, where, c)
	} else {
		output, err := r.shell(t.Context(), r.dir(t), c.line).CombinedOutput()
		code := 0
		if exit := (&exec.ExitError{}); errors.As(err, &exit) {
			code = exit.ExitCode()
		} else {
			require.NoError(t, err, where)
		}
		require.Equal(t, c.code, code, "%s\n%s", where, output)
		require.True(t, matches(c.want, string(output)), "%s\nprinted\n%s\nbut the document says\n%s", where, output, c.want)
	}
	t.Logf("%5.1f s: %s", time.Since(began).Seconds(), c.line)
}

// apply applies a diff as it is in the document: a line of context that is not there any more is
// a failure.
func (r *reader) apply(t *testing.T, b block) {
	t.Helper()
	git := exec.CommandContext(t.Context(), "git", "apply", "-")
	git.Dir, git.Stdin = r.dir(t), strings.NewReader(b.text)
	output, err := git.CombinedOutput()
	require.NoError(t, err, "line %d of the document: %s", b.line, output)
}

// run starts "make run", after Ctrl-C if it is running already.
func (r *reader) run(t *testing.T, where string, c command) {
	t.Helper()
	r.interrupt(t)
	shell := r.shell(context.WithoutCancel(t.Context()), r.dir(t), "exec make run")
	// As a terminal does: the signal is for all of them.
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r.running, r.output, r.ended = shell, &transcript{}, make(chan struct{})
	shell.Stdout, shell.Stderr = r.output, r.output
	require.NoError(t, shell.Start())
	go func() {
		defer close(r.ended)
		_ = shell.Wait() // It ends because of a signal.
	}()
	for !strings.Contains(r.output.String(), ready) {
		select {
		case <-r.ended:
			r.running = nil
			require.Failf(t, "it ended", "%s:\n%s", where, r.output)
		case <-t.Context().Done():
			require.NoError(t, t.Context().Err(), where)
		case <-time.After(100 * time.Millisecond):
		}
	}
	require.True(t, matches(c.want, r.output.String()), "%s\nprinted\n%s\nbut the document says\n%s", where, r.output, c.want)
}

func (r *reader) interrupt(t *testing.T) {
	t.Helper()
	if r.running == nil {
		return
	}
	if t.Failed() {
		t.Logf("make run:\n%s", r.output)
	}
	require.NoError(t, syscall.Kill(-r.running.Process.Pid, syscall.SIGINT))
	<-r.ended
	r.running = nil
}

// transcript is what a process that goes on has printed so far.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(p)
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

func TestMatches(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		want, output string
		matches      bool
	}{
		"nothing":              {"", "", true},
		"something":            {"", "a\n", false},
		"the same":             {"a b\n", "a b\n", true},
		"other columns":        {"a b\n", "a    b  \n", true},
		"another word":         {"a b\n", "a c\n", false},
		"a line more":          {"a\n", "a\nb\n", false},
		"any lines":            {"…\nb\n…\n", "a\na\nb\n", true},
		"none of them":         {"…\nb\n…\n", "a\na\n", false},
		"a part of a line":     {"a … c\n", "a b b c\n", true},
		"not a part of it":     {"a … c\n", "a b b\n", false},
		"no newline":           {"a\n", "a", true},
		"special characters":   {"[a]{1}…\n", "[a]{1}b\n", true},
		"an ellipsis in words": {"{…\"kind\":\"Sell\"…}\n", "{\"a\":1,\"kind\":\"Sell\",\"b\":2}\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.matches, matches(test.want, test.output))
		})
	}
}
