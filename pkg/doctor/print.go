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

package doctor

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// columns bounds the lines that Print writes, except for commands and long words.
	columns = 100
	// indent precedes what belongs to the line above. It is as wide as a status.
	indent = "         "
)

// Print writes each result with its fix and its command below. The name of a server precedes its
// results. What comes from servers and objects can't control a terminal.
func Print(out io.Writer, results []Result) error {
	width, server := 0, ""
	for _, result := range results {
		width = max(width, len(result.Check))
	}
	var text strings.Builder
	for _, result := range results {
		if result.Server != server {
			server = result.Server
			text.WriteString("\n" + wrapped("", server))
		}
		cause := result.Cause
		if result.Since != "" {
			cause += " (since " + result.Since + ")"
		}
		text.WriteString(wrapped(fmt.Sprintf("%-7s  %-*s  ", result.Status, width, printable(result.Check)), cause))
		if result.Fix != "" {
			text.WriteString(wrapped(indent+"fix: ", result.Fix))
		}
		if result.Command != "" {
			text.WriteString(indent + "  " + printable(result.Command) + "\n")
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// Summary counts results by their status.
func Summary(results []Result) string {
	counts := map[Status]int{}
	for _, result := range results {
		counts[result.Status]++
	}
	return fmt.Sprintf("%s, %s, %d skipped, %d ok", plural(counts[Failure], "failure"), plural(counts[Warning], "warning"), counts[Skipped], counts[OK])
}

// wrapped returns a text in lines of at most columns. The first begins with head, and the others
// with indent.
func wrapped(head, text string) string {
	var lines strings.Builder
	line, empty := head, true
	for _, word := range strings.Fields(text) {
		word = printable(word)
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > columns {
			lines.WriteString(line + "\n")
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	return lines.String() + line + "\n"
}

// printable returns a text with escapes for everything that could control a terminal, or hide
// something.
func printable(text string) string {
	var out strings.Builder
	for _, r := range text {
		if unicode.IsGraphic(r) {
			out.WriteRune(r)
			continue
		}
		out.WriteString(strings.Trim(strconv.QuoteRuneToGraphic(r), "'"))
	}
	return out.String()
}

// plain matches words that a shell takes as they are.
var plain = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// kubectl returns a command of kubectl with quoted arguments, for a shell. All commands of
// findings are built by it. If an argument can't be printed in a line, it returns no command.
func kubectl(args ...string) string {
	words := []string{"kubectl"}
	for _, arg := range args {
		if strings.ContainsFunc(arg, func(r rune) bool { return !unicode.IsGraphic(r) }) {
			return ""
		}
		flag, value, found := strings.Cut(arg, "=")
		switch {
		case plain.MatchString(arg):
			words = append(words, arg)
		case found && strings.HasPrefix(flag, "--") && plain.MatchString(flag):
			words = append(words, flag+"="+quoted(value))
		default:
			words = append(words, quoted(arg))
		}
	}
	return strings.Join(words, " ")
}

func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
