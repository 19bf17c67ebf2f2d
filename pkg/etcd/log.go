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
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// newLogger returns a logger for etcd.
func newLogger(level zapcore.LevelEnabler, to klog.Logger) *zap.Logger {
	return zap.New(logCore{LevelEnabler: level, logger: to.WithName("etcd")}, zap.WithFatalHook(fatalHook{}))
}

// silent logs nothing.
func silent() *zap.Logger { return zap.NewNop().WithOptions(zap.WithFatalHook(fatalHook{})) }

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
	values := fieldValues(slices.Concat(c.fields, fields))
	var pairs []any
	for _, key := range slices.Sorted(maps.Keys(values)) {
		pairs = append(pairs, key, values[key])
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

func fieldValues(fields []zapcore.Field) map[string]any {
	encoder := zapcore.NewMapObjectEncoder()
	for _, field := range fields {
		field.AddTo(encoder)
	}
	return encoder.Fields
}

// fatalHook panics where etcd would exit, so that survive can recover.
type fatalHook struct{}

// OnWrite does not return.
func (fatalHook) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	panic(fmt.Sprintf("%s: %v", entry.Message, fieldValues(fields)["error"])) //nolint:forbidigo // It is recovered, or ends the process as etcd does.
}

// survive returns the error of a function of etcd. etcd reports files that it can't use by a panic,
// or to its logger, which exits.
func survive(run func() error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%v", reason)
		}
	}()
	return run()
}
