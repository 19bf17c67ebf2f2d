//go:build !externaletcd

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

package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// newLogger returns a logger for etcd.
func newLogger(level zapcore.LevelEnabler, to klog.Logger) *zap.Logger {
	return zap.New(logCore{LevelEnabler: level, logger: to.WithName("etcd")})
}

// logCore passes etcd's log entries to the server's own log, field by field, so that they
// have its format.
type logCore struct {
	zapcore.LevelEnabler
	logger klog.Logger
	fields []zapcore.Field
}

// With returns a core that adds fields to each entry.
func (c logCore) With(fields []zapcore.Field) zapcore.Core {
	return logCore{c.LevelEnabler, c.logger, slices.Concat(c.fields, fields)}
}

// Check takes part in an entry of a sufficient level.
func (c logCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(entry.Level) {
		return checked
	}
	return checked.AddCore(entry, c)
}

// Write logs an entry.
func (c logCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	values := zapcore.NewMapObjectEncoder()
	for _, field := range slices.Concat(c.fields, fields) {
		field.AddTo(values)
	}
	var pairs []any
	for _, key := range slices.Sorted(maps.Keys(values.Fields)) {
		pairs = append(pairs, key, values.Fields[key])
	}
	logger := c.logger
	if entry.LoggerName != "" {
		logger = logger.WithName(entry.LoggerName)
	}
	if entry.Level >= zapcore.ErrorLevel {
		logger.Error(nil, entry.Message, pairs...)
	} else {
		logger.Info(entry.Message, pairs...)
	}
	return nil
}

// Sync does nothing: the server's own log is flushed at its end.
func (logCore) Sync() error { return nil }

// survive returns the result of a function of etcd, or an error where that would end the
// process. etcd reports files that it can't use by a panic, or to its logger, which exits.
// The function does not stop when told to, and may go on in the background after the context
// has ended.
func survive[T any](ctx context.Context, logger *zap.Logger, run func(*zap.Logger) (T, error)) (T, error) {
	done, failed := make(chan T, 1), make(chan error, 1)
	fail := func(err error) {
		select {
		case failed <- err:
		default: // The first error says more than those that follow from it.
		}
	}
	hook := &fatalHook{fail: fail}
	go func() {
		defer func() {
			if reason := recover(); reason != nil {
				fail(fmt.Errorf("%v", reason))
			}
		}()
		result, err := run(logger.WithOptions(zap.WithFatalHook(hook)))
		if err != nil {
			fail(err)
			return
		}
		hook.returned.Store(true)
		done <- result
	}()
	var none T
	select {
	case result := <-done:
		return result, nil
	case err := <-failed:
		return none, err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// fatalHook handles fatal errors of etcd. It ends the process only if the function of
// survive has returned, and left something running.
type fatalHook struct {
	fail     func(error)
	returned atomic.Bool
}

// OnWrite does not return.
func (h *fatalHook) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	if h.returned.Load() {
		klog.Flush()
		zapcore.WriteThenFatal.OnWrite(entry, fields)
	}
	values := zapcore.NewMapObjectEncoder()
	for _, field := range fields {
		field.AddTo(values)
	}
	err := errors.New(entry.Message)
	if cause, ok := values.Fields["error"]; ok {
		err = fmt.Errorf("%w: %v", err, cause)
	}
	h.fail(err)
	runtime.Goexit()
}
