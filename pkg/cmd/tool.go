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

// Package cmd has the common code of the commands of a server and of its tools. Each
// command is in a directory of its own.
package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/klog/v2"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver"
)

// FormatJSON is the value of --output for programs.
const FormatJSON = "json"

// ServerFlags returns the flags of a server's command, the flags of its log included, in the
// sections of --help.
func ServerFlags(options *apiserver.Options, logging *logsapi.LoggingConfiguration) cliflag.NamedFlagSets {
	sections := options.Flags()
	logsapi.AddFlags(logging, sections.FlagSet("logs"))
	return sections
}

// AddFlags adds flags to a command, in the sections of --help.
func AddFlags(cmd *cobra.Command, sections cliflag.NamedFlagSets) {
	for _, name := range sections.Order {
		cmd.Flags().AddFlagSet(sections.FlagSet(name))
	}
	width, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, sections, width)
}

// AddToolFlags adds the flags of a tool to its command, and those of the server, whose options the tool takes. The help
// has only the former.
func AddToolFlags(cmd *cobra.Command, own *pflag.FlagSet, options *apiserver.Options) {
	sections := cliflag.NamedFlagSets{}
	sections.FlagSet(own.Name()).AddFlagSet(own)
	AddFlags(cmd, sections)
	server := ServerFlags(options, logsapi.NewLoggingConfiguration()) // It writes no log, but takes these flags.
	for _, name := range server.Order {
		cmd.Flags().AddFlagSet(server.FlagSet(name))
	}
	cmd.Long += "\n\nIt takes the server's flags, too, such as --kubeconfig, --data-dir and --etcd-servers: see the help of the server."
}

// WithOwnHelp gives a command, and those below it, a help of its own instead of the
// server's.
func WithOwnHelp(cmd *cobra.Command) *cobra.Command {
	defaults := &cobra.Command{}
	cmd.SetHelpFunc(defaults.HelpFunc())
	cmd.SetUsageFunc(defaults.UsageFunc())
	return cmd
}

// AsTool makes a command, and those below it, one that does something for an operator and
// ends. It has a help of its own, and prints plain text instead of a server's log.
func AsTool(cmd *cobra.Command) *cobra.Command {
	WithOwnHelp(cmd)
	// This replaces the server's function, which starts the log.
	cmd.PersistentPreRun = func(*cobra.Command, []string) {
		klog.LogToStderr(false)
		klog.SetOutput(io.Discard)
	}
	return cmd
}

// WithEnvironment lets environment variables set the flags of a server's command, and of
// all commands below it. Flags on the command line take precedence. --data-dir of the
// server "apiserver" is APISERVER_DATA_DIR. A pod sets them once for the server and for the
// tools that run beside it.
func WithEnvironment(name string, cmd *cobra.Command) *cobra.Command {
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		return setFromEnvironment(cmd.Flags(), name, os.LookupEnv)
	}
	for _, other := range cmd.Commands() {
		WithEnvironment(name, other)
	}
	return cmd
}

func setFromEnvironment(flags *pflag.FlagSet, name string, lookup func(string) (string, bool)) error {
	var errs []error
	flags.VisitAll(func(flag *pflag.Flag) {
		variable := Variable(name, flag.Name)
		value, found := lookup(variable)
		if !found || flag.Changed {
			return
		}
		if err := flags.Set(flag.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("the environment variable %s can't be used: %w", variable, err))
		}
	})
	return errors.Join(errs...)
}

// Variable returns the name of the environment variable that sets a flag of the server of
// this name.
func Variable(name, flag string) string {
	return strings.ToUpper(strings.ReplaceAll(name+"_"+flag, "-", "_"))
}

// AddFormat adds the flag --output.
func AddFormat(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVarP(format, "output", "o", "", `"json" for programs.`)
}

// CheckFormat returns an error if the value of --output is not one of AddFormat's.
func CheckFormat(format string) error {
	if format != "" && format != FormatJSON {
		return fmt.Errorf("--output must be %q or left out, not %q", FormatJSON, format)
	}
	return nil
}

// PrintJSON prints a value for programs.
func PrintJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
