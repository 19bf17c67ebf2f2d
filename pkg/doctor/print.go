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
)

// indent precedes what belongs to the line above. It is as wide as a status.
const indent = "         "

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
			text.WriteString("\n" + inLine(server))
		}
		cause := result.Cause
		if result.Since != "" {
			cause += " (since " + result.Since + ")"
		}
		fmt.Fprintf(&text, "%-7s  %-*s  %s", result.Status, width, printable(result.Check), inLine(cause))
		if result.Fix != "" {
			text.WriteString(indent + "fix: " + inLine(result.Fix))
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

// inLine returns a text in one line.
func inLine(text string) string { return printable(strings.Join(strings.Fields(text), " ")) + "\n" }

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
