// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
)

// LogLevel is the least that a node logs.
type LogLevel slog.Level

// LogLevels are the names of levels, the finest first.
func LogLevels() []string { return []string{"debug", "info", "warn", "error"} }

// String is the level's name.
func (l LogLevel) String() string { return strings.ToLower(slog.Level(l).String()) }

// UnmarshalText reads one of the names.
func (l *LogLevel) UnmarshalText(b []byte) error {
	i := slices.Index(LogLevels(), string(b))
	if i < 0 {
		return fmt.Errorf("%.40q: want debug, info, warn or error", b)
	}
	*l = LogLevel(slog.LevelDebug + slog.Level(i)*(slog.LevelInfo-slog.LevelDebug))
	return nil
}

// LogLevelDocument is what a node logs, and how that is changed.
type LogLevelDocument struct {
	Level string `json:"level" doc:"The least that is logged" enum:"debug,info,warn,error"`
}

const logLevelPath = "/v1/debug/log-level"

// LogLevel asks what the node logs.
func (c *Client) LogLevel(ctx context.Context) (LogLevelDocument, error) {
	var d LogLevelDocument
	return d, c.do(ctx, http.MethodGet, logLevelPath, "", nil, &d)
}

// SetLogLevel changes what the node logs, until it is changed again, reloaded or restarted.
func (c *Client) SetLogLevel(ctx context.Context, level string) (LogLevelDocument, error) {
	var d LogLevelDocument
	return d, c.do(ctx, http.MethodPut, logLevelPath, "", LogLevelDocument{Level: level}, &d)
}
