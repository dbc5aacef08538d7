// SPDX-License-Identifier: Apache-2.0

// Package logs turns the documents of the API into changes of the catalog; it touches the catalog only, and answers
// every failure with a code, a document that makes no sense with all of its problems.
package logs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"margay.dev/controlplane/catalog"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// Service works on the logs of a catalog, one preset at a time: to who asks for a log of one preset, those of the others
// are not there, but that they have their names.
type Service struct {
	Store  catalog.Logs
	Leader string // the node that every shard is given to
	Wall   func() time.Time
}

// Create creates a log, or finds the same one there already. Another one of that name is code.AlreadyExists, with the
// settings in which they differ.
func (s *Service) Create(ctx context.Context, preset, tenant, namespace string, spec control.LogSpec) (l control.Log, created bool, err error) {
	want, problems := spec.Log(preset, tenant, namespace)
	if len(problems) > 0 {
		return control.Log{}, false, refuse(code.BadRequest, "the "+preset+" makes no sense", problems)
	}
	want.ID, want.CreatedAt = batch.NewLogID(), s.Wall().UTC()
	have, err := s.Store.Create(ctx, want, s.Leader)
	switch {
	case err == nil:
		return have, true, nil
	case !errors.Is(err, catalog.ErrExists):
		return control.Log{}, false, Coded(err)
	case have.Preset != preset:
		return control.Log{}, false, code.New(code.AlreadyExists, "%s is the name of a %s, and of nothing else in its namespace", want.FullName(), have.Preset)
	}
	if differ := control.SettingsDiffer(&have, &want); len(differ) > 0 {
		return control.Log{}, false, refuse(code.AlreadyExists, fmt.Sprintf("%s %s exists with other settings", preset, want.FullName()), differ)
	}
	return have, false, nil
}

// Get gets a log.
func (s *Service) Get(ctx context.Context, preset string, n catalog.Name) (control.Log, error) {
	l, err := s.Store.Log(ctx, n)
	if err == nil {
		err = is(preset)(&l)
	}
	if err != nil {
		return control.Log{}, Coded(err)
	}
	return l, nil
}

// List gets a page of the logs of all presets.
func (s *Service) List(ctx context.Context, tenant, namespace, after string, limit int) ([]control.Log, error) {
	page, err := s.Store.List(ctx, tenant, namespace, after, limit)
	return page, Coded(err)
}

// Update changes what the patch names; version 0 means whatever the log is at.
func (s *Service) Update(ctx context.Context, preset string, n catalog.Name, version uint64, patch control.LogPatch) (control.Log, error) {
	l, err := s.Store.Update(ctx, n, version, func(l *control.Log) error {
		if err := is(preset)(l); err != nil {
			return err
		}
		if problems := patch.Apply(l); len(problems) > 0 {
			return refuse(code.BadRequest, "the change makes no sense", problems)
		}
		return nil
	})
	return l, Coded(err)
}

// Delete deletes a log; version as in Update.
func (s *Service) Delete(ctx context.Context, preset string, n catalog.Name, version uint64) error {
	return Coded(s.Store.Delete(ctx, n, version, is(preset)))
}

// is refuses a log of another preset. Who is told of it may manage what has the name.
func is(preset string) func(*control.Log) error {
	return func(l *control.Log) error {
		if l.Preset == preset {
			return nil
		}
		return code.New(code.NotFound, "%s is a %s, no %s: ask for it among the %ss", l.FullName(), l.Preset, preset, l.Preset)
	}
}

// InvalidError is a refusal with everything that it is for.
type InvalidError struct {
	What     string
	Problems []control.Problem
	coded    *code.Error
}

func refuse(c code.Code, what string, problems []control.Problem) *InvalidError {
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	return &InvalidError{What: what, Problems: problems, coded: code.New(c, "%s: %s", what, strings.Join(lines, "; "))}
}

// Error lists all problems in one line.
func (e *InvalidError) Error() string { return e.coded.Error() }

// Unwrap is the error with its code.
func (e *InvalidError) Unwrap() error { return e.coded }

// Coded gives a failure of the catalog the code under which it leaves the control plane. The cause stays inside.
func Coded(err error) error {
	var coded *code.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &coded):
		return err
	case errors.Is(err, catalog.ErrNotFound):
		return code.New(code.NotFound, "%w", err)
	case errors.Is(err, catalog.ErrExists):
		return code.New(code.AlreadyExists, "%w", err)
	case errors.Is(err, catalog.ErrVersion), errors.Is(err, catalog.ErrForeign):
		return code.New(code.Conflict, "%w", err)
	case errors.Is(err, catalog.ErrClosed):
		return code.New(code.ShuttingDown, "%w", err)
	case errors.Is(err, catalog.ErrUncertain):
		return code.New(code.OutcomeUnknown, "%w", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return code.New(code.StorageFull, "%w", err)
	}
	return code.From(err)
}
