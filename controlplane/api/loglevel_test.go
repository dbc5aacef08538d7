// SPDX-License-Identifier: Apache-2.0

package api

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"margay.dev/wire/control"
	"margay.dev/wire/token"
)

func TestLogLevelChangesWhileTheNodeRuns(t *testing.T) {
	l := newLab(t)
	_, tenant := l.login("tenant", token.Grant{Actions: []token.Action{token.Manage}, Resource: "default/*/*"})
	var got control.LogLevelDocument
	l.do("GET", logLevelPath, l.owner, "").decode(http.StatusOK, &got)
	if got.Level != "debug" {
		t.Fatalf("the level is %q", got.Level)
	}
	for _, method := range []string{"GET", "PUT"} { // the log is of all tenants
		l.do(method, logLevelPath, tenant, `{"level":"error"}`).problem(http.StatusForbidden, "permission_denied")
	}
	for _, bad := range []string{`{"level":"loud"}`, `{"level":"INFO"}`, `{}`, `{"level":"info","for":"1h"}`, `{"level":3}`} {
		l.do("PUT", logLevelPath, l.owner, bad).problem(http.StatusUnprocessableEntity, "bad_request")
	}
	if l.level.Level() != slog.LevelDebug {
		t.Fatalf("a refused change took effect: %v", l.level.Level())
	}
	for _, level := range []string{"error", "warn", "info", "info", "debug"} {
		l.do("PUT", logLevelPath, l.owner, `{"level":"`+level+`"}`).decode(http.StatusOK, &got)
		if got.Level != level || control.LogLevel(l.level.Level()).String() != level {
			t.Errorf("set to %s: answered %q, is %v", level, got.Level, l.level.Level())
		}
	}
	if n := strings.Count(l.log.String(), `"msg":"log level changed"`); n != 4 {
		t.Errorf("%d of 4 changes are in the log:\n%s", n, l.log.String())
	}
	if log := l.log.String(); !strings.Contains(log, `"from":"debug","to":"error","subject":"key/`) {
		t.Errorf("the log does not say who changed what:\n%s", log)
	}
}
