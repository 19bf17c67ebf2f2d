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
	"context"
	"errors"
	"fmt"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
)

// Run starts a server with these options and returns when it has stopped.
func (o *Options) Run(ctx context.Context) (err error) {
	var errs []error
	if err := logsapi.ValidateAndApply(o.Logs, o.featureGate()); err != nil {
		errs = append(errs, fmt.Errorf("--logging-format, or another flag of the logs: %w", err))
	}
	klog.InfoS("Starting", "version", version.Get().GitVersion)
	// The warnings that this server sends are for its users, not for its own log.
	// Upstream fault 53.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})

	completed, err := o.Complete()
	if err != nil {
		return err
	}
	if errs = append(errs, completed.Validate()...); len(errs) > 0 {
		return utilerrors.NewAggregate(errs)
	}
	dependencies, err := completed.start(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil // It is no failure to be told to stop while waiting.
		}
		return err
	}
	// The server is the last user of what it depends on.
	defer func() { err = errors.Join(err, dependencies.Close()) }()

	config, err := completed.Config()
	if err != nil {
		return err
	}
	if err := dependencies.applyTo(&config.Generic.Config); err != nil {
		return err
	}
	server, err := config.Complete().New()
	if err != nil {
		return err
	}
	return server.Run(dependencies.context(ctx))
}
