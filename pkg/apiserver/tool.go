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

package apiserver

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

// formatJSON is the value of --output for what programs read.
const formatJSON = "json"

// withOwnHelp gives a command, and those below it, a help of its own instead of the
// server's.
func withOwnHelp(cmd *cobra.Command) *cobra.Command {
	defaults := &cobra.Command{}
	cmd.SetHelpFunc(defaults.HelpFunc())
	cmd.SetUsageFunc(defaults.UsageFunc())
	return cmd
}

// asTool makes a command, and those below it, one that does something for an
// operator and ends: it has a help of its own, and says what it has to say plainly,
// not as a server's log.
func asTool(cmd *cobra.Command) *cobra.Command {
	withOwnHelp(cmd)
	// Instead of the server's, which is where the log begins.
	cmd.PersistentPreRun = func(*cobra.Command, []string) {
		klog.LogToStderr(false)
		klog.SetOutput(io.Discard)
	}
	return cmd
}

// addFormat adds the flag --output.
func addFormat(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVarP(format, "output", "o", "", `"json" for programs.`)
}

func checkFormat(format string) error {
	if format != "" && format != formatJSON {
		return fmt.Errorf("--output must be %q or left out, not %q", formatJSON, format)
	}
	return nil
}

func printJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
